"""How long a model takes from a cold start to its first token, and the most memory on the way.

Run as `python benchmarks/perf/load.py [--json PATH] [--dtype fp32|bf16] MODEL ...`, each a name or
a path. Each run is a new process; time runs from its start, Python and torch included, to the first
token of a short prompt, with the file in the page cache. Memory is what the process holds of its
own (`RssAnon` in /proc, which leaves mapped files out), at its peak, above what it holds after
`import torch`. Figures are medians of 3 runs. Linux only.
"""

from __future__ import annotations

import argparse
import select
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from ttc.benchmarks.results import write_result
from ttc.engine.local.hub.models import MODELS, models_folder

RUNS = 3
POLL_S = 0.004
SECONDS = {
    "smollm2-135m": 2.5,
    "qwen2.5-coder-0.5b-instruct-q4_k_m": 6.0,
    "qwen2.5-coder-1.5b-instruct-q4_k_m": 15.0,
}
"""What a cold start may take on two cores."""
MEMORY_RATIO = 1.5
"""What the peak may be, in terms of the weights that the forward pass keeps."""
SECONDS_ROWS = ("cold start to first token",)
CHILD = """
import sys
import ttc.engine.local
import torch
def own():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
print(own(), flush=True)
from ttc.engine.local import LocalEngine
from ttc.engine.local.files.weights import expected_shapes
from ttc.ports import Request
from ttc.types import Problem, Sampling
path, dtype = sys.argv[1:]
engine = LocalEngine.load(path, dtype=dtype)
root = engine.root(Problem(prompt="The capital of France is"), "policy")
request = Request(branch=root, max_tokens=1, sampling=Sampling(temperature=0), seed=0)
engine.submit(request).future.result()
config = engine._batch.model.config
shapes = expected_shapes(config)
if not config.tied:
    del shapes["token_embd.weight"]
size = {"fp32": 4, "bf16": 2}[dtype]
weights = sum(torch.Size(s).numel() * (size if len(s) == 2 else 4) for s in shapes.values())
print(weights, own(), flush=True)
sys.stdin.read()
"""


class Run(NamedTuple):
    """What one process did."""

    seconds: float
    peak_bytes: int
    weight_bytes: int
    held_bytes: int
    """After the first token."""


def own_bytes(pid: int) -> int:
    """What a process holds of its own."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def measure(path: Path, dtype: str) -> Run:
    """One cold start."""
    command = [sys.executable, "-c", CHILD, str(path), dtype]
    start, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the process has no pipes")
        base = int(process.stdout.readline() or 0)
        while not select.select([process.stdout], [], [], POLL_S)[0]:
            peak = max(peak, own_bytes(process.pid))
        line = process.stdout.readline().split()
        seconds = time.perf_counter() - start
        process.stdin.close()
    if not line:
        raise RuntimeError(f"{path}: the process ended with {process.returncode}")
    weights, held = map(int, line)
    return Run(seconds, peak - base, weights, held - base)


def rows_of(name: str, runs: list[Run]) -> list[dict[str, str | float | None]]:
    """The figures of one model."""
    weights = runs[0].weight_bytes
    medians = {
        "cold start to first token": statistics.median(run.seconds for run in runs),
        "peak memory": statistics.median(run.peak_bytes for run in runs),
        "memory after it": statistics.median(run.held_bytes for run in runs),
        "weights in use": weights,
    }
    targets = {
        "cold start to first token": SECONDS.get(name),
        "peak memory": MEMORY_RATIO * weights,
    }
    return [
        {
            "name": f"{name}: {what}",
            "value": round(value, 2) if what in SECONDS_ROWS else round(value),
            "unit": "s" if what in SECONDS_ROWS else "bytes",
            "target": targets.get(what),
        }
        for what, value in medians.items()
    ]


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="*", default=list(MODELS), help="names or paths")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--runs", type=int, default=RUNS, help="cold starts of each model")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    rows: list[dict[str, str | float | None]] = []
    for model in arguments.models:
        path = models_folder() / MODELS[model].file if model in MODELS else Path(model)
        name = model if model in MODELS else path.stem
        runs = [measure(path, arguments.dtype) for _ in range(arguments.runs)]
        found = rows_of(name, runs)
        rows += found
        print(
            f"{name} {arguments.dtype}: {found[0]['value']} s (target {found[0]['target']}), "
            f"peak {runs[0].peak_bytes / 1e6:.0f} MB, held {runs[0].held_bytes / 1e6:.0f} MB, "
            f"weights {runs[0].weight_bytes / 1e6:.0f} MB: "
            f"{float(found[1]['value'] or 0) / runs[0].weight_bytes:.2f} of them at the peak"
        )
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
