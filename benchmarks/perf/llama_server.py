"""llama.cpp's own server on a model's file, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ttc.benchmarks.perf.peer_process import outside

__all__ = ["LOADING_S", "served"]

LOADING_S = 120.0
"""How long loading a model may take."""


@contextmanager
def served(program: Path, model: Path, options: Mapping[str, str]) -> Iterator[str]:
    """The address of a server of a model.

    Args:
        program: `llama-server`, its libraries beside it.
        model: the GGUF file.
        options: the server's, by name; "" where one takes no value.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted = {"-m": str(model), "--host": "127.0.0.1", "--port": str(port), "-c": "4096"}
    words = [word for option in (wanted | dict(options)).items() for word in option if word]
    where = outside() | {"LD_LIBRARY_PATH": str(program.parent)}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([str(program), *words], env=where, stdout=log, stderr=log) as process,
    ):
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Any) -> None:
    """Until the model is loaded."""
    end = time.monotonic() + LOADING_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    log.seek(0)
    raise RuntimeError(f"{process.args!r} does not serve: {log.read()[-2000:]}")
