"""What the harness itself costs: grading, overhead, memory, and kills at random moments.

Run as `python benchmarks/perf/harness.py [--json PATH] [--pool FILE] [--kills N]`.

    grading    completions graded in a second of processor time, cold and again from what is kept:
               copies of a recorded pool, as many as are asked for
    overhead   processor seconds of an evaluation on a fake engine beside those of `solve_many` on
               the same problems, over the seconds that a model of 600 tokens a second would take
    memory     what a process grows by, with ten times as many problems
    kills      an evaluation that is killed with SIGKILL at random moments, again and again until it
               ends, against one that ran in peace: whether their results are the same
"""

from __future__ import annotations

import argparse
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
from typing import Any

import ttc
from ttc.benchmarks.data import task_named
from ttc.benchmarks.harness.config import Arm, Config, TaskFacts
from ttc.benchmarks.harness.results import read_results
from ttc.benchmarks.harness.run import Evaluation, Options
from ttc.benchmarks.pools import graded
from ttc.benchmarks.results import write_result
from ttc.benchmarks.tasks import ExactAnswer, Item, Reference, Task
from ttc.pools import Pool
from ttc.pools.imports import import_pool
from ttc.testing import FakeEngine
from ttc.types import Budget, Problem

VOTE = "sample(n=8, max_tokens=64) >> vote()"
REPLY = " ".join(["thinking"] * 40) + " The answer is 7."
TOKENS_PER_S = 600
MEASURED = ("seconds", "kv_byte_seconds", "tokens_lost")


def sums(count: int) -> Task:
    """So many problems."""
    items = tuple(
        Item(Problem.ask(f"What is {i} + 1?", id=f"p{i}"), Reference(answer=str(i + 1)))
        for i in range(count)
    )
    return Task(name="sums", items=items, grader=ExactAnswer(), source="made here")


def evaluation(folder: Path, task: Task, concurrency: int = 64) -> Evaluation:
    """A vote of eight on a fake engine."""
    facts = TaskFacts(
        name=task.name,
        source=task.source,
        digest=task.digest,
        num_problems=len(task.items),
        num_publicly_tested=0,
        grader="exact",
        example="",
    )
    config = Config(
        tasks=(facts,),
        arms=(Arm(name="vote", strategy=VOTE),),
        budgets={"tokens=1000": {"tokens": 1000}},
        models=("fake",),
        roles={},
        seed=1,
        repeats=1,
        comparisons=(),
        asking={},
    )
    engine = FakeEngine(REPLY)
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
    began, wall = time.process_time(), time.monotonic()
    known = graded(made, task)
    return [
        {
            "name": f"grading, {pool_path.stem}",
            "completions": sum(map(len, known.values())),
            "processor_seconds": round(time.process_time() - began, 2),
            "wall_seconds": round(time.monotonic() - wall, 2),
        }
    ]


def overhead(count: int) -> list[dict[str, Any]]:
    """Processor seconds beyond those of `solve_many`, over the seconds of a real run."""
    task = sums(count)
    began = time.process_time()
    outcomes = ttc.solve_many(
        task.problems, VOTE, model=FakeEngine(REPLY), per_problem=Budget(tokens=1000), seed=1
    )
    plain, began = time.process_time() - began, time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        evaluation(Path(folder), task).run()
    whole = time.process_time() - began
    tokens = sum(outcome.usage.tokens for outcome in outcomes)
    real = tokens / TOKENS_PER_S
    return [
        {
            "name": "overhead of the harness",
            "problems": count,
            "tokens": tokens,
            "processor_seconds": round(whole, 2),
            "of_solve_many": round(plain, 2),
            "share_percent": round(100 * (whole - plain) / real, 3),
            "tokens_per_s_assumed": TOKENS_PER_S,
        }
    ]


def memory(count: int) -> list[dict[str, Any]]:
    """Megabytes that a process reaches with few and with many problems."""
    rows = []
    for size in (count, 10 * count):
        command = [sys.executable, __file__, "--child-memory", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append({"name": f"memory, {size} problems", "peak_mb": float(done.stdout)})
    return rows


def kills(count: int, problems: int) -> list[dict[str, Any]]:
    """Whether an evaluation that is killed at random moments comes to the same results."""
    with tempfile.TemporaryDirectory() as place:
        peaceful, killed = Path(place) / "peaceful", Path(place) / "killed"
        began = time.monotonic()
        _child(peaceful, problems, None)
        whole = time.monotonic() - began
        moments, survived = random.Random(3), 0
        for _ in range(count):
            survived += not _child(killed, problems, moments.uniform(0.3, 1.0) * whole / 2)
        _child(killed, problems, None)
        same = _told(peaceful) == _told(killed)
    name = f"kills at {count} random moments"
    return [{"name": name, "problems": problems, "killed": survived, "same_results": same}]


def _child(folder: Path, problems: int, after_s: float | None) -> bool:
    """Runs an evaluation in a process; says whether it ended by itself."""
    command = [sys.executable, __file__, "--child-run", str(folder), "--problems", str(problems)]
    process = subprocess.Popen(command)
    try:
        return process.wait(timeout=after_s) == 0
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return False


def _told(folder: Path) -> list[str]:
    told = []
    for result in read_results(folder, texts=True):
        usage = {name: value for name, value in result.usage.items() if name not in MEASURED}
        told.append(json.dumps([result.key, result.grade, result.answer, usage], default=repr))
    return sorted(told)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures what is asked for, and writes it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pool", type=Path, help="a file of completions, as `candidates`")
    parser.add_argument("--completions", type=int, default=100_000)
    parser.add_argument("--problems", type=int, default=400)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--child-run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child-memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child_run is not None:
        evaluation(options.child_run, sums(options.problems), concurrency=8).run()
        return
    if options.child_memory is not None:
        with tempfile.TemporaryDirectory() as folder:
            evaluation(Path(folder), sums(options.child_memory)).run()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(f"{peak:.1f}")
        return
    rows = overhead(options.problems) + memory(options.problems)
    if options.kills:
        rows += kills(options.kills, options.problems)
    if options.pool is not None:
        rows += grading(options.pool, options.pool, options.completions)
    for row in rows:
        print(row)
    if options.json is not None:
        command = ["python", "benchmarks/perf/harness.py", *(arguments or sys.argv[1:])]
        write_result(options.json, command=command, rows=rows, seed=1)


if __name__ == "__main__":
    main()
