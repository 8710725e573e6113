"""The embedded engine: Llama-family GGUF models in plain PyTorch on CPU.

Importing this package sets how OpenMP's threads wait (see `threads`) and imports no torch;
`LocalEngine` is loaded when it is first asked for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ttc.engine.local import threads as threads  # first: it must come before torch

if TYPE_CHECKING:
    from ttc.engine.local.engine import LocalEngine

__all__ = ["LocalEngine", "load"]

_loading = threading.Lock()
_loaded: dict[str, LocalEngine] = {}


def load(model: str) -> LocalEngine:
    """The engine of a built-in model or of a path; loaded once, and kept for the process.

    Whoever wants other settings, or to let go of the memory, makes a `LocalEngine` himself.

    Raises:
        ModelFileError: there is no such model, or its file is damaged or not supported.
    """
    from ttc.engine.local.engine import LocalEngine
    from ttc.engine.local.hub.models import find

    path = str(find(model).resolve())
    with _loading:
        engine = _loaded.get(path)
        if engine is None or engine.is_closed:
            engine = _loaded[path] = LocalEngine.load(path, name=model)
        return engine


def __getattr__(name: str) -> object:
    if name == "LocalEngine":
        from ttc.engine.local.engine import LocalEngine

        return LocalEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
