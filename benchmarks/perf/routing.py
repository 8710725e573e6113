"""What prefix-affine routing saves on two servers: prompt tokens that are computed, and time.

Run as `python benchmarks/perf/routing.py [--json PATH] [--problems N] [--samples N] [--rounds N]`.

Two `ttc serve` processes have one small model; their own metrics tell how many prompt tokens they
have computed. Samples of several problems are asked for, by the engine as it is, which sends all
calls of a problem to one server, and by one that takes the servers in turn. Both ask the same
questions but for one word at their beginning, so that neither finds the other's in a cache; which
of them begins changes from round to round. Seconds are the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ttc.benchmarks.results import write_result
from ttc.engine.openai import OpenAIEngine, Report, Service
from ttc.engine.openai.routes import Route
from ttc.ports import Request
from ttc.types import Problem, Sampling

__all__ = ["main"]

MODEL = "smollm2-135m"
MAX_TOKENS = 8
IN_FLIGHT = 8
SERVE = "from ttc.cli import main; raise SystemExit(main())"
COMPUTED = re.compile(r"^ttc_engine_prompt_tokens_total\{.*\} (\d+)$", re.MULTILINE)
MOST_TOKENS = 0.6
"""Of those in turn; two servers could at best come to a half."""


class Cost(NamedTuple):
    """What a run over all problems takes."""

    tokens: int
    """Prompt tokens that both servers have computed."""
    seconds: float


class InTurn(OpenAIEngine):
    """The engine with each call at the next server, whatever its prompt."""

    def __init__(self, service: Service, report: Report) -> None:
        super().__init__(service, report)
        self._turn = count()

    def routes(self) -> Any:
        """Routes that go by the call and not by its prompt."""
        routes = super().routes()
        routes.order = self._next  # type: ignore[method-assign]
        return routes

    def _next(self, beginning: str) -> tuple[Route, ...]:
        order = super().routes().all
        first = next(self._turn) % len(order)
        return (*order[first:], *order[:first])


@contextmanager
def served(threads: int) -> Iterator[str]:
    """The base URL of a server in a process of its own."""
    command = [sys.executable, "-c", SERVE, "serve", "--model", f"m={MODEL}", "--port", "0"]
    where = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=where
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+/v1", process.stdout.readline())
        try:
            if found is None:
                raise RuntimeError("the server did not begin to serve")
            yield found[0]
        finally:
            process.terminate()


def computed(urls: Sequence[str]) -> int:
    """Prompt tokens that the servers have computed until now."""
    total = 0
    for url in urls:
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/metrics", timeout=60) as answer:
            total += sum(map(int, COMPUTED.findall(answer.read().decode())))
    return total


def question(name: str, place: int) -> Problem:
    """One of two hundred tokens or so, which shares with no other more than a template."""
    shelves = ", ".join(f"shelf {n} holds {(n * 37 + place * 11) % 90 + 2} jars" for n in range(16))
    return Problem.ask(f"{name}-{place}: in a cellar {shelves}. How many jars are there in all?")


def run(engine: OpenAIEngine, problems: Sequence[Problem], samples: int) -> Cost:
    """So many samples of each problem, those of one after the other, some of them at once."""
    asked = [
        Request(
            branch=engine.root(problem, "policy"),
            max_tokens=MAX_TOKENS,
            sampling=Sampling(),
            seed=seed << 20,
        )
        for problem in problems
        for seed in range(samples)
    ]

    async def all_calls() -> None:
        waiting = iter(asked)

        async def work() -> None:
            for request in waiting:
                await asyncio.wrap_future(engine.submit(request).future)

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))

    before, began = computed(engine.service.urls), time.perf_counter()
    asyncio.run(all_calls())
    seconds = time.perf_counter() - began
    return Cost(computed(engine.service.urls) - before, seconds)


def compare(*, problems: int, samples: int, rounds: int) -> tuple[list[Cost], list[Cost]]:
    """The engine as it is, and one that takes the servers in turn, in each round."""
    kinds: tuple[type[OpenAIEngine], ...] = (OpenAIEngine, InTurn)
    costs: dict[type[OpenAIEngine], list[Cost]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        threads = max(1, (os.cpu_count() or 2) // 2)
        urls = tuple(stack.enter_context(served(threads)) for _ in range(2))
        service = Service(model="m", urls=urls, key="")
        for kind in kinds:  # each server computes once, so that nothing is loaded later on
            run(kind(service, Report(kind="ttc")), [question("first", n) for n in range(4)], 2)
        for place in range(rounds):
            for kind in kinds if place % 2 else kinds[::-1]:
                engine = kind(service, Report(kind="ttc"))
                name = f"{kind.__name__.lower()}{place}"
                asked = [question(name, number) for number in range(problems)]
                costs[kind].append(run(engine, asked, samples))
                engine.close()
    return costs[OpenAIEngine], costs[InTurn]


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--problems", type=int, default=12)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    affine, in_turn = compare(problems=asked.problems, samples=asked.samples, rounds=asked.rounds)
    pairs = list(zip(affine, in_turn, strict=True))
    share = median([one.tokens / other.tokens for one, other in pairs])
    told: list[tuple[str, float, str, float | None]] = [
        ("prefix-affine: prompt tokens computed", median([c.tokens for c in affine]), "", None),
        ("in turn: prompt tokens computed", median([c.tokens for c in in_turn]), "", None),
        ("prefix-affine: of those in turn", round(share, 3), "", MOST_TOKENS),
        ("prefix-affine: time", round(median([c.seconds for c in affine]), 2), "s", None),
        ("in turn: time", round(median([c.seconds for c in in_turn]), 2), "s", None),
        (
            "prefix-affine: time, of that in turn",
            round(median([one.seconds / other.seconds for one, other in pairs]), 3),
            "",
            1.0,
        ),
    ]
    for name, value, unit, _ in told:
        print(f"{name:<44}{value:>12} {unit}")
    if asked.json is not None:
        rows = [dict(zip(("name", "value", "unit", "target"), row, strict=True)) for row in told]
        write_result(asked.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
