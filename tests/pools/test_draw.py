"""Drawing completions into a pool."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.core.lab import talker
from ttc import EngineError, Problem, RecordError, Sampling
from ttc.pools import Pool, PoolFile, read
from ttc.pools.draw import Drawn, Plan, draw
from ttc.testing import FakeEngine

PROBLEMS = (Problem.ask("What is 1 + 1?", id="a"), Problem.ask("What is 2 + 1?", id="b"))


def drawn(path: Path, engine: FakeEngine, n: int, problems: Any = PROBLEMS, **more: Any) -> Drawn:
    """What drawing into a file comes to."""

    async def work() -> Drawn:
        with PoolFile(path) as file:
            return await draw(problems, engine, file, Plan(n=n, **more))

    return asyncio.run(work())


def counter() -> FakeEngine:
    """Says how often it was asked."""
    counts = itertools.count()
    return FakeEngine(lambda request: f"The answer is {next(counts)}.")


def test_what_a_pool_holds_is_not_drawn_again(tmp_path: Path) -> None:
    """BK-06, and the cache that gave one sample many times: the key holds the index."""
    path, engine, one = tmp_path / "pool.jsonl", counter(), PROBLEMS[:1]

    drawn(path, engine, 4, one)
    first = [c.text for c in read(path)]
    again = drawn(path, engine, 4, one)
    calls = engine.calls
    drawn(path, engine, 6, one)

    assert len(set(first)) == 4
    assert (again, calls) == (Drawn(4, 0, 0), 4)
    assert engine.calls == 6
    assert [c.text for c in read(path)][:4] == first
    assert len({c.seed for c in read(path)}) == 6


def test_what_waits_to_be_drawn_takes_no_room(tmp_path: Path) -> None:
    """Memory is flat: as many tasks as completions in flight, however many are asked for."""
    tasks = []

    async def work() -> None:
        with PoolFile(tmp_path / "pool.jsonl") as file:
            await draw(
                PROBLEMS, FakeEngine("x"), file, Plan(n=400),
                progress=lambda done, total: tasks.append(len(asyncio.all_tasks())),
            )  # fmt: skip

    asyncio.run(work())
    assert len(tasks) == 801
    assert max(tasks) <= 66


def test_a_pool_holds_what_a_run_of_its_seed_draws(tmp_path: Path) -> None:
    drawn(tmp_path / "pool.jsonl", FakeEngine(talker()), 5, seed=7)

    outcome = ttc.solve(PROBLEMS[1], "sample(n=5) >> vote()", model=FakeEngine(talker()), seed=7)

    assert [c.text for c in read(tmp_path / "pool.jsonl").of("b")] == [
        c.text for c in outcome.candidates
    ]


def test_a_drawn_completion_tells_all_that_is_known(tmp_path: Path) -> None:
    drawn(tmp_path / "pool.jsonl", FakeEngine("The answer is 2."), 1)

    first = next(iter(read(tmp_path / "pool.jsonl")))
    assert PROBLEMS[0].messages == first.messages
    assert (first.length, first.finish_reason, first.model) == (4, "stop", "fake")
    assert first.logprobs == (-0.5,) * 4
    assert (bool(first.prompt_ids), first.model_hash) == (True, "fake")
    assert first.sampling == Sampling()


def test_drawing_goes_on_wherever_the_file_was_cut(tmp_path: Path) -> None:
    """BK-08: the same file comes of it, whatever the byte."""
    whole = tmp_path / "whole.jsonl"
    drawn(whole, FakeEngine(talker()), 3)
    content = whole.read_bytes()

    for cut in range(0, len(content), len(content) // 23):
        path = tmp_path / f"{cut}.jsonl"
        path.write_bytes(content[:cut])
        drawn(path, FakeEngine(talker()), 3)
        assert list(read(path)) == list(read(whole))


def test_failures_are_kept_and_are_no_results(tmp_path: Path) -> None:
    """BK-10: they are counted, their text is not kept, and they are drawn again."""
    path = tmp_path / "pool.jsonl"

    def unsteady(request: Any) -> str | EngineError:
        index = int(request.call.partition("#")[2])
        return EngineError("lost", output_tokens=3) if index in (2, 5, 8) else "The answer is 2."

    first = drawn(path, FakeEngine(unsteady), 10, PROBLEMS[:1])
    failed = [c for c in read(path) if c.failed]
    second = drawn(path, FakeEngine("The answer is 2."), 10, PROBLEMS[:1])

    assert (first, second) == (Drawn(0, 10, 3), Drawn(7, 3, 0))
    assert [(c.index, c.text, c.num_tokens, c.error) for c in failed] == [
        (index, "", 3, "lost") for index in (2, 5, 8)
    ]
    assert read(path).num_failed == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"seed": 1}, "a#0 was drawn with seed"),
        ({"max_tokens": 9}, "a#0 was drawn with max_tokens 512, and 9 is asked for"),
        (
            {"sampling": Sampling(temperature=0.5)},
            "a#0 was drawn with temperature 1.0, and 0.5 is asked for",
        ),
    ],
)
def test_a_pool_is_not_mixed(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    drawn(tmp_path / "pool.jsonl", FakeEngine("x"), 1)

    with pytest.raises(RecordError, match=message):
        drawn(tmp_path / "pool.jsonl", FakeEngine("x"), 2, **more)


def test_another_model_is_refused_before_it_is_asked(tmp_path: Path) -> None:
    drawn(tmp_path / "pool.jsonl", FakeEngine("x"), 1)
    other = FakeEngine("x")
    other.numerics = "other"

    with pytest.raises(RecordError, match="was drawn with model_hash 'fake', and 'other' is asked"):
        drawn(tmp_path / "pool.jsonl", other, 2)
    assert other.calls == 0


def test_a_problem_without_an_id_is_known_by_its_prompt(tmp_path: Path) -> None:
    path, bare = tmp_path / "pool.jsonl", [replace(p, id="") for p in PROBLEMS]

    drawn(path, FakeEngine("x"), 1, bare)
    again = drawn(path, FakeEngine("x"), 1, bare)

    assert again == Drawn(2, 0, 0)
    assert isinstance(read(path), Pool)
