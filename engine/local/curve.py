"""How long a step takes: t(rows, draws, positions seen), fitted from the engine's own steps.

    t = L w(rows) + H w(draws) + c seen

w(n) is the time of n rows through the model's linear layers, all of them together; L and H are the
parts of layers and head in their multiplications, as few rows that are drawn from need the head. w
is a straight line between knots, since small numbers of rows are bound by memory and large ones by
arithmetic. `seen` is the sum of the positions that rows attend to; c is a slope.

The knots and the slope are first measured at load (`warmup`) and then follow every step by a Kalman
filter of relative errors: what a step's rows and positions do not touch stays as it was. An
innovation is cut at three times the usual one, so that a step that another process delayed moves
little (Huber 1964), and a machine that became slower is followed within some steps.

It says when things run and what they will cost, and never what they result in.

Source: Kalman 1960, "A New Approach to Linear Filtering and Prediction Problems", for the filter.
Cost: some 20 microseconds for each step.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

import numpy as np

from ttc.costs import Costs

__all__ = ["Curve", "Error", "Load"]

_KNOTS = (1, 4, 16, 64, 256)
_NOISE = 0.1  # usual relative error of one step
_DRIFT = 0.01  # by how much a knot may have changed since the last step, likewise
_UNSURE = 0.5  # relative doubt about a knot that was not measured
_CUT = 3.0
_REMEMBERED = 512


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a step computes."""

    rows: int
    draws: int
    """Rows that the model's head is taken for."""
    seen: int
    """Positions that rows attend to, summed over the rows."""


@dataclass(frozen=True, kw_only=True)
class Error:
    """How far predictions were from the steps that followed, relative to what was measured."""

    median: float
    most: float
    """What nine of ten are within."""
    steps: int
    """How many steps that is known of."""


class Curve:
    """Predicts the time of steps, in seconds.

    Args:
        costs: of the model; they tell how layers and head share its multiplications.
    """

    def __init__(self, costs: Costs) -> None:
        whole = costs.flops_per_token + costs.flops_per_draw
        self._layers, self._head = costs.flops_per_token / whole, costs.flops_per_draw / whole
        # Before anything is measured: a guess of two billion operations in a second.
        row = whole / 2e9
        slope = sum(flops for flops, _ in costs.attention) / 2e9
        self._state = np.array([row * max(1.0, knot / 4) for knot in _KNOTS] + [slope])
        self._doubt = np.diag((_UNSURE * self._state) ** 2)
        self._errors: deque[float] = deque(maxlen=_REMEMBERED)
        self._values: list[float] = self._state.tolist()

    def __call__(self, load: Load) -> float:
        """The seconds that a step is predicted to take."""
        values = self._values
        layers = self._layers * _between(values, load.rows)
        return layers + self._head * _between(values, load.draws) + values[-1] * load.seen

    def start(self, measured: list[tuple[Load, float]]) -> None:
        """Takes over what was measured at load, by least squares of relative errors.

        Knots that no measurement came near keep the last one's time for each row.
        """
        most = max(load.rows for load, _ in measured)
        self._seed(min(measured, key=lambda m: m[0].rows), max(measured, key=lambda m: m[0].rows))
        for load, seconds in measured:
            for _ in range(3):  # a measurement at load is as good as several steps
                self._follow(load, seconds, noise=_NOISE / 2)
        self._extend(most)
        self._values = self._state.tolist()
        self._errors.clear()

    def note(self, load: Load, seconds: float) -> None:
        """A step has taken so long."""
        self._errors.append(abs(self(load) - seconds) / seconds)
        self._doubt.flat[:: len(self._state) + 1] += (_DRIFT * self._state) ** 2
        self._follow(load, seconds, noise=_NOISE)
        self._values = self._state.tolist()

    @property
    def error(self) -> Error | None:
        """How good predictions were, each made before its step; `None` before the first one."""
        if not self._errors:
            return None
        ordered = sorted(self._errors)
        return Error(
            median=statistics.median(ordered),
            most=ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
            steps=len(ordered),
        )

    def most_rows(self, seconds: float, allowed: range, *, decoding: int, seen: int) -> int:
        """How many prompt tokens a step can take beside others without taking longer.

        Args:
            seconds: how long it may take.
            allowed: the numbers to choose from.
            decoding: its other rows.
            seen: the positions that those see.
        """
        beside = seen // max(1, decoding)
        low, high = 0, len(allowed) - 1
        while low < high:
            middle = (low + high + 1) // 2
            rows = allowed[middle]
            load = Load(rows=decoding + rows, draws=decoding, seen=seen + rows * max(beside, rows))
            low, high = (middle, high) if self(load) <= seconds else (low, middle - 1)
        return allowed[low]

    def _features(self, load: Load) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        features = np.zeros(len(_KNOTS) + 1)
        for part, rows in ((self._layers, load.rows), (self._head, load.draws)):
            for knot, weight in _weights(rows):
                features[knot] += part * weight
        features[-1] = load.seen
        return features

    def _follow(self, load: Load, seconds: float, noise: float) -> None:
        """One step of the filter."""
        features = self._features(load)
        predicted = float(features @ self._state)
        gain = self._doubt @ features
        spread = float(features @ gain) + (noise * predicted) ** 2
        most = _CUT * spread**0.5
        surprise = min(max(seconds - predicted, -most), most)
        self._state = np.maximum(self._state + gain * (surprise / spread), self._state * 0.1)
        self._doubt -= np.outer(gain, gain) / spread

    def _seed(self, first: tuple[Load, float], last: tuple[Load, float]) -> None:
        """A line through the least and the greatest load, for the filter to go on from."""
        (few, short), (many, long) = first, last
        slope = max((long - short) / max(1, many.rows - few.rows), short / 256)
        knots = [max(short + slope * (knot - few.rows), short / 2) for knot in _KNOTS]
        self._state[:-1] = knots
        self._state[-1] = min(self._state[-1], short / 1000)
        self._doubt = np.diag((_UNSURE * self._state) ** 2)

    def _extend(self, most: int) -> None:
        """Beyond what was measured, times grow with the rows."""
        for knot in range(1, len(_KNOTS)):
            if _KNOTS[knot] > most:
                grown = self._state[knot - 1] * _KNOTS[knot] / _KNOTS[knot - 1]
                self._state[knot] = grown
                self._doubt[knot, :] = self._doubt[:, knot] = 0
                self._doubt[knot, knot] = (_UNSURE * grown) ** 2


def _weights(rows: int) -> tuple[tuple[int, float], ...]:
    """The knots between which a number of rows lies, and how near it is to each."""
    if not rows:
        return ()
    left = min(bisect_right(_KNOTS, rows) - 1, len(_KNOTS) - 2)
    part = (rows - _KNOTS[left]) / (_KNOTS[left + 1] - _KNOTS[left])
    return (left, 1 - part), (left + 1, part)


def _between(values: list[float], rows: int) -> float:
    if not rows:
        return 0.0
    (left, before), (right, after) = _weights(rows)
    return values[left] * before + values[right] * after
