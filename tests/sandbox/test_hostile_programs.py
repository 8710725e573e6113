"""Programs that mean harm. A test first shows, by a capped loop, that the limit it needs holds."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.bench import QUICK, Bench
from ttc.sandbox.zygote import Ended, Zygote

ADD = "assert add(1, 2) == 3"
WRONG = "def add(a, b): return a - b\n"
MIB = 1 << 20

COUNT_FORKS = """
import os, signal
children = []
for _ in range(20):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        signal.pause()
    children.append(pid)
for pid in children:
    os.kill(pid, 9)
print(len(children) <= {most})
"""
COUNT_MEMORY = """
held = []
try:
    for _ in range(16):
        held.append(bytearray(64 << 20))
except MemoryError:
    pass
print(len(held) <= 3)
"""


@pytest.mark.parametrize(
    "exit_early",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.execv('/bin/true', ['true'])",
        "import atexit, os; atexit.register(lambda: os._exit(0)); raise SystemExit",
    ],
)
def test_an_early_exit_is_no_pass(bench: Bench, exit_early: str) -> None:
    """SB-01."""
    assert bench.asserts(f"{WRONG}{exit_early}", ADD).verdict == "failed"


def test_an_exit_inside_of_a_call_is_no_pass(bench: Bench) -> None:
    """SB-01, later."""
    for leave in ("os._exit(0)", "raise SystemExit(0)", "raise KeyboardInterrupt"):
        program = f"import os\ndef add(a, b): {leave}"
        swallowing = "try:\n    add(1, 2)\nexcept:\n    pass"
        assert bench.asserts(program, swallowing).verdict == "failed"


ALWAYS = "def __eq__(self, other): return True\n    def __ne__(self, other): return False"


@pytest.mark.parametrize(
    "program",
    [
        f"class A:\n    {ALWAYS}\ndef add(a, b): return A()",
        f"class A(int):\n    {ALWAYS}\n    __hash__ = int.__hash__\ndef add(a, b): return A()",
        f"class A(str):\n    {ALWAYS}\n    __hash__ = str.__hash__\ndef add(a, b): return A()",
        f"def type(x): return int\nclass A:\n    {ALWAYS}\ndef add(a, b): return A()",
        f"def isinstance(*a): return True\nclass A:\n    {ALWAYS}\ndef add(a, b): return A()",
        f"import builtins\nbuiltins.type = lambda x: int\nclass A:\n    {ALWAYS}\n"
        "def add(a, b): return A()",
    ],
)
def test_an_object_that_equals_everything_equals_nothing(bench: Bench, program: str) -> None:
    """SB-02."""
    for test in (ADD, "assert 3 == add(1, 2)", "assert not add(1, 2) != 3", "assert add(1, 2)"):
        assert bench.asserts(program, test).verdict == "failed"


def test_a_loop_that_swallows_everything_ends_at_the_limit(bench: Bench) -> None:
    """SB-03, and defect 35."""
    program = """
import signal, time
for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGXCPU):
    signal.signal(number, signal.SIG_IGN)
def add(a, b):
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass
"""
    started = time.monotonic()
    expecting = "try:\n    add(1, 2)\n    assert False\nexcept Exception:\n    pass"
    execution = bench.asserts(program, expecting, limits=replace(QUICK, seconds=1))
    assert execution.verdict == "timeout"
    assert time.monotonic() - started < 3


def test_native_code_that_hears_no_signal_ends_at_the_limit(bench: Bench) -> None:
    """Defect 35: a loop in C, by processor time."""
    started = time.monotonic()
    limits = replace(QUICK, cpu_seconds=1)
    execution = bench.asserts("def add(a, b): return 9 ** 9 ** 9 % 7", ADD, limits=limits)
    assert execution.verdict in {"timeout", "memory"}
    assert time.monotonic() - started < QUICK.seconds


def test_a_limit_is_told_where_the_caller_was_the_last_to_kill(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge hears of an end before the zygote reaps it; who has ended well hit no limit."""
    spin = "import time\ndef add(a, b):\n    while time.process_time() < {}: pass\n    return 3"
    end = Zygote._end

    def killed_again(self: Zygote, number: int, ended: Ended) -> None:
        end(self, number, replace(ended, cut=ended.cut or "caller"))

    monkeypatch.setattr(Zygote, "_end", killed_again)
    limits = replace(QUICK, cpu_seconds=2)
    assert bench.asserts(spin.format(60), ADD, limits=limits).verdict == "timeout"
    assert bench.asserts(spin.format(1.1), ADD, limits=limits).verdict == "passed"


def test_grandchildren_end_with_the_run(full: Bench) -> None:
    """SB-04 and SB-05: in new sessions, forked twice, holding the output pipe."""
    limits = replace(QUICK, seconds=1.5, processes=4)
    full.needs(COUNT_FORKS.format(most=13), "True", limits)
    marker = f"31{os.getpid()}.25"
    program = f"""
import os, subprocess, sys
subprocess.Popen(["sleep", "{marker}"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{marker}"])
    os._exit(0)
os.wait()
print("done", flush=True)
{{}}
"""
    started = time.monotonic()
    looping = full.execute(program.format("while True: pass"), limits=limits)
    assert (looping.verdict, looping.output) == ("timeout", "done\n")
    assert time.monotonic() - started < 4
    ending = full.execute(program.format(""), limits=limits)
    assert (ending.verdict, ending.output) == ("finished", "done\n")
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert marker not in listed.stdout


@pytest.mark.parametrize("processes", [0, 3])
def test_a_fork_bomb_hits_its_limit(full: Bench, processes: int) -> None:
    limits = replace(QUICK, seconds=1.5, processes=processes, threads=0)
    full.needs(COUNT_FORKS.format(most=processes), "True", limits)
    bomb = """
import os
def add(a, b):
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""
    assert full.asserts(bomb, ADD, limits=limits).verdict == "timeout"
    assert full.asserts("def add(a, b): return a + b", ADD).passed


@pytest.mark.parametrize(
    "flood",
    [
        "import sys\nwhile True: sys.stdout.write('y' * 1_000_000)",
        "print('y' * 2 * 10**8)",
        "import sys\nfor _ in range(10**7): sys.stderr.write('x\\n')",
    ],
)
def test_a_flood_of_output_is_cut_while_it_is_read(bench: Bench, flood: str) -> None:
    """SB-07."""
    cap = MIB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    execution = bench.execute(flood, limits=replace(QUICK, output_bytes=cap))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert execution.verdict == "output_limit"
    assert execution.truncated
    assert max(len(execution.output), len(execution.errors)) == cap
    assert grown < cap + 16 * MIB


@pytest.mark.parametrize(
    "bomb",
    [
        "import itertools\ndef add(a, b): return list(itertools.product(range(9), repeat=12))",
        "def add(a, b): return b'x' * (8 << 30)",
        "def add(a, b): return [0] * 10**11",
        "def add(a, b):\n    try: return [0] * 10**11\n    except MemoryError: pass",
    ],
)
def test_a_memory_bomb_hits_its_limit(bench: Bench, bomb: str) -> None:
    """SB-08."""
    limits = replace(QUICK, memory_bytes=200 * MIB)
    bench.needs(COUNT_MEMORY, "True", limits)
    started = time.monotonic()
    execution = bench.asserts(bomb, ADD, limits=limits)
    assert execution.verdict in {"memory", "failed"}
    assert execution.peak_bytes < 300 * MIB
    assert time.monotonic() - started < QUICK.seconds


def test_the_memory_of_several_processes_is_summed(full: Bench) -> None:
    program = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        held = bytearray(60 << 20)
        held[::4096] = b"x" * len(held[::4096])
        time.sleep(30)
time.sleep(30)
"""
    limits = replace(QUICK, seconds=25, memory_bytes=100 * MIB, processes=3)
    assert full.execute(program, limits=limits).verdict == "memory"


@pytest.mark.parametrize(
    "attempt",
    [
        "os.memfd_create('x')",
        "socket.socket()",
        "socket.socketpair()",
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.kill(1 if os.getpid() != 1 else 2, 0)",
        "os.mkdir('/stays')",
        "os.open('/etc/passwd', os.O_RDONLY)",
        "os.open('/proc/1/environ' if os.getpid() != 1 else '/proc/2/environ', os.O_RDONLY)",
        "os.chroot('/')",
        "os.open('/proc/self/mem', os.O_RDWR)",
        "os.mknod('/tmp/device', 0o660 | stat.S_IFBLK, 0)",
        "os.setuid(0) or os.setgid(1)",
        "check(libc.unshare(0x10000000))",
        "check(libc.ptrace(16, 1, 0, 0))",
        "check(libc.shmget(0, 4096, 0o1600))",
        "check(libc.mount(b'x', b'/tmp', b'tmpfs', 0, None))",
        "check(libc.setns(0, 0))",
        "check(libc.syscall(425, 8, 0))",
        "check(libc.syscall(435, 0, 0))",
        "check(libc.syscall(460, 0, 0))",
        "check(libc.prctl(1, 0, 0, 0, 0))",
    ],
)
def test_what_leads_out_of_the_jail_is_refused(bench: Bench, attempt: str) -> None:
    program = f"""
import ctypes, os, socket, stat
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
try:
    {attempt}
except OSError:
    print("refused")
"""
    assert bench.execute(program).output == "refused\n"


def test_a_symlink_leads_nowhere(full: Bench) -> None:
    program = """
import os
for target in ("/etc/passwd", "/proc/1/root/etc/passwd", "/proc/1/cwd/x", "../../../etc/shadow"):
    os.symlink(target, "link")
    try:
        print(open("link").read())
    except OSError:
        print("nothing")
    os.unlink("link")
"""
    assert full.execute(program).output == "nothing\n" * 4


def test_files_are_bounded_and_vanish(full: Bench) -> None:
    fill = """
import os
written = 0
try:
    for at in range(64):
        with open(f"file{at}", "wb") as file:
            file.write(b"x" * (1 << 20))
        written += 1
except OSError:
    pass
print(written <= 8)
"""
    limits = replace(QUICK, disk_bytes=8 * MIB)
    assert full.execute(fill, limits=limits).output == "True\n"
    many = "import os\ntry:\n    for at in range(5000): open(str(at), 'w').close()\n"
    many += "except OSError: print(at <= 256)"
    assert full.execute(many).output == "True\n"
    assert full.execute("import os; print(os.listdir('.'))").output == "[]\n"


def test_a_frame_that_is_no_frame_is_a_failure(bench: Bench) -> None:
    """SB-15: bytes of the program's own to every descriptor that it has."""
    payloads = (
        b'{"verdict": "passed", "nonce": "", "calls": 1}',
        b"\\x00\\x00\\x00\\x02[]",
        b'\\x00\\x00\\x00\\x0f{"result":["x"]}',
        b"\\xff\\xff\\xff\\xff",
        b"\\x00\\x00\\x00\\x10" + b"[" * 16,
    )
    for payload in payloads:
        program = f"""
import os
def add(a, b):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'{payload.decode("latin-1")}')
        except OSError:
            pass
    os._exit(0)
"""
        assert bench.asserts(program, ADD).verdict == "failed"


def test_a_forged_load_report_forges_nothing(bench: Bench) -> None:
    """SB-15: answers sent ahead are answers; they have to be right all the same."""
    program = """
import json, os
def frame(message):
    data = json.dumps(message).encode()
    return len(data).to_bytes(4, "big") + data
for descriptor in range(3, 64):
    try:
        os.write(descriptor, frame({"loaded": True}) + frame({"result": ["bool", 1]}) * 3)
    except OSError:
        pass
def add(a, b): return None
"""
    assert bench.asserts(program, ADD).verdict == "failed"


def test_a_patched_interpreter_judges_nothing(bench: Bench) -> None:
    """SB-15."""
    program = """
import builtins, json, sys
builtins.sum = builtins.min = lambda *a: 3
builtins.compile = builtins.exec = lambda *a, **k: None
json.dumps = lambda *a, **k: '{"verdict": "passed"}'
sys.stdout = None
def add(a, b): return 4
"""
    assert bench.asserts(program, ADD).verdict == "failed"
    assert bench.asserts("def add(a, b): return sum((a, b))", ADD).passed


def test_no_secret_is_in_the_candidates_memory(bench: Bench) -> None:
    """SB-15: neither frames, nor collected objects, nor modules hold a test or its value."""
    program = """
import gc, sys
def add(a, b):
    texts = []
    frame = sys._getframe()
    while frame is not None:
        texts.append(repr(frame.f_locals) + repr(list(frame.f_globals)))
        frame = frame.f_back
    texts += [repr(o) for o in gc.get_objects() if type(o) in (dict, list, tuple, str)]
    needle = "".join(("77", "345"))
    return any(needle in text for text in texts)
"""
    told = bench.asserts(program, "assert add(1, 2) != 77345 and add(1, 2) is False")
    assert told.passed, told.reason


def test_nothing_of_a_run_reaches_the_next(bench: Bench) -> None:
    """SB-15: an honest program after a dishonest one."""
    hostile = "import builtins, sys\nbuiltins.len = lambda x: 3\nsys.modules['math'] = None\n"
    bench.asserts(hostile + "def add(a, b): return len([])", ADD)
    honest = "import math\ndef add(a, b): return len([a, b]) + math.floor(1.5)"
    assert bench.asserts(honest, ADD).passed


def test_threads_end_with_the_run(full: Bench) -> None:
    count = """
import threading
started = 0
stop = threading.Event()
try:
    for _ in range(50):
        threading.Thread(target=stop.wait, daemon=True).start()
        started += 1
except RuntimeError:
    pass
print(started)
stop.set()
"""
    assert full.execute(count, limits=replace(QUICK, threads=5)).output == "5\n"
    spinning = """
import threading
def spin():
    while True: pass
for _ in range(3): threading.Thread(target=spin).start()
def add(a, b): return a + b
"""
    started = time.monotonic()
    assert full.asserts(spinning, ADD).passed
    assert time.monotonic() - started < QUICK.seconds


def test_code_in_an_answer_does_not_run_in_the_verifier(tmp_path: Path, bench: Bench) -> None:
    """Defect 47."""
    marker = tmp_path / "ran"
    marker.parent.chmod(0o777)
    program = f"open({str(marker)!r}, 'w').write('x')\ndef add(a, b): return 3"
    assert not bench.asserts(program, ADD).passed
    assert not marker.exists()
