"""Steps of the engine: the Python around them, how well they are predicted, how near the roofs.

Run as `python benchmarks/perf/steps.py [--json PATH]`. The kernels are built once from nothing, as
where a model is loaded for the first time. Python is measured with a model that
computes nothing, as processor time of the engine's thread: the best of several rounds, since others
may be computing. Predictions are those of the cost curve before each step of a mixed load, and
those of `price` for four more branches against the time that they then added.

Steps and roofs are measured by turns, and both as means, so that what else the machine does slows
them alike: a fraction of the roof is the median of those of the rounds, and its spread is told.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch

from ttc.benchmarks.results import write_result
from ttc.engine.local import LocalEngine
from ttc.engine.local.batch import Batch
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.hub.models import find
from ttc.engine.local.kv import KVPool
from ttc.engine.local.meter import StepRecord
from ttc.engine.local.native.compiler import (
    OPTIONS,
    compile_library,
    find_compiler,
    library_name,
    version_of,
)
from ttc.engine.local.native.roofs import Roofs, measure_roofs
from ttc.engine.local.sample import Draw, Drawn
from ttc.engine.local.sequence import Sequence as EngineSequence
from ttc.engine.local.source import ModelSource, open_model
from ttc.ports import Request
from ttc.types import Branch, Sampling

MODEL = "smollm2-135m"
SIZES = (1, 8, 64)
PROMPT = 240
ROUNDS, STEPS = 12, 20
TURNS = 9  # of roofs and steps


class NoModel:
    """A model that computes nothing and draws the same tokens in every step."""

    numerics, bytes_per_weight = "none", 1.0

    def __init__(self, config: ModelConfig) -> None:
        self.config, self.costs = config, config.costs(kv_number_bytes=2)
        self._logits = torch.zeros(1024, config.vocab)

    def make_pool(self, num_pages: int) -> KVPool:
        """Memory that nothing is written to."""
        return KVPool(self.config, num_pages, torch.bfloat16)

    def forward(self, token_ids: Any, plan: Any, pool: Any, wanted: torch.Tensor) -> torch.Tensor:
        """Zeros."""
        return self._logits[: len(wanted)]

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """Another token in each row, as branches that went the same way would be one."""
        n = len(draws)
        return Drawn([*range(300, 300 + n)], [-1.0] * n, [None] * n, [None] * n, [None] * n, {})

    def logprobs(self, logits: torch.Tensor, wanted: Any) -> Any:
        """Nobody asks."""
        raise NotImplementedError


def building() -> list[dict[str, Any]]:
    """How long the kernels of every model take to be built where there are none yet."""
    before, begun = os.times(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = find_compiler()
        name = library_name(version_of(command), OPTIONS, "step")
        compile_library(command, OPTIONS, "step", Path(folder) / name)
    seconds, after = time.perf_counter() - begun, os.times()
    spent = sum(after[2:4]) - sum(before[2:4])  # of the compiler's processes
    return [
        row("kernels: built from nothing", seconds, "s", target=3.0),
        row("kernels: processor time of that", spent, "s"),
    ]


def request(seed: int, max_tokens: int, first: int = 1000) -> Request:
    """A call on a prompt of 240 tokens."""
    branch = Branch(text="", token_ids=tuple(range(first, first + PROMPT)))
    return Request(branch=branch, max_tokens=max_tokens, sampling=Sampling(), seed=seed)


def overhead(source: ModelSource, num_calls: int) -> float:
    """Milliseconds of Python in a step in which so many calls decode."""
    limit = (ROUNDS + 1) * STEPS + 40
    model: Any = NoModel(source.config)
    with torch.inference_mode():
        batch = Batch(model, num_pages=8000, max_sequences=128, lock=threading.Lock())
        calls = [request(seed, limit) for seed in range(num_calls)]
        tokens = list(calls[0].branch.token_ids or ())
        sequences = [EngineSequence(call, tokens, limit, source.tokens, None) for call in calls]
        batch.schedule.add(sequences)
        while any(sequence.num_pending > 1 for sequence in sequences):
            batch.step()
        rounds = []
        for _ in range(ROUNDS):
            begun = time.thread_time()
            for _ in range(STEPS):
                batch.step()
            rounds.append((time.thread_time() - begun) / STEPS)
    return min(rounds) * 1000


def predictions(engine: LocalEngine, seed: int = 0) -> list[float]:
    """Relative errors of the curve, before each step of calls that come and go."""
    random, calls = Random(seed), []
    for number in range(40):
        first = random.choice([1000, 2000, 3000])
        calls += [
            engine.submit(request(100 * number + i, random.randrange(4, 40), first + number % 3))
            for i in range(random.choice([1, 2, 4, 8]))
        ]
        if random.random() < 0.5:
            calls.pop(0).future.result()
    for call in calls:
        call.future.result()
    return [
        abs(step.predicted_s - step.seconds.total) / step.seconds.total
        for step in engine.meter.recent
    ]


def prices(engine: LocalEngine) -> list[float]:
    """Relative errors of the price of 4 more branches of 16 tokens beside others."""
    errors = []
    for beside in (0, 1, 4, 16) * 3:
        seconds = []
        price = engine.price(context=PROMPT, branches=4, tokens=16, beside=beside)
        for branches in (beside, beside + 4):
            begun = time.perf_counter()
            calls = [engine.submit(request(i, 16)) for i in range(branches)]
            for call in calls:
                call.future.result()
            seconds.append(time.perf_counter() - begun)
        measured = seconds[1] - seconds[0]
        errors.append(abs(price.milliseconds / 1000 - measured) / measured)
    return errors


def row(name: str, value: float, unit: str, **more: Any) -> dict[str, Any]:
    """A row of the table, which is printed, too."""
    print(f"{name:52} {value:9.3f} {unit}")
    return {"name": name, "value": round(value, 4), "unit": unit, **more}


def measured(engine: LocalEngine) -> list[dict[str, Any]]:
    """Rows of the real model."""
    rows = []
    for name, errors in (("step", predictions(engine)), ("price", prices(engine))):
        ordered = sorted(errors)
        most = ordered[int(0.9 * len(ordered))]
        rows.append(row(f"{name}: error of prediction, median", statistics.median(errors), ""))
        rows.append(row(f"{name}: error of prediction, nine of ten", most, ""))
    roofs = engine.roofs()
    rows.append(row("roof: read", roofs.read_bytes / 1e9, "GB/s"))
    rows.append(row("roof: int8", roofs.int8_operations / 1e9, "Gop/s"))
    rows.append(row("roof: float", roofs.float_operations / 1e9, "Gflop/s"))
    for size, target in ((1, None), (64, 0.6)):
        rows += by_turns(engine, size, target)
    return rows


def by_turns(engine: LocalEngine, size: int, target: float | None) -> list[dict[str, Any]]:
    """How near steps of so many rows come to the roof."""
    roofs = [measure_roofs(engine._threads, take=statistics.fmean)]
    fractions, shares, bounds = [], [], []
    for _ in range(TURNS):
        steps = decoded(engine, size)
        roofs.append(measure_roofs(engine._threads, take=statistics.fmean))
        engine.meter.roofs = between(*roofs[-2:])
        found = [engine.meter.fraction(step) for step in steps]
        seconds = [step.seconds.total for step in steps]
        least = [f.value * s for f, s in zip(found, seconds, strict=True) if f is not None]
        fractions.append(sum(least) / sum(seconds))
        bounds += [fraction.bound for fraction in found if fraction is not None]
        shares += [step.seconds.overhead for step in steps]
    name = f"{size} rows: fraction of the roof"
    return [
        row(name, statistics.median(fractions), "", bound=statistics.mode(bounds), target=target),
        row(f"{name}, least of {TURNS} turns", min(fractions), ""),
        row(f"{name}, most of {TURNS} turns", max(fractions), ""),
        row(f"{size} rows: plan and commit, part of a step", statistics.median(shares), ""),
    ]


def decoded(engine: LocalEngine, size: int) -> list[StepRecord]:
    """The steps of so many calls that decode side by side."""
    engine.meter.recent.clear()
    calls = [engine.submit(request(i, 24)) for i in range(size)]
    for call in calls:
        call.future.result()
    return [step for step in engine.meter.recent if step.decode_tokens == size == step.rows]


def between(before: Roofs, after: Roofs) -> Roofs:
    """The roofs while something ran."""
    return Roofs(
        read_bytes=(before.read_bytes + after.read_bytes) / 2,
        int8_operations=(before.int8_operations + after.int8_operations) / 2,
        float_operations=(before.float_operations + after.float_operations) / 2,
        threads=after.threads,
    )


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    source = open_model(find(MODEL))
    targets = {1: 0.3, 64: 1.0}
    rows = building()
    rows += [
        row(f"{n} rows: Python of a step", overhead(source, n), "ms", target=targets.get(n))
        for n in SIZES
    ]
    with LocalEngine.load(find(MODEL), name=MODEL) as engine:
        rows += measured(engine)
    if arguments.json is not None:
        command = ["python", "benchmarks/perf/steps.py"]
        write_result(arguments.json, command=command, rows=rows, seed=0)


if __name__ == "__main__":
    main()
