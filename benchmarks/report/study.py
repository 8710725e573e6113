"""A study: everything that a folder of results says, measured once for all reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ttc.benchmarks.harness.card import CardFile
from ttc.benchmarks.harness.config import Config, TaskFacts
from ttc.benchmarks.harness.measures import CellMeasures, measures
from ttc.benchmarks.harness.results import Result, read_results
from ttc.benchmarks.harness.samples import drawn_by, read_samples
from ttc.benchmarks.harness.selection import Selection, selection
from ttc.benchmarks.harness.verdicts import AtEqualSpend, Verdict, at_equal_spend, verdicts
from ttc.errors import RecordError

__all__ = ["Study", "read_study"]


@dataclass(frozen=True, kw_only=True)
class Study:
    """What an evaluation came to."""

    name: str
    config: Config
    cells: tuple[CellMeasures, ...]
    verdicts: tuple[Verdict, ...]
    at_equal_spend: tuple[AtEqualSpend, ...]
    card: dict[str, Any]
    selections: tuple[Selection, ...] = ()
    """What the samples of the pool, or of strategies that only sample, come to."""

    @property
    def results(self) -> list[CellMeasures]:
        """The cells that are results."""
        return [cell for cell in self.cells if not cell.oracle]

    @property
    def bounds(self) -> list[CellMeasures]:
        """The cells in which right answers helped to choose: they stand apart."""
        return [cell for cell in self.cells if cell.oracle]

    @property
    def num_missing(self) -> int:
        """Results that are not there yet."""
        whole = sum(task.num_problems for task in self.config.tasks) * self.config.repeats
        there = sum(
            task.num_problems * self.config.repeats - cell.num_missing
            for cell in self.cells
            for task in self.config.tasks
            if task.name == cell.cell.task
        )
        whole *= len(self.config.models) * len(self.config.arms) * len(self.config.budgets)
        return whole - there

    def task(self, name: str) -> TaskFacts:
        """A task by its name."""
        return self.config.task(name)

    def groups(self) -> list[tuple[str, str, list[CellMeasures]]]:
        """Task, model, and the cells of both."""
        pairs = [(task.name, model) for task in self.config.tasks for model in self.config.models]
        found = {
            pair: [c for c in self.cells if (c.cell.task, c.cell.model) == pair] for pair in pairs
        }
        return [(task, model, cells) for (task, model), cells in found.items() if cells]

    @property
    def values(self) -> dict[str, Any]:
        """As JSON: what was asked, what came of it, and with what."""
        return {
            "name": self.name,
            "config": self.config.values,
            "num_missing": self.num_missing,
            "cells": [_cell_values(cell) for cell in self.cells],
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "at_equal_spend": [asdict(row) for row in self.at_equal_spend],
            "selections": [asdict(found) for found in self.selections],
            "card": self.card,
        }


def read_study(folder: Path) -> Study:
    """What a folder says.

    Raises:
        RecordError: it holds no evaluation, no results, or is damaged.
    """
    config = Config.read(folder)
    study = study_of(folder.name, config, read_results(folder), CardFile(folder).read())
    return replace(study, selections=tuple(_selections(folder, config)))


def _selections(folder: Path, config: Config) -> Iterator[Selection]:
    if config.pool is not None:
        told = {"model": config.models[0], "source": f"the pool {config.pool}"}
        yield from selection(read_samples(folder), config.seed, **told)
        return
    for cell, samples in drawn_by(config, read_results(folder)).items():
        told = {"model": cell.model, "source": f"{cell.arm} @ {cell.budget}"}
        yield from selection(samples, config.seed, **told)


def study_of(name: str, config: Config, results: Iterable[Result], card: dict[str, Any]) -> Study:
    """What results say.

    Raises:
        RecordError: there are none.
    """
    cells = measures(config, results)
    if not cells:
        raise RecordError(f"{name} holds no results yet; run the evaluation first")
    return Study(
        name=name,
        config=config,
        cells=tuple(cells),
        verdicts=tuple(verdicts(config, cells)),
        at_equal_spend=tuple(at_equal_spend(config, cells)),
        card=card,
    )


def _cell_values(cell: CellMeasures) -> dict[str, Any]:
    values = asdict(cell)
    extra = {"accuracy": cell.accuracy, "regret": cell.regret}
    return {**values["cell"], **extra, **{k: v for k, v in values.items() if k != "cell"}}
