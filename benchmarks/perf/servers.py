"""What the engine of servers costs beside its HTTP client, and what prefix-affine routing saves.

Run as `python benchmarks/perf/servers.py [--json PATH] [--calls N]`.

The server is the scripted one, in a process of its own. The bare client is the HTTP client that the
engine is built on, with the same requests; it reads every byte and decodes nothing. Processor time
is that of this process alone. Routing is measured on two servers that count the words of prompts
that their caches do not hold: samples of one problem at a time, first with all calls of a problem
at one server, and then in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from ttc.benchmarks.results import write_result
from ttc.engine.openai import OpenAIEngine, Report, Service
from ttc.engine.openai.bodies import body_of
from ttc.engine.openai.engine import http_client
from ttc.ports import Request
from ttc.testing.openai_server import OpenAIServer
from ttc.types import Branch, Problem, Sampling

__all__ = ["main"]

SERVE = """
import sys
from ttc.testing.openai_server import OpenAIServer
with OpenAIServer("The answer is 391.", latency=float(sys.argv[1])) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""
REPORT = Report(kind="vllm", tells_usage=True, seed=True)
MOST_MICROSECONDS = 150.0
LEAST_THROUGHPUT = 0.95
ROUNDS = 3
Ask = Callable[[int], Coroutine[Any, Any, None]]


class Cost(NamedTuple):
    """What many calls took."""

    seconds: float
    processor: float


@contextmanager
def served(latency: float) -> Iterator[str]:
    """The URL of a server in another process."""
    command = [sys.executable, "-c", SERVE, str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().decode().strip()
        process.stdin.close()


async def drive(ask: Ask, *, calls: int, concurrency: int) -> Cost:
    """So many calls, so many of them at once."""
    places, began, processor = iter(range(calls)), time.perf_counter(), time.process_time()

    async def work() -> None:
        for place in places:
            await ask(place)

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return Cost(time.perf_counter() - began, time.process_time() - processor)


def request(engine: OpenAIEngine, seed: int) -> Request:
    """A call of 16 tokens at most."""
    root = engine.root(Problem.ask("What is 17 * 23?"), "policy")
    return Request(branch=root, max_tokens=16, sampling=Sampling(), seed=seed << 20)


async def bare(service: Service, *, calls: int, concurrency: int) -> Cost:
    """The HTTP client alone."""
    client, engine = http_client(service, service.urls[0]), OpenAIEngine(service, REPORT)
    client.timeout = None  # a thousand connections at once may take a while

    async def ask(place: int) -> None:
        path, body = body_of(request(engine, place), "fake", REPORT)
        content = json.dumps(body).encode()
        async with client.stream("POST", service.urls[0] + path, content=content) as answer:
            async for _ in answer.aiter_raw():
                pass

    await drive(ask, calls=concurrency, concurrency=concurrency)  # connections are made
    cost = await drive(ask, calls=calls, concurrency=concurrency)
    await client.aclose()
    return cost


async def adapter(service: Service, *, calls: int, concurrency: int) -> Cost:
    """The engine."""
    engine = OpenAIEngine(service, REPORT)
    engine.timeouts = {}

    async def ask(place: int) -> None:
        await asyncio.wrap_future(engine.submit(request(engine, place)).future)

    await drive(ask, calls=concurrency, concurrency=concurrency)
    cost = await drive(ask, calls=calls, concurrency=concurrency)
    await asyncio.to_thread(engine.close)
    return cost


def compare(latency: float, *, calls: int, concurrency: int) -> tuple[Cost, Cost]:
    """The bare client and the engine, the best of some rounds each, in turn."""
    with served(latency) as url:
        service = Service(model="fake", urls=(url,), concurrency=concurrency, key="")
        rounds = []
        for _ in range(ROUNDS):
            given: dict[str, Any] = {"calls": calls, "concurrency": concurrency}
            rounds.append(
                (asyncio.run(bare(service, **given)), asyncio.run(adapter(service, **given)))
            )
    first, second = zip(*rounds, strict=True)
    return min(first), min(second)


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

    def _next(self, beginning: str) -> Any:
        order = super().routes().all
        first = next(self._turn) % len(order)
        return (*order[first:], *order[:first])


def routed(kind: type[OpenAIEngine], *, problems: int, samples: int) -> tuple[int, float]:
    """The words that two servers prefill, and the seconds that it takes."""
    with ExitStack() as stack:
        servers = [stack.enter_context(OpenAIServer("so", latency=0.002)) for _ in range(2)]
        urls = tuple(server.url for server in servers)
        engine = kind(Service(model="fake", urls=urls, key=""), REPORT)

        async def ask(place: int) -> None:
            text = f"Problem {place // samples}: " + "read this sentence with care " * 60
            root = engine.root(Problem.ask(text), "policy")
            asked = replace(request(engine, place), branch=root)
            result: Branch = await asyncio.wrap_future(engine.submit(asked).future)
            assert result.text == "so"

        cost = asyncio.run(drive(ask, calls=problems * samples, concurrency=samples))
        engine.close()
        return sum(server.prefilled for server in servers), cost.seconds


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--calls", type=int, default=4000)
    asked = parser.parse_args()
    rows: list[dict[str, str | int | float | bool | None]] = []

    def row(name: str, value: float, unit: str, target: float | None = None) -> None:
        rows.append({"name": name, "value": value, "unit": unit, "target": target})
        print(f"{name:<52}{value:>12} {unit}", flush=True)

    client, engine = compare(0.0, calls=asked.calls, concurrency=64)
    over = 1e6 * (engine.processor - client.processor) / asked.calls
    row("64 at once: processor time of the bare client", each(client, asked.calls), "us")
    row("64 at once: processor time beside it", round(over), "us", MOST_MICROSECONDS)
    client, engine = compare(0.02, calls=2 * asked.calls, concurrency=1000)
    share = round(client.seconds / engine.seconds, 3)
    row("1,000 at once: calls of the bare client", round(2 * asked.calls / client.seconds), "1/s")
    row("1,000 at once: throughput of it", share, "of the bare client", LEAST_THROUGHPUT)
    row("1,000 at once: processor time of the bare client", each(client, 2 * asked.calls), "us")
    over = 1e6 * (engine.processor - client.processor) / (2 * asked.calls)
    row("1,000 at once: processor time beside it", round(over), "us")
    affine, seconds = routed(OpenAIEngine, problems=24, samples=8)
    in_turn, more = routed(InTurn, problems=24, samples=8)
    row("two servers, prefix-affine: words prefilled", affine, "")
    row("two servers, in turn: words prefilled", in_turn, "")
    row("prefix-affine: words prefilled", round(affine / in_turn, 3), "of those in turn")
    row("prefix-affine: time", round(seconds / more, 3), "of that in turn")
    if asked.json is not None:
        write_result(asked.json, command=["python", *sys.argv], rows=rows, seed=0)


def each(cost: Cost, calls: int) -> int:
    """Microseconds of processor time of a call."""
    return round(1e6 * cost.processor / calls)


if __name__ == "__main__":
    main()
