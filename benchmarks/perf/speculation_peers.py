"""llama.cpp's own speculation, for `speculation.py`: its server, with the same files and prompts.

The server is given token ids, so that it reads what our engine reads, and tells itself how long it
took. `--spec-draft-n-max` is what it drafts at most, 3 by default.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["ways", "written"]

_LOADING_S = 120.0


def ways(draft: Path | None, lengths: Sequence[int]) -> dict[str, list[str]]:
    """Options of the server for each way to decode."""
    found = {"plain": [], "ngram": ["--spec-type", "ngram-simple"]}
    for length in lengths if draft is not None else ():
        found[f"model, {length} drafted"] = [
            *("--spec-type", "draft-simple", "-md", str(draft)),
            *("--spec-draft-n-max", str(length)),
        ]
    return found


def written(
    folder: Path, model: Path, options: Sequence[str], prompts: Sequence[Sequence[int]], tokens: int
) -> dict[str, Any]:
    """What greedy answers to prompts took, one after another, and what became of drafts."""
    with _served(folder, model, options) as url:
        _answer(url, prompts[0], 8)
        told = [_answer(url, prompt, tokens) for prompt in prompts]
    timings = [answer["timings"] for answer in told]
    total = {
        name: sum(one.get(name, 0) for one in timings)
        for name in ("prompt_ms", "predicted_ms", "predicted_n", "draft_n", "draft_n_accepted")
    }
    seconds = (total["prompt_ms"] + total["predicted_ms"]) / 1e3
    return {
        "tokens_per_s": round(total["predicted_n"] / seconds, 2),
        "tokens_per_s_decoding": round(total["predicted_n"] / total["predicted_ms"] * 1e3, 2),
        "output_tokens": total["predicted_n"],
        "tried": total["draft_n"],
        "accepted": total["draft_n_accepted"],
    }


@contextmanager
def _served(folder: Path, model: Path, options: Sequence[str]) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cores = str(len(os.sched_getaffinity(0)))
    command = [
        *(str(folder / "llama-server"), "-m", str(model), "--host", "127.0.0.1"),
        *("--port", str(port), "-c", "4096", "-np", "1", "-t", cores, *options),
    ]
    hidden = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # ours are none of theirs
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    environment["LD_LIBRARY_PATH"] = str(folder)
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_for(url, process, log)
            yield url
        finally:
            process.kill()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Any) -> None:
    end = time.monotonic() + _LOADING_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    log.seek(0)
    raise SystemExit(f"{process.args!r} does not serve: {log.read()[-2000:]}")


def _answer(url: str, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
    body = {
        "prompt": list(prompt),
        "n_predict": tokens,
        "temperature": 0,
        "cache_prompt": False,
    }
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
