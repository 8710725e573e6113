"""What the linear layers of a model take in each weight format: processor time, not seconds.

Run as `python benchmarks/perf/linear.py [--json PATH] [MODEL]`. All products of one step, with the
head, for 1, 8 and 64 rows, in `int8` and in `file`, one after the other in each round; times are
the least of several rounds, of one thread. Beside them, what one row reads, and how fast.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ttc.benchmarks.results import write_result
from ttc.engine.local.hub.models import find

# isort: split
import torch

from ttc.config import Arithmetic
from ttc.engine.local.native import NativeModel, build
from ttc.engine.local.native.library import GROUP, PART, LinearStruct, RowsStruct
from ttc.engine.local.native.weights import QuantisedLinear
from ttc.engine.local.source import open_model

MODEL = "qwen2.5-coder-0.5b-instruct-q4_k_m"
ARITHMETICS: tuple[Arithmetic, ...] = ("int8", "file")
ROWS, ROUNDS = (1, 8, 64), 7


def bytes_of(linear: QuantisedLinear) -> int:
    """What a product reads of a weight."""
    scales = [matrix.scales for matrix in linear.matrices]
    panels = sum(len(matrix.panels) for matrix in linear.matrices)
    return panels + sum(0 if s is None else s.numel() * 4 for s in scales)


class Products:
    """All linear layers of a model, ready to be multiplied with rows of one number."""

    def __init__(self, model: NativeModel, library: ctypes.CDLL) -> None:
        self.weights = [kept for kept in model._kept if isinstance(kept, QuantisedLinear)]
        self.bytes = sum(map(bytes_of, self.weights))
        self._library, self._model = library, model
        widest = max(m.inputs for w in self.weights for m in w.matrices)
        outputs = max(w.struct.outputs for w in self.weights)
        most = max(ROWS)
        self._x, self._out = torch.randn(most, widest), torch.empty(most, outputs)
        self._codes = torch.empty(most, widest + GROUP, dtype=torch.int8)
        self._scales = torch.empty(most, widest // GROUP + 1)
        self._sums = torch.empty(most, widest // PART + 4, dtype=torch.int32)

    def multiply(self, rows: int) -> None:
        """One step's products."""
        tensors = (self._codes, self._scales, self._sums)
        codes = RowsStruct(*(tensor.data_ptr() for tensor in tensors), 0)
        out, inputs = ctypes.c_void_p(self._out.data_ptr()), 0
        for weight in self.weights:
            if weight.matrices[0].inputs != inputs:
                inputs = weight.matrices[0].inputs
                x = ctypes.c_void_p(self._x.data_ptr())
                self._library.quantise(x, rows, inputs, ctypes.byref(codes))
            struct: LinearStruct = weight.struct
            self._library.multiply(ctypes.byref(struct), ctypes.byref(codes), rows, out, 0)


def milliseconds(work: Callable[[], object]) -> float:
    """Of processor time."""
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


def rows_of(products: dict[Arithmetic, Products]) -> list[dict[str, Any]]:
    """The figures."""
    table: list[dict[str, Any]] = []
    for rows in ROWS:
        found: dict[Arithmetic, list[float]] = {name: [] for name in products}
        for _ in range(ROUNDS):
            for name, its in products.items():
                found[name].append(milliseconds(lambda its=its: its.multiply(rows)))  # type: ignore[misc]  # noqa: B023
        least = {name: min(times) for name, times in found.items()}
        figures: list[tuple[str, float, str]] = [(n, least[n], "ms") for n in products]
        figures.append(("int8 / file", least["int8"] / least["file"], ""))
        if rows == 1:
            figures += [(f"{n} reads", p.bytes / 1e6, "MB") for n, p in products.items()]
            figures += [
                (f"{n} reads at", p.bytes / least[n] / 1e6, "GB/s") for n, p in products.items()
            ]
        print(f"{rows} rows: " + ", ".join(f"{what} {v:.2f} {unit}" for what, v, unit in figures))
        table += [
            {"name": f"{rows} rows: {what}", "value": value, "unit": unit, "target": None}
            for what, value, unit in figures
        ]
    return table


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?", default=MODEL, help="name or path of a GGUF file")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    library, products = build.load_library(), {}
    with torch.inference_mode():
        for arithmetic in ARITHMETICS:
            model = open_model(find(arguments.model), arithmetic).build()
            assert isinstance(model, NativeModel)
            products[arithmetic] = Products(model, library)
        rows = rows_of(products)
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
