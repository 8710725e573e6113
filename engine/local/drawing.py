"""How the tokens of one call are drawn, one after another: its noise, penalties and constraint."""

from __future__ import annotations

from ttc.engine.local.grammar import Grammar
from ttc.engine.local.path import segment_tokens
from ttc.engine.local.penalties import SeenTokens
from ttc.engine.local.sample import Draw
from ttc.errors import EngineError
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
        self._seen = _seen(request.branch, self._sampling) if self._sampling.penalises else None

    def draw(self, position: int) -> Draw:
        """How the token at a position is drawn."""
        allowed = None if self._grammar is None else self._grammar.allowed()
        return Draw(self._sampling, self._seed, position, self._seen, allowed)

    def accept(self, token: int) -> None:
        """Goes on by a token that was drawn, and that does not end the call."""
        if self._seen is not None:
            self._seen.add(token)
        if self._grammar is not None:
            self._grammar.accept(token)

    def explained(self, error: EngineError) -> EngineError:
        """An error, with what went wrong in the constraint, if anything did."""
        fault = self._grammar.error if self._grammar is not None else ""
        if not fault:
            return error
        return EngineError(f"{error}: {fault}", output_tokens=error.output_tokens)


def _seen(branch: Branch, sampling: Sampling) -> SeenTokens:
    """The tokens that penalties look at: those of the prompt only for repetition's."""
    given: list[int] = []
    generated: list[int] = []
    for segment in branch.lineage():
        tokens = segment_tokens(segment)
        (given if segment.finish_reason is None else generated).extend(tokens)
    return SeenTokens(given if sampling.repetition_penalty is not None else (), generated)
