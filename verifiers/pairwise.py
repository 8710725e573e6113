"""PairwiseJudge and Tournament: a prompted model compares candidates two by two.

Source: pairwise comparison in both orders, Zheng et al. 2023 (arXiv 2306.05685), section 3.4;
the knockout, Chen et al. 2024 (arXiv 2411.19477), algorithm 1: K comparisons for each match, the
winner goes on.
Differs: candidates meet in launch order, and not at random; of the K comparisons half show each
candidate first; a match without a majority goes to the one launched earlier.
Cost: for n candidates `PairwiseJudge` makes n (n - 1) calls of the judge's role, `Tournament`
(n - 1) x K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

from ttc.flow import Cost, Flow
from ttc.ports import Scope
from ttc.prompts import comparison, question, solution, together
from ttc.types import Candidate, Problem, Score
from ttc.verdicts import Verdict, ask, choice_on
from ttc.verifiers.judge import check_asking

__all__ = ["PairwiseJudge", "Tournament"]

RUBRIC = "Which solution is correct? Of two correct ones, which one is better founded?"


@dataclass(frozen=True, kw_only=True)
class _Comparing:
    """What both share: one comparison, with one candidate shown first."""

    needs: ClassVar[Literal["each", "all"]] = "all"
    requires: ClassVar[frozenset[str]] = frozenset()
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    rubric: str = RUBRIC
    """What the judge goes by. It is an instruction, so it is yours to answer for."""
    temperature: float = 0.0
    max_tokens: int = 512
    """The most output tokens of one verdict with its reasons."""
    role: str = "judge"

    def __post_init__(self) -> None:
        check_asking(self.rubric, self.temperature, max_tokens=self.max_tokens)

    @property
    def roles(self) -> frozenset[str]:
        """The role that judges."""
        return frozenset({self.role})

    def comparisons_of(self, given: Flow, count: int | None) -> Cost:
        """So many comparisons of two."""
        texts = len(self.rubric.encode()), given.text, given.text
        asked = Cost(tokens=given.lengths.call(self.role, self.max_tokens, *texts), calls=1)
        return asked * count

    async def compare(
        self, pair: tuple[Candidate, Candidate], scope: Scope, *, index: int, swapped: bool
    ) -> Verdict:
        """1 where the pair's first is better, 0 where its second is, 0.5 for a tie.

        Args:
            pair: the candidates.
            scope: the scope.
            index: which of the verifier's calls this is.
            swapped: whether the second one is shown first.
        """
        texts = [solution(candidate) for candidate in pair]
        first, second = texts[::-1] if swapped else texts
        return await ask(
            scope,
            self.role,
            comparison(self.rubric, question(scope.problem), first, second),
            read=choice_on("B" if swapped else "A"),
            index=index,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
        )


@dataclass(frozen=True, kw_only=True)
class PairwiseJudge(_Comparing):
    """Compares every two candidates in both orders; the score is the mean over the opponents.

    A win counts 1 and a tie 1/2. Two orders that contradict each other are a tie: the judge went by
    the place. A pair of which either order has no verdict counts for neither.
    """

    remote: ClassVar[bool] = True

    name: str = "pairwise_judge"

    def bound(self, given: Flow) -> Cost:
        """Every two in both orders."""
        count = None if given.count is None else given.count * (given.count - 1)
        return self.comparisons_of(given, count)

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate; a lone one has nothing to lose to, and has 1."""
        pairs = list(combinations(range(len(candidates)), 2))
        verdicts = await together(
            scope,
            (
                self.compare(
                    (candidates[i], candidates[j]), scope, index=2 * n + order, swapped=order == 1
                )
                for n, (i, j) in enumerate(pairs)
                for order in (0, 1)
            ),
        )
        results: list[list[float]] = [[] for _ in candidates]
        reasons: list[list[str]] = [[] for _ in candidates]
        for n, (i, j) in enumerate(pairs):
            both = verdicts[2 * n : 2 * n + 2]
            known = [verdict.value for verdict in both if verdict.value is not None]
            if len(known) == len(both):
                result = known[0] if known[0] == known[1] else 0.5
                results[i].append(result)
                results[j].append(1.0 - result)
            for place in (i, j):
                reasons[place] += [verdict.reason for verdict in both if verdict.reason]
        return tuple(
            self._score(found, tuple(why), is_alone=len(candidates) == 1)
            for found, why in zip(results, reasons, strict=True)
        )

    @staticmethod
    def _score(results: Sequence[float], reasons: tuple[str, ...], *, is_alone: bool) -> Score:
        value = math.fsum(results) / len(results) if results else None
        counts = {"wins": 1.0, "ties": 0.5, "losses": 0.0}
        evidence = {name: results.count(result) for name, result in counts.items()}
        return Score(
            value=1.0 if is_alone else value,
            evidence={**evidence, **({"unknown": reasons} if reasons else {})},
        )


@dataclass(frozen=True, kw_only=True)
class Tournament(_Comparing):
    """A knockout: candidates meet in pairs, and who wins most of K comparisons goes on.

    The bracket is that of launch order: neighbours meet, and an odd last one waits for the next
    round. The score is the share of rounds that a candidate survived, so the winner has 1. A
    candidate of whose comparisons none gave a verdict is unscored.
    """

    remote: ClassVar[bool] = True

    comparisons: int = 2
    """K, an even number: half of them show each candidate first. More than two need a temperature,
    else they are the same two."""
    name: str = "tournament"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_asking(self.rubric, self.temperature, comparisons=self.comparisons)
        if self.comparisons % 2:
            raise ValueError(
                "comparisons is even, so that each candidate is shown first as often as the "
                f"other, not {self.comparisons}"
            )
        if self.comparisons > 2 and self.temperature == 0:
            raise ValueError(
                f"{self.comparisons} comparisons at temperature 0 are two; set a temperature, or "
                "comparisons=2"
            )

    def bound(self, given: Flow) -> Cost:
        """All matches: each sends one home."""
        matches = None if given.count is None else max(0, given.count - 1)
        return self.comparisons_of(given, matches) * self.comparisons

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate; a lone one has nothing to lose to, and has 1."""
        table = _Table(len(candidates))
        alive, index = list(range(len(candidates))), 0
        while len(alive) > 1:
            matches = list(zip(alive[::2], alive[1::2], strict=False))
            work = []
            for match in matches:
                work += [
                    self.compare(
                        (candidates[match[0]], candidates[match[1]]),
                        scope,
                        index=index + n,
                        swapped=n % 2 == 1,
                    )
                    for n in range(self.comparisons)
                ]
                index += self.comparisons
            verdicts = await together(scope, work)
            winners = [
                table.play(match, verdicts[n * self.comparisons : (n + 1) * self.comparisons])
                for n, match in enumerate(matches)
            ]
            alive = winners + alive[len(matches) * 2 :]
            table.end_round(alive)
        return table.scores()


class _Table:
    """What a tournament has come to."""

    def __init__(self, count: int) -> None:
        self._survived = [0] * count
        self._rounds = 0
        self._verdicts: list[list[float]] = [[] for _ in range(count)]
        self._reasons: list[list[str]] = [[] for _ in range(count)]

    def play(self, match: tuple[int, int], verdicts: Sequence[Verdict]) -> int:
        """Takes a match's verdicts; returns who goes on."""
        first, second = match
        known = [verdict.value for verdict in verdicts if verdict.value is not None]
        self._verdicts[first] += known
        self._verdicts[second] += [1.0 - value for value in known]
        for place in match:
            self._reasons[place] += [verdict.reason for verdict in verdicts if verdict.reason]
        return first if math.fsum(known) >= len(known) / 2 else second

    def end_round(self, alive: Sequence[int]) -> None:
        """Notes who survived."""
        self._rounds += 1
        for place in alive:
            self._survived[place] += 1

    def scores(self) -> tuple[Score, ...]:
        """The share of rounds that each survived."""
        scores = []
        for survived, known, reasons in zip(
            self._survived, self._verdicts, self._reasons, strict=True
        ):
            value = survived / self._rounds if self._rounds else 1.0
            evidence = {"rounds": survived, "of": self._rounds, "verdicts": tuple(known)}
            scores.append(
                Score(
                    value=value if known or not self._rounds else None,
                    evidence={**evidence, **({"unknown": tuple(reasons)} if reasons else {})},
                )
            )
        return tuple(scores)
