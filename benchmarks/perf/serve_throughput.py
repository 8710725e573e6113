"""Throughput of a model over HTTP, beside the same requests in Python, with a delta for each step.

Run as `python benchmarks/perf/serve_throughput.py [--clients N] [--tokens N] [--pairs N]
[--json PATH]`, on the loopback alone. One process holds SmolLM2-135M and serves the same plain
samples in three ways, in turn: over HTTP, streamed; in Python, with each delta read as it comes;
and in Python, with the texts read at their end. Each figure is the median of the ratios of
neighbouring runs.

The clients are a process of their own, as users have them. The engine takes every core, so what
the clients' processor time takes from it is told apart: it is no cost of the server's. How many
deltas came for each token is told, too, since a server that lags behind joins them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import orjson

import ttc
from ttc.benchmarks.results import write_result
from ttc.engine.local import LocalEngine, load
from ttc.graph import Node
from ttc.messages import Message
from ttc.serve import App, Service, Settings, background
from ttc.serve.plain import Plain
from ttc.strategies import Sample, Vote
from ttc.types import Chunk, Problem, Sampling

MODEL = "smollm2-135m"
TARGET = 0.95
WAYS = ("streamed", "http", "whole")


class Took(NamedTuple):
    """What a run took."""

    seconds: float
    processor: float
    """Of the process that holds the engine."""
    clients: float = 0.0
    """Of the clients' process."""
    deltas: int = 0


class Server:
    """The process that holds the engine, from outside."""

    def __init__(self, clients: int, tokens: int) -> None:
        sizes = ["--clients", str(clients), "--tokens", str(tokens)]
        command = [sys.executable, __file__, *sizes, "--serve"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = self._told()

    def ask(self, what: str) -> Took:
        """What some work in it took; of `processor` its processor time until now."""
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return Took(*json.loads(self._told()))

    def close(self) -> None:
        """Ends it."""
        self._process.communicate(timeout=60)

    def _told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def questions(clients: int) -> list[str]:
    """What is asked, by each client."""
    return [f"What is {n} * 23? Think step by step." for n in range(clients)]


def serve(clients: int, tokens: int) -> None:
    """The server's process: tells its URL, and then what each line of input asks for."""
    engine = load(MODEL)
    problems = [Problem(messages=(Message(role="user", content=q),)) for q in questions(clients)]
    settings = Settings(concurrency=clients)
    with background(App(Service({"m": engine}, settings=settings))) as url:
        print(url, flush=True)
        for line in sys.stdin:
            began, processor = time.perf_counter(), time.process_time()
            deltas = 0
            if line.strip() != "processor":
                deltas = in_python(engine, problems, tokens, is_streamed=line.strip() == "streamed")
                took = Took(
                    time.perf_counter() - began, time.process_time() - processor, 0.0, deltas
                )
            else:
                took = Took(0.0, processor)
            print(json.dumps(took), flush=True)


def in_python(
    engine: LocalEngine, problems: list[Problem], tokens: int, *, is_streamed: bool
) -> int:
    """Solves them; the number of deltas that were read."""
    told: list[Chunk] = []
    strategy: Node = Sample(max_tokens=tokens) >> Vote()
    if is_streamed:
        strategy = Plain(
            max_tokens=tokens, sampling=Sampling(), tell=lambda _, chunk: told.append(chunk)
        )
    ttc.solve_many(problems, strategy, model=engine, seed=0, concurrency=len(problems))
    return len(told)


class Client(asyncio.Protocol):
    """One request, of whose reply no more is read than where events end."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self._asked, self._came = head + body, bytearray()
        self.ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._asked)

    def data_received(self, data: bytes) -> None:
        """Keeps it."""
        self._came += data

    def connection_lost(self, error: Exception | None) -> None:
        """The reply is over."""
        if not self.ended.done():
            self.ended.set_result(bytes(self._came))


async def over_http(url: str, clients: int, tokens: int) -> int:
    """Asks all at once; the number of deltas that came."""
    host, _, port = url.removeprefix("http://").removesuffix("/v1").partition(":")
    loop, asked = asyncio.get_running_loop(), []
    for question in questions(clients):
        messages = [{"role": "user", "content": question}]
        body = orjson.dumps(
            {"model": "m", "messages": messages, "stream": True, "max_tokens": tokens, "seed": 0}
        )
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        _, client = await loop.create_connection(
            lambda head=head, body=body: Client(head, body),  # type: ignore[misc]
            host,
            int(port),
        )
        asked.append(client.ended)
    replies = await asyncio.gather(*asked)
    assert all(b"data: [DONE]" in reply for reply in replies), replies[0][:500]
    return sum(reply.count(b'"content":') for reply in replies)


def run(server: Server, way: str, clients: int, tokens: int) -> Took:
    """One run in one of the ways."""
    if way != "http":
        return server.ask(way)
    before, began, own = server.ask("processor").processor, time.perf_counter(), time.process_time()
    deltas = asyncio.run(over_http(server.url, clients, tokens))
    took, spent = time.perf_counter() - began, time.process_time() - own
    return Took(took, server.ask("processor").processor - before, spent, deltas)


def rows_of(runs: list[dict[str, Took]], clients: int, tokens: int) -> list[dict[str, Any]]:
    """The figures."""

    def middle(figure: Any) -> float:
        return round(float(statistics.median(map(figure, runs))), 3)

    def beyond(way: str) -> float:
        return middle(lambda r: 1e6 * (r["http"].processor - r[way].processor) / deltas)

    deltas = clients * tokens
    name = f"throughput over HTTP of {clients} streams, of that in Python"
    figures = [
        (f"{name} with deltas", middle(lambda r: r["streamed"].seconds / r["http"].seconds), ""),
        (f"{name} without deltas", middle(lambda r: r["whole"].seconds / r["http"].seconds), ""),
        ("deltas for each token", middle(lambda r: r["http"].deltas / deltas), ""),
        ("processor time of a delta beyond that in Python", beyond("streamed"), "us"),
        ("processor time of a delta beyond a call without", beyond("whole"), "us"),
        (
            "the clients' processor time of a delta",
            middle(lambda r: 1e6 * r["http"].clients / deltas),
            "us",
        ),
    ]
    targets = [TARGET, *[None] * (len(figures) - 1)]
    return [
        {"name": name, "value": value, "unit": unit, "target": target}
        for (name, value, unit), target in zip(figures, targets, strict=True)
    ]


def main() -> int:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="of each reply")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.clients, arguments.tokens)
        return 0
    sizes = arguments.clients, arguments.tokens
    server = Server(*sizes)
    try:
        turns = [
            {way: run(server, way, *sizes) for way in WAYS} for _ in range(arguments.pairs + 1)
        ]
    finally:
        server.close()
    rows = rows_of(turns[1:], *sizes)  # the first one warms up
    for row in rows:
        print(f"{row['name']}: {row['value']} {row['unit']} (target {row['target']})")
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)
    return 0 if rows[0]["value"] >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
