"""The perplexity of each block format of GGUF files, against that of the values that it stands for.

Run as `python benchmarks/perf/formats.py [--json PATH] [--formats Q4_0,...] [MODEL]`. The matrices
of a model are written in a format, and, in a second file, as the float32 values that gguf-py reads
out of it. The engine loads both, and its perplexity on a fixed text must be the same for both; the
distance from the model as it came is what the format costs beyond that (one rounded twice, where
the model came rounded). A format of blocks of 256 takes the matrices whose rows are whole blocks;
the others are then Q8_0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize

from ttc.benchmarks.perf.quantise import format_for, quantised
from ttc.benchmarks.results import write_result
from ttc.engine.local import threads
from ttc.engine.local.files.dequantise import FORMATS
from ttc.engine.local.hub.models import find

# isort: split
import torch

from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.source import open_model

MODEL = "smollm2-135m"
TOLERANCE = 1e-5
"""How far the two perplexities may be apart, relative to one."""
TEXT = """\
A ferry leaves the harbour at seven each morning. It carries forty passengers and a dozen bicycles,
and on market days a few crates of fish as well. The crossing takes fifty minutes when the sea is
calm. In winter, when the wind comes from the north, the captain often waits until noon, and the
people of the island learn to plan for it: they keep flour, oil and candles in the cellar.

def mean(values):
    if not values:
        raise ValueError("the mean of nothing is unknown")
    return sum(values) / len(values)

Question: A shop sells pencils at 3 for 45 cents. How much do 14 pencils cost?
Answer: One pencil costs 45 / 3 = 15 cents, so 14 pencils cost 14 * 15 = 210 cents, or 2.10 euros.

Water boils at a lower temperature on a mountain than at the coast because the air presses on it
less. A cook who follows a recipe from the valley must therefore give potatoes more time. The same
reasoning explains why a sealed pot cooks faster: steam that cannot leave raises the pressure, and
with it the temperature at which the water turns into steam.
"""


def copy(source: GGUFReader, path: Path, write: Callable[[np.ndarray[Any, Any]], Any]) -> Path:
    """A file with the keys of another, and its matrices as `write` gives them, with their kinds."""
    writer = GGUFWriter(path, str(source.fields["general.architecture"].contents()))
    for name, field in source.fields.items():
        if not name.startswith("GGUF.") and name not in writer.kv_data[0]:
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in source.tensors:
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        data, kind = (values, GGMLQuantizationType.F32) if values.ndim == 1 else write(values)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def perplexity(path: Path) -> float:
    """The engine's, on the text."""
    source = open_model(path, "fp32")
    ids = torch.tensor(source.tokens.encode(TEXT))
    pages = range(-(-len(ids) // PAGE))
    with torch.inference_mode():
        model = source.build()
        spans = [Span(pages=pages, start=0, count=len(ids))]
        pool = model.make_pool(len(pages))
        logits = model.forward(ids, Plan(spans), pool, torch.arange(len(ids)))
        return float(torch.nn.functional.cross_entropy(logits[:-1].double(), ids[1:]).exp())


def rows_of(source: GGUFReader, name: str, plain: float, folder: Path) -> list[dict[str, Any]]:
    """The figures of one format."""
    asked = GGMLQuantizationType[name]
    matrices = [tensor for tensor in source.tensors if len(tensor.shape) == 2]
    took = [tensor for tensor in matrices if format_for(int(tensor.shape[0]), asked) == asked]

    def as_format(values: np.ndarray[Any, Any]) -> Any:
        kind = format_for(values.shape[1], asked)
        return quantised(values, kind), kind

    def as_values(values: np.ndarray[Any, Any]) -> Any:
        data, kind = as_format(values)
        return np.array(dequantize(data, kind), dtype=np.float32), GGMLQuantizationType.F32

    path = folder / "model.gguf"
    found = perplexity(copy(source, path, as_format))
    expected = perplexity(copy(source, path, as_values))
    share = sum(tensor.n_elements for tensor in took) / sum(t.n_elements for t in matrices)
    print(
        f"{name:5} perplexity {found:.5f}, of its values {expected:.5f}, of the model {plain:.5f}; "
        f"{share:.0%} of the weights"
    )
    if abs(found / expected - 1) > TOLERANCE:
        raise SystemExit(f"{name}: the perplexities differ by more than {TOLERANCE:g}")
    figures = {
        "perplexity": found,
        "perplexity of its values": expected,
        "relative difference": abs(found / expected - 1),
        "share of the weights": share,
    }
    return [
        {
            "name": f"{name}: {what}",
            "value": value,
            "unit": "",
            "target": TOLERANCE if what == "relative difference" else None,
        }
        for what, value in figures.items()
    ]


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?", default=MODEL, help="the name or path of a GGUF file")
    parser.add_argument("--formats", default=",".join(FORMATS), help="some of the formats")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(threads.thread_count())
    path = find(arguments.model)
    source, plain = GGUFReader(path), perplexity(path)
    rows: list[dict[str, Any]] = [
        {"name": "the model as it came: perplexity", "value": plain, "unit": "", "target": None}
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.formats.split(","):
            rows += rows_of(source, name, plain, Path(folder))
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
