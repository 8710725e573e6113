"""How far an evaluation is: accuracy until now, tokens spent, and time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from ttc.cli.terminal import is_live, note
from ttc.safe_text import one_line

__all__ = ["Lines", "bars"]

_EVERY_S = 60.0


@contextmanager
def bars(config: Any, shard: Any) -> Iterator[Callable[[Any], None]]:
    """A bar for each cell; where nobody watches, a line a minute."""
    sizes = {
        task.name: len(range(shard.place, task.num_problems, shard.count)) * config.repeats
        for task in config.tasks
    }
    if not is_live():
        cells = len(config.arms) * len(config.budgets) * len(config.models)
        yield Lines(sum(sizes.values()) * cells)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}"),
        TextColumn("{task.fields[tokens]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as live:
        yield _Live(sizes, live)


class _Live:
    """Moves the bars; a bar appears with the first problem of its cell that is done now.

    What had been done before stands in it from the start, so that it hurries no clock.
    """

    def __init__(self, sizes: dict[str, int], live: Progress) -> None:
        self._live, self._sizes = live, sizes
        self._bars: dict[str, TaskID] = {}
        self._sums: dict[str, list[float]] = {}

    def __call__(self, done: Any) -> None:
        """Takes in what was done."""
        cell = done.job.cell
        sums = self._sums.setdefault(cell.key, [0.0, 0.0, 0.0])
        if done.is_new and cell.key not in self._bars:
            name = one_line(f"{cell.task} {cell.arm} {cell.budget}", 44)
            self._bars[cell.key] = self._live.add_task(
                name, total=self._sizes[cell.task], completed=int(sums[0]), accuracy="", tokens=""
            )
        for place, more in enumerate((1, done.value, done.tokens)):
            sums[place] += more
        if done.is_new:
            self._live.update(
                self._bars[cell.key],
                completed=sums[0],
                accuracy=f"{sums[1] / sums[0]:.1%} right",
                tokens=f"{sums[2]:,.0f} tokens",
            )


class Lines:
    """Where nobody watches: a line a minute."""

    def __init__(self, size: int, now: Callable[[], float] = time.monotonic) -> None:
        """Of so many runs of problems."""
        self._size, self._now = size, now
        self._done = self._new = 0
        self._right = self._tokens = 0.0
        self._told_at = self._began = now()

    def __call__(self, done: Any) -> None:
        """Takes in what was done."""
        now = self._now()
        if done.is_new and not self._new:
            self._began = now  # before it an engine was loaded
        self._done, self._new = self._done + 1, self._new + done.is_new
        self._right, self._tokens = self._right + done.value, self._tokens + done.tokens
        if now - self._told_at > _EVERY_S and self._new > 1:
            self._told_at = now
            left_s = (now - self._began) / (self._new - 1) * (self._size - self._done)
            note(
                f"{self._done:,} of {self._size:,} runs of problems done, "
                f"{self._right / self._done:.1%} right, {self._tokens:,.0f} tokens, about "
                f"{left_s / 60:,.0f} min left"
            )
