"""Speculative decoding of one batch: drafts for its calls, and what became of them.

A step tries drafted tokens as further rows of a call, as if they were a part of its prompt. Each
row is drawn from as it would be in a step of its own; the call goes on to the next one while what
was drawn is what was drafted. So a step gives every call its next token, and mostly more. Under
`coupled` it also tries what may come instead, where that pays: see `sides`.

Knows no model, no tensors and no pages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

from ttc.config import Acceptance
from ttc.engine.local.call import Call
from ttc.engine.local.curve import Curve
from ttc.engine.local.drafting.budget import MOST_DRAFTS, DraftBudget
from ttc.engine.local.drafting.draft import Draft, Drafter, Proposal, Trial, Wish
from ttc.engine.local.drafting.survival import Record, Survival
from ttc.engine.local.sequence import Sequence

__all__ = ["Speculation"]

_REST = 128
"""Steps after which a few tokens are tried though they do not seem to pay: the machine may have
been busy when it was measured what rows take."""


class Speculation:
    """Drafts for the calls of a batch. It belongs to the engine's thread.

    Args:
        drafter: who guesses.
        acceptance: by what rule guesses become tokens.
        curve: how long the model's steps take.
    """

    def __init__(self, drafter: Drafter, acceptance: Acceptance, curve: Curve) -> None:
        self._drafter, self._curve = drafter, curve
        self._decides = acceptance == "maximal"
        self.numerics = f" maximal({drafter.name})" if self._decides else ""
        """What results depend on besides the model."""
        self._survival = Survival(drafter.priors)
        self._unused = 0  # steps since anything was tried
        self._records: dict[Sequence, Record] = {}
        self._guessed: dict[Sequence, tuple[int, Draft]] = {}  # from which token on

    def draft(self, calls: Seq[Sequence], *, alone: bool) -> Trial:
        """What a step tries beside the next token of each of these calls.

        Args:
            calls: those that a token is drawn for.
            alone: whether nothing else is computed. Beside prompts nothing is tried: they take the
                time that it would be for.
        """
        if not calls or not (alone or self._decides):
            return Trial()
        begun = time.perf_counter()
        for call in calls:
            self._learn(call)
        budget = DraftBudget(self._curve, self._survival, [len(call.tokens) for call in calls])
        rooms = [min(MOST_DRAFTS, call.draft_room) if alone else 0 for call in calls]
        records = [self._records.setdefault(call, Record()) for call in calls]
        wishes = [
            Wish(call, room + 1 if self._decides else max(room, 1), record.factor)
            for call, room, record in zip(calls, rooms, records, strict=True)
        ]
        drafts = self._drafter.draft(wishes, budget)
        seconds = time.perf_counter() - begun
        trunks, sides = list[_Chain](), list[_Chain]()
        for wish, room, draft in zip(wishes, rooms, drafts, strict=True):
            self._guessed[wish.call] = len(wish.call.tokens), draft
            # By the rejection rule each row needs to know what was proposed to follow it.
            most = min(room, len(draft.tokens) - 1) if self._decides else room
            trunk, *others = _chains(budget, wish, draft, most)
            trunks.append(trunk)
            sides += others if not self._decides else ()
        counts = self._counts(budget, trunks, sides, seconds)
        rows: dict[Call, Seq[int]] = {}
        beside: dict[Call, list[Seq[int]]] = {}
        for (call, tokens, _), count in zip([*trunks, *sides], counts, strict=True):
            legal = call.num_triable(tokens[:count])
            if legal and call in rows:
                beside.setdefault(call, []).append(tokens[:legal])
            elif legal:
                rows[call] = tokens[:legal]
        proposals: dict[Sequence, Seq[Proposal]] = {}
        for call, draft in zip(calls, drafts, strict=True):
            if self._decides and draft.tokens:
                proposals[call] = draft.proposals(len(rows.get(call, ())) + 1)
        return Trial(rows=rows, sides=beside, proposals=proposals, seconds=seconds)

    def _counts(
        self, budget: DraftBudget, trunks: Seq[_Chain], sides: Seq[_Chain], seconds: float
    ) -> Seq[int]:
        """How many tokens of each chain to try."""
        chances = [chain.chances for chain in trunks]
        counts = budget.choose(chances, seconds, [chain.chances for chain in sides])
        self._unused = 0 if any(counts) else self._unused + 1
        if self._unused < _REST:
            return counts
        self._unused = 0
        return [*budget.probe(chances), *[0] * len(sides)]

    def forget(self, calls: Iterable[Sequence]) -> None:
        """Calls have left the batch."""
        calls = list(calls)
        self._drafter.forget(calls)
        for call in calls:
            self._records.pop(call, None)
            self._guessed.pop(call, None)

    def _learn(self, call: Sequence) -> None:
        """Compares what was guessed with what has come."""
        guess = self._guessed.pop(call, None)
        if guess is not None:
            start, draft = guess
            came = call.tokens[start:]
            self._survival.note(self._records[call], draft.tokens, draft.kinds, came)
            for before, other in pairwise(draft.chains):
                if before.tokens[:1] == came[:1]:
                    break
                self._survival.note_other(other.tokens, other.kinds, came)


class _Chain(NamedTuple):
    """Tokens that may come next, one after another."""

    call: Sequence
    tokens: Seq[int]
    chances: list[float]
    """That its first, its first two, ... tokens come true."""


def _chains(budget: DraftBudget, wish: Wish, draft: Draft, most: int) -> list[_Chain]:
    """The chains of a draft; at least one."""
    found, rest = list[_Chain](), 1.0  # the chance that no chain has come true
    for each in draft.chains:
        own = (budget.chance(kind, wish.likely) for kind in each.kinds[:most])
        _, *chances = accumulate(own, mul, initial=rest)
        found.append(_Chain(wish.call, each.tokens, chances))
        rest -= chances[0] if chances else 0.0
    return found
