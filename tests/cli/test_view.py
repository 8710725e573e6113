"""`ttc view`: a page in a file, and the faults; what it serves is tested in `tests/view`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttc.testing import FakeEngine

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    use_engine: Callable[[FakeEngine], FakeEngine],
    run_ttc: Cli,
) -> str:
    """The name of a kept run."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    use_engine(FakeEngine("The answer is 391."))
    run_ttc("solve", "What is 17 * 23?", "--strategy", "sample(n=4) >> vote()", "--seed", "5")
    return next((tmp_path / "runs").iterdir()).stem


def test_a_run_is_written_as_one_page(run_ttc: Cli, run: str, tmp_path: Path) -> None:
    file = tmp_path / "run.html"

    done = run_ttc("view", run, "--output", str(file))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"wrote {file} (")
    assert f"<title>{run} · ttc</title>" in file.read_text(encoding="utf-8")


def test_a_served_run_is_told_by_its_address(
    run_ttc: Cli, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: served.extend(sockets))

    done = run_ttc("view", run)

    assert done.returncode == 0
    address, note = done.stdout.splitlines()
    assert address.startswith("http://127.0.0.1:")
    assert address.endswith(f"/{run}")
    assert len(address.split("/")[3]) >= 20
    assert note == "for you alone; Ctrl-C ends it"
    assert len(served) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("view", "nobody"), "there is no run 'nobody'"),
        (("view", "--output", "x.html"), "--output writes one run; name it"),
        (("view", "RUN", "--output", "/nowhere/x.html"), "cannot be written: No such file"),
    ],
)
def test_a_fault_is_one_line(
    run_ttc: Cli, run: str, arguments: tuple[str, ...], message: str
) -> None:
    done = run_ttc(*(run if part == "RUN" else part for part in arguments))

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_serving_without_its_packages_says_what_to_install(
    run_ttc: Cli, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvicorn", None)

    done = run_ttc("view", run)

    assert done.returncode == 2
    assert "serving a page needs uvicorn: pip install" in done.stderr


def test_a_port_that_is_taken_is_told(run_ttc: Cli, run: str) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run_ttc("view", run, "--port", str(taken.getsockname()[1]))

    assert done.returncode == 2
    assert "cannot be taken: Address already in use; pass another" in done.stderr
