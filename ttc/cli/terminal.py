"""What the commands say, and where: results on stdout, progress and faults on stderr.

A fault is one line. Progress is shown only where stderr is a terminal. Whatever is said may hold
text of a model or of a file: it reaches a terminal without control characters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
)
from rich.table import Table
from rich.text import Text

from ttc.safe_text import one_line, printable

__all__ = [
    "Fault",
    "bars",
    "complain",
    "counted",
    "is_live",
    "note",
    "say",
    "show",
    "status",
    "table",
]

_UNBOUNDED_WIDTH = 10_000


class Fault(Exception):
    """Something that the user can mend; it is told in one line, without a traceback."""


def say(text: str) -> None:
    """Writes a text to stdout, without what steers a terminal.

    Raises:
        Fault: stdout cannot be written. A reader that went away is a `BrokenPipeError`.
    """
    _write(printable(text))


def show(content: Table) -> None:
    """Writes a table to stdout: folded to the width of a terminal, and unfolded elsewhere.

    Raises:
        Fault: stdout cannot be written.
    """
    console = Console(width=None if sys.stdout.isatty() else _UNBOUNDED_WIDTH, highlight=False)
    with _writing(), console.capture() as captured:
        console.print(content)
    _write("\n".join(line.rstrip() for line in captured.get().splitlines()))


def note(text: str) -> None:
    """Writes a line to stderr that is no fault."""
    typer.echo(one_line(text), err=True)


def complain(text: str) -> None:
    """Writes a fault to stderr, in one line."""
    note("ttc: " + "; ".join(text.splitlines()))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: str = "") -> Table:
    """A plain table of texts.

    Args:
        headings: one for each column; without any text in them there is no line of headings.
        rows: the cells.
        right: the headings of the columns that are numbers, separated by commas.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(headings))
    for heading in headings:
        is_number = heading in right.split(",") and bool(heading)
        made.add_column(
            Text(printable(heading)), justify="right" if is_number else "left", overflow="fold"
        )
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def counted(amount: int, noun: str) -> str:
    """A number of things: `1 call`, `2 calls`."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def is_live() -> bool:
    """Whether progress is shown."""
    return sys.stderr.isatty()


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """Shows a line that may change until the work is done; gives what changes it."""
    if not is_live():
        yield lambda _: None
        return
    with Console(stderr=True).status(_brief(text), spinner="line") as live:
        yield lambda changed: live.update(_brief(changed))


@contextmanager
def bars(*columns: ProgressColumn) -> Iterator[Callable[[str, int, int | None], None]]:
    """Shows a bar for each stage of some work; gives what moves them.

    It is told a stage, how much of it is done, and of how much (`None` where that is unknown).

    Args:
        columns: what stands behind each bar.
    """
    stage_name = TextColumn("{task.description}", markup=False)
    shown = (SpinnerColumn("line"), stage_name, BarColumn(), *columns)
    console = Console(stderr=True)
    with Progress(*shown, console=console, transient=True, disable=not is_live()) as live:
        stages: dict[str, TaskID] = {}

        def update(stage: str, done: int, total: int | None) -> None:
            if stage not in stages:
                stages[stage] = live.add_task(one_line(stage), total=total)
            live.update(stages[stage], completed=done, total=total)

        yield update


def _brief(text: str) -> Text:
    return Text(one_line(text), no_wrap=True, overflow="ellipsis")


def _write(text: str) -> None:
    with _writing():
        typer.echo(text)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Fault(f"standard output cannot be written: {error.strerror}") from error
