"""Engines for the time of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ttc import registry
from ttc.cli.terminal import Fault, status
from ttc.config import DEFAULT_MODEL, settings
from ttc.ports import Engine

__all__ = ["DEFAULT_MODEL", "default_model", "engine_of"]


def default_model() -> str:
    """The model of a command that names none.

    Raises:
        SettingsError: the settings cannot be read.
    """
    return settings().model.value


@contextmanager
def engine_of(model: str) -> Iterator[Engine]:
    """The engine of a model, which ends with the command where it can be ended.

    Raises:
        EngineError: nobody knows the model, or what it needs is not installed.
        Fault: its file cannot be read.
    """
    try:
        with status(f"loading {model}"):
            engine = registry.load_engine(model)
    except OSError as error:
        raise Fault(f"the model {model!r} cannot be read: {error.strerror}") from error
    try:
        yield engine
    finally:
        close = getattr(engine, "close", None)
        if callable(close):
            close()
