"""One key's share of an engine: its own turn beside other keys, and its own part of the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ttc.ports import Engine, Generation, Request, Spelling
from ttc.spoken import form_for
from ttc.types import Branch, Chunk, Problem

if TYPE_CHECKING:
    from ttc.serve.keys import Key

__all__ = ["Share", "share_of", "speller"]


class Share:
    """An engine as the calls of one request see it. What it does not change is the engine's own."""

    def __init__(self, engine: Engine, key: Key) -> None:
        self.engine, self._key = engine, key
        self._roots: dict[tuple[int, str], tuple[Problem, Branch]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def root(self, problem: Problem, role: str) -> Branch:
        """The prompt, made once, and marked with the key's salt."""
        known = self._roots.get((id(problem), role))
        if known is not None:
            return known[1]
        told = problem
        if problem.tools and form_for(self.engine) == "react":
            told = replace(problem, tools=())  # its template has no place for them: see `tools`
        return self._keep(problem, self.engine.root(told, role))

    def begin(self, problem: Problem, role: str, tokens: Sequence[int]) -> None:
        """Lets a problem's prompt be tokens that were given, and not those of its text."""
        text = problem.prompt or ""
        self._keep(problem, Branch(role=role, text=text, token_ids=tuple(tokens)))

    def _keep(self, problem: Problem, root: Branch) -> Branch:
        branch = replace(root, salt=self._key.salt)
        self._roots[id(problem), root.role] = problem, branch  # held, so that its id stays its own
        return branch

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> Generation:
        """Queues a call in the key's turn."""
        return self.engine.submit(replace(request, owner=self._key.name), on_chunk)


def share_of(engine: Engine, key: Key) -> Engine:
    """A key's share of an engine."""
    return cast("Engine", Share(engine, key))


def speller(engine: object) -> Spelling | None:
    """Who tells the text of each token by itself, if the engine does, whole or as a share."""
    whole = engine.engine if isinstance(engine, Share) else engine
    return whole if isinstance(whole, Spelling) else None
