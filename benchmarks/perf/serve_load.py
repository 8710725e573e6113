"""The server under load: errors, leaks, budgets to the token, and times to the first event.

Run as `python benchmarks/perf/serve_load.py [fake|smollm2] [--clients N] [--seconds S]`, on the
loopback alone. The server is a process of its own.

- `fake`: 500 streaming clients for ten minutes, on an engine that says what it is told to, with
  strategies of several kinds; every tenth request is left by its client after its first event.
- `smollm2`: 32 such clients for two minutes on SmolLM2-135M.

At the end nothing may run, nothing may be reserved, and what the server says that it has spent has
to be what its requests and its engine have counted. Memory and open files after the load are
compared with those after its first fifth. Exits with 1 where something of that does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from ttc import Budget
from ttc.benchmarks.results import write_result
from ttc.engine.local import LocalEngine
from ttc.engine.local.hub.models import find
from ttc.serve import App, Service, Settings, background
from ttc.testing import FakeEngine

MODEL = "smollm2-135m"
SAID = [f"Let me see, step by step, what this is. The answer is {n}." for n in (391, 391, 401)]
SPECS = (
    "",
    "@greedy(max_tokens=24)",
    "@self_consistency(n=4, max_tokens=24)",
    "@best_of_n(verifier=mean_logprob(), n=4, max_tokens=24)",
    "@cascade(sample(n=2, max_tokens=24) >> vote(), sample(n=4, max_tokens=24) >> vote(), "
    "accept=confidence(0.9))",
    "@sample(n=2, max_tokens=24) >> self_refine(rounds=1, max_tokens=24) >> vote()",
)
LEAVES = 0.1
GROWTH = 32 << 20
"""Bytes of memory that allocators may keep without a leak."""
KV_BYTES = 128 << 20
"""What the model's engine may hold of keys and values; it takes them as it fills."""


class Tally:
    """What the clients have seen."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.first: list[float] = []
        """Seconds to the first event."""
        self.tokens = 0
        """Of requests that were read to their end."""
        self.left = 0


async def client(url: str, model: str, seed: int, end: float, tally: Tally) -> None:
    """Asks again and again; one request of ten is left after its first event."""
    draw = random.Random(seed)
    while time.monotonic() < end:
        spec = draw.choice(SPECS)
        body = {
            "model": model + spec,
            "messages": [{"role": "user", "content": f"What is {draw.randrange(100)} * 23?"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 24,
            "ttc": {"events": draw.random() < 0.5, "budget": {"tokens": 4_000}},
        }
        try:
            await request(url, body, draw.random() < LEAVES, tally)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            tally.statuses[type(error).__name__] += 1


async def request(url: str, body: dict[str, Any], leaves: bool, tally: Tally) -> None:
    """One request on a connection of its own."""
    host, _, port = url.removeprefix("http://").removesuffix("/v1").partition(":")
    content = orjson.dumps(body)
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
        status = (await reader.readline()).split()[1].decode()
        while await reader.readline() not in (b"\r\n", b""):
            pass
        if status != "200":
            tally.statuses[status] += 1
            return
        await read(reader, began, leaves, tally)
    finally:
        writer.close()


async def read(reader: asyncio.StreamReader, began: float, leaves: bool, tally: Tally) -> None:
    """Reads a stream to its end, or leaves."""
    is_first, usage, ended = True, 0, False
    while line := await reader.readline():
        if not line.startswith(b"data: "):
            continue
        if is_first:
            tally.first.append(time.monotonic() - began)
            is_first = False
            if leaves:
                tally.left += 1
                return
        if line.startswith(b"data: [DONE]"):
            ended = True
            continue
        told = orjson.loads(line[6:])
        if "error" in told:
            tally.statuses[f"frame {told['error']['code']}"] += 1
            return
        if told.get("usage"):
            usage = told["usage"]["total_tokens"]
    tally.statuses["200" if ended else "cut"] += 1
    tally.tokens += usage


def serve(kind: str) -> None:
    """The server's process: tells its URL, then at each line of input what it holds."""
    settings = Settings(concurrency=64, queue=2_000, request_budget=Budget(tokens=8_000))
    engine: Any = FakeEngine(SAID, seconds_per_token=0.002) if kind == "fake" else small()
    if kind == "fake":
        engine.requests = Forgetful()
    service = Service({"m": engine}, settings=settings)
    app = App(service)
    with background(app) as url:
        print(url, flush=True)
        for _ in sys.stdin:
            deadline = time.monotonic() + 30
            while service.jobs and time.monotonic() < deadline and _ == "end\n":
                time.sleep(0.05)
            print(json.dumps(held(service, app, engine)), flush=True)


def small() -> LocalEngine:
    """The model with little memory."""
    return LocalEngine.load(find(MODEL), kv_bytes=KV_BYTES)


class Forgetful(list[Any]):
    """A list that keeps nothing: what a fake engine was asked would grow for ever."""

    def append(self, _: Any) -> None:
        """Forgets it."""


def held(service: Service, app: App, engine: Any) -> dict[str, Any]:
    """What the process holds, and what it has counted."""
    own = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("RssAnon")
    )
    metrics = app.metrics.text().decode()
    counted = [line for line in metrics.splitlines() if line.startswith("ttc_tokens_total{")]
    return {
        "memory": own,
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "jobs": len(service.jobs),
        "running": service.line.running,
        "reserved": service.ledger.server.reserved["tokens"],
        "spent": service.ledger.server.spent["tokens"],
        "counted": float(counted[0].rpartition(" ")[2]) if counted else 0.0,
        "active": getattr(engine, "active", getattr(engine, "num_live", 0)),
        "output": getattr(engine, "output_tokens", None),
        "processor_s": time.process_time(),
    }


def load_test(kind: str, clients: int, seconds: float) -> tuple[list[dict[str, Any]], bool]:
    """Lets clients at a server; the figures, and whether all held."""
    command = [sys.executable, __file__, "serve", "--kind", kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        url = server.stdout.readline().strip()

        def ask(word: str) -> dict[str, Any]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(f"{word}\n")
            server.stdin.flush()
            return dict(json.loads(server.stdout.readline()))

        tally, middle = Tally(), {}

        async def all_clients() -> None:
            end = time.monotonic() + seconds
            asking = [client(url, "m", seed, end, tally) for seed in range(clients)]
            running = asyncio.gather(*asking)
            await asyncio.sleep(seconds / 5)
            middle.update(await asyncio.to_thread(ask, "now"))
            await running

        asyncio.run(all_clients())
        last = ask("end")
        server.send_signal(signal.SIGTERM)
    return rows_of(kind, tally, middle, last)


def rows_of(
    kind: str, tally: Tally, middle: dict[str, Any], last: dict[str, Any]
) -> tuple[list[dict[str, Any]], bool]:
    """The figures of a load, and whether all held."""
    first = sorted(tally.first) or [0.0]
    growth = GROWTH if kind == "fake" else GROWTH + KV_BYTES
    errors = sum(n for status, n in tally.statuses.items() if status != "200")
    figures: list[tuple[str, float, str, float | None]] = [
        ("requests read to their end", tally.statuses["200"], "", None),
        ("requests left early", tally.left, "", None),
        ("errors", errors, "", 0),
        ("time to first event, median", round(first[len(first) // 2], 4), "s", None),
        ("time to first event, p99", round(first[int(len(first) * 0.99)], 4), "s", None),
        ("jobs, calls and reservations left", left_over(last), "", 0),
        ("tokens spent and not counted", abs(last["spent"] - last["counted"]), "tokens", 0),
        ("memory since the first fifth", last["memory"] - middle["memory"], "bytes", growth),
        ("files since the first fifth", last["files"] - middle["files"], "", 16),
    ]
    if tally.statuses:
        print(dict(tally.statuses))
    holds = all(target is None or value <= target for _, value, _, target in figures)
    holds &= tally.tokens <= last["spent"]
    rows = [
        {"name": f"{kind}: {what}", "value": value, "unit": unit, "target": target}
        for what, value, unit, target in figures
    ]
    return rows, holds


def left_over(last: dict[str, Any]) -> int:
    """What should be nothing."""
    return int(last["jobs"] + last["running"] + last["reserved"] + last["active"])


def main() -> int:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("fake", "smollm2", "serve"))
    parser.add_argument("--clients", type=int, help="500 on the fake engine, 32 on a model")
    parser.add_argument("--seconds", type=float, help="600 on the fake engine, 120 on a model")
    parser.add_argument("--kind", default="fake", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    if arguments.what == "serve":
        serve(arguments.kind)
        return 0
    is_fake = arguments.what == "fake"
    clients = arguments.clients or (500 if is_fake else 32)
    seconds = arguments.seconds or (600.0 if is_fake else 120.0)
    rows, holds = load_test(arguments.what, clients, seconds)
    for row in rows:
        bound = "" if row["target"] is None else f" (target {row['target']})"
        print(f"{row['name']}: {row['value']} {row['unit']}{bound}")
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
