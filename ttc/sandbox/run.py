"""The processes of one run: forked together, heard, and gone together."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, Self

from ttc.sandbox.execution import Execution, Proof, Verdict
from ttc.sandbox.limits import Limits
from ttc.sandbox.zygote import Ended, Process, Zygote

__all__ = ["Run"]

_CHUNK = 1 << 16
_NEARLY = 0.5  # the kernel holds the limit by ticks, which may run far ahead of what was used


class _Capture:
    """What comes out of a pipe, up to a limit; it is told of what goes beyond."""

    def __init__(self, descriptor: int, limit: int, on_over: Callable[[], None]) -> None:
        self.kept = bytearray()
        self.truncated = False
        self._descriptor, self._limit, self._on_over = descriptor, limit, on_over
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self.read)

    def read(self) -> bool:
        """Takes what is there; tells whether there may be more."""
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._descriptor)
            return False
        room = self._limit - len(self.kept)
        self.kept += data[:room]
        if len(data) > room and not self.truncated:
            self.truncated = True
            self._on_over()
        return not self.truncated

    def stop(self) -> None:
        """Takes what is left of a process that has ended, and reads no more."""
        while self.read():
            pass
        self._loop.remove_reader(self._descriptor)

    @property
    def text(self) -> str:
        """What was kept, whatever bytes it is."""
        return self.kept.decode("utf-8", errors="replace")


class Run:
    """The processes of one run. Leaving it kills and reaps them, and tells what they used."""

    def __init__(self, zygote: Zygote, proof: Proof, spent: Callable[[float], None]) -> None:
        self._zygote, self._proof, self._spent = zygote, proof, spent
        self._loop = asyncio.get_running_loop()
        self._processes: list[Process] = []
        self._output: list[_Capture] = []
        self._feeds: list[int] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        try:
            if self._processes:
                await asyncio.wait([process.ended for process in self._processes])
        finally:
            for capture in self._output:
                capture.stop()
            for descriptor in list(self._feeds):
                self._fed(descriptor)
            for process in self._processes:
                process.close()
            self._spent(self._cpu_seconds())

    def fork(
        self,
        main: str,
        limits: Limits,
        *,
        stdin: bytes | None = None,
        sockets: Sequence[socket.socket] = (),
        is_program: bool = False,
    ) -> Process:
        """Forks one of the run's processes.

        Args:
            main: what it runs.
            limits: what it may use.
            stdin: what it can read from standard input.
            sockets: what it gets beside its link.
            is_program: whether it runs the program; its output is kept, that of others is not.
        """
        source = None if stdin is None else self._feed(stdin)
        process = self._zygote.fork(
            main, limits, stdin=source, sockets=sockets, is_heard=is_program
        )
        self._processes.append(process)
        if is_program:
            self._output = [
                _Capture(descriptor, limits.output_bytes, process.kill)
                for descriptor in (process.stdout, process.stderr)
            ]
        return process

    async def end(self, process: Process) -> None:
        """Waits for a process to end by itself, or by its limits."""
        await asyncio.wait([process.ended])

    def _feed(self, data: bytes) -> int:
        """The reading end of a pipe that is written to as fast as it is read."""
        source, sink = os.pipe()
        os.set_blocking(sink, False)
        left = memoryview(data)
        self._feeds.append(sink)

        def write() -> None:
            nonlocal left
            try:
                left = left[os.write(sink, left) :] if left else left
            except BlockingIOError:
                return
            except OSError:  # nobody reads on
                left = left[:0]
            if not left:
                self._fed(sink)

        self._loop.add_writer(sink, write)
        return source

    def _fed(self, sink: int) -> None:
        if sink in self._feeds:
            self._feeds.remove(sink)
            self._loop.remove_writer(sink)
            os.close(sink)

    def _ends(self) -> list[tuple[Limits, Ended]]:
        return [(p.limits, p.ended.result()) for p in self._processes if p.ended.done()]

    def _cpu_seconds(self) -> float:
        return sum(ended.cpu_seconds for _, ended in self._ends())

    def execution(self, told: dict[str, Any] | None, nonce: str | None) -> Execution:
        """What the run came to.

        Args:
            told: what the judge said.
            nonce: what makes it the judge's word; `None` where the program's end says all.
        """
        verdict, reason = self._limit(told) or (
            self._by_status() if nonce is None else _by_word(told, nonce)
        )
        told = told or {}
        output, errors = self._output
        results = told.get("results", ())
        return Execution(
            verdict=verdict,
            proof=self._proof,
            level=self._zygote.level,
            layers=self._zygote.layers,
            reason=reason,
            calls=told.get("calls", 0),
            results=tuple(held is True for held in results),
            output=output.text,
            errors=errors.text,
            truncated=output.truncated or errors.truncated,
            cpu_seconds=self._cpu_seconds(),
            call_seconds=told.get("call_seconds"),
            peak_bytes=max((ended.peak_bytes for _, ended in self._ends()), default=0),
        )

    def _limit(self, told: dict[str, Any] | None) -> tuple[Verdict, str] | None:
        """The limit that was reached in one of the processes, if any."""
        # The end of a process is heard before it can be reaped, so the kernel may have killed what
        # the caller was the last to kill.
        by_itself = {None, "caller"} if told is None or told.get("has_ended") else {None}
        for limits, ended in self._ends():
            if ended.fault is not None:
                return "error", ended.fault
            if ended.cut == "memory":
                return "memory", f"more than {limits.memory_bytes} bytes of memory"
            if ended.cut == "seconds":
                return "timeout", f"more than {limits.seconds:g} s"
            by_kernel = ended.status == -signal.SIGKILL and ended.cut in by_itself
            if by_kernel and ended.cpu_seconds >= _NEARLY * limits.cpu_seconds:
                return "timeout", f"more than {limits.cpu_seconds:g} s of processor time"
        if any(capture.truncated for capture in self._output):
            limit = self._processes[0].limits.output_bytes
            return "output_limit", f"more than {limit} bytes of output"
        return None

    def _by_status(self) -> tuple[Verdict, str]:
        """How a script ended that nobody judges."""
        status = self._ends()[0][1].status
        if status == 0:
            return "finished", ""
        last = self._output[1].text.strip().rpartition("\n")[2]
        verdict: Verdict = "memory" if last.startswith("MemoryError") else "failed"
        return verdict, last or f"it ended with status {status}"


def _by_word(told: dict[str, Any] | None, nonce: str) -> tuple[Verdict, str]:
    """The judge's verdict, if it is the judge's."""
    if told is None or told.get("nonce") != nonce:
        return "failed", "the judge ended without a verdict"
    verdict, reason = told["verdict"], str(told.get("reason", ""))
    if verdict == "failed" and reason.removeprefix("loading: ").startswith("MemoryError"):
        return "memory", reason
    return verdict, reason
