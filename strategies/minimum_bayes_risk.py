"""MinimumBayesRisk: the candidate that is most like all the others.

Source: Eikema and Aziz 2020, arXiv 2005.10283: argmax_i of the mean over j of u(y_i, y_j), the
samples being hypotheses and references at once. Bertsch et al. 2023, arXiv 2310.01387: with
equality as u it is self-consistency.
Differs: a candidate is not compared with itself, and whoever failed is no reference.
Cost: no calls; n (n - 1) / 2 comparisons of two texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from math import fsum
from typing import ClassVar, Literal

from ttc.graph import Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.strategies.tally import distinct
from ttc.types import Candidate

__all__ = ["MinimumBayesRisk", "word_f1"]

Similarity = Callable[[Candidate, Candidate], float]


@dataclass(frozen=True, kw_only=True)
class MinimumBayesRisk(Node):
    """Picks the candidate with the highest mean similarity to the others; ties go to the earliest.

    Its confidence is that mean, and unknown of a single candidate.
    """

    remote: ClassVar[bool] = True
    gives: ClassVar[Port] = Port("finished", "one")
    selects: ClassVar[bool] = True

    similarity: Literal["words", "answer"] | Similarity = "words"
    """How alike two candidates are, from 0 to 1. `words`: F1 of the words of their texts, counted;
    `answer`: 1 for equal answers, which is a vote; or a function of both, which is symmetric."""

    def faults(self, given: Flow) -> list[str]:
        """A similarity that is none."""
        if callable(self.similarity) or self.similarity in ("words", "answer"):
            return []
        return [f"similarity is 'words', 'answer' or a function, not {self.similarity!r}"]

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads everything, and yields the one in the middle."""
        seen = distinct([candidate async for candidate in candidates])
        eligible = [c for c in seen if c.key is not None and c.status in ("finished", "truncated")]
        if not eligible:
            scope.decide("no_valid_answer", num_samples=len(seen))
            return
        alike = self._measure(eligible)
        rows: list[list[float]] = [[] for _ in eligible]
        for i in range(len(eligible)):
            for j in range(i):
                value = alike(i, j)
                rows[i].append(value)
                rows[j].append(value)
        sums = [fsum(row) for row in rows]
        best = max(range(len(eligible)), key=sums.__getitem__)  # the first of equals
        others = len(eligible) - 1
        yield replace(eligible[best], confidence=sums[best] / others if others else None)

    def _measure(self, eligible: list[Candidate]) -> Callable[[int, int], float]:
        if callable(self.similarity):
            of_two = self.similarity
            return lambda i, j: of_two(eligible[i], eligible[j])
        if self.similarity == "answer":
            return lambda i, j: float(eligible[i].key == eligible[j].key)
        bags = [_words(candidate.text) for candidate in eligible]
        return lambda i, j: _f1(bags[i], bags[j])


def word_f1(first: str, second: str) -> float:
    """The F1 of the words that two texts share, each as often as in both, whatever their case.

    Source: Rajpurkar et al. 2016, arXiv 1606.05250, section 6.1.
    """
    return _f1(_words(first), _words(second))


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def _f1(first: Counter[str], second: Counter[str]) -> float:
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0
