"""Programs that measure what a call costs: of each peer and of its HTTP client alone.

Each runs in an interpreter of its own, which has that peer, and is given a server's URL, and how
many samples of how many problems it takes, so many problems at once. It makes the calls of the
technique, and the same calls with nothing but its HTTP client, in turn, and prints the seconds of
its processor that each round took.
"""

from __future__ import annotations

__all__ = ["ITS_HUB", "OPTILLM", "SERVER"]

_SHARED = """
import asyncio, json, sys, time
from importlib.metadata import version
url, samples, problems, at_once, rounds = sys.argv[1], *map(int, sys.argv[2:])

def report(technique, bare, name):
    technique(at_once), bare(at_once)
    took = {"technique": [], "bare": [], "version": version(name)}
    for _ in range(rounds):
        for kind, work in (("technique", technique), ("bare", bare)):
            began = time.process_time()
            work(problems)
            took[kind].append(time.process_time() - began)
    print(json.dumps(took))
"""

ITS_HUB = (
    _SHARED
    + """
import aiohttp
from its_hub.core.algorithms.self_consistency import SelfConsistency
from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel

loop = asyncio.new_event_loop()
lm = OpenAICompatibleLanguageModel(endpoint=url, api_key="none", model_name="m")

def technique(count):
    async def solve_all():
        vote, turn = SelfConsistency(), asyncio.Semaphore(at_once)
        async def one(n):
            async with turn:
                await vote.ainfer(lm, f"What is {n} * 23?", samples)
        await asyncio.gather(*map(one, range(count)))
    loop.run_until_complete(solve_all())

def bare(count):
    async def ask_all():
        turn = asyncio.Semaphore(at_once * samples)
        connector = aiohttp.TCPConnector(limit=at_once * samples)
        async with aiohttp.ClientSession(connector=connector) as session:
            async def ask(n):
                messages = [{"role": "user", "content": f"What is {n} * 23?"}]
                body = {"model": "m", "messages": messages}
                async with turn, session.post(url + "/chat/completions", json=body) as answer:
                    await answer.read()
            await asyncio.gather(*(ask(n) for n in range(count) for _ in range(samples)))
    loop.run_until_complete(ask_all())

report(technique, bare, "its_hub")
"""
)

OPTILLM = (
    _SHARED
    + """
from concurrent.futures import ThreadPoolExecutor
from openai import OpenAI
from optillm.self_consistency import AdvancedSelfConsistency

client, pool = OpenAI(base_url=url, api_key="none"), ThreadPoolExecutor(at_once)

def technique(count):
    def one(n):
        vote = AdvancedSelfConsistency(client, "m", num_samples=samples)
        vote.evaluate("You are helpful.", f"What is {n} * 23?")
    list(pool.map(one, range(count)))

def bare(count):
    def one(n):
        messages = [{"role": "system", "content": "You are helpful."},
            {"role": "user", "content": f"What is {n} * 23?"}]
        body = {"model": "m", "messages": messages, "temperature": 1, "max_tokens": 4096}
        for _ in range(samples):
            client._client.post(url + "/chat/completions", content=json.dumps(body)).read()
    list(pool.map(one, range(count)))

report(technique, bare, "optillm")
"""
)

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
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
"""A fake server of OpenAI's API, which tells its port and answers after 20 ms."""
