"""The ports of what a node pulls, and of what it spawns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Protocol, TypeVar

from ttc.pace import Pace

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

    @property
    def pace(self) -> Pace:
        """Lets a node that pays for each candidate tell whoever gives them; see `Pace`."""

    def __aiter__(self) -> AsyncIterator[T]: ...

    async def __anext__(self) -> T: ...

    def stop(self) -> None:
        """Ends it. Synchronous and recursive: upstream is cancelled and refunded in this tick."""

    def hand_to(self, taker: Callable[[T], object]) -> None:
        """Hands what comes without a pull, as the pieces of a call, to `taker` at once."""
