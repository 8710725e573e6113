"""What a step takes beside its kernels, and what its attention reads: processor time, not seconds.

Run as `python benchmarks/perf/step.py [--json PATH] [MODEL]`. For steps that decode one row and 64
rows, each after its own few tokens of a common prefix: the time in Python (the kernels do nothing),
the attention of all layers, and how many bytes of keys and values are read, in all and with each
sequence alone. Times are the least of several rounds, of one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from collections.abc import Callable
from ctypes import byref
from pathlib import Path
from typing import Any

from ttc.benchmarks.results import write_result
from ttc.engine.local.hub.models import find

# isort: split
import torch

from ttc.engine.local.native import NativeModel, build
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.source import open_model

MODEL = "smollm2-135m"
CASES = ((1, 240), (64, 240), (1, 1504), (64, 1504))  # rows, and tokens of the prefix
OWN = 32  # tokens of each sequence's own
TARGETS_MS = {1: 0.3, 64: 1.0}


def spans_of(rows: int, prefix: int) -> list[Span]:
    """Sequences that part after a prefix."""
    common, own = prefix // PAGE, OWN // PAGE
    return [
        Span(
            pages=array("i", [*range(common), *range(common + r * own, common + (r + 1) * own)]),
            start=prefix + OWN - 1,
            count=1,
        )
        for r in range(rows)
    ]


def least_ms(work: Callable[[], object], times: int) -> float:
    """Milliseconds of processor time."""
    found = []
    for _ in range(7):
        start = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - start) / times)
    return min(found) * 1e3


def rows_of(model: NativeModel) -> list[dict[str, Any]]:
    """The figures of one model."""
    library, table = build.load_library(), []
    kernel = model._kernels.run_step
    for rows, prefix in CASES:
        spans = spans_of(rows, prefix)
        pool = model.make_pool(prefix // PAGE + rows * (OWN // PAGE))
        ids, wanted = torch.arange(rows), torch.arange(rows)

        def step(spans: list[Span] = spans, args: tuple[Any, ...] = (pool, wanted)) -> None:
            model.forward(ids, Plan(spans), *args)  # noqa: B023

        plan = Plan(spans)  # what the structure points to while attention is timed
        model.forward(ids, plan, pool, wanted)
        attend = (byref(model._model), model._layers, byref(model._room.step))
        layers = model.config.num_layers
        attention = layers * least_ms(lambda: library.attend(*attend), 3)  # noqa: B023
        model._kernels.run_step = lambda *_: None  # type: ignore[method-assign]
        python = least_ms(step, 50)
        model._kernels.run_step = kernel  # type: ignore[method-assign]
        reads = plan.reads(model.costs)
        apart = sum(Plan([span]).reads(model.costs).kv_bytes for span in spans)
        name = f"{rows} rows, {prefix} + {OWN} tokens"
        figures: list[tuple[str, float, str, float | None]] = [
            ("python, at most", python, "ms", TARGETS_MS[rows]),
            ("attention", attention, "ms", None),
            ("sharing", reads.sharing, "", None),
            ("keys and values read", reads.kv_bytes / 1e6, "MB", None),
            ("the same, unshared", apart / 1e6, "MB", None),
        ]
        print(f"{name}: " + ", ".join(f"{what} {v:.3f} {unit}" for what, v, unit, _ in figures))
        table += [
            {"name": f"{name}: {what}", "value": value, "unit": unit, "target": target}
            for what, value, unit, target in figures
        ]
    return table


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?", default=MODEL, help="name or path of a GGUF file")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        model = open_model(find(arguments.model), "int8").build()
        assert isinstance(model, NativeModel)
        rows = rows_of(model)
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
