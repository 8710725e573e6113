"""What orchestration costs a processor for each call, beside its_hub and optillm, on a fake server.

Run as `python benchmarks/perf/serve_overhead.py [--its-hub PYTHON] [--optillm PYTHON]
[--json PATH]`, with the Pythons of environments that have those and all that they need.

Each takes the same technique, the vote of 8 samples on 64 problems, 32 at once, of one server in a
process of its own that answers every call after 20 ms. Each runs in a process of its own.

A call's overhead is the processor time of that process for a call, less what the same calls take of
it when they are made with nothing but the HTTP client that the contender itself is built on, used
as cheaply as it can be: connections that are kept, bodies that are read and not decoded. So nobody
is charged for the HTTP client that it chose; the whole time is told as well. The figures are those
of the best rounds: what else a machine does only adds to them. The peers are measured as libraries:
what a proxy takes before them is left out. A peer that takes no more than its HTTP client has no
overhead that a part could be told of; then the part is none, and no target is reached.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import h11

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
    """As cheap as HTTP is in Python: h11 on streams of asyncio, for each call that runs its own."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").removesuffix("/v1").partition(":")
        self._host, self._port = host, int(port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, h11.Connection]] = []

    async def ask_all(self, count: int) -> None:
        """All samples of so many problems."""
        turn = asyncio.Semaphore(AT_ONCE * SAMPLES)

        async def ask(n: int) -> None:
            async with turn:
                await self._ask(f"What is {n} * 23?")

        await asyncio.gather(*(ask(n) for n in range(count) for _ in range(SAMPLES)))

    async def _ask(self, question: str) -> None:
        messages = [{"role": "user", "content": question}]
        sampling = {"max_tokens": 32, "temperature": 1.0, "seed": 1 << 30, "stream": True}
        body = json.dumps({"model": "m", "messages": messages, **sampling}).encode()
        connection = self._idle.pop() if self._idle else await self._connected()
        reader, writer, protocol = connection
        headers = [
            ("host", self._host),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
        ]
        request = h11.Request(method="POST", target="/v1/chat/completions", headers=headers)
        events = (request, h11.Data(body), h11.EndOfMessage())
        writer.write(b"".join(protocol.send(event) or b"" for event in events))
        while not isinstance(event := protocol.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(1 << 16))
        protocol.start_next_cycle()
        self._idle.append(connection)

    async def _connected(self) -> Any:
        streams = await asyncio.open_connection(self._host, self._port)
        return *streams, h11.Connection(h11.CLIENT)


def cost_of(command: list[str]) -> Cost:
    """What a contender's process tells."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise SystemExit(f"{command[0]} has failed:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout.strip().splitlines()[-1])
    calls = SAMPLES * PROBLEMS

    def of_a_call(kind: str) -> float:
        return 1e3 * float(min(told[kind])) / calls

    return Cost(of_a_call("technique"), of_a_call("bare"), told["version"])


def rows_of(mine: Cost, others: dict[str, Cost]) -> list[dict[str, Any]]:
    """The figures."""
    rows: list[dict[str, Any]] = []
    for name, cost in {"ttc": mine, **others}.items():
        told = f"{name} {cost.version}" if cost.version and name != "ttc" else name
        rows.append(_row(f"{told}: overhead of a call", cost.overhead, "ms", None))
        rows.append(_row(f"{told}: processor time of a call, with HTTP", cost.whole, "ms", None))
    for name, cost in others.items():
        part = mine.overhead / cost.overhead if cost.overhead > 0 else None
        rows.append(_row(f"ttc's part of {name}'s overhead", part, "", SHARE))
        part = mine.whole / cost.whole
        rows.append(_row(f"ttc's part of {name}'s time, with HTTP", part, "", None))
    return rows


def _row(name: str, value: float | None, unit: str, target: float | None) -> dict[str, Any]:
    told = None if value is None else round(value, 3)
    return {"name": name, "value": told, "unit": unit, "target": target}


def _holds(row: dict[str, Any]) -> bool:
    target, value = row["target"], row["value"]
    return target is None or (value is not None and value <= target)


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
    return 0 if all(map(_holds, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
