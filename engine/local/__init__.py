"""The embedded engine: Llama-family models of GGUF files and folders, in C or PyTorch on the CPU.

Importing this package sets how OpenMP's threads wait (see `threads`) and imports no torch;
`LocalEngine` is loaded when it is first asked for.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ttc.engine.local import threads as threads  # first: it must come before torch

if TYPE_CHECKING:
    from ttc.config import Acceptance, Arithmetic
    from ttc.engine.local.engine import LocalEngine

__all__ = ["LocalEngine", "load"]


class _Key(NamedTuple):
    """What is loaded once."""

    path: Path
    arithmetic: Arithmetic | None
    speculate: str | None
    acceptance: Acceptance


_loading = threading.Lock()
_loaded: dict[_Key, LocalEngine] = {}


def load(
    model: str,
    progress: Callable[[str, int, int | None], None] = lambda stage, done, total: None,
    arithmetic: Arithmetic | None = None,
    speculate: str | None = None,
    acceptance: Acceptance | None = None,
) -> LocalEngine:
    """The engine of a built-in model, of one that was pulled, or of a path.

    Loaded once with each arithmetic and each way to speculate, and kept for the process. Whoever
    wants other settings, or to let go of the memory, makes a `LocalEngine` himself.

    Args:
        model: see `ttc.engine.local.hub.models.find`.
        progress: see `LocalEngine.load`.
        arithmetic: see `LocalEngine.load`; by default that of the settings.
        speculate: see `LocalEngine.load`; by default that of the settings.
        acceptance: see `LocalEngine.load`; by default that of the settings, where something drafts.

    Raises:
        ValueError: what drafts and how drafts are accepted do not go together.
        ModelFileError: there is no such model, or its file is damaged or not supported.
        SettingsError: the settings cannot be read.
    """
    from ttc.config import settings
    from ttc.engine.local.hub.models import find

    chosen = settings()
    speculate = speculate or chosen.speculate.value
    if acceptance is None and speculate is not None:
        acceptance = chosen.acceptance.value
    key = _Key(
        find(model).resolve(),
        arithmetic or chosen.arithmetic.value,
        speculate,
        acceptance or "coupled",
    )
    with _loading:
        engine = _loaded.get(key)
        if engine is None or engine.is_closed:
            with _no_collection():
                engine = _loaded[key] = _load(key, model, progress)
        return engine


def _load(key: _Key, name: str, progress: Callable[[str, int, int | None], None]) -> LocalEngine:
    """Reads headers and the vocabulary while torch is imported: each takes one thread."""
    from ttc.engine.local.source import open_model

    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_model, key.path, key.arithmetic, progress)
        from ttc.engine.local.drafting.options import drafting_of
        from ttc.engine.local.engine import LocalEngine

        source = opened.result()
        drafting = drafting_of(key.speculate, key.acceptance, source.tokens, key.arithmetic)
        return LocalEngine(source, name=name, drafting=drafting)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage is looked for among the millions of objects that are made to stay.

    It takes an eighth of the time that the imports and a vocabulary take.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def __getattr__(name: str) -> object:
    if name == "LocalEngine":
        from ttc.engine.local.engine import LocalEngine

        return LocalEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
