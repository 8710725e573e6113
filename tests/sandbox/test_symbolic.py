"""The symbolic pool: what algebra decides, and that no input delays or poisons it."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ttc.answers import Rules, answer_key
from ttc.errors import SandboxError
from ttc.sandbox import zygote
from ttc.sandbox.symbolic import Check, Checked, SymbolicPool
from ttc.sandbox.zygote import SandboxChoice, Zygote

SLACK_S = 0.3
UNKNOWN = Checked(None, was_cut=True)
HOSTILE = (
    (r"\boxed{9^{9^{9^{9}}}}", "7"),
    (r"\frac{7^{7^{7^{7}}}-3}{6}", "7"),
    ("((5!)!)!", "7"),
    (r"9^{9^{9^9}}", r"9^{9^{9^9}}+1"),
    ("10^{10^{10}}", "10^{10^{10}}+1"),
    (r"\log(\log(9^{9^{9^9}}))", "2"),
)


def begun(pool: SymbolicPool) -> SymbolicPool:
    """A pool whose zygote runs; a machine without any jail skips."""
    try:
        pool.start().result()
    except SandboxError as error:
        pytest.skip(f"no jail can be had on this machine: {error}")
    return pool


@pytest.fixture(scope="module")
def pool() -> Iterator[SymbolicPool]:
    """One pool for the module, warm."""
    pytest.importorskip("sympy", reason="sympy is not installed")
    pool = begun(SymbolicPool(seconds=10))
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def stalling() -> Iterator[SymbolicPool]:
    """A pool whose workers do what they are told to."""
    pool = begun(SymbolicPool(kind="stalling", seconds=0.5, memory_bytes=128 << 20))
    yield pool
    pool.close()


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}", True),
        (r"\sqrt{x^2}", "x", False),
        (r"\sqrt{x^2}", "|x|", True),
        (r"\ln(a^2)", r"2\ln a", False),
        (r"\ln(a^2)", r"2\ln|a|", True),
        (r"\sqrt[3]{x^3}", "x", True),
        (r"\sqrt{x}\sqrt{y}", r"\sqrt{xy}", False),
        (r"\frac{x}{|x|}", "1", False),
    ],
)
def test_identities_hold_where_both_sides_are_real(
    pool: SymbolicPool, left: str, right: str, equal: bool
) -> None:
    """EQ-12: on every real point at which either side has a value."""
    assert pool.check(Check(left=left, right=right)) == Checked(equal)
    assert pool.check(Check(left=right, right=left)) == Checked(equal)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (r"\sin^2 x+\cos^2 x", "1", True),
        (r"\cos 2x", r"1-2\sin^2 x", True),
        (r"\sin 30^\circ", "1/2", True),
        (r"\log_2 8", "3", True),
        (r"e^{i\pi}", "-1", True),
        (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2", True),
        (r"\frac{1}{1+\sqrt2}", r"\sqrt2-1", True),
        (r"2^{n+1}", r"2\cdot 2^n", True),
        (r"\binom{n}{2}", r"\frac{n(n-1)}{2}", True),
        (r"7^{2020}", r"7\cdot 7^{2019}", True),
        (r"\{\sqrt{3+2\sqrt2}, 2\}", r"\{2, 1+\sqrt2\}", True),
        (r"(\log_2 8, 1)", "(3, 2)", False),
        (r"\sqrt2+\sqrt3", r"\sqrt{5+2\sqrt6}", True),
        (r"\frac{e^{\pi\sqrt{163}}-744}{640320}", "640320^2", False),
    ],
)
def test_algebra_decides_what_keys_leave_open(
    pool: SymbolicPool, left: str, right: str, equal: bool
) -> None:
    """Trigonometry, logarithms, roots, and parts of sets and pairs."""
    assert pool.check(Check(left=left, right=right)).verdict is equal


@pytest.mark.parametrize(("left", "right"), HOSTILE)
def test_a_tower_of_powers_never_takes_long(pool: SymbolicPool, left: str, right: str) -> None:
    """EQ-16, field defect 34: different or unknown, and never equal."""
    started = time.perf_counter()
    verdict = pool.check(Check(left=left, right=right)).verdict

    assert verdict is not True
    assert time.perf_counter() - started < pool.seconds + SLACK_S


def test_keys_are_enough_for_equal_towers() -> None:
    """EQ-16: identical texts never start a process."""
    idle = SymbolicPool()

    assert idle.check(Check(left=r"9^{9^{9^9}}", right=r"9^{9^{9^{9}}}")) == Checked(True)
    assert idle.check(Check(left="0.5", right="1/2")) == Checked(True)
    assert idle.check(Check(left="", right="")) == Checked(False)
    assert idle._crew is None


@pytest.mark.parametrize(
    "stall", ["ignore signals", "hang in native code", "sleep", "fill memory", "die"]
)
def test_a_worker_that_stalls_is_killed_and_the_next_check_is_right(
    stalling: SymbolicPool, stall: str
) -> None:
    """Field defect 34: a limit kills, and nothing of it is left for the next one."""
    started = time.perf_counter()
    assert stalling.check(Check(left=stall, right="x")) == UNKNOWN
    assert time.perf_counter() - started < stalling.seconds + SLACK_S

    started = time.perf_counter()
    assert stalling.check(Check(left=f"after {stall}", right=f"after {stall}")) == Checked(True)
    assert time.perf_counter() - started < SLACK_S


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SymbolicPool, threading.Event]]:
    """A pool whose zygote starts no sooner than an event is set."""
    may_start, start = threading.Event(), Zygote.start

    async def late(kind: str, sandbox: SandboxChoice) -> Zygote:
        await asyncio.to_thread(may_start.wait)
        return await start(kind, sandbox)

    begun(pool := SymbolicPool(kind="stalling", seconds=0.5)).close()
    monkeypatch.setattr(Zygote, "start", late)
    yield pool, may_start
    may_start.set()
    pool.close()


def test_the_first_check_waits_no_longer_for_the_start_than_its_limit(
    waiting: tuple[SymbolicPool, threading.Event],
) -> None:
    """It ends unknown, which is not remembered; the start goes on, and serves the next one."""
    pool, may_start = waiting
    same = Check(left="same", right="same")
    started = time.perf_counter()
    assert asyncio.run(pool.check_all([same, same])) == [UNKNOWN, UNKNOWN]
    assert time.perf_counter() - started < pool.seconds + SLACK_S

    may_start.set()
    pool.start().result()
    assert pool.check(same) == Checked(True)


def test_a_patient_check_waits_for_the_start(
    waiting: tuple[SymbolicPool, threading.Event],
) -> None:
    """As a grader does: no start makes a grade unknown."""
    pool, may_start = waiting
    with ThreadPoolExecutor(1) as thread:
        check = Check(left="same", right="same")
        checked = thread.submit(pool.check, check, is_patient=True)
        assert asyncio.run(pool.check_all([Check(left="a", right="b")])) == [UNKNOWN]
        assert not checked.done()
        may_start.set()
        assert checked.result() == Checked(True)


def test_a_start_that_failed_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check tells it; none hangs."""
    pool = begun(SymbolicPool(kind="stalling"))
    pool.close()
    check = Check(left="same", right="same")
    with monkeypatch.context() as patched:
        patched.setattr(zygote, "_popen", lambda *_, **__: (_ for _ in ()).throw(OSError("no")))
        for _ in range(2):
            with pytest.raises(OSError, match="no"):
                pool.check(check)
    assert pool.check(check, is_patient=True) == Checked(True)
    pool.close()


def test_limits_hold_outside_the_main_thread() -> None:
    """EQ-18: six hostile checks from threads, then an easy one; every worker is usable after."""
    pool = begun(SymbolicPool(kind="stalling", seconds=0.5, workers=4))
    stalls = ["ignore signals", "sleep", "hang in native code"] * 2
    try:
        with ThreadPoolExecutor(7) as threads:
            started = time.perf_counter()
            checks = [Check(left=stall, right=str(i)) for i, stall in enumerate(stalls)]
            hostile = [threads.submit(pool.check, check) for check in checks]
            easy = threads.submit(pool.check, Check(left="easy", right="easy"))
            assert easy.result() == Checked(True)
            assert [check.result() for check in hostile] == [UNKNOWN] * 6
            assert time.perf_counter() - started < 2 * pool.seconds + 2
        assert pool.check(Check(left="later", right="later")) == Checked(True)
    finally:
        pool.close()


def test_many_checks_come_back_in_order_from_any_loop(pool: SymbolicPool) -> None:
    """Those that keys decide, those that algebra does, and those that were known."""
    checks = [
        Check(left="0.5", right="1/2"),
        Check(left=r"\cos 2x", right=r"2\cos^2 x-1"),
        Check(left="3", right="4"),
        Check(left=r"\sin 2x", right=r"2\sin x\cos x"),
    ]
    for _ in range(2):
        checked = asyncio.run(pool.check_all(checks))
        assert [one.verdict for one in checked] == [True, True, False, True]


def test_a_verdict_is_known_by_keys(pool: SymbolicPool) -> None:
    """So the same question in another spelling, or the other way round, costs nothing."""
    first = Check(left=r"\tan x\cos x", right=r"\sin x")
    again = Check(left=r"\sin(x)", right=r"\cos{x}\cdot\tan{x}")
    assert answer_key(first.left) == answer_key(again.right)
    pool.check(first)

    assert pool._decided(again) is not None
    assert (
        pool._decided(Check(left=first.left, right=first.right, rules=Rules(tolerance=0.1))) is None
    )


def test_model_text_is_never_executed(pool: SymbolicPool) -> None:
    """It is a text before it gets anywhere."""
    hostile = "__import__('os').getpid()"

    assert pool.check(Check(left=hostile, right="1")) == Checked(False)


def test_the_second_opinion_is_jailed_and_symmetrical() -> None:
    """math-verify evaluates what it reads: it hangs on a tower, and is killed."""
    pytest.importorskip("math_verify", reason="math-verify is not installed")
    pool = begun(SymbolicPool(kind="math_verify", seconds=10))
    try:
        assert pool.check(Check(left="1/2", right="0.5")).verdict is True
        assert pool.check(Check(left="(0,8)", right="0<x<8")).verdict is None
        pool.seconds = 0.5
        assert pool.check(Check(left=r"\boxed{9^{9^{9^{9}}}}", right="7")) == UNKNOWN
    finally:
        pool.close()


def test_a_closed_pool_starts_anew_and_wrong_limits_are_refused(stalling: SymbolicPool) -> None:
    """Closing twice is harmless."""
    stalling.close()
    stalling.close()

    anew = Check(left="anew", right="anew")
    assert stalling.check(anew, is_patient=True) == Checked(True)
    with pytest.raises(ValueError, match="not 0, 1"):
        SymbolicPool(seconds=0)


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything starts."""
    monkeypatch.setattr("ttc.sandbox.symbolic.find_spec", lambda name: None)

    with pytest.raises(ModuleNotFoundError, match=r"needs sympy.*ttc-orchestrator\[verify\]"):
        SymbolicPool()
