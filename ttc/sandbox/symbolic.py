"""The symbolic pool: compares answers by computer algebra, in jailed workers that can be killed.

What keys and bounds decide (`ttc.answers.compare`) never gets here. The rest goes to a worker that
is forked from a zygote with sympy loaded, and that is killed and replaced when a check takes too
long, dies or fills its memory: the verdict is then unknown, and the next check meets a fresh
worker. A spare one is kept warm.

A pool works on a thread of its own. Any thread may ask it, and any event loop.
Cost: the zygote starts in about a second, by `start` or with the first check, whose limit holds
meanwhile: it may end unknown, and the zygote goes on starting. Then a check of two polynomials
takes about a millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Coroutine, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from ttc.answers.equality import Rules, Verdict, compare
from ttc.answers.parser import parse_answer
from ttc.registry import install_hint
from ttc.sandbox.limits import Limits
from ttc.sandbox.zygote import Process, SandboxChoice, Zygote
from ttc.types import AnswerFormat

__all__ = ["Check", "Checked", "Evaluated", "SymbolicPool", "shared_pool"]

_LIFE_S = 3600.0
_CPU_S = 60.0
_MOST_CPU_S = 20.0
_MOST_CACHED = 20_000
_NEEDS = {"symbolic": "sympy", "math_verify": "math_verify"}

U = TypeVar("U")


@dataclass(frozen=True, kw_only=True)
class Check:
    """Two answers to compare."""

    left: str
    right: str
    format: AnswerFormat = "auto"
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True)
class Checked:
    """What a check came to."""

    verdict: Verdict
    """Equal, different, or unknown."""
    was_cut: bool = False
    """Whether it is unknown because a limit ended the check, and so depends on the machine."""
    cpu_seconds: float = field(default=0.0, compare=False)
    """What it took of a processor; 0 where it was known, and at most the limit where it was cut."""


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What an expression came to; `None` where it has no value."""

    exact: str | None = None
    decimals: str | None = None
    was_cut: bool = False
    """Whether a limit ended it."""
    cpu_seconds: float = field(default=0.0, compare=False)


class SymbolicPool:
    """Compares answers; `check` waits for the verdict, `check_all` awaits many."""

    def __init__(
        self,
        *,
        kind: Literal["symbolic", "math_verify", "stalling"] = "symbolic",
        seconds: float = 2.0,
        memory_bytes: int = 512 << 20,
        workers: int = 1,
        sandbox: SandboxChoice = "auto",
    ) -> None:
        """A pool; nothing starts before the first check.

        Args:
            kind: who compares: our own reader with sympy, or math-verify as a second opinion.
            seconds: how long a check may take, once a worker is free; the zygote's start counts.
            memory_bytes: what a worker may use beyond what it starts with.
            workers: how many checks may run at once.
            sandbox: which jail is asked for; see `ttc.sandbox.zygote.Zygote.start`.

        Raises:
            ModuleNotFoundError: what it computes with is not installed.
        """
        if seconds <= 0 or workers < 1:
            raise ValueError(f"seconds > 0 and workers >= 1 are needed, not {seconds}, {workers}")
        needed = _NEEDS.get(kind)
        if needed and find_spec(needed) is None:
            raise ModuleNotFoundError(
                f"symbolic equivalence needs {needed}, which is not installed; "
                f"{install_hint('verify')}",
                name=needed,
            )
        self.kind, self.seconds = kind, seconds
        self._limits = Limits(
            seconds=_LIFE_S, cpu_seconds=_CPU_S, memory_bytes=memory_bytes, threads=0
        )
        self._num_workers, self._sandbox = workers, sandbox
        self._known: OrderedDict[Hashable, Checked] = OrderedDict()
        self._lock = threading.Lock()
        self._crew: _Crew | None = None

    def start(self) -> Future[None]:
        """Starts what checks need, if it does not run; the future tells when it does, or why not.

        A caller who does not wait has the first check find it sooner.
        """
        with self._lock:
            crew = self._begun()
            return crew.submit(crew.start())

    def check(self, check: Check, *, is_patient: bool = False) -> Checked:
        """The verdict on two answers, in time. Never called in an event loop: it waits.

        Args:
            check: the two answers.
            is_patient: whether to wait for the zygote's start, however long that takes, before the
                limit counts.
        """
        known = self._decided(check)
        return known if known is not None else self._submit(check, is_patient).result()

    async def check_all(self, checks: Sequence[Check]) -> list[Checked]:
        """The verdicts on many pairs, in their order."""
        decided = [self._decided(check) for check in checks]
        asked = {
            index: asyncio.wrap_future(self._submit(checks[index]))
            for index, known in enumerate(decided)
            if known is None
        }
        if asked:
            await asyncio.gather(*asked.values())
        return [
            known if known is not None else asked[index].result()
            for index, known in enumerate(decided)
        ]

    async def evaluate(self, expression: str) -> Evaluated:
        """What an expression without variables comes to."""
        with self._lock:
            crew = self._begun()
            future = crew.submit(self._evaluated(expression, crew))
        return await asyncio.wrap_future(future)

    async def _evaluated(self, expression: str, crew: _Crew) -> Evaluated:
        await crew.start()
        reply = await crew.ask({"value": expression}, self.seconds)
        if reply is None:
            return Evaluated(was_cut=True, cpu_seconds=self.seconds)
        exact, decimals = reply["value"] or (None, None)
        return Evaluated(exact=exact, decimals=decimals, cpu_seconds=reply["cpu_seconds"])

    def close(self) -> None:
        """Ends its workers, its zygote and its thread; it starts anew when it is asked again."""
        with self._lock:
            crew, self._crew = self._crew, None
        if crew is not None:
            crew.close()

    def _submit(self, check: Check, is_patient: bool = False) -> Future[Checked]:
        with self._lock:
            crew = self._begun()
            return crew.submit(self._ask(check, crew, is_patient))

    def _begun(self) -> _Crew:
        if self._crew is None:
            self._crew = _Crew(self.kind, self._limits, self._num_workers, self._sandbox)
        return self._crew

    async def _ask(self, check: Check, crew: _Crew, is_patient: bool) -> Checked:
        left, right = sorted(
            (check.left, check.right)
        )  # one order, so that verdicts are symmetrical
        request = {
            "left": left,
            "right": right,
            "format": check.format,
            "rules": asdict(check.rules),
        }
        limit = self.seconds
        if is_patient:
            await crew.start()
        rest = limit - await crew.wait(limit)
        reply = await crew.ask(request, rest) if rest > 0 else None
        if reply is not None:
            checked = Checked(reply["verdict"], cpu_seconds=reply["cpu_seconds"])
        else:
            checked = Checked(None, was_cut=True, cpu_seconds=max(0.0, rest))
        if reply is not None or rest == limit:  # otherwise it is the start that took too long
            self._remember(self._name(check), replace(checked, cpu_seconds=0.0))
        return checked

    def _decided(self, check: Check) -> Checked | None:
        """What is known, or what keys and bounds decide."""
        name = self._name(check)
        with self._lock:
            known = self._known.get(name)
            if known is not None:
                self._known.move_to_end(name)
                return known
        if self.kind != "symbolic":
            return None
        left, right = (parse_answer(side, check.format) for side in (check.left, check.right))
        if left is None or right is None:
            return Checked(False)  # nothing equals no answer
        verdict = compare(left, right, check.rules)
        return None if verdict is None else Checked(verdict)

    def _name(self, check: Check) -> Hashable:
        """What checks with one verdict share."""
        sides: set[Hashable] = set()
        for side in (check.left, check.right):
            parsed = parse_answer(side, check.format) if self.kind == "symbolic" else None
            sides.add(side if parsed is None else parsed.key)
        return frozenset(sides), check.format, check.rules

    def _remember(self, name: Hashable, checked: Checked) -> None:
        with self._lock:
            self._known[name] = checked
            while len(self._known) > _MOST_CACHED:
                self._known.popitem(last=False)


@cache
def shared_pool(kind: Literal["symbolic", "math_verify"] = "symbolic") -> SymbolicPool:
    """The pool of this process."""
    return SymbolicPool(kind=kind)


class _Crew:
    """A thread with an event loop, in it a zygote and its workers."""

    def __init__(self, kind: str, limits: Limits, workers: int, sandbox: SandboxChoice) -> None:
        self._kind, self._limits, self._sandbox = kind, limits, sandbox
        self._loop = asyncio.new_event_loop()
        self._free = asyncio.Semaphore(workers)
        self._starting: asyncio.Task[Zygote] | None = None
        self._idle: deque[_Worker] = deque()
        self._num_kept = workers + 1
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"ttc-{kind}", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, U]) -> Future[U]:
        """Runs work on the crew's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def start(self) -> None:
        """Starts the zygote, if it does not run, and waits for it."""
        await self._zygote()

    async def wait(self, seconds: float) -> float:
        """Waits for the zygote at most so long; gives how long that was, 0 if it runs already."""
        starting = self._started()
        if starting.done():
            return 0.0
        begun = self._loop.time()
        await asyncio.wait([starting], timeout=seconds)
        if not starting.done():
            return seconds
        starting.result()
        return self._loop.time() - begun

    async def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """A worker's reply; `None` where it had to be killed, or died twice."""
        async with self._free:
            workers: list[_Worker] = []
            try:
                async with asyncio.timeout(seconds):
                    while len(workers) < 2:  # a spare one, should the first die
                        workers.append(await self._take())
                    for worker in workers:
                        reply = await worker.exchange(request)
                        if reply is not None:
                            return reply
            except TimeoutError:
                pass
            finally:
                for worker in workers:
                    self._give_back(worker)
        return None

    async def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.popleft()
            if worker.is_alive:
                return worker
            worker.close()
        zygote = await self._zygote()
        return _Worker(zygote.fork("worker", self._limits, is_heard=False))

    async def _zygote(self) -> Zygote:
        starting = self._started()
        await asyncio.wait([starting])  # who waits no longer does not end it for the others
        return starting.result()

    def _started(self) -> asyncio.Task[Zygote]:
        """The start of the zygote: the last one, if it runs or may yet, or a new one."""
        last = self._starting
        if last is None or (last.done() and not _has_zygote(last)):
            last = self._starting = asyncio.create_task(Zygote.start(self._kind, self._sandbox))
        return last

    def _give_back(self, worker: _Worker) -> None:
        if worker.is_usable and len(self._idle) < self._num_kept:
            self._idle.appendleft(worker)
        else:
            worker.close()

    def close(self) -> None:
        """Ends everything and waits for it."""
        self.submit(self._end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        for worker in self._idle:
            worker.close()
        self._idle.clear()
        if self._starting is not None:
            await asyncio.wait([self._starting])
            if _has_zygote(self._starting):
                await self._starting.result().close()


def _has_zygote(starting: asyncio.Task[Zygote]) -> bool:
    """Whether a start has given a zygote that runs."""
    return not starting.cancelled() and starting.exception() is None and starting.result().alive


class _Worker:
    """A process that answers one request after another."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_clean = True
        self._cpu_seconds = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, as far as is known."""
        return not self._process.ended.done()

    @property
    def is_usable(self) -> bool:
        """Whether it may be asked again: it is in step, and has not worked too long."""
        return self._is_clean and self.is_alive and self._cpu_seconds < _MOST_CPU_S

    async def exchange(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Its reply; `None` if it died."""
        self._is_clean = False
        await self._process.give(request)
        reply = await self._process.hear()
        if reply is None:
            return None
        total = reply["cpu_seconds"]
        reply["cpu_seconds"] = total - self._cpu_seconds
        self._is_clean, self._cpu_seconds = True, total
        return reply

    def close(self) -> None:
        """Kills it."""
        with contextlib.suppress(OSError):
            self._process.close()
