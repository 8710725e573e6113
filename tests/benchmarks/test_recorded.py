"""Allocators on recorded completions: what is compared, with what, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pools.test_pool import completion
from ttc import Problem, RecordError
from ttc.benchmarks.recorded import ALLOCATORS, NAMED, main, measure
from ttc.benchmarks.tasks import ExactAnswer, Item, Reference, Task
from ttc.pools import Completion, Pool, write

EASY = [f"p{i}" for i in range(6)]
HARD = [f"h{i}" for i in range(6)]


def recorded(problem: str, answers: str) -> list[Completion]:
    """Completions with such answers, one digit each, of ten tokens."""
    return [
        completion(problem, i, f"So the answer is {a}.", num_tokens=10, finish_reason="stop")
        for i, a in enumerate(answers)
    ]


POOL = Pool(
    [c for name in EASY for c in recorded(name, "1" * 12)]
    + [c for name in HARD for c in recorded(name, "123123111213")]
)
TASK = Task(
    name="ones",
    items=tuple(Item(Problem.ask(n, id=n), Reference(answer="1")) for n in [*EASY, *HARD]),
    grader=ExactAnswer(),
)


def test_every_allocator_has_what_uniform_spent() -> None:
    """And whoever is decided leaves its part to the others."""
    points = {p.allocator: p for p in measure(POOL, TASK, units=(4,), orders=3, resamples=500)}

    assert set(points) == set(ALLOCATORS)
    assert points["uniform"].tokens == 4 * 10 * len(TASK.items)
    assert points["uniform"].gain == points["uniform"].low == points["uniform"].high == 0
    assert all(p.tokens <= points["uniform"].tokens for p in points.values())
    assert points[NAMED].accuracy >= 0.5, "the easy ones at least"
    assert points[NAMED].low <= points[NAMED].gain <= points[NAMED].high


def test_a_measurement_repeats_and_other_seeds_differ() -> None:
    one = measure(POOL, TASK, units=(2,), orders=2, resamples=200, seed=1)

    assert one == measure(POOL, TASK, units=(2,), orders=2, resamples=200, seed=1)
    assert one != measure(POOL, TASK, units=(2,), orders=2, resamples=200, seed=2)


def test_problems_without_a_reference_do_not_count() -> None:
    """And a pool whose lengths nobody knows cannot be charged for."""
    more = Pool([*POOL, *recorded("unknown", "111")])
    assert measure(more, TASK, units=(2,), orders=1, resamples=50) == measure(
        POOL, TASK, units=(2,), orders=1, resamples=50
    )
    with pytest.raises(RecordError, match="does not tell how long its completions are"):
        measure(Pool([completion("p0", 0, "1")]), TASK)


def test_the_command_writes_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With budgets, intervals, the seed, and the allocator that was named in advance."""
    pool, references, path = (tmp_path / n for n in ("pool.jsonl", "tasks.jsonl", "out.json"))
    write(pool, POOL)
    rows = [{"id": name, "question": name, "answer": "1"} for name in [*EASY, *HARD]]
    references.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["--pool", pool, "--references", references, "--json", path]
    main([*map(str, asked), "--orders", "1", "--resamples", "50", "--seed", "7"])

    result = json.loads(path.read_text())
    assert "* named in advance" in capsys.readouterr().out
    assert result["command"].startswith("python -m ttc.benchmarks.recorded --pool pool.jsonl")
    assert len(result["rows"]) == 3 * len(ALLOCATORS)
    assert {row["bootstrap_seed"] for row in result["rows"]} == {result["seed"]} == {7}
    said = {row["is_named_in_advance"]: row["verdict"] for row in result["rows"]}
    assert said == {True: "too few problems", False: None}, "the others have no verdict"
    named = [row["name"] for row in result["rows"] if row["is_named_in_advance"]]
    assert named == [f"{NAMED}, {units} units" for units in (2, 4, 8)]
