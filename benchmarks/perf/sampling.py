"""What of an engine's step goes into drawing tokens, by how they are drawn.

Run as `python benchmarks/perf/sampling.py [--model NAME] [--rows N] [--rounds N]`. Every round
samples one prompt in each way in turns, so that all ways meet the same machine. A share is the
processor time of drawing (masks, penalties, filters, noise, what is measured) over that of all
steps; a figure is the median over rounds. The design allows 5 % at 64 rows, 152k tokens and
temperature 1.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from ttc.constraints import Choice, Pattern, Schema
from ttc.engine.local import LocalEngine
from ttc.engine.local.drawing import Drawing
from ttc.engine.local.hub.models import find
from ttc.ports import Request
from ttc.types import Problem, Sampling

NEW_TOKENS = 16
PERSON = Schema(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "ages": {"type": "array"}},
        "required": ["name", "ages"],
    }
)
WAYS = {
    "plain": Sampling(),
    "greedy": Sampling(temperature=0),
    "temperature 0.7": Sampling(temperature=0.7),
    "top_p 0.95": Sampling(top_p=0.95),
    "penalties": Sampling(repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=0.2),
    "entropy, 20 logprobs": Sampling(entropy=True, logprobs=20),
    "schema": Sampling(constraint=PERSON),
    "choice": Sampling(constraint=Choice(*(f"The answer is {i}." for i in range(100)))),
    "pattern": Sampling(constraint=Pattern("[A-Z][a-z ,.]{40,200}")),
}


class Clock:
    """Counts the processor time of some functions."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def wrap(self, owner: Any, name: str, label: str) -> None:
        """Counts a method of an object or a class from now on, under a label."""
        method: Callable[..., Any] = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            start = time.process_time()
            try:
                return method(*arguments)
            finally:
                spent = time.process_time() - start
                self.seconds[label] = self.seconds.get(label, 0.0) + spent

        setattr(owner, name, counted)


def share(engine: LocalEngine, clock: Clock, sampling: Sampling, rows: int) -> float:
    """The part of the steps that goes into drawing. Masks are made by `Drawing.draw`."""
    prompt = engine.root(Problem.ask("Tell me of the sea, at length."), "policy")
    engine.submit(Request(branch=prompt, max_tokens=1, sampling=sampling, seed=0)).future.result()
    clock.seconds.clear()
    calls = [
        engine.submit(Request(branch=prompt, max_tokens=NEW_TOKENS, sampling=sampling, seed=seed))
        for seed in range(rows)
    ]
    for call in calls:
        call.future.result()
    spent = clock.seconds
    return (spent["draw"] + spent["mask"]) / spent["step"]


def main() -> None:
    """Prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct-q4_k_m")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    clock = Clock()
    clock.wrap(Drawing, "draw", "mask")
    with LocalEngine.load(find(arguments.model), name=arguments.model) as engine:
        clock.wrap(engine._batch, "step", "step")
        clock.wrap(engine._batch.model, "draw", "draw")
        shares: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(arguments.rounds):
            for name, sampling in WAYS.items():
                shares[name].append(share(engine, clock, sampling, arguments.rows))
    for name, values in shares.items():
        print(f"{name:22} {100 * statistics.median(values):5.2f} % of a step")


if __name__ == "__main__":
    main()
