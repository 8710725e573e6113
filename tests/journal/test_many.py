"""Kept runs over many problems: a folder out of which all of them go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.allocate.lab import laws
from tests.core.lab import seen
from tests.journal.test_journal import entries
from ttc import Budget, Outcome, RecordError
from ttc.allocate import GreedyGain
from ttc.engine.simulator import Hardware, Simulator
from ttc.errors import JournalMismatch
from ttc.graph import Node
from ttc.strategies import SampleInRounds, SelfConsistency, Vote
from ttc.testing import ManualClock

LAWS = laws(6)
PROBLEMS = [law.problem for law in LAWS]
GRAPH = SelfConsistency(n=6, max_tokens=256, ahead=3)
KINDS: Sequence[dict[str, Any]] = (
    {"budget": Budget(tokens=9_000)},
    {"budget": Budget(tokens=4_000), "allocator": GreedyGain(window=3)},
    {"budget": Budget(tokens=4_000, calls=20), "allocator": "uniform", "concurrency": 2},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the run is kept; it is not there yet."""
    return tmp_path / "run"


def run(
    folder: Path | None, graph: Node = GRAPH, **more: Any
) -> tuple[list[Outcome], Simulator, float]:
    """All outcomes, the engine, and the time by its clock."""
    clock = ManualClock()
    engine = Simulator(LAWS, seed=1, clock=clock, hardware=Hardware(seconds_per_token=0.01))
    arguments = {"seed": 3, **more}
    work = ttc.asolve_many(PROBLEMS, graph, model=engine, clock=clock, journal=folder, **arguments)
    return clock.run(work), engine, clock.now()


def cut(folder: Path, part: float) -> None:
    """Leaves a part of each journal, as a kill does that comes at one moment for all."""
    files = sorted(folder.glob("*.journal"))
    began = [entries(path)[0]["began"] for path in files]
    ended = max(b + entries(path)[-1]["at"] for b, path in zip(began, files, strict=True))
    for first, path in zip(began, files, strict=True):
        lines, all_of = path.read_bytes().splitlines(keepends=True), entries(path)
        kept = [ln for ln, e in zip(lines, all_of, strict=True) if first + e["at"] <= part * ended]
        path.unlink() if not kept else path.write_bytes(b"".join(kept))


@pytest.mark.parametrize("kind", KINDS, ids=["equal parts", "greedy_gain", "uniform"])
@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_a_run_over_many_problems_goes_on_to_the_same(
    folder: Path, kind: dict[str, Any], part: float
) -> None:
    """Wherever it was killed; only what it had no answer to is asked."""
    plain, _, _ = run(None, **kind)
    first, whole, _ = run(folder, **kind)
    cut(folder, part)
    again, engine, _ = run(folder, **kind)

    assert [seen(o) for o in again] == [seen(o) for o in first] == [seen(o) for o in plain]
    assert engine.calls < whole.calls or part <= 0.2
    assert engine.calls == 0 or part < 1


def test_the_seed_of_a_run_over_many_is_in_its_folder(folder: Path) -> None:
    first, _, _ = run(folder, seed=None)
    (folder / "000003.journal").unlink()
    again, _, _ = run(folder, seed=None)

    assert [seen(outcome) for outcome in again] == [seen(outcome) for outcome in first]


def test_a_deadline_of_many_counts_the_seconds_before_the_kill(folder: Path) -> None:
    budget = Budget(seconds=4.0)
    run(folder, budget=budget, concurrency=1)
    cut(folder, 0.5)
    _, _, took = run(folder, budget=budget, concurrency=1)

    assert took <= 2.0 + 0.8, "what was left, and the patience of a replay"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "seed of run was 3 and is 4"),
        ({"budget": Budget(tokens=8_000)}, "budget of run|among of run"),
        ({"allocator": "uniform"}, "among of run"),
        ({"graph": SelfConsistency(n=5)}, "strategy of run"),
    ],
)
def test_another_run_over_many_is_refused(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    """Before anything is asked."""
    run(folder, budget=Budget(tokens=9_000))
    with pytest.raises(JournalMismatch, match=message):
        run(folder, **{"budget": Budget(tokens=9_000), **change})


def test_what_timing_decides_is_not_kept(folder: Path) -> None:
    """Under an allocator that sees offers as they come, nothing could go on as it began."""
    with pytest.raises(ValueError, match="leave out journal=, or the allocator"):
        run(
            folder,
            SampleInRounds(n=4) >> Vote(),
            budget=Budget(tokens=4_000),
            allocator="greedy_gain",
        )
    assert not folder.exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="is kept in a folder"):
        run(tmp_path / "file")
