"""`ttc eval` on a real model, killed between its first result and its last."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.dying import asked

ROOT = Path(__file__).parents[2]
MEASURED = ("seconds", "flops", "overhead")
"""What a report tells of clocks and caches."""


def told(value: Any) -> Any:
    """A report without what is measured."""
    if isinstance(value, dict):
        return {name: told(part) for name, part in value.items() if name not in MEASURED}
    return [told(part) for part in value] if isinstance(value, list) else value


@pytest.mark.model
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_an_evaluation_that_was_killed_goes_on_to_the_same_report(
    run_ttc: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Nothing that had been asked for is asked for again."""
    tasks = tmp_path / "sums.jsonl"
    rows = [{"id": f"p{i}", "question": f"What is {i} + 1?", "answer": i + 1} for i in range(3)]
    tasks.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    strategies = ("-s", "greedy(max_tokens=6)", "-s", "sample(n=2, max_tokens=6) >> vote()")
    command = ("eval", str(tasks), *strategies, "--concurrency", "1", "--no-figures", "-o")
    whole, killed = (tmp_path / name / "out" for name in ("whole", "killed"))
    logs = [tmp_path / "whole.log", tmp_path / "killed.log"]

    child = [sys.executable, "-m", "tests.cli.dying", str(logs[1]), "4", *command, str(killed)]
    died = subprocess.run(child, cwd=ROOT, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    before = (killed / "results.jsonl").read_bytes()
    for folder, log in zip((whole, killed), logs, strict=True):
        with asked(log):
            done = run_ttc(*command, str(folder))
        assert done.returncode == 0, done.stderr

    assert before.count(b"\n") == 4
    results = [(folder / "results.jsonl").read_bytes() for folder in (whole, killed)]
    assert results[1].startswith(before)
    assert [one.count(b"\n") for one in results] == [6, 6]
    reports = [json.loads((folder / "report.json").read_bytes()) for folder in (whole, killed)]
    assert told(reports[0]) == told(reports[1])
    asked_for = [sorted(log.read_text(encoding="utf-8").splitlines()) for log in logs]
    assert asked_for[0] == asked_for[1]
    assert len(asked_for[0]) == 3 + 6
