"""Figures of a study by matplotlib: accuracy against compute, as PNG and SVG, for papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ttc.benchmarks.harness.measures import CellMeasures
from ttc.benchmarks.report.style import COLOURS
from ttc.benchmarks.report.svg import short
from ttc.registry import install_hint

__all__ = ["draw_curves"]


def draw_curves(
    path: Path, cells: Sequence[CellMeasures], *, title: str, resource: str = "tokens"
) -> list[Path]:
    """Draws accuracy against what was spent, and gives the files: PNG and SVG.

    Args:
        path: where, without a suffix.
        cells: the results; bounds do not belong among them.
        title: stands above.
        resource: what the horizontal axis is.

    Raises:
        ModuleNotFoundError: matplotlib is not installed; the message names the extra.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"figures need matplotlib, which is not installed; {install_hint('eval')}",
            name=error.name,
        ) from error
    import matplotlib

    figure = Figure(figsize=(7.2, 4.3), dpi=160, layout="constrained")
    axes = figure.subplots()
    arms = list(dict.fromkeys(cell.cell.arm for cell in cells))
    for place, arm in enumerate(arms):
        mine = [cell for cell in cells if cell.cell.arm == arm and cell.spends.get(resource)]
        _draw(axes, arm, mine, COLOURS[place % len(COLOURS)], resource)
    _dress(axes, title, resource)
    written = []
    # The date and the ids of an SVG would differ each time.
    with matplotlib.rc_context({"svg.hashsalt": "ttc", "svg.fonttype": "none"}):
        for suffix, data in ((".png", {"Software": None}), (".svg", {"Date": None})):
            target = path.with_name(path.name + suffix)
            figure.savefig(target, metadata=data)
            written.append(target)
    return written


def _draw(axes: Any, arm: str, cells: Sequence[CellMeasures], colour: str, resource: str) -> None:
    ranked = sorted(cells, key=lambda cell: cell.spend(resource) or 0.0)
    if not ranked:
        return
    xs = [cell.spend(resource) for cell in ranked]
    ys = [100 * cell.accuracy for cell in ranked]
    low = [100 * cell.interval.low for cell in ranked]
    high = [100 * cell.interval.high for cell in ranked]
    if len(set(xs)) == 1:
        axes.plot([xs[0], xs[0]], [low[0], high[0]], color=colour, linewidth=2, alpha=0.45)
    else:
        axes.fill_between(xs, low, high, color=colour, alpha=0.13, linewidth=0)
        axes.plot(xs, ys, color=colour, linewidth=2)
    axes.plot(xs, ys, "o", color=colour, markersize=6, markeredgecolor="white", label=arm, zorder=3)


def _dress(axes: Any, title: str, resource: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)
    axes.set_xlabel(f"mean {resource} of a problem")
    axes.set_ylabel("accuracy, % (95 % interval)")
    low, high = axes.get_xlim()
    if low > 0 and high / low > 4:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="#e3e7ec", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        for text in axes.legend(frameon=False, fontsize=8, loc="best").get_texts():
            text.set_parse_math(False)
