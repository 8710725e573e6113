"""The recipes of the proof: every command of either size is one that can be run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from typing import Any

import pytest
from typer.main import get_command

from tests.meta.tree import ROOT
from ttc.benchmarks.harness.config import MAX_COMPARISONS
from ttc.benchmarks.harness.sweeps import arms_of
from ttc.cli.app import app
from ttc.cli.eval import budgets_of

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def _commands(*arguments: str) -> list[list[str]]:
    """What a target would run, of ttc and of Python, whoever runs the tests."""
    command = ["make", "-n", "-f", "benchmarks/proof.mk", "TTC=ttc", "PY=python", *arguments]
    apart = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=apart, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    lines = done.stdout.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.startswith(("ttc ", "python "))]


def _options(command: list[str]) -> dict[str, Any]:
    """The options of a command of ttc, refused where it does not take them."""
    commands: Any = get_command(app)
    with commands.commands[command[1]].make_context(command[1], command[2:]) as context:
        return dict(context.params)


@pytest.mark.parametrize("size", ["full", "small"])
def test_every_command_of_the_proof_can_be_run(size: str) -> None:
    found = _commands("proof", "smoke", f"SIZE={size}")
    assert {command[1] for command in found if command[0] == "ttc"} == {"sample", "eval", "plan"}
    for command in found:
        if command[0] == "python":
            assert find_spec(command[2])
            continue
        options = _options(command)
        names = [arm.name for arm in arms_of(options.get("strategy") or [])]
        budgets = options.get("budget") or []
        assert all(map(budgets_of, [budgets] if isinstance(budgets, str) else budgets))
        compared = options.get("compare") or []
        assert all(side in names for text in compared for side in text.split(" > "))
        assert len(compared) <= MAX_COMPARISONS


def test_a_target_takes_problems_and_samples_of_its_own() -> None:
    given = ("GSM8K=gsm8k[300:340]", "SAMPLES=8", "RUN=mine")
    (drawn,) = _commands("pool-gsm8k", *given)
    (told,) = _commands("table-gsm8k", *given)
    assert drawn[drawn.index("-n") + 1] == "8"
    assert "gsm8k[300:340]" in drawn
    assert "gsm8k[300:340]" in told
    assert told[told.index("-o") + 1] == "mine/table-gsm8k"


def test_both_sizes_have_the_same_rows() -> None:
    """They differ by problems, samples and budgets; a plan asks for no more than there are."""
    strategies = [
        [
            part.replace("n=12,", "n=8,")
            for command in _commands("proof", f"SIZE={size}")
            for part in command
            if ": " in part
        ]
        for size in ("full", "small")
    ]
    assert strategies[0] == strategies[1]


def test_whatever_is_evaluated_leaves_a_summary() -> None:
    targets = ("greedy", "tables", "plan", "live", "agents")
    written = [c[c.index("--json") + 1] for c in _commands(*targets) if c[0] == "ttc"]
    assert len(written) == len(set(written)) == 16
