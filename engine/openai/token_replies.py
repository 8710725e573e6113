"""Replies whose tokens are told by their ids, and whose texts are made of them here.

A server ends a call at its own end tokens and at the limit. Stop strings are not sent to it, since
servers differ in which tokens they tell of one: they are found here, and the call is left there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.openai.replies import Reply, count_of, greatest
from ttc.engine.openai.report import TellsTokens
from ttc.engine.writing import Writing
from ttc.errors import EngineError
from ttc.types import Branch, Chunk, Usage

if TYPE_CHECKING:
    from ttc.ports import Request

__all__ = ["TokenReply", "tokens_of"]

_Told = tuple[int, float | None, tuple[float, ...]]


class TokenReply(Reply):
    """What has come of a call until now, token by token."""

    def __init__(
        self,
        request: Request,
        tokens: TextTokens,
        tells: TellsTokens,
        on_chunk: Callable[[Chunk], None] | None = None,
        after: TokenReply | None = None,
    ) -> None:
        """A reply.

        Args:
            request: what was asked for.
            tokens: the vocabulary.
            tells: where the server tells the ids.
            on_chunk: is told of every piece.
            after: an attempt before, of which pieces were passed on already.
        """
        super().__init__(request)
        before = None if after is None else after._writing
        self._writing: Writing = Writing(request, tokens, on_chunk, before)
        self._tokens, self._tells = tokens, tells

    def _read(self, choice: Mapping[str, Any]) -> None:
        self._words += choice.get("text") or ""
        for token, logprob, top in tokens_of(choice, self._tells):
            if self._writing.is_ended:
                self.is_over = True  # it goes on where the model has ended
                break
            self._writing.add(token, logprob, top)
        if isinstance(choice.get("finish_reason"), str):
            self.finish = choice["finish_reason"]
        if isinstance(self._writing.stop, str):
            self.is_over = True
        if self.is_over:
            self.finish = "stop"

    @property
    def length(self) -> int:
        """The tokens that the server has made, as far as they are a part of the text."""
        told = 0 if self.is_over else count_of(self._usage.get("completion_tokens"))
        return max(told or 0, len(self._writing.ids))

    @property
    def usage(self) -> Usage:
        """The physical lines; the prompt's tokens are known where the server was left."""
        told = super().usage
        known = {} if told.input_tokens else {"input_tokens": self._request.branch.num_tokens}
        return Usage(**vars(told) | known)

    def segment(self) -> Branch:
        """The whole reply.

        Raises:
            EngineError: as of any reply; or the server has not told the ids of all tokens.
        """
        reason, writing = self._ended(), self._writing
        missing = self.length - len(writing.ids)
        if missing == 1 and reason == "stop" and not writing.is_ended:
            writing.add(self._end)  # some servers count it, and do not tell it
        elif missing:
            said = f"the server told the ids of {len(writing.ids)} of {self.length} tokens"
            raise EngineError(said, output_tokens=self.length)
        writing.close(reason)
        segment = writing.segment()
        self._check_held(segment.finish_reason, segment.text)
        return segment

    @property
    def _end(self) -> int:
        """The token that ends a text."""
        tokens = self._tokens
        return tokens.control.get(str(tokens.special.get("eos_token")), min(tokens.end_ids))


def tokens_of(choice: Mapping[str, Any], tells: TellsTokens) -> Iterator[_Told]:
    """The tokens that a piece of a reply tells, each with its log probabilities."""
    told = choice.get("logprobs") or {}
    if tells == "logprobs":
        for entry in told.get("content") or ():
            if "id" not in entry:
                continue
            top = greatest(other["logprob"] for other in entry.get("top_logprobs") or ())
            yield int(entry["id"]), float(entry["logprob"]), top
        return
    ids = choice.get("token_ids")
    if not ids:
        return
    own = told.get("token_logprobs") or [None] * len(ids)
    rows = told.get("top_logprobs") or [{}] * len(ids)
    for token, logprob, row in zip(ids, own, rows, strict=True):
        yield (
            int(token),
            None if logprob is None else float(logprob),
            greatest((row or {}).values()),
        )
