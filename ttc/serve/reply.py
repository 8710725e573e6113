"""Replies: what the outcomes of a request are to a client of OpenAI's API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttc.constraints import Schema
from ttc.ports import Engine
from ttc.registry import lookup
from ttc.resources import RESERVED
from ttc.serve.ask import Ask
from ttc.serve.job import Job
from ttc.serve.refusal import Refusal, invalid, unsupported
from ttc.serve.share import speller
from ttc.serve.thoughts import split
from ttc.serve.tools import calls_of
from ttc.types import Branch, Candidate, Outcome, Usage

__all__ = ["Choice", "Token", "by_id", "choices_of", "namer", "told_of", "tops_of", "usage_of"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One answer of a reply."""

    index: int
    content: str
    thought: str
    finish_reason: str
    num_tokens: int
    """Output tokens of its content."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """Its calls of the client's tools, in the API's form."""
    tokens: tuple[Token, ...] | None = None
    """Its tokens with their log probabilities, where they were asked for."""
    token_ids: tuple[int, ...] | None = None
    """The ids of all that follows the prompt, where they were asked for. `None` where an engine
    does not know them, and where the answer goes on from another prompt than the request's."""
    outcome: Outcome = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token, as a client reads it."""

    text: str
    logprob: float | None
    top: tuple[tuple[str, float], ...] = ()
    """The most probable ones in its place."""
    id: int
    is_thought: bool = False


async def choices_of(job: Job, outcomes: Sequence[Outcome]) -> list[Choice]:
    """The choices of a job that has ended.

    Raises:
        Refusal: there is nothing to return, or not what was asked for.
    """
    choices = []
    for index in range(job.num_choices):
        outcome = outcomes[index if job.plain is None else index // job.ask.n]
        candidate = _chosen(job, outcome, index % job.ask.n)
        choices.append(await _choice(job, outcome, candidate, index))
    if job.ask.constraint is not None:
        await _check_form(job, choices)
    return choices


def _chosen(job: Job, outcome: Outcome, index: int) -> Candidate | None:
    """What a choice is made of; `None` where there is no answer."""
    if outcome.error is not None:
        raise Refusal(
            500, "the strategy failed; the server's log says more", code="internal_error"
        ) from outcome.error
    refusal = outcome.refusal
    if refusal is not None and not outcome.usage.calls and refusal.resource in RESERVED:
        raise invalid(
            "ttc.budget",
            f"{refusal.resource}: the request needs at least {refusal.needed:g} and may have "
            f"{refusal.limit:g}; raise the budget's {refusal.resource}",
            "budget_too_small",
        )
    drawn = outcome.candidates
    failed = [c for c in drawn if c.status == "failed"]
    if failed and (job.plain is not None or len(failed) == len(drawn)):
        raise Refusal(502, f"the model failed: {failed[0].error}", code="engine_error")
    if job.plain is None:
        return outcome.candidate
    return drawn[index] if index < len(drawn) else None


async def _choice(job: Job, outcome: Outcome, candidate: Candidate | None, index: int) -> Choice:
    if candidate is None or candidate.status not in ("finished", "truncated"):
        was_cut = outcome.refusal is not None or any(
            c.status != "finished" for c in outcome.candidates
        )
        return Choice(
            index=index,
            content="",
            thought="",
            finish_reason="length" if was_cut else "stop",
            num_tokens=0,
            tokens=None if job.ask.logprobs is None else (),
            token_ids=() if job.ask.token_ids else None,
            outcome=outcome,
        )
    root = job.prompt_of(index).root
    begun = root.text.rstrip().endswith("<think>")
    thought, content = "", candidate.text
    if not job.ask.is_raw:
        thought, content = split(candidate.text, begun=begun)
    engine = job.engines[candidate.branch.role]
    segments = [s for s in candidate.branch.lineage() if s.finish_reason is not None]
    num_tokens = sum(segment.length or 0 for segment in segments)
    if thought:
        before = engine.append(root, candidate.text[: len(candidate.text) - len(content)])
        num_tokens = max(0, num_tokens - (before.length or 0))
    tokens = None
    if job.ask.logprobs is not None:
        hidden = len(candidate.text) - len(content)
        tokens = await _tokens_of(job, candidate.branch, hidden)
    finish = "stop" if candidate.status == "finished" else "length"
    calls: list[dict[str, Any]] = []
    if job.ask.tools and finish == "stop":  # a call that was cut is never mended
        parallel = job.ask.parallel_tool_calls
        content, calls = await calls_of(content, job.ask.tools, engine, parallel=parallel)
        for place, call in enumerate(calls):
            call["id"] = call["id"] or f"call_{job.id}{index}{place}"
    return Choice(
        index=index,
        content=content,
        thought=thought,
        finish_reason="tool_calls" if calls else finish,
        calls=tuple(calls),
        num_tokens=num_tokens,
        tokens=tokens,
        token_ids=_ids_of(root, candidate.branch) if job.ask.token_ids else None,
        outcome=outcome,
    )


def _ids_of(root: Branch, branch: Branch) -> tuple[int, ...] | None:
    """The tokens of a branch after the prompt of a request."""
    first, *rest = branch.lineage()
    is_own = (first.role, first.token_ids) == (root.role, root.token_ids)
    ids = [segment.token_ids for segment in rest]
    known = [token for tokens in ids if tokens is not None for token in tokens]
    return tuple(known) if is_own and None not in ids else None


async def _tokens_of(job: Job, branch: Branch, hidden: int) -> tuple[Token, ...]:
    """The tokens of a branch's output whose text begins after so many characters.

    The end token, which has no text, is one of them where whoever reads a raw prompt counts what
    came of it in tokens.
    """
    engine, with_end = job.engines[branch.role], job.ask.endpoint == "completions"
    names = namer(engine, job.ask)
    tokens: list[Token] = []
    place = 0
    for segment in branch.lineage():
        if segment.parent is None or not (segment.text or segment.token_ids):
            continue
        if segment.logprobs is None or segment.token_ids is None:
            raise unsupported(
                "logprobs",
                "the strategy has written a part of this answer itself, which has no log "
                "probabilities; leave logprobs out",
            )
        pieces = await asyncio.to_thread(_pieces, engine, segment)
        pieces += [""] * (with_end and isinstance(segment.stop_reason, int))
        places = range(len(pieces))
        tops = await tops_of(engine, segment, places, job.ask.logprobs or 0, names)
        ids, logprobs = segment.token_ids, segment.logprobs
        for piece, token, logprob, others in zip(pieces, ids, logprobs, tops, strict=False):
            if place >= hidden:
                tokens.append(Token(text=piece, logprob=logprob, top=others, id=token))
            place += len(piece)
    return tuple(tokens)


def _pieces(engine: Engine, segment: Branch) -> list[str]:
    """What each token of a generated segment adds to its text."""
    count = len(segment.token_ids or ())
    if isinstance(segment.stop_reason, int):
        count -= 1  # the end token has no text
    given = sum(s.length or 0 for s in segment.lineage()) - (segment.length or 0)
    pieces, before = [], ""
    for taken in range(1, count + 1):
        text = segment.text
        if taken < len(segment.token_ids or ()):
            text = engine.cut(segment, given + taken).text
        text = text[: len(segment.text)]  # a stop string is no part of the text
        while not segment.text.startswith(text):
            text = text[:-1]  # a character of which only a part is there
        pieces.append(text[len(before) :])
        before = text
    return pieces


def by_id(token: int) -> str:
    """The name of a token by its id, as vLLM has it."""
    return f"token_id:{token}"


def namer(engine: Engine, ask: Ask) -> Callable[[int], str] | None:
    """What names a token: by its id where that is asked for, or by its text where it is known."""
    if ask.names_by_id:
        return by_id
    spells = speller(engine)
    return None if spells is None else lambda token: spells.spell(token).decode(errors="replace")


async def tops_of(
    engine: Engine, segment: Branch, places: range, top: int, names: Callable[[int], str] | None
) -> list[tuple[tuple[str, float], ...]]:
    """For some of a segment's tokens the most probable ones in their place.

    They have the bits of the generation.
    """
    if not top or not places or names is None:
        return [()] * len(places)
    given = sum(s.length or 0 for s in segment.lineage()) - (segment.length or 0)
    at = [given + place for place in places]
    reading = engine.next_tokens(segment, top, at=at)
    found = await asyncio.wrap_future(reading.future)
    return [
        tuple(
            (names(token), logprob)
            for token, logprob in zip(one.token_ids, one.logprobs, strict=True)
        )
        for one in found
    ]


async def _check_form(job: Job, choices: Sequence[Choice]) -> None:
    """Whether what has ended is of the form that was asked for: a grammar's second reader."""
    constraint = job.ask.constraint
    if not isinstance(constraint, Schema) or job.ask.tools:
        return
    verifier = lookup("verifiers", "json_schema")(json.loads(constraint.schema))
    for choice in choices:
        if choice.finish_reason != "stop" or not choice.content:
            continue  # what was cut is told to be cut, and never mended
        if await verifier.check(choice.content) is False:
            raise Refusal(
                502, "the model wrote what is not of the schema", code="invalid_structured_output"
            )


def usage_of(job: Job, choices: Sequence[Choice]) -> dict[str, Any]:
    """What a request has used."""
    total, by_role = _total(job, choices)
    completion = total.output_tokens
    prompt = max(0, total.tokens - completion)
    computed = total.input_tokens - (total.cached_input_tokens or 0)
    returned = sum(choice.num_tokens for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": min(prompt, max(0, prompt - computed))},
        "completion_tokens_details": {"reasoning_tokens": max(0, completion - returned)},
        "ttc": {role: _role(usage) for role, usage in sorted(by_role.items())},
    }


def _total(job: Job, choices: Sequence[Choice]) -> tuple[Usage, dict[str, Usage]]:
    outcomes = {id(choice.outcome): choice.outcome for choice in choices}
    by_role: dict[str, Usage] = {}
    for outcome in outcomes.values():
        for role, usage in outcome.usage_by_role.items():
            by_role[role] = by_role.get(role, Usage()) + usage
    return sum((outcome.usage for outcome in outcomes.values()), Usage()), by_role


def _role(usage: Usage) -> dict[str, Any]:
    names = ("tokens", "calls", "verifier_calls", "output_tokens", "tokens_cancelled")
    return {name: getattr(usage, name) for name in names} | {"cost_usd": usage.cost_usd}


def told_of(job: Job, choices: Sequence[Choice]) -> dict[str, Any]:
    """What ttc says of the outcomes: the reply's `ttc`."""
    outcomes = [_told(choice) for choice in choices]
    stops = [told["stopped_by"] for told in outcomes if told["stopped_by"] != "completed"]
    return {
        "seed": job.seed,
        "stopped_by": stops[0] if stops else "completed",
        "overridden": list(job.overridden),
        "outcomes": outcomes,
    }


def _told(choice: Choice) -> dict[str, Any]:
    outcome = choice.outcome
    return {
        "index": choice.index,
        "answer": outcome.answer,
        "confidence": outcome.confidence,
        "stopped_by": outcome.stopped_by,
        "num_candidates": len(outcome.candidates),
        "timing_dependent": list(outcome.timing_dependent),
    }
