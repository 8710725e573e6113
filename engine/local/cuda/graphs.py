"""Steps captured as CUDA graphs: one launch in place of some hundreds.

A step's launches depend on the sizes of its tables alone. Sizes are rounded up to few different
ones; a step whose sizes have come before is captured, and from then on its tables are written to
the place that the graph reads, and the graph is replayed. (CUDA C++ Programming Guide, "CUDA
Graphs"; for decoding: Kwon et al. 2023 and others since.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ttc.engine.local.cuda.step import Sizes, Step, views

__all__ = ["StepGraphs", "StepOutputs"]

_MOST = 48


class StepOutputs(NamedTuple):
    """What a step leaves."""

    logits: torch.Tensor
    """(R, V) float32"""
    residual: torch.Tensor
    """(R, hidden) float32"""


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    tables: torch.Tensor
    outputs: StepOutputs


class StepGraphs:
    """The captured steps of a model.

    Args:
        run: computes a step.
        device: where.
        most: how many graphs are kept, the ones that were used last.
    """

    def __init__(
        self, run: Callable[[Step], StepOutputs], device: torch.device, most: int = _MOST
    ) -> None:
        self._run, self._device, self._most = run, device, most
        self._captured: OrderedDict[Sizes, _Captured | None] = OrderedDict()
        self._memory: Any = None  # what all graphs share; torch has no public name for its type

    def clear(self) -> None:
        """Forgets every graph: what they point to has moved."""
        self._captured.clear()

    def __call__(self, tables: torch.Tensor, sizes: Sizes, length: int) -> StepOutputs:
        """Computes a step; sizes that come for the second time are captured.

        Args:
            tables: on the host, of these sizes.
            sizes: few different ones.
            length: positions of the longest sequence; no launch depends on it.
        """
        known = sizes in self._captured
        captured = self._captured.pop(sizes, None)
        if captured is None and not known:
            self._keep(sizes, None)
            return self._run(views(tables.to(self._device, non_blocking=True), sizes, length))
        if captured is None:
            captured = self._capture(tables, sizes, length)
        self._keep(sizes, captured)
        captured.tables.copy_(tables, non_blocking=True)
        captured.graph.replay()
        return captured.outputs

    def _keep(self, sizes: Sizes, captured: _Captured | None) -> None:
        self._captured[sizes] = captured
        if len(self._captured) > self._most:
            self._captured.popitem(last=False)

    def _capture(self, tables: torch.Tensor, sizes: Sizes, length: int) -> _Captured:
        """Captures a step, after it has run once: kernels are compiled on their first launch."""
        own = tables.to(self._device)
        step = views(own, sizes, length)
        self._run(step)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            outputs = self._run(step)
        self._memory = graph.pool()
        return _Captured(graph, own, outputs)
