"""Candidates with measured tokens, and a scope in which verifiers ask each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from ttc.answers import answer_key
from ttc.ports import Scope, Verifier
from ttc.types import Branch, Candidate, Problem, Score, Status

PROMPT = Branch(text="What is 1 + 1?", token_ids=(1, 2, 3))
PROBLEM = Problem.ask("What is 1 + 1?")


def generated(
    answer: str | None = "2", *, status: Status = "finished", text: str = "2", **measures: Any
) -> Candidate:
    """A candidate of one call, whose tokens carry measures: `logprobs=(-0.1, -0.2)`."""
    count = max((len(measure) for measure in measures.values() if measure is not None), default=1)
    ids = tuple(range(count))
    branch = Branch(parent=PROMPT, text=text, token_ids=ids, call="0.sample#0", **measures)
    return Candidate(branch=branch, text=text, answer=answer, key=answer_key(answer), status=status)


class _Scope:
    """What a verifier needs of a scope to ask another verifier, and nothing else."""

    problem = PROBLEM

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        """Which verifier was asked, and about how many candidates."""

    async def verify(
        self, verifier: Verifier, candidates: Sequence[Candidate]
    ) -> tuple[Score, ...]:
        """As the real one, but for the ledger."""
        self.asked.append((verifier.name, len(candidates)))
        scores = await verifier(self.problem, candidates, cast("Scope", self))
        assert len(scores) == len(candidates)
        return tuple(replace(s, verifier=verifier.name, range=verifier.range) for s in scores)


def scored(
    verifier: Verifier, candidates: Sequence[Candidate], asked: list[tuple[str, int]] | None = None
) -> tuple[Score, ...]:
    """The scores of candidates; `asked` is told of every verifier that was asked on the way."""
    scope = _Scope()
    scores = asyncio.run(scope.verify(verifier, candidates))
    if asked is not None:
        asked += scope.asked[1:]
    return scores


def values(verifier: Verifier, candidates: Sequence[Candidate]) -> list[float | None]:
    """The values of the scores of candidates."""
    return [score.value for score in scored(verifier, candidates)]
