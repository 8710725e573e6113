"""One key's share of an engine: its own turn beside other keys, and its own part of the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ttc.ports import Engine, Generation, Request
from ttc.types import Branch, Chunk, Problem

if TYPE_CHECKING:
    from ttc.serve.keys import Key

__all__ = ["Share", "share_of"]


class Share:
    """An engine as the calls of one request see it. What it does not change is the engine's own."""

    def __init__(self, engine: Engine, key: Key) -> None:
        self._engine, self._key = engine, key
        self._roots: dict[tuple[int, str], tuple[Problem, Branch]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def root(self, problem: Problem, role: str) -> Branch:
        """The prompt, made once, and marked with the key's salt."""
        known = self._roots.get((id(problem), role))
        if known is not None:
            return known[1]
        branch = replace(self._engine.root(problem, role), salt=self._key.salt)
        self._roots[id(problem), role] = problem, branch  # held, so that its id stays its own
        return branch

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> Generation:
        """Queues a call in the key's turn."""
        return self._engine.submit(replace(request, owner=self._key.name), on_chunk)


def share_of(engine: Engine, key: Key) -> Engine:
    """A key's share of an engine."""
    return cast("Engine", Share(engine, key))
