"""Tally: the state of a vote, as stopping rules and selectors see it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from ttc.answers import Classes, Verdict
from ttc.types import Candidate

__all__ = ["Tally", "distinct"]


class Tally:
    """Votes by answer, in launch order.

    Answers are one where their keys are, or where verdicts that came with them say so. A candidate
    without an answer never votes, and counts among the samples. Candidates are told apart by their
    calls, so a copy of one does not vote again.
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
        self._sequence: list[Hashable] = []
        self.largest_weight = 1.0
        """The most that one vote can weigh."""
        self.weighted = weighted
        self.at_most = at_most
        self._by = by
        self._classes = Classes()
        self._seen: set[object] = set()
        self._first: dict[Hashable, Candidate] = {}
        self._counts: dict[Hashable, int] = {}
        self._weights: dict[Hashable, float] = {}

    def rivals(self, candidate: Candidate) -> list[Candidate]:
        """The first candidate of each other key, where the candidate votes and brings a new one."""
        if candidate.key in self._first or not _votes(candidate):
            return []
        return list(self._first.values())

    def add(self, candidate: Candidate, verdicts: Mapping[Hashable, Verdict] | None = None) -> None:
        """Counts one sample.

        Args:
            candidate: the sample.
            verdicts: whether the keys of its `rivals` are equal to its own; none are by default.
        """
        identity = candidate.branch.call or candidate.branch
        if identity in self._seen:
            return
        self._seen.add(identity)
        self.num_samples += 1
        if not _votes(candidate):
            self._sequence.append(None)
            return
        self._sequence.append(candidate.key)
        self._classes.add(candidate.key, verdicts or {})
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
    def is_settled(self) -> bool:
        """Whether the votes for two answers can no longer turn out to be for one."""
        return self._classes.is_settled

    @property
    def num_remaining(self) -> int | None:
        """Samples that may still come; `None` where that is unknown."""
        return None if self.at_most is None else max(0, self.at_most - self.num_samples)

    def ranking(self) -> list[tuple[Candidate, float]]:
        """Each answer's first candidate and its votes or weight, best first, then by launch."""
        votes = self._by_class(self._weights if self.is_weighted else self._counts)
        ranked = sorted(votes, key=lambda key: -votes[key])  # sorting is stable: launch order
        return [(self._first[key], float(votes[key])) for key in ranked]

    def votes(self) -> Iterator[tuple[Candidate, int]]:
        """The first candidate of each answer with its number of votes, in launch order."""
        for key, count in self._by_class(self._counts).items():
            yield self._first[key], int(count)

    def share(self, candidate: Candidate) -> float | None:
        """The part of all samples that agree with a candidate; `None` of a single sample."""
        if self.num_samples < 2:
            return None
        key = self._classes.of(candidate.key)
        return self._by_class(self._counts).get(key, 0) / self.num_samples

    @property
    def sequence(self) -> list[Hashable]:
        """The answer of each sample, in launch order; `None` for one that does not vote."""
        return [None if key is None else self._classes.of(key) for key in self._sequence]

    def leading_share(self) -> float | None:
        """The share of the candidate that leads now; `None` where none does, or of one sample."""
        ranked = self.ranking()
        return self.share(ranked[0][0]) if ranked else None

    def _by_class(self, votes: Mapping[Hashable, float]) -> dict[Hashable, float]:
        """Votes by the first key of each class, in launch order."""
        whole: dict[Hashable, float] = {}
        for key, vote in votes.items():
            first = self._classes.of(key)
            whole[first] = whole.get(first, 0) + vote
        return whole


def _votes(candidate: Candidate) -> bool:
    """Whether it has an answer. An agent's branch that is parked has its call for one."""
    if candidate.key is None:
        return False
    is_parked = (
        candidate.status == "open"
        and isinstance(candidate.key, tuple)
        and candidate.key[:1] == ("call",)
    )
    return is_parked or candidate.status in ("finished", "truncated")


def distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Candidates without the copies of those that came before."""
    first: dict[object, Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.branch.call or candidate.branch, candidate)
    return list(first.values())
