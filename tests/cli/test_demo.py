"""`ttc demo` on a fake engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from ttc.testing import FakeEngine

Cli = Callable[..., subprocess.CompletedProcess[str]]
Use = Callable[[FakeEngine], FakeEngine]
FEW = ("demo", "--problems", "3", "--samples", "2")


def test_the_demo_sets_the_oracle_apart(run_ttc: Cli, use_engine: Use) -> None:
    """As a bound, in a row of its own, with a line that says why."""
    use_engine(FakeEngine("The answer is 4."))

    done = run_ttc(*FEW)

    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].split()[:3] == ["strategy", "accuracy", "95"]
    assert lines[1].startswith("greedy ")
    assert lines[2].startswith("self-consistency, n=2 ")
    assert lines[3] == ""
    assert lines[4].startswith("best of the same 2, by oracle ")
    assert lines[4].endswith("upper bound")
    assert lines[6] == "The upper bound is no result: it chooses by the right answers."
    assert lines[8].startswith("Each problem may spend tokens=1000; the most that one took: ")
    assert "cores, 3 problems, seed 0" in lines[9]


def test_the_demo_writes_a_result_file(run_ttc: Cli, use_engine: Use, tmp_path: Path) -> None:
    """With what it takes to get the same rows again."""
    use_engine(FakeEngine("The answer is 4."))
    path = tmp_path / "demo.json"

    done = run_ttc(*FEW, "--json", str(path))

    result = json.loads(path.read_text())
    assert done.returncode == 0
    assert result["command"] == (
        "ttc demo --seed=0 --problems=3 --samples=2 --budget=tokens=1000 --model=smollm2-135m"
    )
    assert [row["oracle"] for row in result["rows"]] == [False, False, True]
    assert result["rows"][0]["num_problems"] == 3
