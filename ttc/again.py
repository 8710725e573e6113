"""Kept runs again: the outcome of one that has ended, and the rest of one that was killed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ttc.arguments import Arguments
from ttc.clock import StandingClock
from ttc.errors import RecordError
from ttc.graph import Node
from ttc.journal.disk import DiskJournal, Kept, read
from ttc.journal.engines import RecordedEngine
from ttc.journal.runs import facts_of, path_of
from ttc.journal.values import problem_of
from ttc.loop import on_the_loop
from ttc.ports import Engine
from ttc.prices import Prices
from ttc.solve import run_one, solve
from ttc.types import Budget, Outcome

__all__ = ["replay", "resume"]


def resume(
    run: str | os.PathLike[str],
    strategy: Node | str | None = None,
    *,
    models: Mapping[str, str | Engine] | None = None,
    **more: Any,
) -> Outcome:
    """Goes on with a kept run that was killed: as `ttc solve --resume`.

    Problem, strategy, seed, budget and models are those of the run. One that has ended is told
    again, without its models.

    Args:
        run: the name of a run in the folder of runs, or the path of a journal.
        strategy: the strategy of the run, where it was built in Python; a text is in the journal.
        models: engines by role, where the models of the run were engines and no names.
        more: `clock`, `watch`, `control` and `sandbox`, as of `solve`.

    Raises:
        JournalMismatch: it is the journal of something else.
        RecordError: there is none, it is damaged or in use, or was killed before it began.
    """
    path = path_of(run)
    kept = read(path, path.name)
    if kept.end is not None:
        return replay(path, strategy)
    if not kept.run:
        raise RecordError(f"{path.name} was killed before it began; remove it, and ask again")
    known = {role: values["name"] for role, values in kept.run["engines"].items()}
    return solve(
        problem_of(kept.run["problem"]),
        _strategy_of(kept, strategy),
        models={**known, **(models or {})},
        budget=Budget(**kept.run["budget"]),
        seed=kept.run["seed"],
        journal=path,
        **more,
    )


def replay(run: str | os.PathLike[str], strategy: Node | str | None = None) -> Outcome:
    """The outcome of a run that has ended, out of its journal: no model is loaded or asked.

    The strategy works again, on the answers that the journal holds, and what it comes to is
    compared with what was kept. Verifiers that ask no model are not asked either.

    Args:
        run: the name of a run in the folder of runs, or the path of a journal.
        strategy: the strategy of the run, where it was built in Python; a text is in the journal.

    Raises:
        JournalMismatch: it is the journal of something else, or comes to something else.
        RecordError: there is none, it is damaged, or its run has not ended.
    """
    path = path_of(run)
    kept = read(path, path.name)
    if kept.end is None:
        raise RecordError(f"{path.name} has not ended; go on with it first")
    strategy = _strategy_of(kept, strategy)
    kept.elapsed = kept.end["usage"]["seconds"]
    engines = {role: RecordedEngine(values) for role, values in kept.run["engines"].items()}
    arguments = Arguments(
        None, engines, kept.run["seed"], StandingClock(), Prices(), None, None, "auto"
    )
    problem, budget = problem_of(kept.run["problem"]), Budget(**kept.run["budget"])
    graph, bound = arguments.prepare(strategy)
    facts = facts_of(problem, graph, None, arguments.seed, budget, bound, {})
    journal = DiskJournal(kept, facts, arguments.clock, None)
    outcome = on_the_loop(run_one(problem, graph, bound, arguments, budget, journal))
    if outcome.error is not None:
        raise outcome.error
    return outcome


def _strategy_of(kept: Kept, given: Node | str | None) -> Node | str:
    """The strategy that is given, or else the text in a journal.

    Raises:
        RecordError: there is neither.
    """
    strategy: Node | str | None = given or kept.run["text"]
    if strategy is None:
        raise RecordError(f"the strategy of {kept.name} was built in Python; pass it as strategy=")
    return strategy
