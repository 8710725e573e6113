"""`ttc plan` on a fake engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.evals import adder
from ttc.testing import FakeEngine
from ttc.text_form import parse

Cli = Callable[..., subprocess.CompletedProcess[str]]
Use = Callable[[FakeEngine], FakeEngine]


def test_a_plan_is_chosen_on_one_part_and_told_on_the_other(
    run_ttc: Cli, use_engine: Use, tmp_path: Path
) -> None:
    """Run again, it asks the engine nothing."""
    engine = use_engine(FakeEngine(adder))
    path, folder = tmp_path / "sums.jsonl", tmp_path / "plan"
    rows = [{"id": f"p{i}", "question": f"What is {i} + 1?", "answer": i + 1} for i in range(24)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    command = (
        "plan", str(path), "-s", "one: sample(n=1, max_tokens=8) >> vote()",
        "-s", "many: sample(n=5, max_tokens=8) >> vote()", "--budget", "tokens=90",
        "--look", "sample(n=2, max_tokens=8) >> vote()", "-o", str(folder),
        "--json", str(tmp_path / "told.json"),
    )  # fmt: skip
    done = run_ttc(*command)
    calls = engine.calls
    again = run_ttc(*command)

    assert done.returncode == 0, done.stderr
    assert (again.stdout, engine.calls) == (done.stdout, calls)
    assert "chosen on 12 problems of sums.jsonl:" in done.stdout
    assert "--repeats 2 takes others for the table" in done.stdout
    assert "expected, from 12 problems that chose nothing:" in done.stdout
    made = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert made["budget"] == 90
    rows = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))["rows"]
    assert (rows[0]["kind"], rows[0]["chosen_on_problems"]) == ("plan", 12)
    assert made["recommended"]["arm"] in rows[0]["recommended"]
    assert any(row["kind"] == "strategy" and row["problems"] == 12 for row in rows)
    assert parse((folder / "route.json").read_text(encoding="utf-8"))


def test_a_budget_without_tokens_asks_what_may_be_spent(
    run_ttc: Cli, use_engine: Use, tmp_path: Path
) -> None:
    use_engine(FakeEngine(adder))
    path = tmp_path / "sums.jsonl"
    rows = [{"question": f"What is {i} + 1?", "answer": i + 1} for i in range(4)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = run_ttc(
        "plan", str(path), "-s", "one: greedy(max_tokens=8)", "--budget", "calls=9",
        "-o", str(tmp_path / "plan"),
    )  # fmt: skip
    assert done.returncode == 2
    assert "--within: name the mean tokens" in done.stderr


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (("--look", "sample(n={2,4}, max_tokens=8) >> vote()"), "--look: one strategy tells"),
        (("-s", "look: greedy(max_tokens=8)"), "'look' is the name of what --look gives"),
        (("--share", "1.5"), "lies between 0 and 1, not 1.5"),
        (("--within", "0"), "--within"),
        (("--limit", "1"), "has too few problems for two parts: 1"),
        (("--json", "nowhere/plan.json"), "--json: no file can be written at"),
    ],
)
def test_faults_of_a_plan_are_told_before_anything_runs(
    run_ttc: Cli, use_engine: Use, tmp_path: Path, more: tuple[str, ...], fault: str
) -> None:
    engine = use_engine(FakeEngine(adder))
    path = tmp_path / "sums.jsonl"
    rows = [{"question": f"What is {i} + 1?", "answer": i + 1} for i in range(4)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = run_ttc(
        "plan", str(path), "-s", "one: greedy(max_tokens=8)", "--budget", "tokens=90",
        "-o", str(tmp_path / "plan"), *more,
    )  # fmt: skip
    assert done.returncode == 2
    assert fault in " ".join(done.stderr.split())
    assert engine.calls == 0


def test_a_pool_that_holds_not_what_is_asked_for_gives_no_plan(
    run_ttc: Cli, tmp_path: Path
) -> None:
    """Runs that could only fail would choose by luck."""
    path, pool = tmp_path / "sums.jsonl", str(tmp_path / "pool.jsonl")
    rows = [{"id": f"p{i}", "question": f"What is {i} + 1?", "answer": i + 1} for i in range(4)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ttc.registry.load_engine", lambda *_, **__: FakeEngine(adder))
        drawn = run_ttc("sample", str(path), "-n", "4", "--limit", "4", "-o", pool)
    command = ("plan", str(path), "--pool", pool, "-s", "one: sample(n=1) >> vote()")
    done = run_ttc(*command, "--budget", "tokens=90", "-o", str(tmp_path / "one"))
    look = ("--look", "sample(n=2) >> vote()", "-o", str(tmp_path / "two"))
    again = run_ttc(*command, "--budget", "tokens=90", *look)

    assert drawn.returncode == 0, drawn.stderr
    assert done.returncode == 2
    assert "drawn with temperature=1.0, and temperature=0.8 is asked for" in done.stderr
    assert "--look asks for" in done.stderr
    assert again.returncode == 0, again.stderr
