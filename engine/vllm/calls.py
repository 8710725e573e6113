"""Calls of vLLM, on its loop: tokens as they come, and what they make of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any

from ttc.engine.writing import Writing
from ttc.errors import EngineError
from ttc.ports import Request
from ttc.types import UNMEASURED, Branch, Usage

__all__ = ["Call", "Generation", "Scoring"]

_IN_FLIGHT = 2
"""Tokens that a call may have beyond those that were told: a step, and one that was planned."""


class Call:
    """A request to vLLM, on its loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, outputs: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Reads what vLLM tells, unless it was cancelled before."""
        self._loop = loop
        if not self._is_over:
            self._task = loop.create_task(self._run(outputs))

    async def _run(self, outputs: Any) -> None:
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    if self.take(output):
                        return  # closing it ends the request
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits has to hear of it
            self.fail(EngineError(f"vLLM failed: {type(error).__name__}: {error}"))
        else:
            self.fail(EngineError("vLLM ended a call before its end"))

    def take(self, output: Any) -> bool:
        """Reads an output; whether it was the last one."""
        raise NotImplementedError

    def fail(self, error: EngineError) -> None:
        """Ends it with an error, unless it has ended."""
        raise NotImplementedError

    def _end(self) -> bool:
        """Ends it; whether it had not ended before."""
        with self._lock:
            before, self._is_over = self._is_over, True
            return not before

    def _abort(self) -> None:
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)


class Generation(Call):
    """A call that generates; implements `ttc.ports.Generation`."""

    def __init__(self, request: Request, writing: Writing) -> None:
        super().__init__()
        self.future: Future[Branch] = Future()
        self._request, self._writing = request, writing
        self._input = self._cached = 0
        self._produced = 0

    @property
    def usage(self) -> Usage:
        """The physical lines, as far as vLLM tells them."""
        lines = {"input_tokens": self._input, "cached_input_tokens": self._cached}
        return Usage(**vars(UNMEASURED) | lines | {"retried_tokens": 0})

    def cancel(self) -> int:
        """Ends the call: vLLM stops it before its next step but one."""
        if self._end():
            most = len(self._writing.ids) + _IN_FLIGHT if self._input else 0
            self._produced = min(self._request.max_tokens, most)
            self._abort()
        return self._produced

    def take(self, output: Any) -> bool:
        """Reads tokens, one after the other."""
        self._input = len(output.prompt_token_ids or ())
        self._cached = output.num_cached_tokens or 0
        made, writing = output.outputs[0], self._writing
        rows = made.logprobs or [None] * len(made.token_ids)
        for token, row in zip(made.token_ids, rows, strict=True):
            told = row or {}
            values = sorted((float(other.logprob) for other in told.values()), reverse=True)
            if writing.add(token, float(told[token].logprob) if told else None, values):
                break
        if made.finish_reason is not None:
            writing.close("length" if made.finish_reason == "length" else "stop")
        if writing.is_ended and self._end():
            self._produced = len(writing.ids)
            self.future.set_result(writing.segment())
        return writing.is_ended

    def fail(self, error: EngineError) -> None:
        """Ends it with an error."""
        if self._end():
            error.output_tokens = self._produced = len(self._writing.ids)
            self.future.set_exception(error)


class Scoring:
    """Several texts that are scored; implements `ttc.ports.Reading`."""

    def __init__(self, paths: Sequence[tuple[list[int], list[int]]]) -> None:
        self.future: Future[tuple[Any, ...]] = Future()
        self._parts: list[_Scored] = []
        self._values: dict[int, tuple[float, ...]] = {}
        self._count = len(paths)
        self._given = sum(len(before) + len(own) for before, own in paths)
        if not paths:
            self.future.set_result(())

    @property
    def usage(self) -> Usage:
        """All prompts, which vLLM computes anew where it scores them."""
        lines = {"input_tokens": self._given, "cached_input_tokens": 0, "retried_tokens": 0}
        return Usage(**vars(UNMEASURED) | lines)

    def part(self, start: int) -> _Scored:
        """One of them, whose own tokens begin at a place."""
        self._parts.append(_Scored(self, len(self._parts), start))
        return self._parts[-1]

    def found(self, place: int, values: tuple[float, ...]) -> None:
        """Takes the values of one; on vLLM's loop."""
        self._values[place] = values
        if len(self._values) == self._count and not self.future.done():
            self.future.set_result(tuple(self._values[n] for n in range(self._count)))

    def failed(self, error: EngineError) -> None:
        """Ends all of them; on vLLM's loop."""
        if not self.future.done():
            self.future.set_exception(error)
        self.cancel()

    def cancel(self) -> int:
        """Ends all of them."""
        for part in self._parts:
            part.stop()
        return 0


class _Scored(Call):
    """One text that is scored."""

    def __init__(self, whole: Scoring, place: int, start: int) -> None:
        super().__init__()
        self._whole, self._place, self._start = whole, place, start

    def take(self, output: Any) -> bool:
        """Reads the log probabilities of the prompt, once they are there."""
        rows, ids = output.prompt_logprobs, output.prompt_token_ids
        if not rows:
            return False
        pairs = list(zip(rows, ids, strict=True))[self._start :]
        values = tuple(0.0 if row is None else float(row[token].logprob) for row, token in pairs)
        if self._end():
            self._whole.found(self._place, values)
        return True

    def stop(self) -> None:
        """Ends it."""
        if self._end():
            self._abort()

    def fail(self, error: EngineError) -> None:
        """Ends all texts of the call with an error."""
        if self._end():
            self._whole.failed(error)
