"""Plain sampling: what a request without a strategy is served by.

Its choices are the forks of one prompt, each with a seed of its own, and its pieces of text can be
told as they come: nothing has to be decided first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ttc.graph import Cost, Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.types import Branch, Candidate, Chunk, Sampling

__all__ = ["Plain", "Tell"]

Tell = Callable[[int, Chunk], None]
"""Who is told of a choice's next piece."""


@dataclass(frozen=True, kw_only=True)
class Plain(Node):
    """Draws so many choices at once; there is nothing to choose among."""

    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")
    passes_each: ClassVar[bool] = True

    n: int = 1
    max_tokens: int
    sampling: Sampling
    until: tuple[str, ...] = ()
    tell: Tell = field(default=lambda _index, _chunk: None, compare=False)

    @property
    def roles(self) -> frozenset[str]:
        """The policy."""
        return frozenset({"policy"})

    @property
    def requires(self) -> frozenset[str]:
        """An engine that holds to a constraint, where there is one."""
        return frozenset({"grammar"}) if self.sampling.constraint is not None else frozenset()

    def flow(self, given: Flow) -> Flow:
        """All choices."""
        return Flow(kind="finished", count=self.n)

    def bound(self, given: Flow) -> Cost:
        """Every choice as long as it may be."""
        return Cost(tokens=self.n * self.max_tokens, calls=self.n)

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Draws, and yields in order."""

        async def forks() -> AsyncGenerator[Candidate, None]:
            async for candidate in candidates:
                yield candidate

        async def draw(candidate: Candidate, index: int) -> Candidate:
            told: list[Chunk] = []

            def tell(chunk: Chunk) -> None:
                told.append(chunk)
                self.tell(index, chunk)

            stream = scope.stream(
                candidate.branch,
                index=index,
                max_tokens=self.max_tokens,
                sampling=self.sampling,
                at_least=1,
                until=self.until,
            )
            stream.hand_to(tell)
            last = await anext(stream, None)
            whole = _cut(candidate, told) if last is None else last.branch
            assert whole is not None
            return scope.finish(candidate, whole)

        async for drawn in scope.map(draw, forks(), ahead=None, each=self.n):
            yield drawn


def _cut(candidate: Candidate, told: Sequence[Chunk]) -> Branch:
    """What a limit left of a generation: what has been told of it stands."""
    ids = [chunk.token_ids for chunk in told]
    known = [token for tokens in ids if tokens is not None for token in tokens]
    return Branch(
        parent=candidate.branch,
        role=candidate.branch.role,
        text="".join(chunk.text for chunk in told),
        token_ids=None if None in ids else tuple(known),
        finish_reason="length",
    )
