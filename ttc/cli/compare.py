"""`ttc compare`: how two evaluated strategies differ, and where."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ttc.cli.terminal import Fault, counted, say, show, table
from ttc.registry import room
from ttc.safe_text import one_line, printable

__all__ = ["compare"]

_WIDTH = 46


def compare(
    first: Annotated[
        str,
        typer.Argument(
            help="FOLDER, FOLDER#STRATEGY or FOLDER#STRATEGY@BUDGET.", show_default=False
        ),
    ],
    second: Annotated[str, typer.Argument(help="What it is compared with.", show_default=False)],
    disagreements: Annotated[
        bool,
        typer.Option("--disagreements", help="Show the problems on which they differ."),
    ] = False,
    most: Annotated[int, typer.Option(min=1, help="Of the problems that are shown.")] = 20,
) -> None:
    """Tell how two strategies differ, paired by problem, without a verdict."""
    reports: Any = room("benchmarks.report.compare")
    ours, theirs = reports.chosen(first), reports.chosen(second)
    common = [task for task in ours if task in theirs]
    if not common:
        raise Fault("the two have no task in common; tasks are matched by their names")
    show(
        table(_HEADINGS, [_row(ours[t], theirs[t]) for t in common], right=",".join(_HEADINGS[1:]))
    )
    say("points of accuracy, paired by problem; a verdict needs a comparison named before the run")
    if disagreements:
        for task in common:
            found = reports.disagreements(ours[task], theirs[task])
            _show(found[:most], counted(len(found), "disagreement"), task)


_HEADINGS = (
    "task",
    "first",
    "second",
    "difference",
    "95 % interval",
    "detectable",
    "problems",
    "tokens",
    "tokens of second",
)


def _row(ours: Any, theirs: Any) -> tuple[str, ...]:
    tables: Any = room("benchmarks.report.tables")
    verdicts: Any = room("benchmarks.harness.verdicts")
    mine, other = ours.measures, theirs.measures
    here, there = (side.config.task(side.cell.task) for side in (ours, theirs))
    if not here.shares_ids(there):
        raise Fault(
            f"{ours.cell.task} is not the same task in both: its problems are from {here.source} "
            f"in the first, and from {there.source} in the second"
        )
    try:
        difference, detectable, num = verdicts.differences(mine, other, ours.config.seed)
    except ValueError as error:
        raise Fault(str(error)) from None
    return (
        ours.cell.task,
        tables.percent(mine.accuracy),
        tables.percent(other.accuracy),
        tables.points(difference.mean),
        f"{tables.points(difference.low)} to {tables.points(difference.high)}",
        f"{100 * detectable:.1f}",
        str(num),
        tables.spend(mine.spend("tokens"), "tokens"),
        tables.spend(other.spend("tokens"), "tokens"),
    )


def _show(found: list[Any], told: str, task: str) -> None:
    say(f"\n{task}: {told}")
    for one in found:
        run = f", run {one.repeat + 1}" if one.repeat else ""
        say(f"\n{one.problem}{run}")
        sides = (one.first, one.second)
        headings = [f"{side.name}: {side.mark}" for side in sides]
        answers = [one_line(side.answer or "no answer", _WIDTH) for side in sides]
        texts = [_folded(side.text, side.answer) for side in sides]
        show(table(headings, [answers, texts]))


def _folded(text: str | None, answer: str | None) -> str:
    """A text in a column."""
    import textwrap

    if text is None:
        return "(nothing was chosen)" if answer is None else "(its text stands in the pool)"
    lines = [
        piece
        for line in printable(text).splitlines()
        for piece in (textwrap.wrap(line, _WIDTH) or [""])
    ]
    return "\n".join(lines)
