"""Engines for the time of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import typer

from ttc import registry
from ttc.cli.terminal import Fault, bars
from ttc.config import ARITHMETICS, DEFAULT_MODEL, Arithmetic, settings
from ttc.ports import Engine

__all__ = ["DEFAULT_MODEL", "MODEL_HELP", "ArithmeticOption", "default_model", "engine_of"]

ArithmeticOption = Annotated[
    str | None,
    typer.Option(
        help="What a local model computes with.",
        metavar="|".join(ARITHMETICS),
        show_default="of the settings, or int8",
    ),
]
"""The option of every command that takes a local model."""

MODEL_HELP = (
    "A name that `ttc models` lists, or the path of a GGUF file or of a model's folder; "
    "`ttc pull` fetches one."
)


def default_model() -> str:
    """The model of a command that names none.

    Raises:
        SettingsError: the settings cannot be read.
    """
    return settings().model.value


@contextmanager
def engine_of(model: str, arithmetic: str | None = None) -> Iterator[Engine]:
    """The engine of a model, which ends with the command where it can be ended.

    Raises:
        EngineError: nobody knows the model, or what it needs is not installed.
        Fault: its file cannot be read, or the arithmetic is unknown or not for it.
    """
    options: dict[str, Arithmetic] = {}
    if arithmetic is not None:
        if arithmetic not in ARITHMETICS:
            raise Fault(f"--arithmetic: {arithmetic!r} is none of {', '.join(ARITHMETICS)}")
        if registry.is_pool(model):
            raise Fault(
                "--arithmetic is for local models, and a pool computes nothing; leave it out"
            )
        options["arithmetic"] = arithmetic
    try:
        with bars() as update:
            told = partial(update, f"loading {model}")
            told(0, None)
            engine = registry.load_engine(
                model, lambda _stage, done, total: told(done, total), **options
            )
    except OSError as error:
        raise Fault(f"the model {model!r} cannot be read: {error.strerror}") from error
    try:
        yield engine
    finally:
        close = getattr(engine, "close", None)
        if callable(close):
            close()
