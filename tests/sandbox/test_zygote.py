"""Processes that are forked, killed, replaced, and never left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.sandbox.bench import QUICK, Bench
from ttc.sandbox.forms import Asserts
from ttc.sandbox.limits import Limits
from ttc.sandbox.sandbox import Sandbox
from ttc.sandbox.zygote import Zygote

LOOP = "def add(a, b):\n    while True: pass"
ADD = "def add(a, b): return a + b"
TEST = Asserts(asserts=("assert add(1, 2) == 3",))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()[1:]]
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        children = [child for child, parent in pairs if parent == one]
        found += children
        waiting += children
    return found


@pytest.mark.parametrize("how", ["close", "abandon"])
def test_a_zygote_ends_with_all_that_it_forked(how: str) -> None:
    async def work() -> list[int]:
        zygote = await Zygote.start("code")
        process = zygote.fork("candidate", QUICK)
        await asyncio.sleep(0)
        pids = [zygote._keeper.pid, *descendants(zygote._keeper.pid)]
        if how == "close":
            await zygote.close()
        process.close()
        return pids

    pids = asyncio.run(work())
    gc.collect()
    assert not [pid for pid in pids if is_running(pid)]


def test_a_zygote_that_dies_is_replaced(full: Bench) -> None:
    zygote = full.run(full.sandbox.ready())
    os.kill(zygote._keeper.pid, signal.SIGKILL)
    execution = full.run(full.sandbox.execute(LOOP, TEST, limits=QUICK))
    assert execution.verdict in {"error", "timeout"}
    assert full.run(full.sandbox.execute(ADD, TEST, limits=QUICK)).passed


def test_the_next_check_after_a_kill_is_not_held_up(bench: Bench) -> None:
    """Its processor time is within that of three trivial ones, since a busy machine may be slow."""
    plain = bench.run(bench.sandbox.execute(ADD, TEST, limits=QUICK)).cpu_seconds
    killed = bench.run(bench.sandbox.execute(LOOP, TEST, limits=replace(QUICK, seconds=0.3)))
    after = bench.run(bench.sandbox.execute(ADD, TEST, limits=QUICK))
    assert (killed.verdict, after.verdict) == ("timeout", "passed")
    assert after.cpu_seconds < 3 * plain + 0.02


def test_a_cancelled_run_leaves_nothing_and_tells_what_it_used(bench: Bench) -> None:
    async def work() -> tuple[float, list[int]]:
        spent: list[float] = []
        zygote = await bench.sandbox.ready()
        before = descendants(zygote._keeper.pid)
        run = bench.sandbox.execute(LOOP, TEST, limits=QUICK, spent=spent.append)
        task = asyncio.get_running_loop().create_task(run)
        for _ in range(1000):
            if len(descendants(zygote._keeper.pid)) >= len(before) + 2:
                break
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = [pid for pid in descendants(zygote._keeper.pid) if pid not in before]
        return sum(spent), left

    spent, left = bench.run(work())
    assert spent > 0
    assert left == []


def test_the_event_loop_goes_on_while_programs_run(bench: Bench) -> None:
    async def work() -> float:
        longest, run = (
            0.0,
            asyncio.ensure_future(
                bench.sandbox.execute(LOOP, TEST, limits=replace(QUICK, seconds=0.5))
            ),
        )
        while not run.done():
            before = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - before)
        return longest

    assert bench.run(work()) < 0.1


def test_many_programs_at_once_do_not_meet(bench: Bench) -> None:
    async def work() -> list[str]:
        runs = [
            bench.sandbox.execute(
                f"def f(): return {n}", Asserts(asserts=(f"assert f() == {n % 5}",)), limits=QUICK
            )
            for n in range(10)
        ]
        return [execution.verdict for execution in await asyncio.gather(*runs)]

    assert bench.run(work()) == ["passed"] * 5 + ["failed"] * 5


def test_descriptors_are_given_back(bench: Bench) -> None:
    bench.run(bench.sandbox.execute(ADD, TEST, limits=QUICK))
    before = len(os.listdir("/proc/self/fd"))
    for program in (ADD, LOOP, "import os; os._exit(0)"):
        bench.run(bench.sandbox.execute(program, TEST, limits=replace(QUICK, seconds=0.3)))
    assert len(os.listdir("/proc/self/fd")) == before


def test_each_loop_has_a_sandbox_of_its_own() -> None:
    async def work() -> str:
        sandbox = Sandbox()
        try:
            return (await sandbox.execute(ADD, TEST)).verdict
        finally:
            await sandbox.close()

    assert [asyncio.run(work()) for _ in range(2)] == ["passed"] * 2


def test_a_sandbox_starts_and_ends_though_all_threads_of_the_loop_wait_for_it() -> None:
    async def work() -> str:
        loop, waiting = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        held = loop.run_in_executor(None, waiting.wait)
        sandbox = Sandbox()
        try:
            async with asyncio.timeout(60):
                verdict = (await sandbox.execute(ADD, TEST)).verdict
                await sandbox.close()
        finally:
            waiting.set()
            await held
        return verdict

    assert asyncio.run(work()) == "passed"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"seconds": 0}, "finite and at least 0.001, not 0"),
        ({"seconds": float("inf")}, "finite"),
        ({"memory_bytes": 1.5}, "a whole number, not 1.5"),
        ({"processes": -1}, "at least 0, not -1"),
        ({"files": True}, "a whole number, not True"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, float], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Limits(**limits)  # type: ignore[arg-type]
