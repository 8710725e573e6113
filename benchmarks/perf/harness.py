"""What the harness itself costs, and that no kill changes what it says.

Run as `python benchmarks/perf/harness.py --pool FILE [--json PATH] [--parts NAME …]`; about nine
minutes on two quiet cores at full size, five of them for `kills` and two for `boundaries`.

    overhead    processor seconds of an evaluation on a fake engine beyond those of `solve_many` on
                the same problems, over the seconds that a model of 600 tokens a second would take:
                the median of three turns, after one that loads whatever is needed
    memory      what a process reaches with few problems, and with ten times as many
    boundaries  a small evaluation, ended by SIGKILL right behind each line of a journal or of its
                results, once for each line that there is, and gone on with
    kills       a large one, killed at random moments while it runs, and gone on with each time
    grading     completions graded in a second, cold and again from what is kept: copies of a
                recorded pool, as many as are asked for

A kill has changed nothing where results and report are those of a run in peace, to the letter, but
for what is measured in seconds and for the tokens that a kill lost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from zlib import crc32

import ttc
from ttc.benchmarks.data import task_named
from ttc.benchmarks.harness.config import Arm, Config, TaskFacts, default_comparisons
from ttc.benchmarks.harness.grading import Grades
from ttc.benchmarks.harness.results import read_results
from ttc.benchmarks.harness.run import Evaluation, Options
from ttc.benchmarks.pools import graded
from ttc.benchmarks.report.study import read_study
from ttc.benchmarks.results import write_result
from ttc.benchmarks.tasks import ExactAnswer, Item, Reference, Task
from ttc.lines import Lines
from ttc.pools import Pool
from ttc.pools.imports import import_pool
from ttc.ports import Request
from ttc.testing import FakeEngine
from ttc.types import Budget, Problem

TOKENS_PER_S = 600
MEASURED = ("seconds", "kv_byte_seconds", "tokens_lost")
BEGUN = "begun"
PARTS = ("overhead", "memory", "boundaries", "kills", "grading")
_TURNS = 3
_FEW = 3
"""Samples of a vote of the small evaluation, so that its lines are not too many."""


def reply(request: Request) -> str:
    """Forty words and an answer, right or not by problem and seed."""
    wrong = crc32(f"{request.seed} {request.branch.text}".encode()) % 2
    first = int("".join(filter(str.isdigit, request.branch.text.partition("+")[0])) or 0)
    return " ".join(["thinking"] * 40) + f" The answer is {first + 1 + wrong}."


def sums(count: int) -> Task:
    """So many problems."""
    items = tuple(
        Item(Problem.ask(f"What is {i} + 1?", id=f"p{i}"), Reference(answer=str(i + 1)))
        for i in range(count)
    )
    return Task(name="sums", items=items, grader=ExactAnswer(), source="made here")


def voting(samples: int) -> Arm:
    """A vote."""
    return Arm(name=f"vote of {samples}", strategy=f"sample(n={samples}, max_tokens=64) >> vote()")


def evaluation(
    folder: Path, task: Task, concurrency: int = 64, samples: tuple[int, ...] = (1, 8)
) -> Evaluation:
    """Votes of so many samples, on a fake engine."""
    arms = tuple(map(voting, samples))
    facts = TaskFacts(
        name=task.name,
        source=task.source,
        digest=task.digest,
        num_problems=len(task.items),
        num_publicly_tested=0,
        grader="exact",
        example="",
    )
    budgets = {"tokens=1000": {"tokens": 1000}}
    config = Config(
        tasks=(facts,),
        arms=arms,
        budgets=budgets,
        models=("fake",),
        roles={},
        seed=1,
        repeats=1,
        comparisons=default_comparisons([task.name], ["fake"], arms, list(budgets)),
        asking={},
    )
    engine = FakeEngine(reply)
    options = Options(load=lambda _: nullcontext(engine), concurrency=concurrency)
    return Evaluation(config, {task.name: task}, folder, options=options)


def grading(pool_path: Path, references: Path, count: int) -> list[dict[str, Any]]:
    """Processor seconds for `count` completions: copies of those of a pool."""
    task, pool = task_named(str(references)), import_pool(pool_path)
    copies = -(-count // len(pool))
    made = Pool()
    for problem in pool.problems:
        found = pool.of(problem.id)
        for copy in range(copies):
            for place, completion in enumerate(found):
                made.add(replace(completion, index=copy * len(found) + place))
    grades, rows = Grades(task), []
    for name in ("cold", "from what is kept"):
        began, wall = time.process_time(), time.monotonic()
        known = graded(made, task, grades)
        rows.append(
            {
                "name": f"grading, {pool_path.stem}, {name}",
                "completions": sum(map(len, known.values())),
                "processor_seconds": round(time.process_time() - began, 2),
                "wall_seconds": round(time.monotonic() - wall, 2),
            }
        )
    return rows


def overhead(count: int) -> list[dict[str, Any]]:
    """Processor seconds beyond those of `solve_many`, over the seconds of a real run."""
    _turn(sums(8))
    turns = [_turn(sums(count)) for _ in range(_TURNS)]
    plain, whole, beyond = (
        median(seconds) for seconds in zip(*((p, w, w - p) for p, w, _ in turns), strict=True)
    )
    tokens = turns[0][2]
    return [
        {
            "name": "overhead of the harness",
            "problems": count,
            "tokens": tokens,
            "processor_seconds": round(whole, 2),
            "of_solve_many": round(plain, 2),
            "share_percent": round(100 * beyond * TOKENS_PER_S / tokens, 3),
            "tokens_per_s_assumed": TOKENS_PER_S,
        }
    ]


def _turn(task: Task) -> tuple[float, float, int]:
    """Processor seconds of `solve_many` and of an evaluation, and the tokens of each."""
    began = time.process_time()
    outcomes = ttc.solve_many(
        task.problems,
        voting(8).strategy,
        model=FakeEngine(reply),
        per_problem=Budget(tokens=1000),
        seed=1,
    )
    plain, began = time.process_time() - began, time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        evaluation(Path(folder), task, samples=(8,)).run()
    whole = time.process_time() - began
    return plain, whole, sum(outcome.usage.tokens for outcome in outcomes)


def memory(count: int) -> list[dict[str, Any]]:
    """Megabytes that a process reaches with few and with many problems."""
    peaks = []
    for size in (count, 10 * count):
        command = [sys.executable, __file__, "--child-memory", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(float(done.stdout))
    return [
        {
            "name": f"memory, {count} and {10 * count} problems",
            "peak_mb": peaks[0],
            "peak_mb_of_ten_times_as_many": peaks[1],
            "growth_kb_of_a_problem": round((peaks[1] - peaks[0]) * 1024 / (9 * count), 2),
        }
    ]


def boundaries(problems: int) -> list[dict[str, Any]]:
    """Whether a small evaluation comes to the same when it is killed behind each of its lines."""
    began, few = time.monotonic(), ("--samples", str(_FEW))
    with tempfile.TemporaryDirectory() as place:
        peaceful = Path(place) / "peaceful"
        lines = int(_child(peaceful, problems, *few).partition("lines ")[2])
        same = killed = 0
        for line in range(1, lines + 1):
            folder = Path(place) / str(line)
            killed += "lines" not in _child(folder, problems, *few, "--die-after", str(line))
            evaluation(folder, sums(problems), concurrency=8, samples=(1, _FEW)).run()
            same += _is_same(peaceful, folder)
    return [
        {
            "name": "kills behind each line of a small evaluation",
            "problems": problems,
            "lines": lines,
            "killed": killed,
            "same_results_and_report": same,
            "seconds": round(time.monotonic() - began, 1),
        }
    ]


def kills(count: int, problems: int) -> list[dict[str, Any]]:
    """Whether a large evaluation comes to the same when it is killed at random moments."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        peaceful, folder = Path(place) / "peaceful", Path(place) / "killed"
        whole = _run_until(peaceful, problems, None)
        moments, killed, done = random.Random(3), 0, []
        for _ in range(count):
            after_s = moments.uniform(0.0, 1.2 * whole / count)
            killed += _run_until(folder, problems, after_s) >= after_s
            done.append(sum(1 for _ in read_results(folder)))
        _run_until(folder, problems, None)
        same = _is_same(peaceful, folder)
    return [
        {
            "name": f"kills at {count} random moments of a large evaluation",
            "problems": problems,
            "killed": killed,
            "results_at_the_last_kill": done[-1],
            "same_results_and_report": same,
            "seconds": round(time.monotonic() - began, 1),
        }
    ]


def _command(folder: Path, problems: int, *more: str) -> list[str]:
    child = [sys.executable, __file__, "--child-run", str(folder), "--problems", str(problems)]
    return [*child, *more]


def _child(folder: Path, problems: int, *more: str) -> str:
    """Runs an evaluation in a process; what that says."""
    command = _command(folder, problems, *more)
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout


def _run_until(folder: Path, problems: int, after_s: float | None) -> float:
    """Runs an evaluation until it ends, or for so long; how long that was, from its begin on."""
    process = subprocess.Popen(_command(folder, problems), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()  # it has loaded what it needs
    began = time.monotonic()
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    process.stdout.close()
    return time.monotonic() - began


def _run_child(folder: Path, problems: int, samples: int, die_after: int | None) -> None:
    """The child's side: an evaluation that counts its lines, and dies behind one of them."""
    usual, count = Lines.append, itertools.count(1)
    written = 0

    def append(self: Lines, line: bytes) -> None:
        nonlocal written
        usual(self, line)
        written = next(count)
        if written == die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    Lines.append = append  # type: ignore[method-assign]
    print(BEGUN, flush=True)
    evaluation(folder, sums(problems), concurrency=8, samples=(1, samples)).run()
    print(f"lines {written}", flush=True)


def _is_same(first: Path, second: Path) -> bool:
    return _told(first) == _told(second) and _report(first) == _report(second)


def _report(folder: Path) -> str:
    """The report, without what is measured."""
    study = read_study(folder).values
    for cell in study["cells"]:
        cell["spends"].pop("seconds", None)
        cell.pop("overhead")
    equal = [row for row in study["at_equal_spend"] if row["resource"] != "seconds"]
    told = [study["cells"], study["verdicts"], equal, study["selections"], study["num_missing"]]
    return json.dumps(told, sort_keys=True)


def _told(folder: Path) -> list[str]:
    told = []
    for result in read_results(folder, texts=True):
        usage = {name: value for name, value in result.usage.items() if name not in MEASURED}
        told.append(json.dumps([result.key, result.grade, result.answer, usage], default=repr))
    return sorted(told)


def _part(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What one part measures."""
    if name == "overhead":
        return overhead(options.problems)
    if name == "memory":
        return memory(options.problems)
    if name == "boundaries":
        return boundaries(options.boundaries)
    if name == "kills":
        return kills(options.kills, options.large)
    return grading(options.pool, options.pool, options.completions)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures what is asked for, and writes it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--pool", type=Path, help="a file of completions, as `candidates`")
    parser.add_argument("--completions", type=int, default=100_000)
    parser.add_argument("--problems", type=int, default=400, help="of overhead and memory")
    parser.add_argument("--large", type=int, default=2_000, help="problems of kills")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--boundaries", type=int, default=3, help="problems of the small one")
    parser.add_argument("--child-run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=int, default=8, help=argparse.SUPPRESS)
    parser.add_argument("--die-after", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child-memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child_run is not None:
        _run_child(options.child_run, options.problems, options.samples, options.die_after)
        return
    if options.child_memory is not None:
        with tempfile.TemporaryDirectory() as folder:
            evaluation(Path(folder), sums(options.child_memory)).run()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(f"{peak:.1f}")
        return
    if "grading" in options.parts and options.pool is None:
        parser.error("--pool: grading needs a file of completions; name it, or other --parts")
    rows: list[dict[str, Any]] = []
    for part in options.parts:
        made = _part(part, options)
        rows += made
        for row in made:
            print(row, flush=True)
    if options.json is not None:
        command = ["python", "benchmarks/perf/harness.py", *(arguments or sys.argv[1:])]
        write_result(options.json, command=command, rows=rows, seed=1)


if __name__ == "__main__":
    main()
