"""Tally: the state of a vote, as stopping rules and selectors see it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ttc.types import Candidate

__all__ = ["Tally"]


class Tally:
    """Votes by answer, in launch order.

    A candidate without an answer never votes, and counts among the samples. Candidates are told
    apart by their calls, so a copy of one does not vote again.
    """

    def __init__(
        self, *, weighted: bool = False, by: str | None = None, at_most: int | None = None
    ) -> None:
        """An empty tally.

        Args:
            weighted: whether scores weigh votes; otherwise every vote counts as one.
            by: the name of the score that weighs; `None` is the only one that candidates carry.
            at_most: the most samples that may come in all; `None` where that is unknown.
        """
        self.num_samples = 0
        """Samples that have come, those without an answer included."""
        self.num_unscored = 0
        """Votes whose weight is unknown; they count as 0 as long as any vote has a weight."""
        self.sequence: list[Hashable] = []
        """The answer of each sample, in launch order; `None` for one that does not vote."""
        self.largest_weight = 1.0
        """The most that one vote can weigh."""
        self.weighted = weighted
        self.at_most = at_most
        self._by = by
        self._seen: set[object] = set()
        self._first: dict[Hashable, Candidate] = {}
        self._counts: dict[Hashable, int] = {}
        self._weights: dict[Hashable, float] = {}

    def add(self, candidate: Candidate) -> None:
        """Counts one sample."""
        identity = candidate.branch.call or candidate.branch
        if identity in self._seen:
            return
        self._seen.add(identity)
        self.num_samples += 1
        if candidate.key is None or candidate.status not in ("finished", "truncated"):
            self.sequence.append(None)
            return
        self.sequence.append(candidate.key)
        self._first.setdefault(candidate.key, candidate)
        self._counts[candidate.key] = self._counts.get(candidate.key, 0) + 1
        score = candidate.scores.get(self._by or next(iter(candidate.scores), ""))
        weight = 0.0
        if score is None or score.value is None:
            self.num_unscored += 1
        else:
            weight = score.value
            self.largest_weight = score.range[1] if score.range else float("inf")
        self._weights[candidate.key] = self._weights.get(candidate.key, 0.0) + weight

    @property
    def is_weighted(self) -> bool:
        """Whether weights decide: one was asked for, and at least one vote has it."""
        return self.weighted and self.num_unscored < sum(self._counts.values())

    @property
    def num_remaining(self) -> int | None:
        """Samples that may still come; `None` where that is unknown."""
        return None if self.at_most is None else max(0, self.at_most - self.num_samples)

    def ranking(self) -> list[tuple[Candidate, float]]:
        """Each answer's first candidate and its votes or weight, best first, then by launch."""
        votes = self._weights if self.is_weighted else self._counts
        ranked = sorted(self._first, key=lambda key: -votes[key])  # sorting is stable: launch order
        return [(self._first[key], float(votes[key])) for key in ranked]

    def votes(self) -> Iterator[tuple[Candidate, int]]:
        """The first candidate of each answer with its number of votes, in launch order."""
        for key, candidate in self._first.items():
            yield candidate, self._counts[key]

    def share(self, candidate: Candidate) -> float | None:
        """The part of all samples that agree with a candidate; `None` of a single sample."""
        if self.num_samples < 2:
            return None
        return self._counts.get(candidate.key, 0) / self.num_samples

    def leading_share(self) -> float | None:
        """The share of the candidate that leads now; `None` where none does, or of one sample."""
        ranked = self.ranking()
        return self.share(ranked[0][0]) if ranked else None
