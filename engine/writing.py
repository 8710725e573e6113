"""What the tokens of one call make, as they come from an engine that tells nothing but tokens.

Characters, stop strings and ends are made of them here, as the embedded engine makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ttc.engine.local.text.stream import TextStream
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.ports import Request
from ttc.types import Branch, Chunk, FinishReason

__all__ = ["Writing", "ends_of"]


class Writing:
    """The text of one call, token by token."""

    def __init__(
        self,
        request: Request,
        tokens: TextTokens,
        on_chunk: Callable[[Chunk], None] | None = None,
        after: Writing | None = None,
    ) -> None:
        """A text that has not begun.

        Args:
            request: what was asked for.
            tokens: the vocabulary.
            on_chunk: is told of every piece.
            after: the same text before, of which pieces were passed on already.
        """
        self.ids: list[int] = []
        self.is_ended = False
        self._request, self._tokens, self._on_chunk = request, tokens, on_chunk
        self._ends = ends_of(request, tokens)
        stops = [end for end in request.until if isinstance(end, str)]
        before = (token for part in request.branch.lineage() for token in part.token_ids or ())
        self._stream = TextStream(stops, trims=tokens.trims_after(before))
        self._text = ""
        self._logprobs: list[float] = []
        self._top: list[tuple[float, ...]] = []
        self._told: tuple[int, int] = (0, 0) if after is None else after._told
        self.stop: str | int | None = None
        """The stop string or the end token that ended it."""
        self._reason: FinishReason = "length"

    def add(self, token: int, logprob: float | None = None, top: Sequence[float] = ()) -> bool:
        """Adds a token, with its log probability and the greatest ones beside it.

        Returns:
            Whether the text has ended with it: by an end, a stop string, or its limit.
        """
        self.ids.append(token)
        if logprob is not None:
            self._logprobs.append(logprob)
            self._top.append(tuple(top[: self._request.sampling.logprobs]))
        if token in self._ends:
            self.close("stop", token)
            return True
        piece = self._stream.feed(self._tokens.bytes_of(token))
        self._tell(piece.text)
        if piece.stop is not None:
            self._end("stop", piece.stop)
        elif len(self.ids) == self._request.max_tokens:
            self.close("length")
        return self.is_ended

    def close(self, reason: FinishReason, stop: int | None = None) -> None:
        """Ends the text where it is, unless it has ended."""
        if not self.is_ended:
            rest = self._stream.flush()
            self._tell(rest.text)
            self._end(*(reason, stop) if rest.stop is None else ("stop", rest.stop))

    def _end(self, reason: FinishReason, stop: str | int | None) -> None:
        self._reason, self.stop, self.is_ended = reason, stop, True

    def _tell(self, text: str) -> None:
        self._text += text
        chars, count = self._told
        if self._on_chunk is None or (len(self.ids) <= count and len(self._text) <= chars):
            return
        top = tuple(self._top[count:]) if self._request.sampling.logprobs else None
        ids = tuple(self.ids[count:])
        self._told = max(chars, len(self._text)), max(count, len(self.ids))
        self._on_chunk(Chunk(text=self._text[chars:], token_ids=ids, top_logprobs=top))

    def segment(self) -> Branch:
        """The whole text."""
        request = self._request
        has_all = len(self._logprobs) == len(self.ids)
        return Branch(
            parent=request.branch,
            role=request.branch.role,
            text=self._text,
            token_ids=tuple(self.ids),
            logprobs=tuple(self._logprobs) if has_all else None,
            top_logprobs=tuple(self._top) if has_all and request.sampling.logprobs else None,
            finish_reason=self._reason,
            stop_reason=self.stop,
            constraint=request.sampling.constraint,
        )


def ends_of(request: Request, tokens: TextTokens) -> frozenset[int]:
    """The tokens that end a call."""
    return frozenset({*tokens.end_ids, *(end for end in request.until if isinstance(end, int))})
