"""How the tokens of one call are drawn: its noise, bias, penalties and constraint."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from copy import copy

from ttc.engine.local.grammar import Grammar
from ttc.engine.local.path import segment_tokens
from ttc.engine.local.penalties import Bias, SeenTokens
from ttc.engine.local.sample import NONE_ALLOWED, Draw
from ttc.ports import Request
from ttc.types import Branch, Sampling

__all__ = ["Drawing"]


class Drawing:
    """The state of one call beside its tokens. It belongs to the engine's thread once it runs.

    Args:
        request: what was asked.
        grammar: what its constraint allows; `None` where it has none.
    """

    def __init__(self, request: Request, grammar: Grammar | None = None) -> None:
        self._sampling, self._seed = request.sampling, request.seed
        self._grammar = grammar
        self._bias = Bias.of(self._sampling.logit_bias)
        self._seen = _seen(request.branch, self._sampling) if self._sampling.penalises else None

    def draw(self, position: int) -> Draw:
        """How the token at a position is drawn."""
        allowed = None if self._grammar is None else self._grammar.allowed()
        return Draw(self._sampling, self._seed, position, self._seen, allowed, self._bias)

    def draws(self, position: int, drafts: Seq[int]) -> list[Draw]:
        """How the token at a position is drawn, and those after each of some legal tokens.

        The call stays where it is: what is drafted may not come.
        """
        ahead = copy(self)
        ahead._seen = self._seen and self._seen.copy()
        ahead._grammar = self._grammar and self._grammar.copy()
        draws = [ahead._kept(position)]
        for number, token in enumerate(drafts, position + 1):
            ahead.accept(token)
            draws.append(ahead._kept(number))
        return draws

    def _kept(self, position: int) -> Draw:
        """A draw that stays valid when the call goes on."""
        draw = self.draw(position)
        return draw._replace(
            seen=draw.seen and draw.seen.copy(),
            allowed=None if draw.allowed is None else draw.allowed.copy(),
        )

    def num_legal(self, tokens: Seq[int]) -> int:
        """How many of some tokens the constraint would let come next."""
        return len(tokens) if self._grammar is None else self._grammar.num_legal(tokens)

    def accept(self, token: int) -> None:
        """Goes on by a token that was drawn, and that does not end the call."""
        if self._seen is not None:
            self._seen.add(token)
        if self._grammar is not None:
            self._grammar.accept(token)

    def explained(self, fault: str) -> str:
        """Why nothing can be drawn, with what went wrong in the constraint, if anything did."""
        reason = self._grammar.error if self._grammar is not None and fault == NONE_ALLOWED else ""
        return f"{fault}: {reason}" if reason else fault


def _seen(branch: Branch, sampling: Sampling) -> SeenTokens:
    """The tokens that penalties look at: those of the prompt only for repetition's."""
    given: list[int] = []
    generated: list[int] = []
    for segment in branch.lineage():
        tokens = segment_tokens(segment)
        (given if segment.finish_reason is None else generated).extend(tokens)
    return SeenTokens(given if sampling.repetition_penalty is not None else (), generated)
