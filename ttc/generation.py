"""One call of an engine: what is asked, and what runs."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ttc.types import Branch, Sampling, Usage

__all__ = ["Generation", "Reading", "Request", "Spelling", "Steerable"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call: extend a branch."""

    branch: Branch
    max_tokens: int
    """The engine enforces it: a call never produces more."""
    sampling: Sampling
    seed: int
    """64 bits. Noise is a function of (seed, position, token) alone."""
    until: tuple[str | int, ...] = ()
    """Strings and token ids that end the call. The model's own end tokens always do."""
    call: str = ""
    """Whose request it is, as `path#index`, and `/tail` behind it: for records, never for noise."""
    priority: float = 0.0
    """What it is worth beside others: greater ones run, and keep their memory, first. Where an
    engine has no priorities it is passed over; it decides when a result comes, never which."""
    owner: str = ""
    """Whose share of the engine it takes; by default the tree's of its prompt. Owners that have
    calls are served alike, however many these are; it decides when a result comes, never which."""


class Generation(Protocol):
    """A running call."""

    @property
    def future(self) -> Future[Branch]:
        """The new segment, whose parent is the request's branch; or an `EngineError`.

        After `cancel` its result is of no interest and may never come.
        """

    @property
    def usage(self) -> Usage:
        """The physical lines, as the engine measured them; `None` where it does not say.

        What is read after the future has its result, or after `cancel`, is final. Output tokens are
        left out: the ledger counts those.
        """

    def cancel(self) -> int:
        """Ends the call before the next engine step, from any thread; a second call is harmless.

        Returns:
            Output tokens computed, those of a step in flight included. No more will follow.
        """


class Steerable(Generation, Protocol):
    """A running call of an engine with the capabilities `cut` and `priority`."""

    def fork(self, num_tokens: int) -> Branch:
        """The branch of its first output tokens, as `Engine.cut` makes it, while it goes on.

        Raises:
            ValueError: it does not have so many by now.
        """

    def prioritise(self, priority: float) -> None:
        """Gives it another priority, which acts at the next step; see `Request`."""


class Reading(Protocol):
    """A call that reads given text and generates nothing."""

    @property
    def future(self) -> Future[tuple[Any, ...]]:
        """What was asked for, in order; or an `EngineError`."""

    @property
    def usage(self) -> Usage:
        """The physical lines, as the engine measured them; see `Generation.usage`."""

    def cancel(self) -> int:
        """Ends the call before the next engine step, from any thread; it has generated nothing."""


@runtime_checkable
class Spelling(Protocol):
    """An engine that knows the text of each token by itself."""

    @property
    def vocab_size(self) -> int:
        """How many tokens there are; their ids lie below it."""

    def spell(self, token_id: int) -> bytes:
        """The bytes of a token; of many a one they are only a part of a character."""
