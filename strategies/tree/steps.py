"""Steps: where a trajectory may be cut, told by its tokens.

A step is one call of the engine. A rule says what ends the call, and how many of the tokens that
came are the step; the branch that goes on is the very same tokens, never a text that was tokenised
again. A step that was cut by its length is an open trajectory like any other: only the model's own
end finishes one.

Source: a delimiter after each step, Lightman et al. 2023 (arXiv 2305.20050); a cut where the next
token's entropy is high, Scalena et al. 2025, EAGer (arXiv 2510.11170).
Cost: a call for each step. A sentence costs one more token, by which its end is seen; where a
high entropy ends a step, the tokens after it are lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from ttc.graph import is_count
from ttc.ports import Scope
from ttc.types import Branch, Sampling

__all__ = ["Delimiter", "FixedLength", "HighEntropy", "Sentence", "StepRule", "next_step"]

_CLOSING = "\"')]}*"
_SHORT = 16
"""The fewest tokens that a tight budget leaves a step; most end long before their limit."""


class StepRule(ABC):
    """What ends a step."""

    requires: ClassVar[frozenset[str]] = frozenset()
    """What it needs of the engine."""
    max_tokens: int
    """The most tokens of one step, and what is reserved for it."""

    @property
    def until(self) -> tuple[str, ...]:
        """Strings that end the call."""
        return ()

    @abstractmethod
    def length(self, segment: Branch, scope: Scope) -> int:
        """How many of the tokens that a call gave are the step."""

    def _check(self) -> None:
        if not is_count(self.max_tokens):
            raise ValueError(f"max_tokens is a whole number of at least 1, not {self.max_tokens!r}")


@dataclass(frozen=True)
class Delimiter(StepRule):
    """Up to the token that completes a text, that token included."""

    remote: ClassVar[bool] = True

    text: str = "\n\n"
    max_tokens: int = 256

    def __post_init__(self) -> None:
        self._check()
        if not self.text or not isinstance(self.text, str):
            raise ValueError(f"a delimiter is a text, not {self.text!r}")

    @property
    def until(self) -> tuple[str, ...]:
        """The text."""
        return (self.text,)

    def length(self, segment: Branch, scope: Scope) -> int:
        """All of them."""
        return len(segment.token_ids or ())


@dataclass(frozen=True)
class Sentence(StepRule):
    """Up to the token that ends a sentence, by a mark that a space or a line break follows."""

    remote: ClassVar[bool] = True

    max_tokens: int = 128

    def __post_init__(self) -> None:
        self._check()

    @property
    def until(self) -> tuple[str, ...]:
        """A mark and what follows it."""
        marks = [mark + close for mark in ".?!" for close in ("", *_CLOSING)]
        return tuple(mark + space for mark in marks for space in " \n")

    def length(self, segment: Branch, scope: Scope) -> int:
        """Without a last token that only shows that the sentence was over."""
        count = len(segment.token_ids or ())
        if segment.stop_reason not in self.until or count < 2:
            return count
        before = scope.cut(segment, segment.num_tokens - 1).text.rstrip(_CLOSING)
        return count - 1 if before.endswith((".", "?", "!")) else count


@dataclass(frozen=True)
class FixedLength(StepRule):
    """A number of tokens."""

    remote: ClassVar[bool] = True

    max_tokens: int = 64

    def __post_init__(self) -> None:
        self._check()

    def length(self, segment: Branch, scope: Scope) -> int:
        """All of them."""
        return len(segment.token_ids or ())


@dataclass(frozen=True)
class HighEntropy(StepRule):
    """Up to where the model is unsure of the next token, which is for the next step to choose."""

    remote: ClassVar[bool] = True
    requires: ClassVar[frozenset[str]] = frozenset({"entropy"})

    threshold: float = 2.0
    """The entropy of the next token's whole distribution that ends a step, in nats."""
    max_tokens: int = 64

    def __post_init__(self) -> None:
        self._check()
        if not self.threshold >= 0:
            raise ValueError(f"the threshold is at least 0 nats, not {self.threshold!r}")

    def length(self, segment: Branch, scope: Scope) -> int:
        """Those before the first unsure one. The first of a step had to be chosen anyway."""
        entropies = segment.entropies or ()
        unsure = (place for place, h in enumerate(entropies) if place and h > self.threshold)
        return next(unsure, len(segment.token_ids or ()))


async def next_step(
    branch: Branch, rule: StepRule, scope: Scope, *, index: int, sampling: Sampling
) -> Branch:
    """The branch with one more step.

    Where the trajectory has come to its end, it is as the engine gave it, with the reason. Else it
    can be gone on from, and has none; but where a limit or the context left less room than the step
    may have, the reason is `length`.
    """
    segment = await scope.generate(
        branch,
        index=index,
        max_tokens=rule.max_tokens,
        sampling=sampling,
        at_least=min(_SHORT, (rule.max_tokens + 1) // 2),
        until=rule.until,
    )
    count = len(segment.token_ids or ())
    length = rule.length(segment, scope)
    if length == count:
        by_itself = segment.finish_reason == "stop" and segment.stop_reason not in rule.until
        is_short = segment.finish_reason == "length" and count < rule.max_tokens
        if by_itself or is_short:
            return segment
    cut = scope.cut(segment, segment.num_tokens - count + length)
    return replace(cut, finish_reason=None)
