"""Every error that ttc raises on purpose, in one tree.

    TTCError
    ├── GraphError
    ├── BudgetExceeded
    │   └── Revoked
    ├── EngineError
    │   ├── ContextOverflow
    │   ├── ModelFileError
    │   ├── MemoryExhausted
    │   └── StreamStalled
    ├── VerifierError
    ├── NodeError
    ├── PriceError
    ├── RecordError
    │   ├── JournalMismatch
    │   └── PoolExhausted
    ├── SandboxError
    └── SettingsError

A message says what was wrong, with the value, and then what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttc.types import Outcome

__all__ = [
    "BudgetExceeded",
    "ContextOverflow",
    "EngineError",
    "GraphError",
    "JournalMismatch",
    "MemoryExhausted",
    "ModelFileError",
    "NodeError",
    "PoolExhausted",
    "PriceError",
    "RecordError",
    "Revoked",
    "SandboxError",
    "SettingsError",
    "StreamStalled",
    "TTCError",
    "VerifierError",
]


class TTCError(Exception):
    """The root of every error that ttc raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """What it holds, and not what it was made of: the two differ for many."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[TTCError], args: tuple[object, ...], held: dict[str, object]) -> TTCError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(held)
    return error


class GraphError(TTCError):
    """A strategy that cannot run; carries every fault that was found, by node path."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class BudgetExceeded(TTCError):
    """A call that a limit refused before it started; nothing was spent on it."""

    def __init__(self, resource: str, *, needed: float, remaining: float, limit: float) -> None:
        self.resource = resource
        """The field of `Budget` that refused."""
        self.needed = needed
        """The least that the call could have run with, in the unit of the resource."""
        self.remaining = remaining
        self.limit = limit
        super().__init__(
            f"{resource}: a call needs at least {needed:g} and {remaining:g} of {limit:g} is left; "
            f"raise the budget's {resource} or ask for less"
        )


class Revoked(BudgetExceeded):
    """What somebody ended by hand, by lowering a limit or by cancelling a run; no fault."""

    def __init__(self, resource: str = "cancelled", *, limit: float = 0) -> None:
        super().__init__(resource, needed=0, remaining=0, limit=limit)
        lowered = f"the limit of {resource} was lowered to {limit:g} while the call ran"
        self.args = ("the run was cancelled" if resource == "cancelled" else lowered,)


class EngineError(TTCError):
    """An engine could not serve a call; the candidate that asked becomes `failed`."""

    def __init__(self, message: str, *, retryable: bool = False, output_tokens: int = 0) -> None:
        super().__init__(message)
        self.retryable = retryable
        """Whether the same call may succeed when it is sent again."""
        self.output_tokens = output_tokens
        """Output tokens that the call had produced, and that are charged."""
        self.call: str | None = None
        """The call that failed, as `path#index`; set by the scope."""


class ContextOverflow(EngineError):
    """A prompt, or a prompt and its `max_tokens`, that the model's context cannot hold."""


class ModelFileError(EngineError):
    """A model that is missing, damaged or of a kind that is not supported."""


class MemoryExhausted(EngineError):
    """A call for whose keys and values there is no memory."""


class StreamStalled(EngineError):
    """A call whose reader has stopped reading along."""


class VerifierError(TTCError):
    """A verifier that could not score; the candidates' scores become unknown."""


class NodeError(TTCError):
    """A bug in a node: an exception that is neither a refusal nor a failed call."""

    def __init__(self, path: str, cause: BaseException, outcome: Outcome | None = None) -> None:
        self.path = path
        """The path of the node that raised."""
        self.outcome = outcome
        """What had been reached until then: candidates, usage and trace."""
        super().__init__(f"{path or 'the strategy'}: {type(cause).__name__}: {cause}")
        self.__cause__ = cause


class PriceError(TTCError):
    """A limit that cannot be kept, since nobody told what work costs; or a bad table of prices."""


class RecordError(TTCError):
    """A journal or a pool that is damaged, in use, full, or does not hold what is asked of it."""


class JournalMismatch(RecordError):
    """A run that asks for something else than its journal holds; nothing was written."""

    def __init__(self, journal: str, path: str, what: str, before: str, now: str) -> None:
        self.path = path
        """The call that differs, as `path#index`; `run` or `end` where the whole does."""
        self.what = what
        """What of it differs."""
        super().__init__(
            f"{journal} is of another run: {what} of {path} was {before} and is {now}; go on with "
            "what the run began with, or begin another one"
        )


class PoolExhausted(RecordError):
    """A draw that a pool has no completion for, since all of the problem's have been drawn."""

    def __init__(self, problem: str, num_held: int) -> None:
        super().__init__(
            f"the pool holds {num_held} completions of problem {problem!r}, and one more is asked "
            "for; ask for fewer, or draw more with `ttc sample`"
        )
        self.num_held = num_held

    def as_limit(self) -> BudgetExceeded:
        """What it is to whoever asks for as many as there are: a limit that is reached."""
        limit = BudgetExceeded("pool", needed=1, remaining=0, limit=self.num_held)
        limit.args = self.args
        return limit


class SandboxError(TTCError):
    """Code that cannot be run as safely as was asked for."""


class SettingsError(TTCError):
    """A setting that is unknown, or has a value that it cannot have."""
