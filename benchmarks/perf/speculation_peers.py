"""llama.cpp's own speculation, for `speculation.py`: its server, with the same files and prompts.

The server is given token ids, so that it reads what our engine reads, and tells itself how long it
took. `--spec-draft-n-max` is what it drafts at most, 3 by default.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ttc.benchmarks.perf.llama_server import served

__all__ = ["answer", "servers"]


def servers(
    stack: ExitStack, folder: Path, model: Path, draft: Path | None, lengths: Sequence[int]
) -> dict[str, str]:
    """The address of a server for each way to decode; they end with the stack."""
    ways: dict[str, dict[str, str]] = {"plain": {}, "ngram": {"--spec-type": "ngram-simple"}}
    for length in lengths if draft is not None else ():
        ways[f"model, {length} drafted"] = {
            "--spec-type": "draft-simple",
            "-md": str(draft),
            "--spec-draft-n-max": str(length),
        }
    every = {"-np": "1", "-t": str(len(os.sched_getaffinity(0)))}
    program = folder / "llama-server"
    return {
        f"llama.cpp {way}": stack.enter_context(served(program, model, every | options))
        for way, options in ways.items()
    }


def answer(url: str, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
    """A greedy answer, with what it took and what became of drafts."""
    body = {
        "prompt": list(prompt),
        "n_predict": tokens,
        "temperature": 0,
        "cache_prompt": False,
    }
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as response:
        found: dict[str, Any] = json.load(response)
    return found
