"""Charts as SVG for a page: text without a script, a style or a font from elsewhere.

Colours are classes, which the page's own style gives a light and a dark form. What models wrote
never enters a chart; names are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

__all__ = ["Bar", "Line", "Point", "bars", "heat_map", "histogram", "lines", "short"]

_WIDTH, _HEIGHT = 760, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 24, 18, 52
_MOST_DOTS = 12
"""A line of more points is drawn without dots."""


class Point(NamedTuple):
    """A point with its interval."""

    x: float
    y: float
    low: float
    high: float
    told: str
    """What the pointer tells."""


class Line(NamedTuple):
    """Points under a name; its place gives its colour."""

    name: str
    points: Sequence[Point]
    colour: int


class Bar(NamedTuple):
    """A bar of stacked parts."""

    name: str
    parts: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """From values to places."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.begin + share * (self.end - self.begin)


def lines(found: Sequence[Line], *, x: str, y: str, is_log: bool = True) -> str:
    """Accuracy against something: a line with a band for each name.

    Args:
        found: the lines. Shares are in [0, 1].
        x: what the horizontal axis is.
        y: what the vertical axis is.
        is_log: whether the horizontal axis may be logarithmic; it is where values differ by far.
    """
    xs = [point.x for line in found for point in line.points]
    tops = [point.high for line in found for point in line.points]
    floors = [point.low for line in found for point in line.points]
    low, high = _padded(min(floors), max(tops))
    wide = is_log and min(xs) > 0 and max(xs) / min(xs) > 4
    across = _across(xs, wide)
    up = _Scale(low=low, high=high, begin=_HEIGHT - _BOTTOM, end=_TOP)
    body = [_axes(across, up, x, y, _ticks(across), _steps(low, high))]
    body += [_band(line, across, up) for line in found]
    body += [_path(line, across, up) for line in found]
    return _svg(_HEIGHT, body, f"{y} against {x}")


def _across(xs: Sequence[float], wide: bool) -> _Scale:
    least, most = min(xs), max(xs)
    if wide:
        ends = least / 1.25, most * 1.25
    else:
        pad = (most - least) * 0.06 or abs(most) * 0.5 or 1.0
        ends = max(0.0, least - pad) if least >= 0 else least - pad, most + pad
    return _Scale(low=ends[0], high=ends[1], begin=_LEFT, end=_WIDTH - _RIGHT, is_log=wide)


def _padded(low: float, high: float) -> tuple[float, float]:
    pad = max(0.02, (high - low) * 0.08)
    return max(0.0, math.floor((low - pad) * 20) / 20), min(1.0, math.ceil((high + pad) * 20) / 20)


def _band(line: Line, across: _Scale, up: _Scale) -> str:
    if len({point.x for point in line.points}) < 2:
        return ""
    above = [(across(p.x), up(p.high)) for p in line.points]
    below = [(across(p.x), up(p.low)) for p in reversed(line.points)]
    corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*above, *below])
    return f'<polygon class="band c{line.colour}" points="{corners}"/>'


def _path(line: Line, across: _Scale, up: _Scale) -> str:
    places = [(across(p.x), up(p.y), p) for p in line.points]
    way = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in places)
    drawn = [f'<polyline class="line c{line.colour}" points="{way}"/>'] if len(places) > 1 else []
    for a, b, point in places if len(places) <= _MOST_DOTS else ():
        if len({where for where, _, _ in places}) == 1:
            whisker = f"whisker c{line.colour}"
            drawn.append(_rule(whisker, (a, up(point.low)), (a, up(point.high))))
        drawn.append(
            f'<circle class="dot c{line.colour}" cx="{a:.1f}" cy="{b:.1f}" r="4.5">'
            f"<title>{escape(point.told)}</title></circle>"
        )
    return "".join(drawn)


def _axes(
    across: _Scale,
    up: _Scale,
    x: str,
    y: str,
    columns: Sequence[float],
    levels: Sequence[float],
) -> str:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    drawn = []
    for level in levels:
        place = up(level)
        drawn.append(_rule("grid", (_LEFT, place), (right, place)))
        drawn.append(_text(_LEFT - 8, place + 4, f"{100 * level:.0f} %", anchor="end"))
    for column in columns:
        place = across(column)
        drawn.append(_rule("mark", (place, bottom), (place, bottom + 5)))
        drawn.append(_text(place, bottom + 19, short(column), anchor="middle"))
    drawn.append(_rule("axis", (_LEFT, bottom), (right, bottom)))
    middle, height = (_LEFT + right) / 2, (_TOP + bottom) / 2
    drawn.append(_text(middle, _HEIGHT - 10, x, anchor="middle", kind="label"))
    turned = _text(0, 0, y, anchor="middle", kind="label")
    drawn.append(f'<g transform="translate(15 {height}) rotate(-90)">{turned}</g>')
    return "".join(drawn)


def heat_map(rows: Sequence[tuple[str, Sequence[float | None]]], columns: Sequence[str]) -> str:
    """A row for each strategy and a column for each problem; dark is right.

    Args:
        rows: names, and a value in [0, 1] for each column; `None` is not there.
        columns: the names of the columns.
    """
    left, cell_height = 190, 22
    width = (_WIDTH - left - 8) / max(1, len(columns))
    drawn = []
    for place, (name, values) in enumerate(rows):
        top = 4 + place * cell_height
        drawn.append(_name(left - 8, top + 14, name))
        for column, value in enumerate(values):
            if value is None:
                continue
            told = f"{columns[column]}: {value:.0%}, {name}"
            drawn.append(
                f'<rect class="h{round(8 * value)}" x="{left + column * width:.2f}" y="{top}" '
                f'width="{max(width - (0.6 if width > 3 else 0), 0.4):.2f}" '
                f'height="{cell_height - 3}"><title>{escape(told)}</title></rect>'
            )
    bottom = 4 + len(rows) * cell_height
    drawn.append(_text(left, bottom + 15, "most often right"))
    drawn.append(_text(_WIDTH - 8, bottom + 15, "most often wrong", anchor="end"))
    return _svg(bottom + 24, drawn, "each problem under each strategy")


def bars(found: Sequence[Bar], colours: Mapping[str, int], *, unit: str) -> str:
    """Bars that lie, of stacked parts."""
    left, step, right = 190, 30, 80
    most = max((sum(bar.parts.values()) for bar in found), default=0) or 1.0
    drawn = []
    for place, bar in enumerate(found):
        top, start = 6 + place * step, float(left)
        drawn.append(_name(left - 8, top + 14, bar.name))
        for name, value in bar.parts.items():
            width = value / most * (_WIDTH - left - right)
            drawn.append(
                f'<rect class="fill c{colours[name]}" x="{start:.1f}" y="{top}" '
                f'width="{width:.1f}" height="19" rx="2">'
                f"<title>{escape(f'{name}: {value:,.0f} {unit}')}</title></rect>"
            )
            start += width
        drawn.append(_text(start + 6, top + 14, f"{sum(bar.parts.values()):,.0f}"))
    return _svg(12 + len(found) * step, drawn, f"{unit} by role")


def histogram(bins: Mapping[int, tuple[int, int]], size: int, *, x: str) -> str:
    """Right ones over wrong ones, by bins of a length."""
    height, bottom = 220, 42
    first, last = 0, max(bins) + size
    most = max(sum(both) for both in bins.values()) or 1
    across = _Scale(low=first, high=last, begin=_LEFT, end=_WIDTH - _RIGHT)
    up = _Scale(low=0, high=most * 1.05, begin=height - bottom, end=10)
    drawn = []
    for begin, (right, wrong) in sorted(bins.items()):
        left, width = across(begin) + 0.5, across(begin + size) - across(begin) - 1
        for low, high, kind in ((0, wrong, "wrong"), (wrong, wrong + right, "right")):
            if high > low:
                told = f"{begin} to {begin + size - 1} tokens: {high - low} {kind}"
                drawn.append(
                    f'<rect class="{kind}" x="{left:.1f}" y="{up(high):.1f}" '
                    f'width="{max(width, 0.8):.1f}" height="{up(low) - up(high):.1f}">'
                    f"<title>{escape(told)}</title></rect>"
                )
    base = height - bottom
    drawn.append(_rule("axis", (_LEFT, base), (_WIDTH - _RIGHT, base)))
    drawn += [
        _text(across(tick), base + 17, short(tick), anchor="middle") for tick in _steps(first, last)
    ]
    drawn.append(_text((_LEFT + _WIDTH) / 2, height - 6, x, anchor="middle", kind="label"))
    drawn.append(_text(_LEFT - 8, 16, str(most), anchor="end"))
    return _svg(height, drawn, x)


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "tick") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _name(x: float, y: float, name: str) -> str:
    """A name that ends at a place, cut if it is long; the pointer tells all of it."""
    title = f"<title>{escape(name)}</title>"
    shown = escape(_cut(name, 28))
    return f'<text class="tick" x="{x}" y="{y}" text-anchor="end">{shown}{title}</text>'


def _rule(kind: str, begin: tuple[float, float], end: tuple[float, float]) -> str:
    return (
        f'<line class="{kind}" x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" '
        f'x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'
    )


def _svg(height: float, body: Sequence[str], told: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(told)}">'
        f"{''.join(body)}</svg>"
    )


def _ticks(scale: _Scale) -> list[float]:
    if not scale.is_log:
        return _steps(scale.low, scale.high)
    powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return [mark for mark in marks if scale.low <= mark <= scale.high]


def _steps(low: float, high: float) -> list[float]:
    """Round values between two ends, about five."""
    span = high - low or 1.0
    raw = span / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number as axes tell it: 2k, 5M."""
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
