"""What holds at which level, and what is refused where it does not hold."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.bench import QUICK, Bench, prepare_refusal, spawning
from ttc.errors import SandboxError
from ttc.sandbox import jail, seccomp, zygote
from ttc.sandbox.kinds import KINDS
from ttc.sandbox.sandbox import Sandbox
from ttc.sandbox.selfcheck import PROMISED
from ttc.sandbox.zygote import SandboxChoice, Zygote

ADD = "def add(a, b): return a + b"
TEST = "assert add(1, 2) == 3"


def test_every_run_names_its_level_and_the_layers_that_hold(full: Bench) -> None:
    execution = full.asserts(ADD, TEST)
    assert execution.level == "full"
    assert PROMISED["full"] <= set(execution.layers)


def test_a_run_at_level_full_is_alone(full: Bench) -> None:
    program = """
import os
print(os.getpid(), sorted(p for p in os.listdir("/proc") if p.isdecimal()), os.getcwd())
print(sorted(os.environ), os.path.exists("/work"), os.listdir("/tmp"))
"""
    told = full.execute(program).output.splitlines()
    assert told[0] in {"1 ['1'] /tmp", "1 [] /tmp"}
    assert "TTC_HOME" not in told[1]


def test_where_namespaces_are_refused_the_level_is_restricted(restricted: Bench) -> None:
    execution = restricted.asserts(ADD, TEST)
    assert (execution.verdict, execution.level) == ("passed", "restricted")
    assert PROMISED["restricted"] <= set(execution.layers)


@pytest.mark.parametrize(
    "attempt",
    [
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), 0)",
        "socket.socket()",
        "open('/etc/passwd')",
        "open('/tmp/x', 'w')",
        "os.listdir('/proc')",
        "os.memfd_create('x')",
        "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
        "threading.Thread(target=print).start()",
    ],
)
def test_a_restricted_run_is_one_process_that_touches_nothing(
    restricted: Bench, attempt: str
) -> None:
    program = "import os, resource, socket, threading\n"
    program += f"try:\n    {attempt}\nexcept (OSError, RuntimeError):\n    print('refused')"
    assert restricted.execute(program).output == "refused\n"


def test_a_restricted_run_ends_at_its_limits(restricted: Bench) -> None:
    limits = replace(QUICK, seconds=0.5, memory_bytes=100 << 20)
    assert restricted.asserts("def add(a, b):\n    while True: pass", TEST, limits=limits).verdict
    loop = "def add(a, b):\n    while True: pass"
    assert restricted.asserts(loop, TEST, limits=limits).verdict == "timeout"
    bomb = "def add(a, b): return bytearray(1 << 30)"
    assert restricted.asserts(bomb, TEST, limits=limits).verdict == "memory"


def test_several_processes_need_level_full(restricted: Bench) -> None:
    with pytest.raises(SandboxError, match="processes=2 needs level full"):
        restricted.execute("print(1)", limits=replace(QUICK, processes=2))


def test_full_by_name_makes_restricted_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "_popen", spawning(preexec_fn=prepare_refusal))
    with pytest.raises(SandboxError, match=r"level full: unshare: .*pass sandbox=\"auto\""):
        asyncio.run(Zygote.start("code", "full"))


def _no_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")


def test_no_jail_is_refused_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _no_jail(monkeypatch)
    with pytest.raises(SandboxError, match='pass sandbox="none"'):
        asyncio.run(Zygote.start("code"))


def test_none_by_name_runs_without_a_jail() -> None:
    bench = Bench("none")
    try:
        execution = bench.asserts(ADD, TEST)
        assert (execution.verdict, execution.level) == ("passed", "none")
        loop = "def add(a, b):\n    while True: pass"
        limits = replace(QUICK, seconds=0.5)
        assert bench.asserts(loop, TEST, limits=limits).verdict == "timeout"
    finally:
        bench.close()


def test_an_unknown_choice_is_refused() -> None:
    choice: SandboxChoice = "ful"  # type: ignore[assignment]
    with pytest.raises(SandboxError, match="auto, full, none, not 'ful'"):
        asyncio.run(Sandbox(choice).ready())


@pytest.mark.parametrize("machine", sorted(seccomp.MACHINES))
@pytest.mark.parametrize("forks", [True, False])
def test_every_jump_of_the_filter_lands_inside_of_it(machine: str, forks: bool) -> None:
    program = list(seccomp._filter(machine, 1, True, forks))
    assert len(program) < 4096
    for at, (code, if_true, if_false, _) in enumerate(program):
        if code & 0x07 == 0x05:
            assert at + 1 + max(if_true, if_false) < len(program)
    assert program[-1][0] == 0x06


def run_filter(machine: str, number: int, argument: int = 0, **options: bool) -> int:
    """What the filter decides: a tiny interpreter of the instructions that it uses."""
    data = {0: number, 4: seccomp.MACHINES[machine], 16: argument}
    program = list(seccomp._filter(machine, 1, **{"threads": True, "forks": False, **options}))
    at = loaded = 0
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            loaded = data[value]
            continue
        holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
        at += if_true if holds else if_false


ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026


@pytest.mark.parametrize("machine", sorted(seccomp.MACHINES))
def test_the_filter_decides_alike_on_both_architectures(machine: str) -> None:
    column = sorted(seccomp.MACHINES, reverse=True).index(machine)
    read, clone, kill, prctl, execve = [
        pair[column] for pair in ((0, 63), (56, 220), (62, 129), (157, 167), (59, 221))
    ]
    assert run_filter(machine, read) == ALLOW
    assert run_filter(machine, execve) == EPERM
    assert run_filter(machine, execve, forks=True) == ALLOW
    assert run_filter(machine, clone, 17) == EPERM
    assert run_filter(machine, clone, 17, forks=True) == ALLOW
    assert run_filter(machine, clone, 0x00010000) == ALLOW
    assert run_filter(machine, clone, 0x00010000, threads=False) == EPERM
    assert run_filter(machine, clone, 0x10000011, forks=True) == EPERM
    assert run_filter(machine, kill, 1) == ALLOW
    assert run_filter(machine, kill, 2) == EPERM
    assert run_filter(machine, prctl, 1) == EPERM
    assert run_filter(machine, prctl, 15) == ALLOW
    assert run_filter(machine, 435) == ENOSYS
    assert run_filter(machine, 451) == ENOSYS
    for numbers in seccomp._REFUSED.values():
        if numbers[column] is not None:
            assert run_filter(machine, numbers[column] or 0, forks=True) == EPERM


def test_paths_inside_of_others_are_bound_once() -> None:
    assert jail._outermost(["/usr/lib", "/usr/lib/python3", "/usr", "/not/there"]) == ["/usr"]


def test_packages_below_the_usual_work_folder_stay_readable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in an environment below /tmp."""
    package = tmp_path / "far_away"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "late.py").write_text("VALUE = 7")
    monkeypatch.syspath_prepend(tmp_path)
    kind = replace(KINDS["code"], packages=("far_away",))
    monkeypatch.setattr(zygote, "KINDS", {"code": kind})
    monkeypatch.setattr(zygote, "_START", zygote._START.replace("main(*", f"{PATCHED}\nmain(*"))
    bench = Bench()
    try:
        program = "import far_away.late, os\nopen('x', 'w').close()\nprint(far_away.late.VALUE)"
        execution = bench.execute(program)
        assert (execution.output, execution.reason) == ("7\n", "")
    finally:
        bench.close()


PATCHED = """
from dataclasses import replace
from ttc.sandbox import worker
worker.KINDS = {"code": replace(worker.KINDS["code"], packages=("far_away",))}
"""
