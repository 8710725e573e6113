"""The life of one program in a run: launched, run in the sandbox, and booked once.

`abort` ends it within one tick; its processes are killed at once, and what they had used is booked
before the run ends.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

from ttc.errors import BudgetExceeded, TTCError
from ttc.run import Run
from ttc.sandbox.execution import Execution
from ttc.sandbox.extraction import Completion
from ttc.sandbox.forms import Tests
from ttc.sandbox.limits import Limits
from ttc.sandbox.sandbox import shared
from ttc.types import Record
from ttc.usage import NO_USAGE, Usage
from ttc.work import Work

__all__ = ["ProgramCall"]


class ProgramCall:
    """One program, run against tests or alone."""

    def __init__(self, run: Run, path: str, index: int, request: tuple[Any, ...]) -> None:
        """A call.

        Args:
            run: the run.
            path: the path of the node that asks.
            index: which of the node's programs this is.
            request: all that decides what comes of it.
        """
        self.key = f"{path}#program{index}"
        self._run, self._path = run, path
        self._started = run.clock.now()
        self._task: asyncio.Task[Execution] | None = None
        self._reason: TTCError | None = None
        self._usage = NO_USAGE
        self._done = False
        digest = hashlib.blake2b(repr(request).encode(), digest_size=16).hexdigest()
        self._place = run.journal.add(
            Record(path=path, index=index, kind="execution", fingerprint=digest)
        )
        run.opened(self, "sandbox")

    async def run(
        self, work: Work, program: str | Completion, tests: Tests | None, limits: Limits
    ) -> Execution:
        """Runs it; the verdict is data, whatever it is.

        Raises:
            BudgetExceeded: the deadline cut it.
            SandboxError: code cannot be run here as safely as the run wants.
        """
        sandbox = shared(self._run.sandbox)
        self._task = work.task(sandbox.execute(program, tests, limits=limits, spent=self._book))
        try:
            execution = await self._task
        except asyncio.CancelledError:
            self.abort()
            raise self._reason or asyncio.CancelledError from None
        except BaseException as error:
            self._end({"error": f"{type(error).__name__}: {error}"})
            raise
        if execution.verdict == "timeout":
            self._run.timing["a program was stopped by a limit of time"] = None
        self._end({"verdict": execution.verdict})
        return execution

    def abort(self, reason: TTCError | None = None) -> None:
        """Ends it in this tick."""
        if self._done:
            return
        self._reason = reason
        refusal = reason if isinstance(reason, BudgetExceeded) else None
        self._end({"refused": refusal.resource if refusal else "cancelled"})
        if self._task is not None:
            self._run.cut = True
            self._task.cancel()

    def discard(self) -> None:
        """Ends it. What it had used is no token, so nothing of it is labelled."""
        self.abort()

    def _book(self, cpu_seconds: float) -> None:
        """Books what one of its runs has used, also where that is known after its end."""
        used = Usage(sandbox_seconds=cpu_seconds)
        self._usage += used
        self._run.journal.amend(self._place, usage=self._usage)
        self._run.book("sandbox", used)

    def _end(self, detail: Mapping[str, Any]) -> None:
        self._done = True
        self._run.closed(self)
        seconds = self._run.clock.now() - self._started
        self._run.journal.amend(self._place, detail=detail, seconds=seconds)
        self._run.emit("call", self._path)
