"""What a node holds of work that runs: a handle on what it spawned, a stream that it pulls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any, Protocol, TypeVar

__all__ = ["Handle", "Stream"]

T = TypeVar("T", covariant=True)


class Handle(Protocol):
    """Work that a node spawned."""

    def cancel(self) -> object:
        """Cancels it; what it had spent is booked."""

    def stop(self) -> None:
        """Ends it in this tick: its calls are cancelled and refunded, those that ended as well."""

    def __await__(self) -> Generator[Any, None, Any]:
        """Waits for its result."""


class Stream(Protocol[T]):
    """A pulled sequence. Nothing upstream works before someone pulls."""

    @property
    def at_most(self) -> int | None:
        """The most items that it gives in all; `None` where that is unknown."""

    def __aiter__(self) -> AsyncIterator[T]: ...

    async def __anext__(self) -> T: ...

    def stop(self) -> None:
        """Ends it. Synchronous and recursive: upstream is cancelled and refunded in this tick."""
