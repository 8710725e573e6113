"""Runs programs in jailed processes and tells what came of it: one `Execution` for each.

A run's programs and tests go from here straight to its own two processes, and the verdict comes
back from the judge alone. Belongs to one event loop and never blocks it. When `execute` returns,
nothing of the run is left, cancelled or not.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from ttc.sandbox import codec
from ttc.sandbox.compare import same_output
from ttc.sandbox.execution import Execution, Proof
from ttc.sandbox.extraction import Completion
from ttc.sandbox.forms import (
    Asserts,
    CheckFunction,
    GeneratedTests,
    InProcess,
    StandardIO,
    Tests,
)
from ttc.sandbox.limits import Limits
from ttc.sandbox.run import Run
from ttc.sandbox.zygote import SandboxChoice, Zygote

__all__ = ["Sandbox", "shared"]

_MOST_FORKS = 2000  # two for each run
_JUDGE_EXTRA_S = 1.0
_LONGEST_LITERAL = 2000

Spent = Callable[[float], None]


class Sandbox:
    """Runs programs, as many at once as there are cores, in processes forked from one zygote."""

    def __init__(
        self,
        choice: SandboxChoice = "auto",
        *,
        concurrency: int | None = None,
        kind: str = "code",
    ) -> None:
        """A sandbox.

        Args:
            choice: `auto` takes the best jail that holds, `full` refuses a restricted one, and
                `none` runs code as you, with limits alone.
            concurrency: runs at once; the cores that this process may use, by default. More of them
                make limits in seconds act early.
            kind: what its processes have loaded; see `ttc.sandbox.kinds`.
        """
        self._choice, self._kind = choice, kind
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self._room = asyncio.Semaphore(concurrency or cores or 1)
        self._starting = asyncio.Lock()
        self._zygote: Zygote | None = None
        self._retired: list[Zygote] = []

    async def execute(
        self,
        program: str | Completion,
        tests: Tests | None = None,
        *,
        limits: Limits | None = None,
        spent: Spent | None = None,
    ) -> Execution:
        """Runs a program against tests, or alone.

        Args:
            program: code, or a completion to take it from.
            tests: in one of the forms of `ttc.sandbox.forms`.
            limits: what the run may use.
            spent: is told the processor time that was spent, even where the run is cancelled.

        Raises:
            SandboxError: code cannot be run here as safely as was asked for.
        """
        limits, spent = limits or Limits(), spent or (lambda _: None)
        told = {"program": program} if isinstance(program, str) else asdict(program)
        work = asyncio.ensure_future(self._execute(told, tests, limits, spent))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.cancel()
            while not work.done():  # it kills and reaps, and nobody may keep it from that
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # nobody waits for it any more
            raise

    async def _execute(
        self, told: dict[str, Any], tests: Tests | None, limits: Limits, spent: Spent
    ) -> Execution:
        async with self._room:
            zygote = await self.ready()
            match tests:
                case CheckFunction() | Asserts():
                    return await _judged(zygote, told, _work(tests), limits, spent)
                case GeneratedTests():
                    return await _generated(zygote, told, tests, limits, spent)
                case StandardIO():
                    return await _by_output(zygote, told, tests, limits, spent)
                case InProcess():
                    return await _in_process(zygote, told, tests, limits, spent)
                case None:
                    return await _script(zygote, told, "", limits, spent)
        raise TypeError(f"tests come in a form of ttc.sandbox.forms, not as {type(tests).__name__}")

    async def ask(self, message: object, *, limits: Limits) -> dict[str, Any] | None:
        """What a fresh worker of the kind replies to a message; `None` where it ends instead.

        Nothing that it does to itself is left for the next one.

        Raises:
            SandboxError: no jail that was asked for holds here.
        """
        async with self._room:
            process = (await self.ready()).fork("worker", limits, is_heard=False)
            try:
                await process.give(message)
                return await process.hear()
            finally:
                process.close()

    async def ready(self) -> Zygote:
        """A zygote to fork from, started or replaced where need be.

        Raises:
            SandboxError: no jail that was asked for holds here.
        """
        async with self._starting:
            for old in [z for z in self._retired if z.is_idle]:
                self._retired.remove(old)
                await old.close()
            zygote = self._zygote
            if zygote is not None and (not zygote.alive or zygote.num_forks >= _MOST_FORKS):
                self._retired.append(zygote)
                zygote = None
            self._zygote = zygote = zygote or await Zygote.start(self._kind, self._choice)
            return zygote

    async def close(self) -> None:
        """Ends everything that still runs."""
        for zygote in (*self._retired, *filter(None, [self._zygote])):
            await zygote.close()
        self._retired, self._zygote = [], None

    def abandon(self) -> None:
        """As `close`, once the event loop has been closed."""
        for zygote in (*self._retired, *filter(None, [self._zygote])):
            zygote.abandon()


_shared: dict[asyncio.AbstractEventLoop, dict[tuple[str, str], Sandbox]] = {}


def shared(choice: SandboxChoice, kind: str = "code") -> Sandbox:
    """The sandbox of the running event loop; those of loops that were closed end here."""
    for loop in [loop for loop in _shared if loop.is_closed()]:
        for sandbox in _shared.pop(loop).values():
            sandbox.abandon()
    of_loop = _shared.setdefault(asyncio.get_running_loop(), {})
    if (choice, kind) not in of_loop:
        of_loop[choice, kind] = Sandbox(choice, kind=kind)
    return of_loop[choice, kind]


def _work(tests: CheckFunction | Asserts) -> dict[str, Any]:
    """What the judge is told of tests."""
    if isinstance(tests, CheckFunction):
        code, prompt, entry_point = [tests.code], tests.prompt, tests.entry_point
    else:
        code, prompt, entry_point = list(tests.asserts), tests.setup, None
    return {
        "tests": code,
        "prompt": prompt,
        "entry_point": entry_point,
        "check": isinstance(tests, CheckFunction),
    }


def _is_vacuous(tests: Sequence[str]) -> bool:
    return not any(test.strip() for test in tests)


def _nothing_to_run(zygote: Zygote, proof: Proof) -> Execution:
    return Execution(
        verdict="invalid_tests",
        proof=proof,
        level=zygote.level,
        layers=zygote.layers,
        reason="there is no test; give at least one",
    )


async def _judged(
    zygote: Zygote, program: dict[str, Any], work: dict[str, Any], limits: Limits, spent: Spent
) -> Execution:
    """Tests in the judge, the program in the candidate, and a socket between them."""
    if _is_vacuous(work["tests"] if "cases" not in work else ["cases"] * len(work["cases"])):
        return _nothing_to_run(zygote, "separate")
    nonce = secrets.token_hex(16)
    patient = replace(
        limits,
        seconds=limits.seconds + _JUDGE_EXTRA_S,
        cpu_seconds=limits.cpu_seconds + _JUDGE_EXTRA_S,
        threads=0,
        processes=0,
    )
    async with Run(zygote, "separate", spent) as run:
        one, other = socket.socketpair()
        judge = run.fork("judge", patient, sockets=[one])
        candidate = run.fork("candidate", limits, sockets=[other], is_program=True)
        await candidate.give(program)
        await judge.give({**work, "nonce": nonce})
        told = await judge.hear()
    return run.execution(told, nonce)


async def _generated(
    zygote: Zygote, program: dict[str, Any], tests: GeneratedTests, limits: Limits, spent: Spent
) -> Execution:
    if _is_vacuous(tests.tests):
        return _nothing_to_run(zygote, "separate")
    cases = {at: case for at, test in enumerate(tests.tests) if (case := literal_case(test, tests))}
    results = [False] * len(tests.tests)
    done: list[Execution] = []
    waiting = list(cases)
    while waiting:  # a case that ends the candidate is one that failed; the rest go on without it
        work = {"cases": [cases[at] for at in waiting], "entry_point": tests.entry_point}
        done.append(await _judged(zygote, program, work, limits, spent))
        for at, held in zip(waiting, done[-1].results, strict=False):
            results[at] = held
        waiting = waiting[len(done[-1].results) + 1 :]
        if done[-1].verdict == "error" or done[-1].reason.startswith("loading"):
            break
    for at in (at for at in range(len(results)) if at not in cases):
        work = _work(Asserts(asserts=(tests.tests[at],)))
        done.append(await _judged(zygote, program, work, limits, spent))
        results[at] = done[-1].passed
    return _together(done, tuple(results))


def literal_case(test: str, tests: GeneratedTests) -> list[Any] | None:
    """What `assert f(literals) == literal` says, for the judge; `None` for anything else."""
    if len(test) > _LONGEST_LITERAL:  # deep text can end a process that parses it
        return None
    try:
        (statement,) = ast.parse(test.strip()).body
        if not isinstance(statement, ast.Assert) or not isinstance(statement.test, ast.Compare):
            return None
        call, (operator,), (right,) = (
            statement.test.left,
            statement.test.ops,
            statement.test.comparators,
        )
        if not (isinstance(operator, ast.Eq) and isinstance(call, ast.Call)):
            return None
        if not (isinstance(call.func, ast.Name) and call.func.id == tests.entry_point):
            return None
        given = [codec.encode(ast.literal_eval(argument)) for argument in call.args]
        named = {
            str(k.arg): codec.encode(ast.literal_eval(k.value)) for k in call.keywords if k.arg
        }
        if len(named) != len(call.keywords):
            return None
        return [given, named, codec.encode(ast.literal_eval(right))]
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError, codec.CodecError):
        return None


async def _by_output(
    zygote: Zygote, program: dict[str, Any], tests: StandardIO, limits: Limits, spent: Spent
) -> Execution:
    """One run for each case, up to the first that does not hold."""
    if not tests.cases:
        return _nothing_to_run(zygote, "output")
    done: list[Execution] = []
    results: list[bool] = []
    for given, expected in tests.cases:
        done.append(await _script(zygote, program, given, limits, spent))
        held = done[-1].verdict == "finished" and same_output(
            expected,
            done[-1].output,
            tolerance=tests.tolerance,
            layout=tests.layout,
            ignore_case=tests.ignore_case,
        )
        results.append(held)
        if not held:
            break
    execution = replace(_together(done, tuple(results)), calls=len(results))
    if all(results):
        return replace(execution, verdict="passed")
    if execution.verdict == "finished":
        wrong = f"the output of case {len(results) - 1} is not the expected one"
        return replace(execution, verdict="failed", reason=wrong)
    return execution


async def _script(
    zygote: Zygote, program: dict[str, Any], given: str, limits: Limits, spent: Spent
) -> Execution:
    """The program as a script, on standard input and output."""
    async with Run(zygote, "output", spent) as run:
        process = run.fork(
            "script", limits, stdin=given.encode("utf-8", "surrogatepass"), is_program=True
        )
        await process.give(program)
        await run.end(process)
    return run.execution(None, None)


async def _in_process(
    zygote: Zygote, program: dict[str, Any], tests: InProcess, limits: Limits, spent: Spent
) -> Execution:
    if _is_vacuous(tests.tests):
        return _nothing_to_run(zygote, "in_process")
    nonce = secrets.token_hex(16)
    async with Run(zygote, "in_process", spent) as run:
        process = run.fork("in_process", limits, is_program=True)
        await process.give({**program, "tests": list(tests.tests), "nonce": nonce})
        told = await process.hear()
    return run.execution(told, nonce)


def _together(done: Sequence[Execution], results: tuple[bool, ...]) -> Execution:
    """Several runs as one: the first that did not pass decides, and what was spent adds up."""
    good = {"passed", "finished"}
    first = next((one for one in done if one.verdict not in good), done[-1])
    return replace(
        first,
        results=results,
        calls=sum(one.calls for one in done),
        cpu_seconds=sum(one.cpu_seconds for one in done),
        peak_bytes=max(one.peak_bytes for one in done),
    )
