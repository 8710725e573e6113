"""`ttc runs`, and `ttc solve --resume`, on a fake engine."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ttc.testing import FakeEngine
from ttc.text_form import parse

Cli = Callable[..., subprocess.CompletedProcess[str]]
Use = Callable[[FakeEngine], FakeEngine]
VOTE = ("--strategy", "sample(n=4) >> vote()", "--seed", "5")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of runs, which is not there yet."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    return tmp_path / "runs"


@pytest.fixture(autouse=True)
def engine(use_engine: Use) -> FakeEngine:
    """What every command runs on."""
    return use_engine(FakeEngine("The answer is 391."))


@pytest.fixture
def killed(run_ttc: Cli, folder: Path, engine: FakeEngine) -> str:
    """The name of a run that was killed before its third call ended."""
    run_ttc("solve", "What is 17 * 23?", *VOTE)
    path = next(folder.iterdir())
    lines = path.read_bytes().split(b"\n")
    (until,) = [n for n, line in enumerate(lines) if b'"kind":"call","index":2' in line]
    lost = (b'"is":"answer","key":"0.sample#2"', b'"is":"answer","key":"0.sample#3"')
    kept = [line for line in lines[:until] if not any(key in line for key in lost)]
    path.write_bytes(b"\n".join(kept) + b"\n")
    engine.calls = 0
    return path.stem


def test_a_solved_question_is_kept_for_its_owner_alone(run_ttc: Cli, folder: Path) -> None:
    """In a folder and a file that nobody else can read."""
    run_ttc("solve", "What is 17 * 23?", *VOTE)

    (path,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_question_may_be_solved_without_a_trace(run_ttc: Cli, folder: Path) -> None:
    assert run_ttc("solve", "What is 17 * 23?", *VOTE, "--no-keep").returncode == 0
    assert not list(folder.glob("*.journal"))


def test_a_run_of_a_saved_graph_goes_on_without_its_file(
    run_ttc: Cli, folder: Path, engine: FakeEngine, tmp_path: Path
) -> None:
    """What it was begun with is in the journal."""
    saved = tmp_path / "graph.json"
    parse("sample(n=4) >> vote()").save(saved)
    whole = run_ttc("solve", "q", "--strategy", str(saved), "--seed", "5")
    saved.unlink()
    (path,) = folder.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    engine.calls = 0

    resumed = run_ttc("solve", "--resume", path.stem)

    assert (resumed.returncode, resumed.stdout.splitlines()[0]) == (0, whole.stdout.splitlines()[0])
    assert 0 < engine.calls < 4


def test_a_killed_run_goes_on_and_comes_to_the_same(
    run_ttc: Cli, killed: str, engine: FakeEngine
) -> None:
    """Only what it had no answer to is asked."""
    whole = json.loads(run_ttc("solve", "What is 17 * 23?", *VOTE, "--json", "--no-keep").stdout)
    engine.calls = 0

    resumed = json.loads(run_ttc("solve", "--resume", killed, "--json").stdout)

    assert resumed["usage"]["tokens_lost"] > whole["usage"]["tokens_lost"] == 0
    assert resumed["usage"]["tokens"] == whole["usage"]["tokens"]
    for found in (resumed, whole):
        del found["usage"], found["usage_by_role"]
    assert resumed == whole
    assert 0 < engine.calls < 4


def test_a_run_that_has_ended_is_told_again_without_its_model(
    run_ttc: Cli, killed: str, engine: FakeEngine
) -> None:
    """Out of its journal, to the same words."""
    first = run_ttc("solve", "--resume", killed)
    engine.calls = 0

    again = run_ttc("solve", "--resume", killed)

    assert (again.stdout, engine.calls) == (first.stdout, 0)


def test_runs_are_listed_with_their_state(run_ttc: Cli, killed: str) -> None:
    """And without a command, `ttc runs` lists."""
    lines = run_ttc("runs", "list").stdout.splitlines()

    assert lines[1].split()[:2] == [killed, "unfinished"]
    assert "What is 17 * 23?" in lines[1]
    assert run_ttc("runs").stdout.splitlines() == lines


def test_a_run_is_shown_with_its_calls(run_ttc: Cli, killed: str) -> None:
    out = run_ttc("runs", "show", killed).stdout

    assert "0.sample#0" in out
    assert "tokens=4000, seconds=60.0" in out
    assert out.endswith(f"go on with it: ttc solve --resume {killed}\n")
    assert json.loads(run_ttc("runs", "show", killed, "--json").stdout)["state"] == "unfinished"


def test_a_run_is_removed_by_name_or_with_all_others(run_ttc: Cli, killed: str) -> None:
    run_ttc("solve", "q", *VOTE)

    assert run_ttc("runs", "rm", killed).stdout == "removed 1 run\n"
    assert len(json.loads(run_ttc("runs", "list", "--json").stdout)["runs"]) == 1
    assert run_ttc("runs", "rm", "--all").stdout == "removed 1 run\n"
    assert run_ttc("runs").stdout == "no runs are kept; `ttc solve` keeps one\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("solve",), "there is no question, no file of --problems and no run to --resume"),
        (("solve", "--resume", "nobody"), "there is no run 'nobody'; `ttc runs list`"),
        (("solve", "q", "--resume", "RUN", "--seed", "1"), "leave out --seed, question"),
        (("runs", "show", "nobody"), "there is no run 'nobody'"),
        (("runs", "rm"), "name the runs to remove, or pass --all"),
        (("runs", "rm", "--all", "RUN"), "name the runs to remove, or pass --all"),
        (("runs", "erase"), "see `ttc runs --help`"),
    ],
)
def test_a_fault_is_one_line(
    run_ttc: Cli, killed: str, arguments: tuple[str, ...], message: str
) -> None:
    """With exit code 2."""
    done = run_ttc(*(killed if part == "RUN" else part for part in arguments))

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_a_damaged_run_is_told_and_left_as_it_is(run_ttc: Cli, killed: str, folder: Path) -> None:
    """A changed letter is found by the checksum of its line."""
    path = folder / f"{killed}.journal"
    damaged = path.read_bytes().replace(b"391", b"392", 1)
    path.write_bytes(damaged)

    done = run_ttc("solve", "--resume", killed)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is damaged; put back a copy of the file, or remove it" in done.stderr
    assert path.read_bytes() == damaged
    assert run_ttc("runs").stdout.splitlines()[1].split()[1] == "damaged"
