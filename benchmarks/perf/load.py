"""How long a model takes from a cold start to its first token, and the most memory on the way.

Run as `python benchmarks/perf/load.py [--arithmetic NAME] [--json PATH] MODEL ...`, each a name or
a path. Each run is a new process that loads a model, in `int8` unless told otherwise; time runs
from its start, Python and torch included, to the first token of a short prompt, with the file in
the page cache. Memory is what the process holds of its own (`RssAnon` in /proc, which leaves mapped
files out), at its peak, above what a process holds that has imported torch alone. Processor time is
that of all threads, in and out of the kernel. Figures are medians. Linux only.
"""

from __future__ import annotations

import argparse
import select
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from ttc.benchmarks.results import write_result
from ttc.engine.local.hub.models import MODELS, find

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
OWN = """
import sys
def own():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
"""
TORCH = (
    OWN
    + """
import time
start = time.perf_counter()
import ttc.engine.local
import torch
print(time.perf_counter() - start, own(), flush=True)
"""
)
LOAD = (
    OWN
    + """
import os
from ttc.engine.local import LocalEngine
from ttc.ports import Request
from ttc.types import Problem, Sampling
engine = LocalEngine.load(sys.argv[1], arithmetic=sys.argv[2])
root = engine.root(Problem(prompt="The capital of France is"), "policy")
request = Request(branch=root, max_tokens=1, sampling=Sampling(temperature=0), seed=0)
engine.submit(request).future.result()
spent = sum(os.times()[:2])
model = engine._batch.model
kept = [m for k in model._kept if hasattr(k, "matrices") for m in k.matrices]
weights = sum(len(m.panels) + (0 if m.scales is None else 4 * m.scales.numel()) for m in kept)
print(spent, own(), weights, flush=True)
sys.stdin.read()
"""
)


class Run(NamedTuple):
    """What one process did."""

    seconds: float
    processor_seconds: float
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


def torch_alone() -> tuple[float, int]:
    """The seconds that `import torch` takes, and what a process holds after it."""
    done = subprocess.run([sys.executable, "-c", TORCH], capture_output=True, text=True, check=True)
    seconds, held = done.stdout.split()
    return float(seconds), int(held)


def measure(path: Path, arithmetic: str, base: int) -> Run:
    """One cold start. `base` is what a process holds without a model."""
    start, peak = time.perf_counter(), 0
    command = [sys.executable, "-c", LOAD, str(path), arithmetic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the process has no pipes")
        while not select.select([process.stdout], [], [], POLL_S)[0]:
            peak = max(peak, own_bytes(process.pid))
        line = process.stdout.readline().split()
        seconds = time.perf_counter() - start
        process.stdin.close()
    if not line:
        raise RuntimeError(f"{path}: the process ended with {process.returncode}")
    return Run(seconds, float(line[0]), peak - base, int(line[2]), int(line[1]) - base)


def rows_of(name: str, runs: list[Run], torch_seconds: float) -> list[dict[str, Any]]:
    """The figures of one model."""
    weights = runs[0].weight_bytes

    def median(what: str) -> float:
        return float(statistics.median(getattr(run, what) for run in runs))

    figures: list[tuple[str, float, str, float | None]] = [
        ("cold start to first token", round(median("seconds"), 2), "s", SECONDS.get(name)),
        ("processor time of it", round(median("processor_seconds"), 2), "s", None),
        ("import torch alone", round(torch_seconds, 2), "s", None),
        ("peak memory", round(median("peak_bytes")), "bytes", MEMORY_RATIO * weights),
        ("memory after it", round(median("held_bytes")), "bytes", None),
        ("weights in use", weights, "bytes", None),
    ]
    return [
        {"name": f"{name}: {what}", "value": value, "unit": unit, "target": target}
        for what, value, unit, target in figures
    ]


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="*", default=list(MODELS), help="names or paths")
    parser.add_argument("--arithmetic", default="int8", choices=("int8", "file"))
    parser.add_argument("--runs", type=int, default=RUNS, help="cold starts of each model")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model in arguments.models:
        path = find(model)
        name = model if model in MODELS else path.stem
        torch_runs = [torch_alone() for _ in range(arguments.runs)]
        torch_seconds = statistics.median(seconds for seconds, _ in torch_runs)
        runs = [
            measure(path, arguments.arithmetic, torch_runs[0][1]) for _ in range(arguments.runs)
        ]
        found = rows_of(name, runs, torch_seconds)
        rows += found
        cold, processor, alone, peak, held, weights = (row["value"] for row in found)
        print(
            f"{name}: {cold} s (target {found[0]['target']}), {processor} s of processor time, "
            f"{alone} s for import torch alone; peak {peak / 1e6:.0f} MB, held {held / 1e6:.0f} "
            f"MB, weights {weights / 1e6:.0f} MB: {peak / weights:.2f} of them at the peak"
        )
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
