"""Drafts by a smaller model of the same vocabulary, with keys and values in a tree of its own.

It draws by the calls' own sampling: under `coupled` by the call's own noise for that position, so
that both models mostly draw the same token; under `maximal` by noise of its own. Penalties and
constraints are left to the model itself.

How many calls it drafts for, and how far, follows from what its own steps take, what the model's
rows take, how likely its guesses are, and what is left to read of a call before the first of them:
so it rests in wide batches, and looks again now and then whether its guesses have become better.

*Cost:* a step of the draft model for each token of the longest draft, and each prompt once. What
has come of a call since is read in the step that drafts its next token.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

import torch

from ttc.config import Acceptance
from ttc.engine.local.curve import Curve, Load
from ttc.engine.local.drafting.budget import MOST_DRAFTS, DraftBudget
from ttc.engine.local.drafting.draft import Draft, Wish
from ttc.engine.local.kv import KVPool
from ttc.engine.local.model import Model
from ttc.engine.local.page import Path, common_length
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.sample import Draw
from ttc.engine.local.sequence import Sequence
from ttc.engine.local.tree import RadixTree
from ttc.engine.local.warmup import warm_up_well
from ttc.errors import MemoryExhausted
from ttc.types import Sampling

__all__ = ["DraftModel"]

_KINDS = 8  # by the probability that the draft model itself gives to a token; as many again of what
# it would draw instead
_MOST_PROMPT = 256  # rows of prompts in a step
_FIRST = 4  # steps that draft before anything is known
_WORTH_WAITING = 32  # tokens of a prompt that siblings read but once
_REST = range(8, 257)  # steps after which it looks whether it would pay: twice as many if it is no
# better than when it last looked
_SURE = 0.95  # what guesses may become; where that does not pay, there is no need to look
_MARGIN = 1.1  # by how much drafting must be better than not: times of two models are estimates
_OWN_NOISE = 0x5851F42D4C957F2D


@dataclass(kw_only=True)
class _Held:
    """What the draft model has of a call."""

    path: Path
    sampling: Sampling
    written: list[int] = field(default_factory=list)
    """Drafted tokens whose keys and values lie after those of the path."""


@dataclass(kw_only=True)
class _Open:
    """A draft that is being made."""

    wish: Wish
    held: _Held
    draft: Draft
    survival: float = 1.0
    """The chance that all of its tokens come true."""
    gained: float = 0.0
    """How many of them do, on average."""
    is_over: bool = False
    """Whether nothing can be drawn of what follows."""

    @property
    def is_short(self) -> bool:
        """Whether it may grow."""
        return not self.is_over and len(self.draft.tokens) < self.wish.most

    @property
    def is_read(self) -> bool:
        """Whether all tokens of its call are computed."""
        return self.held.path.length == len(self.wish.call.tokens)


class DraftModel:
    """Drafts by a model.

    Args:
        model: what drafts.
        name: the model, as results name it.
        unsampled: tokens that are never drawn.
        acceptance: by what rule its drafts are accepted.
    """

    priors = tuple((kind + 0.5) / _KINDS for kind in range(_KINDS)) * 2

    def __init__(
        self, model: Model, *, name: str, unsampled: Iterable[int], acceptance: Acceptance
    ) -> None:
        self.name, self._model = name, model
        self.page_bytes = KVPool.page_bytes(model.costs)
        self._decides = acceptance == "maximal"
        known = (token for token in sorted(unsampled) if token < model.config.vocab)
        self._unsampled = torch.tensor(list(known), dtype=torch.int64)
        self.curve = Curve(model.costs)
        """How long its steps take."""
        self.curve.start(warm_up_well(model))
        self._held: dict[Sequence, _Held] = {}
        self._rested, self._rest, self._usual, self._drafted = 0, _REST[0], 0.0, 0
        self.steps = self.rows = 0
        """What it has computed: steps, and tokens in them."""

    def reserve(self, num_pages: int) -> None:
        """The model has so many pages; this one gets as many."""
        self.tree = RadixTree(num_pages, PAGE, known_bytes=0)
        self._pool = self._model.make_pool(num_pages)

    def forget(self, calls: Iterable[Sequence]) -> None:
        """Calls have left the batch; what was computed of them may be found again."""
        for call in calls:
            if call in self._held:
                self._settle(call, self._held[call])
                self.tree.release(self._held.pop(call).path)

    def draft(self, wishes: Seq[Wish], budget: DraftBudget) -> list[Draft]:
        """A draft for each wish, of those that it pays to draft for."""
        depth = max(wish.most for wish in wishes)
        chosen = list(wishes)
        if not self._decides:
            chosen, depth = self._plan(wishes, budget)
        started = self._begin(chosen, budget)
        going = list(started.values())
        for _ in range(depth - 1):
            going = [one for one in going if one.is_short and self._has_room(one)]
            if not going or not self._pays(going, started.values(), budget):
                break
            self._compute([(one, one.draft.tokens[-1:]) for one in going], budget)
        return [started[w.call].draft if w.call in started else Draft() for w in wishes]

    def _plan(self, wishes: Seq[Wish], budget: DraftBudget) -> tuple[list[Wish], int]:
        """For which calls to draft, and how far at most."""
        self._drafted += 1
        ordered = sorted(wishes, key=lambda wish: -wish.likely)
        size = self._best(ordered, [budget.usual(wish.likely) for wish in ordered], budget)
        if size:
            self._rested, self._rest = 0, _REST[0]
            return ordered[:size], MOST_DRAFTS
        if self._drafted > _FIRST:
            self._rested += 1
            if self._rested < self._rest:
                return [], 0
            usual = budget.usual(1.0)
            is_better = usual > self._usual  # than when it last looked
            self._rest = _REST[0] if is_better else min(2 * self._rest, _REST[-1])
            self._rested, self._usual = 0, usual
        readiest = sorted(ordered, key=lambda wish: self._unread(wish.call))
        pays = self._best(readiest, [_SURE] * len(ordered), budget) > 0
        return readiest[:pays], int(pays)

    def _best(self, wishes: Seq[Wish], chances: Seq[float], budget: DraftBudget) -> int:
        """For how many of these calls to draft, the first ones, if tokens have these chances."""
        best, found = _MARGIN * budget.num_calls / budget.plain_s, 0
        for size in sorted({len(wishes) >> shift for shift in range(len(wishes).bit_length())}):
            calls = [wish.call for wish in wishes[:size]]
            step_s, reading_s, gained = self._seconds(calls), None, 0.0
            for depth in range(1, MOST_DRAFTS + 1):
                gained += sum(chance**depth for chance in chances[:size])
                tokens, seconds = budget.num_calls + gained, budget.seconds(size * depth)
                seconds += depth * step_s
                if tokens / seconds > best:  # what is left to read makes it no better
                    reading_s = self._reading_s(calls) if reading_s is None else reading_s
                    rate = tokens / (seconds + reading_s * (1 + gained / size))
                    best, found = max((best, found), (rate, size))
        return found

    def _seconds(self, calls: Seq[Sequence]) -> float:
        """How long a step of one token of each takes."""
        seen = sum(len(call.tokens) for call in calls)
        return self.curve(Load(rows=len(calls), draws=len(calls), seen=seen))

    def _unread(self, call: Sequence) -> int:
        """How many tokens it has to read of a call before it can guess."""
        held = self._held.get(call)
        read = self.tree.match(call.tokens, call.salt).length if held is None else held.path.length
        return len(call.tokens) - read

    def _reading_s(self, calls: Seq[Sequence]) -> float:
        """What is to be read of calls takes so long, in parts for each of their tokens to come."""
        found = 0.0
        for call in calls:
            if (unread := self._unread(call)) >= _WORTH_WAITING:
                load = Load(rows=unread, draws=0, seen=unread * len(call.tokens) // 2)
                found += self.curve(load) / max(1, call.limit - call.num_output)
        return found

    def _pays(self, going: Seq[_Open], started: Iterable[_Open], budget: DraftBudget) -> bool:
        """Whether one more token of these drafts is worth its time, if their tokens are tried."""
        started = list(started)
        longest = max(len(one.draft.tokens) for one in started)
        step_s = self._seconds([one.wish.call for one in going])
        tried = sum(len(one.draft.tokens) for one in started)
        expected = budget.num_calls + sum(one.gained for one in started)
        seconds = budget.seconds(tried) + longest * step_s
        more = sum(one.survival * budget.usual(one.wish.likely) for one in going)
        later = budget.seconds(tried + len(going)) + (longest + 1) * step_s
        return (expected + more) / later > expected / seconds

    def _hold(self, call: Sequence) -> _Held | None:
        """What it has of a call, up to what has come true; `None` where it has no room."""
        held = self._held.get(call)
        if held is not None:
            self._settle(call, held)
            return held
        try:
            path = self.tree.join(self.tree.match(call.tokens, call.salt))
        except MemoryExhausted:
            self._give_up()
            return None
        sampling = replace(
            call.request.sampling,
            logprobs=0,
            entropy=False,
            constraint=None,
            logit_bias=(),
            repetition_penalty=None,
            presence_penalty=None,
            frequency_penalty=None,
        )
        held = self._held[call] = _Held(path=path, sampling=sampling)
        return held

    def _give_up(self) -> None:
        """There is no page; where drafts decide results, that is an error."""
        if self._decides:
            raise MemoryExhausted(
                "the draft model has no memory for keys and values left; load the engine with a "
                "greater kv_bytes",
                retryable=True,
            )

    def _settle(self, call: Sequence, held: _Held) -> None:
        """Keeps what was drafted and came true, and gives the rest back."""
        came = call.tokens[held.path.length : -1]
        self.tree.record(held.path, came[: common_length(held.written, came)])
        held.written.clear()
        self.tree.cut_back(held.path)

    def _has_room(self, one: _Open) -> bool:
        """Gives a path the pages of one more token, if there are any."""
        held = one.held
        end = max(held.path.length + len(held.written) + 1, len(one.wish.call.tokens))
        if end > self._model.config.context:
            return False
        try:
            self.tree.grow(held.path, end)
        except MemoryExhausted:
            self._give_up()
            return False
        return True

    def _begin(self, wishes: Seq[Wish], budget: DraftBudget) -> dict[Sequence, _Open]:
        """Reads what calls have that it has not, and drafts a token for those that are read.

        Mostly that is one token, or two where all drafts have come true: so it takes one step.
        """
        begun: dict[Sequence, _Open] = {}
        while wishes:
            room, rows = _MOST_PROMPT, list[tuple[_Open, Seq[int]]]()
            later = list[Wish]()
            for wish in sorted(wishes, key=lambda wish: wish.call not in self._held):
                if not room or self._is_about_to_be_read(wish.call, rows):
                    later.append(wish)
                elif (held := self._hold(wish.call)) is not None:
                    one = _Open(wish=wish, held=held, draft=Draft())
                    if self._has_room(one):
                        tokens = wish.call.tokens[held.path.length :][:room]
                        rows.append((one, tokens))
                        room -= len(tokens)
            if rows:
                self._compute(rows, budget)
            begun |= {one.wish.call: one for one, _ in rows if one.draft.tokens}
            later += [one.wish for one, _ in rows if not one.is_read]
            wishes = later if self._decides else ()
        return begun

    def _is_about_to_be_read(self, call: Sequence, rows: Seq[tuple[_Open, Seq[int]]]) -> bool:
        """Whether a step reads what this call could have of it for nothing, as siblings do."""
        if call in self._held:
            return False
        read = [
            one.wish.call.tokens
            for one, tokens in rows
            if len(tokens) >= _WORTH_WAITING and one.wish.call.salt == call.salt
        ]
        if not read:
            return False
        most = max(common_length(call.tokens, tokens) for tokens in read)
        return most - self.tree.match(call.tokens, call.salt).length >= _WORTH_WAITING

    def _compute(self, rows: Seq[tuple[_Open, Seq[int]]], budget: DraftBudget) -> None:
        """Computes the next tokens of calls; adds one to the draft of each that ends with them."""
        token_ids, spans = list[int](), list[Span]()
        draws, drawers, wanted = list[Draw](), list[_Open](), list[int]()
        for one, tokens in rows:
            call, held = one.wish.call, one.held
            span = Span(held.path.table, held.path.length + len(held.written), len(tokens))
            spans.append(span)
            token_ids += tokens
            if span.positions.stop == len(call.tokens) + len(one.draft.tokens):
                seed = call.request.seed ^ (_OWN_NOISE if self._decides else 0)
                draws.append(Draw(held.sampling, seed, span.positions.stop))
                drawers.append(one)
                wanted.append(len(token_ids) - 1)
        begun = time.perf_counter()
        logits = self._forward(token_ids, spans, wanted)
        drawn = self._model.draw(logits, draws) if draws else None
        seen = sum(sum(span.positions) + span.count for span in spans)
        load = Load(rows=len(token_ids), draws=len(draws), seen=seen)
        self.curve.note(load, time.perf_counter() - begun)
        self.steps, self.rows = self.steps + 1, self.rows + len(token_ids)
        for one, tokens in rows:
            if one.draft.tokens:
                one.held.written += tokens
            else:
                self.tree.record(one.held.path, tokens)
        for row, one in enumerate(drawers):
            assert drawn is not None
            if row in drawn.faults:
                one.is_over = True
                continue
            kind = _kind(drawn.logprobs[row])
            chance = budget.chance(kind, one.wish.likely)
            if not (one.draft.tokens or self._decides) and 1 - chance > budget.floor:
                logits[row, drawn.token_ids[row]] = -torch.inf
                one.draft = Draft(other=self._drawn_else(logits[row : row + 1], draws[row]))
            one.draft.tokens.append(drawn.token_ids[row])
            one.draft.kinds.append(kind)
            one.survival *= chance
            one.gained += one.survival
            if self._decides:
                one.draft.logits.append(logits[row].clone())

    def _drawn_else(self, rest: torch.Tensor, draw: Draw) -> Draft | None:
        """What the call's noise draws of the tokens that are left, if any are."""
        drawn = self._model.draw(rest, [draw])
        if drawn.faults:
            return None
        kind = _KINDS + _kind(drawn.logprobs[0])  # by its part of what is left
        return Draft(tokens=drawn.token_ids, kinds=[kind])

    def _forward(self, token_ids: Seq[int], spans: Seq[Span], wanted: Seq[int]) -> torch.Tensor:
        """Runs the model; returns the logits of the wanted rows."""
        if self.tree.copies:
            self._pool.copy([(source, page.place) for page, source in self.tree.copies.items()])
            self.tree.copies.clear()
        rows = torch.tensor(wanted, dtype=torch.int64)
        logits = self._model.forward(torch.tensor(token_ids), Plan(spans), self._pool, rows)
        if len(self._unsampled) and wanted:
            logits.index_fill_(1, self._unsampled, -torch.inf)
        return logits


def _kind(logprob: float) -> int:
    """The kind of a token that the draft model gives this log probability to."""
    return min(_KINDS - 1, int(math.exp(min(0.0, logprob)) * _KINDS))
