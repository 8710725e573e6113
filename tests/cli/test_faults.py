"""What the user can mend: one line on stderr, exit code 2, no traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Never

import pytest

from ttc.cli import main
from ttc.errors import EngineError, NodeError
from ttc.ports import Request
from ttc.registry import install_hint
from ttc.testing import FakeEngine

Cli = Callable[..., subprocess.CompletedProcess[str]]
Use = Callable[[FakeEngine], FakeEngine]


def check_fault(done: subprocess.CompletedProcess[str], message: str) -> None:
    """One line that says the message, and nothing else."""
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.startswith("ttc: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "No such command 'fly'; see `ttc --help`"),
        (["--fly"], "No such option: --fly"),
        (["solve"], "see `ttc solve --help`"),
        (["solve", "q", "--nope"], "No such option: --nope"),
        (["solve", "q", "--seed", "x"], "--seed"),
        (["solve", "q", "--budget", "tokens=x"], "tokens is a whole number"),
        (["solve", "q", "--sandbox", "some"], "--sandbox: 'some' is none of auto, full, none"),
        (["solve", "q", "--answer-format", "tune"], "'tune' is none of auto, boxed, marked"),
        (["solve", " "], "the question is empty"),
        (["solve", "\udcff"], "no valid text"),
        (["solve", "q", "--strategy", "nope()"], "nothing is called 'nope'"),
        (["solve", "q", "--strategy", "greedy("], "cannot be read"),
        (["solve", "q", "--strategy", "sample(n=4)"], "gives one candidate, and this gives many"),
        (["graph", "vote(m=1)"], "unexpected keyword argument 'm'"),
        (["graph", "greedy()", "--format", "png"], "'png' is none of text, mermaid, dot"),
        (["pull", "nope"], "no model 'nope' can be pulled; known: smollm2-135m"),
        (["demo", "--problems", "0"], "--problems"),
        (["demo", "--problems", "100000"], "ask for at most"),
        (["demo", "--json", "/nowhere/file.json"], "no file can be written at"),
    ],
)
def test_a_bad_command_is_one_line(arguments: list[str], message: str, run_ttc: Cli) -> None:
    """Whichever option, name or value is wrong."""
    check_fault(run_ttc(*arguments), message)


def test_all_faults_of_a_strategy_fit_one_line(run_ttc: Cli) -> None:
    """Each by its path."""
    done = run_ttc("graph", "sample(n=0) >> vote(by='x')")

    check_fault(done, "0.sample: n is a whole number of at least 1, not 0; 1.vote: by names")


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("tokens=4", "tokens: the first call needs at least 20 and may have 4"),
        ("calls=0", "calls: the first call needs at least 1 and may have 0"),
        ("seconds=0", "seconds: no call could start within 0 s"),
    ],
)
def test_a_budget_too_small_for_one_call_is_a_fault(
    budget: str, message: str, run_ttc: Cli, use_engine: Use
) -> None:
    """It says what one call needs and what there was."""
    engine = use_engine(FakeEngine("The answer is 4."))

    done = run_ttc("solve", "two words", "--budget", budget)

    check_fault(done, message)
    assert engine.calls == 0


def test_a_part_of_a_budget_that_is_too_small_is_a_fault(run_ttc: Cli, use_engine: Use) -> None:
    """Where nodes run together each has its part."""
    use_engine(FakeEngine("The answer is 4."))
    strategy = "(sample() | sample()) >> vote()"

    done = run_ttc("solve", "q", "--strategy", strategy, "--budget", "tokens=30")

    check_fault(done, "the first call needs at least 19 and may have 15")


def test_a_model_that_is_missing_is_a_fault(run_ttc: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the registry says of it."""
    _fail(monkeypatch, EngineError("no model 'x'; run `ttc pull x`"))

    check_fault(run_ttc("solve", "q", "--model", "x"), "no model 'x'; run `ttc pull x`")


def test_an_extra_that_is_missing_is_a_fault(run_ttc: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""

    def without_torch(name: str) -> ModuleType:
        if name == "ttc.engine.local":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return import_module(name)

    monkeypatch.setattr("ttc.registry.import_module", without_torch)

    check_fault(run_ttc("solve", "q"), f"needs torch, which is missing: {install_hint('local')}")


def test_a_task_that_is_missing_is_a_fault(run_ttc: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's questions come from an extra."""
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)

    check_fault(run_ttc("demo"), install_hint("eval"))


def test_a_model_that_cannot_be_read_is_a_fault(
    run_ttc: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the system's reason."""
    _fail(monkeypatch, PermissionError(13, "Permission denied", "weights.gguf"))

    done = run_ttc("solve", "q", "--model", "weights.gguf")

    check_fault(done, "the model 'weights.gguf' cannot be read: Permission denied")


def test_calls_that_all_fail_are_a_fault(run_ttc: Cli, use_engine: Use) -> None:
    """With the reason of the first."""
    use_engine(FakeEngine([EngineError("out of memory")]))

    done = run_ttc("solve", "q", "--strategy", "self_consistency(n=3)")

    check_fault(done, "all 3 calls failed: out of memory")


def test_a_home_that_cannot_be_written_is_a_fault(
    run_ttc: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`TTC_HOME` is a file here."""
    home = tmp_path / "file"
    home.write_text("")
    monkeypatch.setenv("TTC_HOME", str(home))

    check_fault(run_ttc("pull", "smollm2-135m"), "smollm2-135m cannot be stored")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nothing that the user can mend."""
    _fail(monkeypatch, ZeroDivisionError("a bug"))

    with pytest.raises(ZeroDivisionError):
        main(["solve", "q"])


def test_a_bug_in_a_node_keeps_its_traceback(use_engine: Use) -> None:
    """Though it is one of ttc's own errors."""

    def broken(request: Request) -> Never:
        raise ZeroDivisionError

    use_engine(FakeEngine(broken))

    with pytest.raises(NodeError):
        main(["solve", "q"])


def _fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def load(model: str, progress: object = None) -> Never:
        raise error

    monkeypatch.setattr("ttc.registry.load_engine", load)
