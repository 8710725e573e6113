"""Comparing two cells: how they differ, and on which problems, with what each wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ttc.benchmarks.harness.config import Cell, Config
from ttc.benchmarks.harness.measures import CellMeasures, measures
from ttc.benchmarks.harness.results import Result, journal_of, read_results
from ttc.errors import RecordError

__all__ = ["Chosen", "Disagreement", "Side", "chosen", "disagreements"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one strategy came to on a problem."""

    name: str
    answer: str | None
    grade: float | None
    text: str | None
    journal: Path | None = None
    """Of the run, where it was kept."""
    page: str | None = None
    """Where the run stands as a page, beside the report."""

    @property
    def mark(self) -> str:
        """Right, wrong or undecided."""
        return {1.0: "right", 0.0: "wrong"}.get(self.grade, "undecided")  # type: ignore[arg-type]

    @property
    def kind(self) -> str:
        """What it is to the eye."""
        return "better" if self.grade == 1.0 else "worse"


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A problem that one strategy gets right and the other does not."""

    task: str
    problem: str
    repeat: int
    question: str
    first: Side
    second: Side


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A cell of a folder."""

    folder: Path
    config: Config
    measures: CellMeasures

    @property
    def cell(self) -> Cell:
        """Which one it is."""
        return self.measures.cell


def chosen(spec: str) -> dict[str, Chosen]:
    """The cells that `FOLDER#STRATEGY@BUDGET` means, one for each task.

    Strategy and budget may be left out where a folder has one of them.

    Raises:
        RecordError: there is no such cell, or several of one task.
    """
    place, _, name = spec.partition("#")
    folder = Path(place)
    config = Config.read(folder)
    found = [
        Chosen(folder=folder, config=config, measures=cell)
        for cell in measures(config, read_results(folder))
        if name in ("", cell.cell.arm, f"{cell.cell.arm}@{cell.cell.budget}")
    ]
    if not found:
        raise RecordError(f"{folder} has no results of {name or 'anything'}; {_known(config)}")
    by_task: dict[str, Chosen] = {}
    for one in found:
        if one.cell.task in by_task:
            raise RecordError(f"{spec} may be several; {_known(config)}")
        by_task[one.cell.task] = one
    return by_task


def _known(config: Config) -> str:
    names = ", ".join(f"{arm.name}@{budget}" for arm in config.arms for budget in config.budgets)
    return f"name one of {names} behind a #"


def disagreements(
    first: Chosen, second: Chosen, questions: Mapping[str, str] | None = None
) -> list[Disagreement]:
    """The problems that one of two cells gets right and the other does not, run by run."""
    ours, theirs = _results(first), _results(second)
    found = []
    for key in sorted(ours.keys() & theirs.keys()):
        mine, other = ours[key], theirs[key]
        if mine.value != other.value:
            found.append(
                Disagreement(
                    task=first.cell.task,
                    problem=key[0],
                    repeat=key[1],
                    question=(questions or {}).get(key[0], ""),
                    first=_side(first, mine),
                    second=_side(second, other),
                )
            )
    return found


def _results(chosen: Chosen) -> dict[tuple[str, int], Result]:
    mine: Iterable[Result] = read_results(chosen.folder, texts=True)
    return {(r.problem, r.repeat): r for r in mine if r.cell == chosen.cell.key}


def _side(chosen: Chosen, result: Result) -> Side:
    journal = journal_of(chosen.folder, result.key)
    return Side(
        name=f"{chosen.cell.arm}@{chosen.cell.budget}",
        answer=result.answer,
        grade=result.grade,
        text=result.text,
        journal=journal if journal.is_file() else None,
    )
