"""What it costs to measure the distributions that tokens are drawn from.

Run as `python benchmarks/perf/sidecars.py [--samples N]`. Every round samples the same prompt once
without measuring and once with each thing that can be asked for, in turns, so that all ways meet
the same machine; a figure is the median over rounds of the ratio to the round's plain run.
"""

from __future__ import annotations

import argparse
import statistics
import time

from ttc.engine.local import LocalEngine
from ttc.engine.local.hub.models import find
from ttc.ports import Request
from ttc.types import Problem, Sampling

NEW_TOKENS = 24
ROUNDS = 5
WAYS = {
    "plain": Sampling(),
    "entropy": Sampling(entropy=True),
    "logprobs=20": Sampling(logprobs=20),
    "both": Sampling(entropy=True, logprobs=20),
}


def seconds(engine: LocalEngine, sampling: Sampling, num_samples: int) -> float:
    """How long the samples of one prompt take, all in one batch."""
    prompt = engine.root(Problem.ask("Tell me of the sea, at length."), "policy")
    start = time.perf_counter()
    calls = [
        engine.submit(Request(branch=prompt, max_tokens=NEW_TOKENS, sampling=sampling, seed=seed))
        for seed in range(num_samples)
    ]
    for call in calls:
        call.future.result()
    return time.perf_counter() - start


def main() -> None:
    """Prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 16])
    arguments = parser.parse_args()
    path = find("smollm2-135m")
    with LocalEngine.load(path, name="smollm2-135m") as engine:
        for num_samples in arguments.samples:
            seconds(engine, WAYS["plain"], num_samples)
            ratios: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(ROUNDS):
                took = {way: seconds(engine, s, num_samples) for way, s in WAYS.items()}
                for way in WAYS:
                    ratios[way].append(took[way] / took["plain"])
            line = ", ".join(f"{way} {statistics.median(r):.3f}" for way, r in ratios.items())
            print(f"{num_samples} samples: {line}")


if __name__ == "__main__":
    main()
