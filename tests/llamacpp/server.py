"""llama.cpp's own server on a model that was pulled; who asks for it is skipped without one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ttc.benchmarks.perf.llama_server import LOADING_S, served
from ttc.engine.local.hub.models import find
from ttc.errors import ModelFileError

__all__ = ["SECONDS", "serving"]

SERVER = os.environ.get("TTC_LLAMA_SERVER", "")
SECONDS = LOADING_S
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
    options = {"--alias": alias, "--jinja": "", "-np": "4", "-t": "2"}
    with served(Path(SERVER), file, options) as url:
        yield f"{url}/v1"
