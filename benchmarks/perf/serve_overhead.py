"""What orchestration costs a processor for each call, beside its_hub and optillm, on a fake server.

Run as `python benchmarks/perf/serve_overhead.py [--its-hub PYTHON] [--optillm PYTHON]
[--json PATH]`, with the Pythons of environments that have those and all that they need.

Each takes the same technique, the vote of 8 samples on 64 problems, 32 at once, of one server in a
process of its own that answers every call after 20 ms. Each runs in a process of its own.

A call's overhead is the processor time of that process for a call, less what the same calls take of
it when they are made with nothing but the HTTP client that the contender itself is built on, used
as cheaply as it can be: connections that are kept, bodies that are read and not decoded. So nobody
is charged for the HTTP client that it chose; the whole time is told as well. The figures are
medians of rounds. The peers are measured as libraries: what a proxy takes before them is left out.
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

import ttc
from ttc.benchmarks.perf.serve_peers import ITS_HUB, OPTILLM, SERVER
from ttc.benchmarks.results import version_of, write_result
from ttc.engine.openai import Service, connect
from ttc.strategies import Exhausted, Sample, Vote

SAMPLES, PROBLEMS, AT_ONCE = 8, 64, 32
SHARE = 0.2
"""What part of a peer's overhead ttc may take."""


class Cost(NamedTuple):
    """Milliseconds of a processor for a call."""

    whole: float
    bare: float
    version: str | None

    @property
    def overhead(self) -> float:
        """What is not the HTTP client's."""
        return self.whole - self.bare


def ours(url: str, rounds: int) -> None:
    """Prints what the rounds took, as the programs of the peers do."""
    service = Service(model="m", urls=(url,), concurrency=AT_ONCE * SAMPLES, key="")
    engine = connect(service)
    vote = Sample(n=SAMPLES, max_tokens=32) >> Vote(stop=Exhausted())

    async def technique(count: int) -> None:
        asked = [f"What is {n} * 23?" for n in range(count)]
        outcomes = await ttc.asolve_many(asked, vote, model=engine, seed=0, concurrency=AT_ONCE)
        assert [outcome.usage.calls for outcome in outcomes] == [SAMPLES] * count

    async def measure() -> dict[str, Any]:
        took: dict[str, Any] = {"technique": [], "bare": [], "version": version_of("ttc")}
        client = Bare(url)
        await technique(AT_ONCE)
        await client.ask_all(AT_ONCE)
        for _ in range(rounds):
            for kind, work in (("technique", technique), ("bare", client.ask_all)):
                began = time.process_time()
                await work(PROBLEMS)
                took[kind].append(time.process_time() - began)
        return took

    print(json.dumps(asyncio.run(measure())))


class Bare:
    """The HTTP client that the engine is built on, a connection for each call that runs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[Any] = []

    async def ask_all(self, count: int) -> None:
        """All samples of so many problems."""
        turn = asyncio.Semaphore(AT_ONCE * SAMPLES)

        async def ask(n: int) -> None:
            async with turn:
                await self._ask(f"What is {n} * 23?")

        await asyncio.gather(*(ask(n) for n in range(count) for _ in range(SAMPLES)))

    async def _ask(self, question: str) -> None:
        import httpx2

        transport = self._idle.pop() if self._idle else httpx2.AsyncHTTPTransport()
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": question}],
            "max_tokens": 32,
            "temperature": 1.0,
            "seed": 1 << 30,
            "stream": True,
        }
        request = httpx2.Request("POST", self._url + "/chat/completions", json=body)
        answer = await transport.handle_async_request(request)
        assert isinstance(answer.stream, httpx2.AsyncByteStream)
        async for _ in answer.stream:
            pass
        await answer.aclose()
        self._idle.append(transport)


def cost_of(command: list[str]) -> Cost:
    """What a contender's process tells."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise SystemExit(f"{command[0]} has failed:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout.strip().splitlines()[-1])
    calls = SAMPLES * PROBLEMS

    def of_a_call(kind: str) -> float:
        return 1e3 * statistics.median(told[kind]) / calls

    return Cost(of_a_call("technique"), of_a_call("bare"), told["version"])


def rows_of(mine: Cost, others: dict[str, Cost]) -> list[dict[str, Any]]:
    """The figures."""
    rows: list[dict[str, Any]] = []
    for name, cost in {"ttc": mine, **others}.items():
        told = f"{name} {cost.version}" if cost.version and name != "ttc" else name
        rows.append(_row(f"{told}: overhead of a call", cost.overhead, "ms", None))
        rows.append(_row(f"{told}: processor time of a call, with HTTP", cost.whole, "ms", None))
    for name, cost in others.items():
        part = mine.overhead / cost.overhead
        rows.append(_row(f"ttc's part of {name}'s overhead", part, "", SHARE))
    return rows


def _row(name: str, value: float, unit: str, target: float | None) -> dict[str, Any]:
    return {"name": name, "value": round(value, 3), "unit": unit, "target": target}


def main() -> int:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--its-hub", help="the Python of an environment with its_hub[lm]")
    parser.add_argument("--optillm", help="the Python of an environment with optillm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--ours", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ours:
        ours(arguments.ours, arguments.rounds)
        return 0
    peers = {"its_hub": (arguments.its_hub, ITS_HUB), "optillm": (arguments.optillm, OPTILLM)}
    sizes = list(map(str, (SAMPLES, PROBLEMS, AT_ONCE, arguments.rounds)))
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
            rounds = str(arguments.rounds)
            mine = cost_of([sys.executable, __file__, "--ours", url, "--rounds", rounds])
            others = {
                name: cost_of([python, "-c", program, url, *sizes])
                for name, (python, program) in peers.items()
                if python
            }
        finally:
            server.kill()
    rows = rows_of(mine, others)
    for row in rows:
        print(f"{row['name']}: {row['value']} {row['unit']} (target {row['target']})")
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)
    return 0 if all(row["target"] is None or row["value"] <= row["target"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
