"""What it costs to measure the distributions that tokens are drawn from, and to read the measures.

Run as `python benchmarks/perf/sidecars.py [--samples N] [--rounds N]`. Every round samples the same
prompt once without measuring and once with each thing that can be asked for, in turns, so that all
ways meet the same machine; a figure is the median over rounds of the ratio of processor time to the
round's plain run. Then verifiers score 64 candidates of 2,048 tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import time
from array import array
from random import Random
from typing import cast

from ttc.engine.local import LocalEngine
from ttc.engine.local.hub.models import find
from ttc.ports import Request, Scope
from ttc.types import Branch, Candidate, Problem, Sampling
from ttc.verifiers import GroupConfidence, SelfCertainty, SequenceProbability, TailEntropy

NEW_TOKENS = 24
WAYS = {
    "plain": Sampling(),
    "entropy": Sampling(entropy=True),
    "logprobs=20": Sampling(logprobs=20),
    "both": Sampling(entropy=True, logprobs=20),
}


def cpu_seconds(engine: LocalEngine, sampling: Sampling, num_samples: int) -> float:
    """The processor time of the samples of one prompt, all in one batch."""
    prompt = engine.root(Problem.ask("Tell me of the sea, at length."), "policy")
    start = time.process_time()
    calls = [
        engine.submit(Request(branch=prompt, max_tokens=NEW_TOKENS, sampling=sampling, seed=seed))
        for seed in range(num_samples)
    ]
    for call in calls:
        call.future.result()
    return time.process_time() - start


def candidate(seed: int, length: int = 2048) -> Candidate:
    """A candidate with measures out of a generator."""
    rng = Random(seed)
    values = tuple(rng.random() for _ in range(length))
    branch = Branch(
        parent=Branch(text="", token_ids=()),
        text="x",
        token_ids=tuple(range(length)),
        logprobs=tuple(math.log(value) for value in values),
        entropies=values,
        self_certainties=values,
        top_logprobs=tuple(array("f", [-value - j for j in range(20)]) for value in values),
        call="0.sample#0",
    )
    return Candidate(branch=branch, text="x", answer="1", key="1", status="finished")


def measure_reading() -> None:
    """Prints the milliseconds of scoring 64 candidates of 2,048 tokens."""
    candidates, problem = [candidate(seed) for seed in range(64)], Problem.ask("?")
    for verifier in (SequenceProbability(), SelfCertainty(), TailEntropy(), GroupConfidence()):
        times = []
        for _ in range(3):
            start = time.process_time()
            asyncio.run(verifier(problem, candidates, cast("Scope", None)))
            times.append(time.process_time() - start)
        print(f"{verifier.name}: {1000 * min(times):.0f} ms of processor time")


def main() -> None:
    """Prints the ratios, and what reading costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    measure_reading()
    with LocalEngine.load(find("smollm2-135m"), name="smollm2-135m") as engine:
        for num_samples in arguments.samples:
            cpu_seconds(engine, WAYS["plain"], num_samples)
            ratios: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(arguments.rounds):
                took = {way: cpu_seconds(engine, s, num_samples) for way, s in WAYS.items()}
                for way in WAYS:
                    ratios[way].append(took[way] / took["plain"])
            line = ", ".join(f"{way} {statistics.median(r):.3f}" for way, r in ratios.items())
            print(f"{num_samples} samples: {line}", flush=True)


if __name__ == "__main__":
    main()
