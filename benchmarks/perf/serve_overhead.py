"""What orchestration costs a processor for each call, beside its_hub, on one fake server.

Run as `python benchmarks/perf/serve_overhead.py [--peer PYTHON] [--json PATH]`, with the Python of
an environment that has its_hub and all that it needs. Each takes the vote of 8 samples on 64
problems, 32 at once, of a server in a process of its own that answers after 20 ms. The figure is
the processor time of the client's process for each call, HTTP and JSON included: the median of the
runs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ttc
from ttc.benchmarks.results import write_result
from ttc.engine.openai import Service, connect
from ttc.strategies import Exhausted, Sample, Vote

SAMPLES, PROBLEMS, AT_ONCE, RUNS = 8, 64, 32, 3
SHARE = 0.2
"""What part of its_hub's processor time ttc may take."""

SERVER = """
import asyncio, json
BODY = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [{"index": 0,
    "message": {"role": "assistant", "content": "The answer is 391."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}
WHOLE = json.dumps(BODY).encode()
CHUNK = dict(BODY, object="chat.completion.chunk", choices=[{"index": 0, "delta": {"role":
    "assistant", "content": "The answer is 391."}, "finish_reason": "stop"}])
FRAMES = b"data: " + json.dumps(CHUNK).encode() + b"\\n\\ndata: [DONE]\\n\\n"

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\\r\\n")
                if line.startswith(b"content-length")), 0)
            body = json.loads(await reader.readexactly(length)) if length else {}
            await asyncio.sleep(0.02)
            streams = body.get("stream")
            content = FRAMES if streams else WHOLE
            kind = b"text/event-stream" if streams else b"application/json"
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: " + kind + b"\\r\\nContent-Length: "
                + str(len(content)).encode() + b"\\r\\n\\r\\n" + content)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

PEER = """
import asyncio, json, sys, time
from importlib.metadata import version
from its_hub.core.algorithms.self_consistency import SelfConsistency
from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel
url, samples, problems, at_once = sys.argv[1], *map(int, sys.argv[2:])

async def main():
    lm = OpenAICompatibleLanguageModel(endpoint=url, api_key="none", model_name="m")
    vote, turn = SelfConsistency(), asyncio.Semaphore(at_once)
    async def one(n):
        async with turn:
            await vote.ainfer(lm, f"What is {n} * 23?", samples)
    await one(0)
    began = time.process_time()
    await asyncio.gather(*map(one, range(problems)))
    return time.process_time() - began

print(json.dumps({"seconds": asyncio.run(main()), "version": version("its_hub")}))
"""


def ours(url: str) -> float:
    """Seconds of this process for each call."""
    engine = connect(Service(model="m", urls=(url,), concurrency=AT_ONCE * SAMPLES))
    vote = Sample(n=SAMPLES, max_tokens=32) >> Vote(stop=Exhausted())
    asked = [f"What is {n} * 23?" for n in range(PROBLEMS)]

    async def solve() -> float:
        await ttc.asolve(asked[0], vote, model=engine, seed=0)
        began = time.process_time()
        outcomes = await ttc.asolve_many(asked, vote, model=engine, seed=0, concurrency=AT_ONCE)
        spent = time.process_time() - began
        assert [outcome.usage.calls for outcome in outcomes] == [SAMPLES] * PROBLEMS
        return spent

    return asyncio.run(solve()) / (SAMPLES * PROBLEMS)


def peer(python: str, url: str) -> float:
    """Seconds of the peer's process for each call."""
    import json

    sizes = list(map(str, (SAMPLES, PROBLEMS, AT_ONCE)))
    command = [python, "-c", PEER, url, *sizes]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return float(told["seconds"]) / (SAMPLES * PROBLEMS)


def main() -> int:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--peer", help="the Python of an environment with its_hub")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
            pairs = [
                (ours(url), peer(arguments.peer, url) if arguments.peer else None)
                for _ in range(RUNS)
            ]
        finally:
            server.kill()
    rows: list[dict[str, Any]] = []
    mine = statistics.median(own for own, _ in pairs)
    rows.append(_row("ttc: processor time of a call", mine * 1e3, "ms", None))
    ratios = [own / other for own, other in pairs if other is not None]
    if ratios:
        theirs = statistics.median(other for _, other in pairs if other is not None)
        rows.append(_row("its_hub: processor time of a call", theirs * 1e3, "ms", None))
        rows.append(_row("ttc's part of its_hub's", statistics.median(ratios), "", SHARE))
    for row in rows:
        print(f"{row['name']}: {row['value']} {row['unit']} (target {row['target']})")
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)
    return 0 if not ratios or statistics.median(ratios) <= SHARE else 1


def _row(name: str, value: float, unit: str, target: float | None) -> dict[str, Any]:
    return {"name": name, "value": round(value, 3), "unit": unit, "target": target}


if __name__ == "__main__":
    sys.exit(main())
