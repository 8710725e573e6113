"""Kills a run again and again, in processes of its own, and tells what became of it.

    python -m tests.journal.kills boundaries|moments|paid

Prints one JSON object: the run that nobody killed, and every run that was killed and resumed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import ttc
from tests.core.lab import QUESTION, seen, talker
from tests.core.lab import whole as whole_of
from ttc import Budget
from ttc.journal.runs import info
from ttc.lines import Lines
from ttc.ports import Request
from ttc.testing import FakeEngine, ManualClock
from ttc.text_form import parse

GRAPH = """cascade(
    sample(n=1, max_tokens=20) >> sequence_probability() >> best(),
    sample(n=5, ahead=3, max_tokens=8, tail=tail(cue="So: The answer is", max_tokens=4))
        >> vote(stop=cannot_be_overtaken()),
    accept=confidence(0.99))"""
BUDGET = Budget(tokens=300)
MOMENTS = 50


def main(mode: str) -> None:
    """Runs once, then kills at every point of a mode and resumes."""
    parse(GRAPH)  # so that no child has to import anything
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "whole"
        whole = _in_child(lambda: _solve(path, mode))
        num_lines = path.read_bytes().count(b"\n")
        points = range(MOMENTS if mode == "moments" else num_lines)
        killed = [_killed(Path(folder) / f"{n}", mode, n, whole["seconds"]) for n in points]
    print(json.dumps({"whole": whole, "killed": killed}))  # noqa: T201


def _killed(path: Path, mode: str, point: int, seconds: float) -> dict[str, Any]:
    def die() -> None:
        if mode == "moments":
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + Random(point).random() * seconds)
        else:
            _kill_before(point)
        _solve(path, mode)

    died_of = os.waitstatus_to_exitcode(_fork(die))
    num_lines = path.read_bytes().count(b"\n") if path.exists() else 0
    resumed = _in_child(lambda: _solve(path, mode, replay=True))
    return {**resumed, "died_of": died_of, "num_lines": num_lines}


def _kill_before(line_number: int) -> None:
    """Dies before that line of a journal is written."""
    append, written = Lines.append, 0

    def dying(self: Lines, line: bytes) -> None:
        nonlocal written
        if written == line_number:
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, line)
        written += 1

    Lines.append = dying  # type: ignore[method-assign]


def _solve(path: Path, mode: str, *, replay: bool = False) -> dict[str, Any]:
    clock, started = ManualClock(), time.perf_counter()
    engine = FakeEngine(talker(), clock=clock, seconds_per_token=_pace)
    if mode == "paid":
        engine.capabilities = replace(engine.capabilities, replayable=False)
    outcome = clock.run(
        ttc.asolve(QUESTION, GRAPH, model=engine, budget=BUDGET, seed=5, clock=clock, journal=path)
    )
    seconds = time.perf_counter() - started
    again = ttc.replay(path) if replay else outcome
    entries = [json.loads(line.partition(b" ")[2]) for line in path.read_bytes().splitlines()]
    sent = Counter(e["key"] for e in entries if e["is"] == "intent" and "seed" in e["request"])
    return {
        "seen": seen(outcome),
        "replays": whole_of(again) == whole_of(outcome),
        "tokens": outcome.usage.tokens,
        "lost": outcome.usage.tokens_lost,
        "timing": outcome.timing_dependent,
        "asked": engine.calls,
        "most_sent": max(sent.values()),
        "seconds": seconds,
        "state": info(path).state,
    }


def _pace(request: Request) -> float:
    return Random(request.seed).choice((0.01, 0.02, 0.05, 0.3))


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What some work gives, in a process of its own, so that no thread lives in this one."""
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as told:
        status = _fork(lambda: os.write(writer, json.dumps(work()).encode()))
        os.close(writer)
        if status:
            raise SystemExit(f"a run that nobody killed ended with {status}")
        made: dict[str, Any] = json.load(told)
    return made


def _fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on as its parent
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
