"""What the engine of servers costs beside a bare HTTP client.

Run as `python benchmarks/perf/servers.py [--json PATH] [--calls N] [--rounds N]`.

The server is the scripted one, in a process of its own, and processor time is that of this process
alone. Two clients without an engine send the same requests, made beforehand, read every byte and
decode nothing: `httpx`, a pooled client as the API's own one has it, and `connections`, the
engine's own. In each round all three take turns, each round in another order; what is told is the
median of the rounds' differences and ratios, so that a machine that is busy for a while moves none.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ttc.benchmarks.results import write_result
from ttc.engine.openai import OpenAIEngine, Report, Service
from ttc.engine.openai.bodies import body_of
from ttc.engine.openai.connection import Connection
from ttc.engine.openai.engine import http_client
from ttc.engine.openai.routes import Route
from ttc.engine_call import deliver
from ttc.ports import Request
from ttc.types import Branch, Problem, Sampling

__all__ = ["main"]

SERVE = """
import sys
from ttc.testing.openai_server import OpenAIServer
with OpenAIServer("The answer is 391.", latency=float(sys.argv[1])) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""
PATH = "/chat/completions"
REPORT = Report(kind="vllm", tells_usage=True, seed=True)
MOST_MICROSECONDS = 150.0
LEAST_THROUGHPUT = 0.95
LATENCY = 0.02
Ask = Callable[[int], Coroutine[Any, Any, None]]
Rows = list[dict[str, str | int | float | bool | None]]


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
    """What so many calls take, so many of them at once, after the connections were made."""
    await asyncio.gather(*map(ask, range(concurrency)))
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


def content(engine: OpenAIEngine, seed: int) -> bytes:
    """The same call as the engine writes it."""
    return body_of(request(engine, seed), "fake", REPORT)[1]


async def httpx(service: Service, *, calls: int, concurrency: int) -> Cost:
    """The HTTP client that most clients of the API are built on."""
    client, engine = http_client(service, service.urls[0]), OpenAIEngine(service, REPORT)
    client.timeout = None  # a thousand connections at once may take a while
    url, bodies = service.urls[0] + PATH, [content(engine, seed) for seed in range(calls)]

    async def ask(place: int) -> None:
        async with client.stream("POST", url, content=bodies[place]) as answer:
            async for _ in answer.aiter_raw():
                pass

    cost = await drive(ask, calls=calls, concurrency=concurrency)
    await client.aclose()
    return cost


async def connections(service: Service, *, calls: int, concurrency: int) -> Cost:
    """The connections that the engine is built on."""
    engine, url = OpenAIEngine(service, REPORT), service.urls[0]
    route = Route(url, partial(Connection, url, None))
    bodies = [content(engine, seed) for seed in range(calls)]

    async def ask(place: int) -> None:
        with route.connection() as own:
            await own.open(service.silence)
            await own.ask(PATH, engine.headers, bodies[place], service.silence)
            while await own.piece(service.silence):
                pass

    cost = await drive(ask, calls=calls, concurrency=concurrency)
    route.close()
    return cost


async def adapter(service: Service, *, calls: int, concurrency: int) -> Cost:
    """The engine."""
    engine = OpenAIEngine(service, REPORT)
    requests = [request(engine, seed) for seed in range(calls)]

    loop = asyncio.get_running_loop()

    async def ask(place: int) -> None:
        arrival: asyncio.Future[Branch] = loop.create_future()
        engine.submit(requests[place]).future.add_done_callback(deliver(loop, arrival))
        await arrival

    cost = await drive(ask, calls=calls, concurrency=concurrency)
    await asyncio.to_thread(engine.close)
    return cost


KINDS = (httpx, connections, adapter)


def compare(latency: float, *, calls: int, concurrency: int, rounds: int) -> dict[str, list[Cost]]:
    """What each of them takes, in each round."""
    costs: dict[str, list[Cost]] = {kind.__name__: [] for kind in KINDS}
    with served(latency) as url:
        service = Service(model="fake", urls=(url,), concurrency=concurrency, key="")
        for place in range(rounds):
            for turn in range(len(KINDS)):
                kind = KINDS[(place + turn) % len(KINDS)]
                cost = asyncio.run(kind(service, calls=calls, concurrency=concurrency))
                costs[kind.__name__].append(cost)
    return costs


def beside(costs: dict[str, list[Cost]], bare: str, calls: int) -> tuple[int, int]:
    """Microseconds of a call: the bare client's, and the engine's beside them."""
    pairs = list(zip(costs[bare], costs["adapter"], strict=True))
    own = [client.processor for client, _ in pairs]
    more = [engine.processor - client.processor for client, engine in pairs]
    return round(1e6 * median(own) / calls), round(1e6 * median(more) / calls)


def measured(costs: dict[str, list[Cost]], calls: int, where: str, *, is_bound: bool) -> Rows:
    """The rows of one comparison."""
    rows: Rows = []
    for bare in ("httpx", "connections"):
        own, more = beside(costs, bare, calls)
        is_client = bare == "httpx"  # what it is held to; connections alone are told beside it
        target = MOST_MICROSECONDS if is_bound and is_client else None
        rows += [
            {"name": f"{where}: {bare}, a call", "value": own, "unit": "us", "target": None},
            {"name": f"{where}: beside {bare}", "value": more, "unit": "us", "target": target},
        ]
        ratios = [
            client.seconds / engine.seconds
            for client, engine in zip(costs[bare], costs["adapter"], strict=True)
        ]
        least = LEAST_THROUGHPUT if is_client and not is_bound else None
        name, value = f"{where}: throughput, of {bare}", round(median(ratios), 3)
        rows.append({"name": name, "value": value, "unit": "", "target": least})
    rate = calls / median([cost.seconds for cost in costs["adapter"]])
    rows.append({"name": f"{where}: calls", "value": round(rate), "unit": "1/s", "target": None})
    return rows


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    rows: Rows = []
    for latency, concurrency in ((0.0, 64), (LATENCY, 1000)):
        calls = max(asked.calls, 2 * concurrency)
        costs = compare(latency, calls=calls, concurrency=concurrency, rounds=asked.rounds)
        where = f"{concurrency:,} at once, {1000 * latency:.0f} ms"
        rows += measured(costs, calls, where, is_bound=not latency)
    for row in rows:
        print(f"{row['name']:<52}{row['value']:>12} {row['unit']}")
    if asked.json is not None:
        write_result(asked.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
