"""Rules that end one trace while it is being written, on a token clock.

A trace is looked at whenever it has grown by a round, so that what a rule sees is a function of
tokens and never of speed. `SampleInRounds` applies them.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from statistics import median, quantiles
from typing import ClassVar

from ttc.answers import answer_key, extract_answer
from ttc.strategies.stopping import Rule, _Both, _Either, combined

__all__ = ["BranchRule", "Certaindex", "DeepConf", "EarlyExit", "Probe", "SureAnswer", "Trace"]

_HESITATION = ("wait", "hmm", "but", "however", "maybe", "no", "actually")
_LONGEST_WINDOW, _SHORTEST_WINDOW = 2048, 32


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What is asked of a trace to see whether it knows its answer already."""

    cue: str
    """Text that opens an answer."""
    interval: int
    """Tokens between two probes."""
    max_tokens: int = 20


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A trace as it stands at the end of a round."""

    text: str
    num_tokens: int
    confidences: tuple[float, ...] = ()
    """For each token minus the mean of its best log probabilities; empty where there are none."""
    probes: tuple[str, ...] = ()
    """What probes were answered, cue and all, in order."""
    sureness: tuple[float | None, ...] = ()
    """For each probe how probable the model found its answer, token by token in the mean."""
    warm_up: tuple[Trace, ...] = ()
    """The whole traces that were written before this one."""


class BranchRule(Rule):
    """Says of a trace whether it should end."""

    kind: ClassVar[str] = "a trace"

    @property
    def drops(self) -> bool:
        """Whether what it ends is dropped; else it stands with the answer that it has."""
        return False

    @property
    def requires(self) -> frozenset[str]:
        """Capabilities that it needs of the engine."""
        return frozenset()

    @property
    def warm_up(self) -> int:
        """Traces that are written whole before any is looked at."""
        return 0

    @property
    def probe(self) -> Probe | None:
        """What it wants to ask traces."""
        return None

    @abstractmethod
    def __call__(self, trace: Trace) -> bool:
        """Whether to end it now."""

    def __or__(self, other: object) -> BranchRule:
        return combined(self, other, EitherBranch)

    def __and__(self, other: object) -> BranchRule:
        return combined(self, other, BothBranches)


@dataclass(frozen=True)
class DeepConf(BranchRule):
    """Drops a trace as soon as its confidence over a window falls below that of good ones.

    Source: Fu et al. 2025 (arXiv 2508.15260), online: the threshold is a percentile of the lowest
    group confidences of whole traces, such that a part of `keep` of them would have passed.
    Differs: the window is an eighth of the median length of those traces, from 32 to 2048 tokens.
    """

    remote: ClassVar[bool] = True

    keep: int = 10
    """Percent: 10 is aggressive, 90 careful."""
    num_warm_up: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.keep <= 99 or self.num_warm_up < 2:
            raise ValueError(f"keep is 1 to 99 percent and num_warm_up at least 2, not {self}")

    @property
    def drops(self) -> bool:
        """It does."""
        return True

    @property
    def requires(self) -> frozenset[str]:
        """The best twenty log probabilities of each token."""
        return frozenset({"logprobs>=20"})

    @property
    def warm_up(self) -> int:
        """As many as it was told."""
        return self.num_warm_up

    def __call__(self, trace: Trace) -> bool:
        """Whether its lowest window is worse than the threshold."""
        whole = [other for other in trace.warm_up if other.confidences]
        if len(whole) < 2:
            return False
        eighth = int(median(other.num_tokens for other in whole) / 8)
        window = min(_LONGEST_WINDOW, max(_SHORTEST_WINDOW, eighth))
        if len(trace.confidences) < window:
            return False
        lowest = [lowest_group(other.confidences, window) for other in whole]
        threshold = quantiles(lowest, n=100, method="inclusive")[99 - self.keep]
        return lowest_group(trace.confidences, window) < threshold


@dataclass(frozen=True)
class Certaindex(BranchRule):
    """Ends a trace whose last probes all gave the same answer, without hesitation.

    Source: Fu et al. 2024 (arXiv 2412.20993), Dynasor. A probe without an answer says nothing, so
    the trace goes on. Hesitation is looked for word by word: `know` holds no `no`.
    """

    remote: ClassVar[bool] = True

    cue: str = "\nThe answer is"
    interval: int = 64
    equal: int = 3

    def __post_init__(self) -> None:
        if self.interval < 1 or self.equal < 1 or not self.cue.strip():
            raise ValueError(f"a probe needs a cue, and whole numbers of at least 1, not {self}")

    @property
    def probe(self) -> Probe:
        """The cue, every so many tokens."""
        return Probe(cue=self.cue, interval=self.interval)

    def __call__(self, trace: Trace) -> bool:
        """Whether the last probes agree."""
        latest = trace.probes[-self.equal :]
        if len(latest) < self.equal or any(map(hesitates, latest)):
            return False
        keys = {answer_key(extract_answer(text)) for text in latest}
        return len(keys) == 1 and None not in keys


@dataclass(frozen=True)
class SureAnswer(BranchRule):
    """Ends a trace whose last probe had an answer that the model finds probable enough.

    Source: DEER, Yang et al. 2025 (arXiv 2504.15895), section 3: a trial answer, and the geometric
    mean of its tokens' probabilities.
    Differs: it is asked at every interval, and not where `Wait` begins a new thought. An
    answer without probabilities, and a probe without an answer, say nothing.
    """

    remote: ClassVar[bool] = True

    at_least: float = 0.95
    cue: str = "\nThe answer is"
    interval: int = 64

    def __post_init__(self) -> None:
        if not 0 < self.at_least <= 1 or self.interval < 1 or not self.cue.strip():
            raise ValueError(f"at_least lies in (0, 1], and a probe needs a cue, not {self}")

    @property
    def requires(self) -> frozenset[str]:
        """The probability of each token."""
        return frozenset({"logprobs"})

    @property
    def probe(self) -> Probe:
        """The cue, every so many tokens."""
        return Probe(cue=self.cue, interval=self.interval)

    def __call__(self, trace: Trace) -> bool:
        """Whether the last answer is sure."""
        if not trace.probes or not trace.sureness or hesitates(trace.probes[-1]):
            return False
        sure, answer = trace.sureness[-1], extract_answer(trace.probes[-1])
        return answer is not None and sure is not None and sure >= self.at_least


@dataclass(frozen=True)
class EarlyExit(BranchRule):
    """Ends a trace that has stated a marked answer: what comes after it is checking."""

    remote: ClassVar[bool] = True

    def __call__(self, trace: Trace) -> bool:
        """Whether there is one, complete."""
        return extract_answer(trace.text, "marked", finish_reason="length") is not None


class EitherBranch(_Either, BranchRule):
    """Ends a trace when one of two rules does."""

    @property
    def drops(self) -> bool:
        """Where either does."""
        return bool(self.first.drops or self.second.drops)

    @property
    def requires(self) -> frozenset[str]:
        """What both need."""
        return frozenset(self.first.requires | self.second.requires)

    @property
    def warm_up(self) -> int:
        """The larger one."""
        most: int = max(self.first.warm_up, self.second.warm_up)
        return most

    @property
    def probe(self) -> Probe | None:
        """That of the first one that has any."""
        probe: Probe | None = self.first.probe or self.second.probe
        return probe


class BothBranches(_Both, EitherBranch):
    """Ends a trace when both of two rules do."""


def lowest_group(confidences: tuple[float, ...], window: int) -> float:
    """The lowest mean over a window; over everything where that is shorter."""
    window = min(window, len(confidences))
    sums = [0.0, *accumulate(confidences)]
    return min(sums[end] - sums[end - window] for end in range(window, len(sums))) / window


def hesitates(text: str) -> bool:
    """Whether a text holds a word of doubt."""
    return not set(re.findall(r"[a-z]+", text.lower())).isdisjoint(_HESITATION)
