"""llama.cpp's own server on a model that was pulled; who asks for it is skipped without one."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ttc.engine.local.hub.models import find
from ttc.errors import ModelFileError

__all__ = ["SECONDS", "serving"]

SERVER = os.environ.get("TTC_LLAMA_SERVER", "")
SECONDS = 120.0
"""How long anything may take."""


@contextmanager
def serving(model: str, alias: str) -> Iterator[str]:
    """The address of a server of a model."""
    if not Path(SERVER).is_file():
        pytest.skip(f"TTC_LLAMA_SERVER is {SERVER!r}, which is no program of llama.cpp")
    try:
        file = find(model)
    except ModelFileError as missing:
        pytest.skip(str(missing))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--alias", alias, "-c", "4096", "-np", "4", "-t", "2", "--port", str(port))
    command = [SERVER, "-m", str(file), "--host", "127.0.0.1", "--jinja", *options]
    where = {**os.environ, "LD_LIBRARY_PATH": str(Path(SERVER).parent)}
    with subprocess.Popen(
        command, env=where, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            _wait_for(port, server)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Until the model is loaded."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("llama.cpp's server did not begin to serve")
