"""Echo: what a model thinks of the prompt's own tokens, for those who ask to read them again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from ttc.graph import Cost, Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.types import Branch, Candidate, NextTokens

__all__ = ["Echo", "Read"]


class Read(NamedTuple):
    """The tokens of a prompt."""

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    """Of all tokens but the first."""
    top: Sequence[NextTokens]
    """What was expected in the place of all tokens but the first, where that was asked for."""


@dataclass(frozen=True, kw_only=True)
class Echo(Node):
    """Reads the prompt, tells of it, and hands it on."""

    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("open", "many")

    top: int
    """How many of the most probable tokens are told in each place."""
    num_tokens: int
    """Tokens of the prompt."""
    tell: Callable[[Read], object] = field(compare=False)

    @property
    def roles(self) -> frozenset[str]:
        """The policy."""
        return frozenset({"policy"})

    def bound(self, given: Flow) -> Cost:
        """The prompt, which a reading pays for."""
        return Cost(tokens=2 * self.num_tokens, calls=2)

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads."""
        async for candidate in candidates:
            whole = candidate.branch
            first, *rest = whole.token_ids or ()
            logprobs: Sequence[float] = ()
            top: Sequence[NextTokens] = ()
            if rest:
                beginning = Branch(role=whole.role, text="", token_ids=(first,), salt=whole.salt)
                (read,) = await scope.score(beginning, [tuple(rest)])
                logprobs = read.values
                if self.top:
                    at = list(range(1, len(rest) + 1))
                    top = await scope.next_tokens(whole, self.top, at=at)
            self.tell(Read((first, *rest), logprobs, top))
            yield candidate
