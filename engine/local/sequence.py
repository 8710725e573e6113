"""One call as the engine runs it: its tokens, its text, and how it ends."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from collections.abc import Sequence as Seq
from concurrent.futures import Future

from ttc.engine.local.call import Call
from ttc.engine.local.drawing import Drawing
from ttc.engine.local.grammar import Grammar
from ttc.engine.local.sample import Draw
from ttc.engine.local.text.stream import TextStream
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.local.tree import Match, RadixTree
from ttc.errors import EngineError
from ttc.ports import Request
from ttc.types import Branch, Chunk, FinishReason, Usage

__all__ = ["Sequence"]

OnChunk = Callable[[Chunk], None]


class Sequence(Call):
    """A call that generates, and its state.

    Args:
        request: what was asked.
        prompt: the tokens that it goes on from; at least one.
        limit: the most tokens that it may generate, at least one.
        tokens: the model's vocabulary.
        on_chunk: is told each piece of text.
        grammar: what its constraint allows; `None` where it has none.
    """

    def __init__(
        self,
        request: Request,
        prompt: list[int],
        limit: int,
        tokens: TextTokens,
        on_chunk: OnChunk | None,
        grammar: Grammar | None = None,
    ) -> None:
        root = next(request.branch.lineage())
        super().__init__(list(prompt), len(prompt) + limit, request.priority, request.owner or root)
        self.salt = root.salt
        self.request = request
        self.limit = limit
        self.future: Future[Branch] = Future()
        self._vocabulary = tokens
        self._on_chunk = on_chunk
        self._drawing = Drawing(request, grammar)
        self._ends = tokens.end_ids | {end for end in request.until if isinstance(end, int)}
        stops = [stop for stop in request.until if isinstance(stop, str)]
        self._stream = TextStream(stops, trims=tokens.trims_after(prompt))
        self._reads_along = bool(stops) or on_chunk is not None
        self._text: list[str] = []
        self._logprobs: list[float] = []
        self._entropies: list[float] = []
        self._self_certainties: list[float] = []
        self._top_logprobs: list[array[float]] = []
        self.drafts = self.rejected_drafts = 0
        """Rows of drafts that were computed for it, and those of them that did not come true.
        Guarded."""
        self._claim = threading.Lock()
        self._claimed = False

    @property
    def usage(self) -> Usage:
        """The physical lines of the call. Guarded."""
        return Usage(
            input_tokens=self.prompt_length,
            cached_input_tokens=self.cached,
            recomputed_tokens=self.recomputed,
            draft_tokens=self.drafts,
            rejected_draft_tokens=self.rejected_drafts,
            flops=self.flops,
            kv_byte_seconds=self.kv_byte_seconds,
        )

    @property
    def num_draws(self) -> int:
        """Rows that it has taken the model's head for. Guarded."""
        return self.started

    @property
    def num_output(self) -> int:
        """Output tokens that it has."""
        return len(self._logprobs)

    @property
    def num_reusable(self) -> int:
        """How many of its first tokens another call could compute for it."""
        return len(self.tokens)

    def match(self, tree: RadixTree) -> Match:
        """Its prefix that is computed."""
        return tree.match(self.tokens, self.salt)

    @property
    def draw(self) -> Draw:
        """How its next token is drawn."""
        return self._drawing.draw(len(self.tokens))

    def draws(self, drafts: Seq[int]) -> list[Draw]:
        """How its next token is drawn, and those after each of some drafted tokens."""
        return self._drawing.draws(len(self.tokens), drafts)

    def explained(self, fault: str) -> str:
        """Why nothing can be drawn for it, with what its constraint says of that."""
        return self._drawing.explained(fault)

    @property
    def draft_room(self) -> int:
        """Drafted tokens that may be computed along with its next token: each may be followed."""
        return self.limit - self.num_output - 1

    def num_triable(self, drafts: Seq[int]) -> int:
        """How many drafted tokens are worth computing: none that ends it or that is illegal."""
        ends = (place for place, token in enumerate(drafts) if token in self._ends)
        return self._drawing.num_legal(drafts[: next(ends, len(drafts))])

    def try_drafts(self, rows: int) -> None:
        """So many rows of drafts are computed, in vain until they come true. Guarded."""
        self.drafts += rows
        self.rejected_drafts += rows

    def confirm_draft(self) -> None:
        """A drafted token has come true, and one more is drawn. Guarded."""
        self.rejected_drafts -= 1
        self.started += 1
        self.reached += 1

    def accept(
        self,
        token: int,
        logprob: float,
        entropy: float | None,
        self_certainty: float | None,
        top_logprobs: array[float] | None,
    ) -> Chunk | None:
        """Adds a token. The chunk that it gives has a branch where the call has ended.

        `None` where it goes on and nobody wants to be told.
        """
        self.tokens.append(token)
        self._logprobs.append(logprob)
        if entropy is not None and self_certainty is not None:
            self._entropies.append(entropy)
            self._self_certainties.append(self_certainty)
        if top_logprobs is not None:
            self._top_logprobs.append(top_logprobs)
        if token in self._ends:
            return self._last(token, self._unread(without=1), "stop", token)
        self._drawing.accept(token)
        if not self._reads_along:
            is_last = len(self._logprobs) == self.limit
            return self._last(token, self._unread(), "length", None) if is_last else None
        text, stop = self._stream.feed(self._vocabulary.bytes_of(token))
        if stop is not None:
            self._text.append(text)
            return self._chunk(token, text, self._branch("stop", stop))
        if self.num_output == self.limit:
            return self._last(token, text, "length", None)
        self._text.append(text)
        return self._chunk(token, text, None)

    def _unread(self, without: int = 0) -> str:
        """The text of all output tokens but the last few, where it was not read along."""
        if self._reads_along:
            return ""
        ids = self.tokens[self.prompt_length : len(self.tokens) - without]
        return self._stream.feed(b"".join(map(self._vocabulary.bytes_of, ids))).text

    def so_far(self) -> Branch:
        """What it has generated by now, without a text. From any thread."""
        if self.future.done() and not self.future.cancelled() and self.future.exception() is None:
            return self.future.result()
        sampling, start = self.request.sampling, self.prompt_length
        measured = (self._entropies, self._self_certainties) if sampling.entropy else ()
        columns = (self._logprobs, *measured, *([self._top_logprobs] if sampling.logprobs else ()))
        count = min(map(len, columns))  # they grow one after another
        parent = self.request.branch
        return Branch(
            parent=parent,
            role=parent.role,
            text="",
            token_ids=tuple(self.tokens[start : start + count]),
            logprobs=tuple(self._logprobs[:count]),
            entropies=tuple(self._entropies[:count]) if sampling.entropy else None,
            self_certainties=tuple(self._self_certainties[:count]) if sampling.entropy else None,
            top_logprobs=tuple(self._top_logprobs[:count]) if sampling.logprobs else None,
            finish_reason="length",
            constraint=sampling.constraint,
        )

    @property
    def is_read_along(self) -> bool:
        """Whether somebody is told each chunk who may keep whoever tells waiting."""
        return self._on_chunk is not None and not getattr(self._on_chunk, "never_waits", False)

    @property
    def is_over(self) -> bool:
        """Whether its caller has its result or an error, or has cancelled it."""
        return self.cancelled or self.future.done()

    def tell(self, chunk: Chunk) -> None:
        """Hands a chunk to the caller, and the branch where it is the last one."""
        if self._on_chunk is not None:
            self._on_chunk(chunk)
        if chunk.branch is not None and self.claim():
            self.future.set_result(chunk.branch)

    def fail(self, error: EngineError) -> None:
        """Ends the call with an error, unless it has ended."""
        if self.claim():
            self.future.set_exception(error)

    def claim(self) -> bool:
        """Whether the future may be given its result now: once, and not after a cancellation.

        Who waits for a cancelled future is told by the same call.
        """
        with self._claim:
            if self._claimed:
                return False
            self._claimed = True
            return self.future.set_running_or_notify_cancel()

    def _last(self, token: int, text: str, reason: FinishReason, end: int | None) -> Chunk:
        """The chunk that ends the call, with the text that was held back."""
        rest, stop = self._stream.flush()
        self._text.append(text + rest)
        branch = self._branch(reason, end) if stop is None else self._branch("stop", stop)
        return self._chunk(token, text + rest, branch)

    def _chunk(self, token: int, text: str, branch: Branch | None) -> Chunk:
        top = tuple(self._top_logprobs[-1:]) if self.request.sampling.logprobs else None
        own = (self._logprobs[-1],)
        return Chunk(text=text, token_ids=(token,), logprobs=own, top_logprobs=top, branch=branch)

    def _branch(self, reason: FinishReason, stop: str | int | None) -> Branch:
        parent = self.request.branch
        return Branch(
            parent=parent,
            role=parent.role,
            text="".join(self._text),
            token_ids=tuple(self.tokens[self.prompt_length :]),
            logprobs=tuple(self._logprobs),
            entropies=tuple(self._entropies) if self.request.sampling.entropy else None,
            self_certainties=(
                tuple(self._self_certainties) if self.request.sampling.entropy else None
            ),
            top_logprobs=tuple(self._top_logprobs) if self.request.sampling.logprobs else None,
            finish_reason=reason,
            stop_reason=stop,
            constraint=self.request.sampling.constraint,
        )
