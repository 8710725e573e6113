"""litellm: ten calls, of which some are streamed, and some wait for no other."""

import asyncio
import json
import sys
from importlib.metadata import version

import litellm

URL, MODEL = sys.argv[1:3]
COMMON = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": "none", "num_retries": 0}


def messages(n: int) -> list[dict[str, str]]:
    """The n-th question."""
    return [{"role": "user", "content": f"What is {n} + {n}? Answer with a number."}]


async def at_once() -> list[object]:
    """Four calls together."""
    calls = [litellm.acompletion(messages=messages(n), **COMMON) for n in range(4)]
    return [reply.choices[0].message.content for reply in await asyncio.gather(*calls)]


def main() -> None:
    """Ten items."""
    said: list[object] = asyncio.run(at_once())
    tokens = 0
    for n in range(4, 7):
        reply = litellm.completion(messages=messages(n), **COMMON)
        said.append(reply.choices[0].message.content)
        tokens += reply.usage.total_tokens
    for n in range(7, 10):
        stream = litellm.completion(
            messages=messages(n),
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ttc": {"events": True, "thinking": True}},
            **COMMON,
        )
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        said.append("".join(pieces))
    errors = [repr(text) for text in said if not isinstance(text, str)]
    told = {"version": version("litellm"), "items": len(said), "errors": errors, "tokens": tokens}
    print(json.dumps(told))


main()
