"""What of an engine's step goes into drawing tokens, by how they are drawn.

Run as `python benchmarks/perf/sampling.py [--model NAME] [--rows N] [--rounds N] [--json PATH]`.
Every round samples one prompt in each way in turns, so that all ways meet the same machine. A share
is the processor time of drawing (masks, penalties, filters, noise, what is measured) over that of
the whole steps, of those steps in which every row decodes; a figure is the median over rounds, and
its spread the distance from the least to the greatest. The design allows 5 % at 64 rows, 152k
tokens and temperature 1 without a filter.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ttc.benchmarks.results import write_result
from ttc.constraints import Choice, Pattern, Schema
from ttc.engine.local import LocalEngine
from ttc.engine.local.drawing import Drawing
from ttc.engine.local.hub.models import find
from ttc.ports import Request
from ttc.types import Problem, Sampling

MODEL = "qwen2.5-coder-0.5b-instruct-q4_k_m"
NEW_TOKENS = 16
TARGETS = {"plain": 0.05}
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
    """Counts the processor time of an engine's steps, and of the drawing in each."""

    def __init__(self, engine: LocalEngine) -> None:
        self.steps: list[tuple[float, float]] = []
        """Of each step in which every row decoded: its drawing, and all of it."""
        self._recent = engine.meter.recent
        self._drawing = 0.0
        self.rows = 0
        counted(Drawing, "draw", self._drew)
        counted(engine._batch.model, "draw", self._drew)
        counted(engine._batch, "step", self._stepped)

    def _drew(self, seconds: float) -> None:
        self._drawing += seconds

    def _stepped(self, seconds: float) -> None:
        drawing, self._drawing = self._drawing, 0.0
        if self._recent and self._recent[-1].rows == self._recent[-1].decode_tokens == self.rows:
            self.steps.append((drawing, seconds))
        self._recent.clear()


def counted(owner: Any, name: str, note: Callable[[float], None]) -> None:
    """Has the processor time of each call of a method noted, from now on."""
    method: Callable[..., Any] = getattr(owner, name)

    def timed(*arguments: Any) -> Any:
        start = time.process_time()
        try:
            return method(*arguments)
        finally:
            note(time.process_time() - start)

    setattr(owner, name, timed)


def share(engine: LocalEngine, clock: Clock, sampling: Sampling, rows: int) -> float:
    """The part of the steps that goes into drawing. Masks are made by `Drawing.draw`."""
    prompt = engine.root(Problem.ask("Tell me of the sea, at length."), "policy")
    engine.submit(Request(branch=prompt, max_tokens=1, sampling=sampling, seed=0)).future.result()
    clock.steps.clear()
    clock.rows = rows
    calls = [
        engine.submit(Request(branch=prompt, max_tokens=NEW_TOKENS, sampling=sampling, seed=seed))
        for seed in range(rows)
    ]
    for call in calls:
        call.future.result()
    return sum(drawing for drawing, _ in clock.steps) / sum(whole for _, whole in clock.steps)


def row(model: str, rows: int, name: str, shares: list[float]) -> dict[str, Any]:
    """A row of the table, which is printed, too."""
    value, spread = statistics.median(shares), max(shares) - min(shares)
    print(f"{name:22} {100 * value:5.2f} % of a step (spread {100 * spread:.2f})", flush=True)
    return {
        "name": f"{model}, {rows} rows: drawing, {name}",
        "value": round(value, 4),
        "spread": round(spread, 4),
        "unit": "of a step's processor time",
        "target": TARGETS.get(name),
        "rounds": len(shares),
    }


def main() -> None:
    """Prints the shares, and writes them where it is asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    shares: dict[str, list[float]] = {name: [] for name in WAYS}
    with LocalEngine.load(find(arguments.model), name=arguments.model) as engine:
        clock = Clock(engine)
        for _ in range(arguments.rounds):
            for name, sampling in WAYS.items():
                shares[name].append(share(engine, clock, sampling, arguments.rows))
    rows = [row(arguments.model, arguments.rows, *found) for found in shares.items()]
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
