"""The command line in this process, on a fake engine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from ttc.cli import main
from ttc.testing import FakeEngine

Completed = subprocess.CompletedProcess[str]


@pytest.fixture
def run_ttc(capsys: pytest.CaptureFixture[str]) -> Callable[..., Completed]:
    """Runs a command, and gives its exit code and what it wrote."""

    def run(*arguments: str) -> Completed:
        code = main(arguments)
        out, err = capsys.readouterr()
        return Completed(arguments, code, out, err)

    return run


@pytest.fixture
def use_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeEngine], FakeEngine]:
    """Puts an engine in the place of every model."""

    def use(engine: FakeEngine) -> FakeEngine:
        monkeypatch.setattr("ttc.registry.load_engine", lambda model, progress=None: engine)
        return engine

    return use
