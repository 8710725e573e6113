"""Shards: what each may spend, what they come to together, and what becomes of a lost one."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ttc
from ttc import Budget, Problem
from ttc.cli import main
from ttc.errors import RecordError
from ttc.limits import Limits
from ttc.shards import LOCAL, Plan, merge, run_shard, start
from ttc.testing.openai_server import OpenAIServer

VOTE = "sample(n=3, max_tokens=12) >> vote()"
PROBLEMS = tuple(Problem.ask(f"What is {n} + {n}?", id=f"p{n}") for n in range(7))

KILLED = """
import os, sys
from pathlib import Path
from ttc.cli import main
from ttc.journal.disk import DiskJournal

flag, finish = Path(sys.argv[1]), DiskJournal.finish

def die(self, outcome):
    finish(self, outcome)
    os._exit(9)

if sys.argv[-1] == "1" and not flag.exists():
    flag.touch()
    DiskJournal.finish = die
sys.exit(main(sys.argv[2:]))
"""
"""A worker that is killed once, after the first problem of shard 1."""


def answer(body: Any) -> str:
    """What the server says: a function of the question."""
    question = body["messages"][0]["content"]
    return f"The answer is {len(question)}."


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(answer) as there:
        yield there


def plan(server: OpenAIServer | None = None, **more: Any) -> Plan:
    url = "http://127.0.0.1:9/v1" if server is None else server.url
    given = {"problems": PROBLEMS, "strategy": VOTE, "count": 3, "seed": 5, "concurrency": 2}
    return Plan(**{**given, "models": {"policy": f"openai:fake@{url}"}, **more})


def questions(server: OpenAIServer) -> Counter[str]:
    """How often each question was asked, but for the probes."""
    asked = (str(a.body["messages"][0]["content"]) for a in server.asked)
    return Counter(text for text in asked if text.startswith("What is"))


# How it is divided


@given(
    problems=st.integers(1, 40),
    count=st.integers(1, 12),
    tokens=st.integers(0, 10_000),
    calls=st.none() | st.integers(0, 99),
)
def test_every_problem_has_what_it_has_in_one_undivided_run(
    problems: int, count: int, tokens: int, calls: int | None
) -> None:
    """The parts add up to the whole, and are divided on as the whole would be."""
    budget = Budget(tokens=tokens, calls=calls)
    asked = tuple(Problem.ask(f"{n}", id=f"{n}") for n in range(problems))
    made = plan(problems=asked, count=min(count, problems), budget=budget)
    parts = [made.part(shard) for shard in range(made.count)]
    each = [
        one
        for shard, part in enumerate(parts)
        for one in Limits(part, None, None, 1).of_each(len(made.places(shard)))
    ]

    assert sum(part.tokens or 0 for part in parts) == tokens
    assert each == Limits(budget, None, None, 1).of_each(problems)
    assert [place for shard in range(made.count) for place in made.places(shard)] == [
        *range(problems)
    ]


def test_dollars_are_divided_and_seconds_are_each_ones_own() -> None:
    made = plan(budget=Budget(cost_usd=0.7, seconds=9.0))

    assert [made.part(shard).cost_usd for shard in range(3)] == pytest.approx([0.3, 0.2, 0.2])
    assert [made.part(shard).seconds for shard in range(3)] == [9.0] * 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"count": 0}, "divided into 1 to 7 shards, not 0"),
        ({"count": 8}, "divided into 1 to 7 shards, not 8"),
        ({"allocator": "greedy_gain"}, "an allocator gives tokens away"),
        ({"allocator": "nobody"}, "'nobody' is none of the allocators"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        plan(**wrong)


def test_there_is_no_shard_beyond_the_last() -> None:
    with pytest.raises(ValueError, match="0 to 2, and 3 is none"):
        plan().places(3)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = plan(budget=Budget(tokens=100), per_problem=Budget(calls=2), allocator="uniform")
    made.write(tmp_path / "run")

    assert Plan.read(tmp_path / "run") == made
    with pytest.raises(RecordError, match="has a plan already"):
        made.write(tmp_path / "run")


@pytest.mark.parametrize("content", ["", "{}", '{"schema_version": 99}', "[]"])
def test_a_damaged_plan_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)

    with pytest.raises(RecordError, match=r"damaged"):
        Plan.read(tmp_path)


# What it comes to


def test_shards_together_come_to_what_one_run_comes_to(
    tmp_path: Path, server: OpenAIServer
) -> None:
    """Answers, spend, and what ended each."""
    made = plan(server, budget=Budget(tokens=1000))
    made.write(tmp_path)
    for shard in (2, 0, 1):
        run_shard(tmp_path, shard)
    merged = merge(tmp_path)
    whole = ttc.solve_many(
        PROBLEMS, VOTE, models=made.models, budget=made.budget, seed=made.seed, concurrency=2
    )

    assert [row["answer"] for row in merged.rows] == [outcome.answer for outcome in whole]
    assert [row["stopped_by"] for row in merged.rows] == [o.stopped_by for o in whole]
    assert [row["usage"]["tokens"] for row in merged.rows] == [o.usage.tokens for o in whole]
    assert merged.usage.tokens == sum(outcome.usage.tokens for outcome in whole) <= 1000
    assert (merged.missing, merged.tokens_lost) == ((), 0)


def test_a_shard_that_has_ended_is_not_run_again(tmp_path: Path, server: OpenAIServer) -> None:
    plan(server).write(tmp_path)
    first = run_shard(tmp_path, 1)
    before, asked = first.read_bytes(), len(server.asked)

    assert run_shard(tmp_path, 1).read_bytes() == before
    assert len(server.asked) == asked


def test_a_merge_names_the_shards_that_are_missing(tmp_path: Path, server: OpenAIServer) -> None:
    plan(server).write(tmp_path)
    run_shard(tmp_path, 1)
    merged = merge(tmp_path)

    assert merged.missing == (0, 2)
    assert [row["id"] for row in merged.rows] == ["p3", "p4"]


def test_a_damaged_result_is_refused(tmp_path: Path, server: OpenAIServer) -> None:
    plan(server).write(tmp_path)
    result = run_shard(tmp_path, 1)
    result.write_text("\n".join(result.read_text().splitlines()[1:]))

    with pytest.raises(RecordError, match="shard 1 is damaged"):
        merge(tmp_path)


# What is lost


def test_a_shard_whose_journals_are_lost_is_not_run_again_unasked(
    tmp_path: Path, server: OpenAIServer
) -> None:
    """Nobody knows what it had spent; asked for, its whole part is booked as lost."""
    plan(server, budget=Budget(tokens=700)).write(tmp_path)
    run_shard(tmp_path, 0).unlink()
    shutil.rmtree(tmp_path / "journals" / "0000")
    with pytest.raises(RecordError, match="what it spent is not known"):
        run_shard(tmp_path, 0)
    run_shard(tmp_path, 0, again=True)

    assert merge(tmp_path).tokens_lost == 300


def test_journals_may_lie_elsewhere(tmp_path: Path, server: OpenAIServer) -> None:
    plan(server).write(tmp_path / "plan")
    run_shard(tmp_path / "plan", 0, journals=tmp_path / "own")

    assert len(list((tmp_path / "own" / "0000").glob("*.journal"))) == 3
    assert not (tmp_path / "plan" / "journals").exists()


def test_a_lost_shard_goes_on_in_another_process(tmp_path: Path, server: OpenAIServer) -> None:
    """Several processes on the loopback interface; nothing that was known is asked again."""
    script, folder = tmp_path / "worker.py", tmp_path / "run"
    script.write_text(KILLED)
    plan(server, count=2, budget=Budget(tokens=1000), concurrency=1).write(folder)
    worker = (sys.executable, str(script), str(tmp_path / "flag"))
    told: list[str] = []
    merged = asyncio.run(start(folder, [worker, worker], tell=told.append))

    assert merged.missing == ()
    assert [row["id"] for row in merged.rows] == [problem.id for problem in PROBLEMS]
    assert sorted(line.partition("(")[0].strip() for line in told) == [
        "shard 0: done",
        "shard 1: done",
        "shard 1: lost",
    ]
    assert questions(server) == Counter({p.messages[0].content: 3 for p in PROBLEMS})
    assert merged.usage.tokens <= 1000


def test_workers_that_cannot_begin_leave_shards_missing(tmp_path: Path) -> None:
    plan().write(tmp_path)
    told: list[str] = []
    merged = asyncio.run(start(tmp_path, [("no-such-command",)], attempts=2, tell=told.append))

    assert merged.missing == (0, 1, 2)
    assert len(told) == 6
    assert "cannot be started" in told[0]


def test_another_worker_takes_what_one_has_failed_on(tmp_path: Path) -> None:
    """A broken host does not use all attempts up while a good one is there."""
    plan(count=2).write(tmp_path)
    good = tmp_path / "good.py"
    good.write_text(
        "import sys, time\nfrom pathlib import Path\n"
        "folder, shard = Path(sys.argv[-3]), int(sys.argv[-1])\n"
        "places = [*range(4)] if shard == 0 else [*range(4, 7)]\n"
        'rows = \'\'.join(\'{"place": %d, "usage": {"seconds": 1.0}}\\n\' % p for p in places)\n'
        "(folder / 'shards').mkdir(exist_ok=True)\n"
        'end = \'{"end": %d, "tokens_lost": 0}\' % len(places)\n'
        "(folder / 'shards' / f'{shard:04d}.jsonl').write_text(rows + end)\n"
    )
    bad = (sys.executable, "-c", "raise SystemExit('broken')")
    merged = asyncio.run(start(tmp_path, [bad, (sys.executable, str(good))], attempts=2))

    assert merged.missing == ()


# The command line


def test_the_command_line_plans_runs_and_merges(
    tmp_path: Path, server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "questions.txt", str(tmp_path / "run")
    file.write_text("What is 1?\nWhat is 2?\nWhat is 3?\n")
    model = ("--model", f"openai:fake@{server.url}")
    options = ("--strategy", VOTE, "--budget", "tokens=900", "--seed", "1", *model)
    made = main(["shards", "plan", folder, "--problems", str(file), "--count", "2", *options])
    assert made == main(["shards", "run", folder, "--shard", "0"]) == 0
    assert main(["shards", "merge", folder]) == 2
    assert "shards that have not ended: 1" in capsys.readouterr().err
    assert main(["shards", "run", folder, "--shard", "1"]) == 0
    assert main(["shards", "merge", folder, "--json"]) == 0

    said = capsys.readouterr().out
    told = json.loads(said[said.index("{") :])
    assert [row["answer"] for row in told["rows"]] == ["10"] * 3


def test_the_command_line_refuses_a_start_without_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan().write(tmp_path)

    assert main(["shards", "start", str(tmp_path)]) == 2
    assert "name workers" in capsys.readouterr().err


def test_a_worker_on_this_machine_is_this_python() -> None:
    assert (sys.executable, "-m", "ttc") == LOCAL
