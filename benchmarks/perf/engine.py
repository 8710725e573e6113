"""Tokens per second of the embedded engine: N samples of one prompt, prefill counted in.

Run as `python benchmarks/perf/engine.py [--json PATH]`. The prompt has about 240 tokens, each
sample 64 new ones, drawn at temperature 1 from the whole vocabulary. Figures are medians of several
runs; the spread is the distance from the slowest to the fastest. Each run has a prompt of its own,
so that none is served from the cache of the one before.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from ttc.engine.local import LocalEngine
from ttc.engine.local.hub.models import find
from ttc.ports import Request
from ttc.types import Branch, Problem, Sampling

MODEL = "smollm2-135m"
NEW_TOKENS = 64
PROMPT_TOKENS = 240
TEXT = (
    "A baker sells {} rolls in the morning and half as many in the afternoon. Each roll costs "
    "40 cents, and flour for a dozen costs one euro. How much does the baker earn on this day? "
)


def prompt(engine: LocalEngine, run: int) -> Branch:
    """A raw prompt of about 240 tokens whose first words are the run's own."""
    text = TEXT.format(run)
    while len(engine.root(Problem(prompt=text), "policy").token_ids or ()) < PROMPT_TOKENS:
        text += TEXT.format(run + 12)
    branch = engine.root(Problem(prompt=text), "policy")
    return Branch(text=text, token_ids=(branch.token_ids or ())[:PROMPT_TOKENS])


def measure(engine: LocalEngine, num_samples: int, run: int) -> float:
    """Output tokens per second of one run."""
    branch = prompt(engine, 1000 * num_samples + run)
    start = time.perf_counter()
    calls = [
        engine.submit(Request(branch=branch, max_tokens=NEW_TOKENS, sampling=Sampling(), seed=seed))
        for seed in range(num_samples)
    ]
    produced = sum(len(call.future.result().token_ids or ()) for call in calls)
    return produced / (time.perf_counter() - start)


def machine() -> str:
    """The processor's model and the number of cores that this process may use."""
    model = "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [s for s in cpuinfo.read_text().splitlines() if s.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores"


def commit() -> str:
    """The commit that was measured, or `unknown`."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--runs", type=int, default=5, help="runs of each size")
    parser.add_argument("--sizes", default="1,8,32,64", help="numbers of samples")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with LocalEngine.load(find(MODEL), name=MODEL) as engine:
        print(engine.numerics)
        for num_samples in map(int, arguments.sizes.split(",")):
            measure(engine, num_samples, 0)  # warms kernels up for this number of rows
            rates = [measure(engine, num_samples, run) for run in range(1, arguments.runs + 1)]
            row = {
                "name": f"{MODEL} N={num_samples}",
                "value": round(statistics.median(rates), 1),
                "unit": "output tokens/s",
                "spread": round(max(rates) - min(rates), 1),
            }
            print(f"N={num_samples:<3} {row['value']:8.1f} tokens/s  spread {row['spread']:.1f}")
            rows.append(row)
    if arguments.json is not None:
        table = {
            "command": f"python benchmarks/perf/engine.py --runs {arguments.runs}"
            f" --sizes {arguments.sizes}",
            "commit": commit(),
            "machine": machine(),
            "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            "rows": rows,
        }
        arguments.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
