"""The engine's thread: it takes the inbox in, lets the batch step, and ends when it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

import torch

from ttc.engine.local.batch import Batch
from ttc.engine.local.call import Call
from ttc.engine.local.cutting import Cutter
from ttc.engine.local.sequence import Sequence
from ttc.errors import EngineError
from ttc.safe_text import safe_logger
from ttc.types import Branch, Usage

__all__ = ["LocalGeneration", "Worker"]

logger = safe_logger(__name__)

_CLOSE_S = 30.0  # longer than any step


class LocalGeneration:
    """A running call; see `ttc.ports.Generation`."""

    def __init__(self, sequence: Sequence, lock: threading.Lock, cutter: Cutter) -> None:
        self._sequence, self._cutter = sequence, cutter
        self._lock = lock
        sequence.future.add_done_callback(self._follow)

    @property
    def future(self) -> Future[Branch]:
        """The new segment, or an `EngineError`. Cancelling it or the call cancels both."""
        return self._sequence.future

    @property
    def usage(self) -> Usage:
        """What the engine has measured of the call."""
        with self._lock:
            return self._sequence.usage

    def cancel(self) -> int:
        """Ends the call before the next step. Returns the output tokens computed."""
        with self._lock:
            self._sequence.cancel(time.monotonic())
            started = self._sequence.started
        self._sequence.future.cancel()
        return started

    def fork(self, num_tokens: int) -> Branch:
        """The branch of its first tokens, while it goes on; see `ttc.ports.Generation`."""
        whole = self._sequence.so_far()
        count = len(whole.token_ids or ())
        if not 1 <= num_tokens <= count:
            raise ValueError(
                f"the call has {count} tokens by now, so it cannot be forked after {num_tokens}"
            )
        if num_tokens == count and self._sequence.future.done():
            return whole
        return self._cutter.beginning(whole, num_tokens)

    def prioritise(self, priority: float) -> None:
        """Gives the call another priority, which acts at the next step."""
        self._sequence.prioritise(priority)

    def _follow(self, future: Future[Branch]) -> None:
        """Ends a call whose future was cancelled, as asyncio does to what it waits for."""
        if future.cancelled():
            with self._lock:
                self._sequence.cancel(time.monotonic())
            self._sequence.claim()


class Worker:
    """The engine's thread. It refers to no engine, so that a forgotten engine can be collected.

    Args:
        build: makes the batch, on that thread; it is given the lock that guards its sequences.
    """

    def __init__(self, build: Callable[[threading.Lock], Batch]) -> None:
        self.lock = threading.Lock()
        """Guards the inbox, and `started` and `cancelled` of all sequences."""
        self.batch: Future[Batch] = Future()
        """What computes, once it is built."""
        self._build = build
        self._wake = threading.Condition(self.lock)
        self._inbox: list[Call] = []
        self._closing = False
        self._fault = ""
        self._thread = threading.Thread(target=self._run, name="ttc-engine", daemon=True)
        self._thread.start()

    def submit(self, sequence: Sequence, cutter: Cutter) -> LocalGeneration:
        """Queues a call."""
        self.enqueue([sequence])
        return LocalGeneration(sequence, self.lock, cutter)

    def enqueue(self, calls: Iterable[Call]) -> None:
        """Puts calls into the inbox."""
        with self._wake:
            if self._closing:
                raise EngineError(self._fault or "the engine is closed; load it again")
            self._inbox.extend(calls)
            self._wake.notify()

    def close(self) -> None:
        """Ends the thread after the step that runs; what waits or runs fails."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        with torch.inference_mode():
            try:
                batch = self._build(self.lock)
            except BaseException as error:  # noqa: BLE001  it belongs to the thread that loads
                self.batch.set_exception(error)
                return
            self.batch.set_result(batch)
            reason = "the engine was closed before the call had ended"
            try:
                while self._take(batch):
                    self._step(batch)
            except BaseException as error:
                logger.exception("the engine's thread has ended")
                reason = self._fault = f"the engine's thread has ended: {error!r}; load it again"
            self._end(batch, reason)

    @staticmethod
    def _step(batch: Batch) -> None:
        try:
            batch.step()
        except Exception as error:
            logger.exception("a fault in the engine's scheduler")
            batch.start_over(f"the engine's scheduler failed: {error!r}")

    def _end(self, batch: Batch, reason: str) -> None:
        """Takes no more calls, and ends all that are left with an error."""
        with self._wake:
            self._closing = True
            left = [*self._inbox, *batch.schedule.calls]
            self._inbox.clear()
        for call in left:  # whatever state the batch is in
            call.fail(EngineError(reason, output_tokens=call.num_output))
        batch.start_over(reason)
        batch.close()

    def _take(self, batch: Batch) -> bool:
        """Waits for work and takes the inbox over. Returns whether the engine goes on."""
        with self._wake:
            self._wake.wait_for(lambda: self._closing or self._inbox or not batch.schedule.is_idle)
            batch.schedule.add(self._inbox)
            self._inbox.clear()
            return not self._closing
