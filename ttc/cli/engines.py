"""Engines for the time of a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer

from ttc import registry
from ttc.cli.terminal import Fault, bars
from ttc.config import ACCEPTANCES, ARITHMETICS, DEFAULT_MODEL, settings
from ttc.ports import Engine

__all__ = [
    "DEFAULT_MODEL",
    "MODEL_HELP",
    "AcceptanceOption",
    "ArithmeticOption",
    "SpeculateOption",
    "default_model",
    "engine_of",
]

ArithmeticOption = Annotated[
    str | None,
    typer.Option(
        help="What a local model computes with.",
        metavar="|".join(ARITHMETICS),
        show_default="of the settings, or int8",
    ),
]
"""An option of every command that takes a local model, as the two below."""

SpeculateOption = Annotated[
    str | None,
    typer.Option(
        help="What drafts tokens for a local model: `ngram`, `tree` or a smaller model.",
        metavar="ngram|tree|MODEL",
        show_default="of the settings, or nothing",
    ),
]

AcceptanceOption = Annotated[
    str | None,
    typer.Option(
        help="How drafts are accepted: with the results that there are without, or of their "
        "distribution.",
        metavar="|".join(ACCEPTANCES),
        show_default="of the settings, or coupled",
    ),
]

_KNOWN: dict[str, Sequence[str]] = {"arithmetic": ARITHMETICS, "acceptance": ACCEPTANCES}

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
def engine_of(
    model: str,
    arithmetic: str | None = None,
    speculate: str | None = None,
    acceptance: str | None = None,
) -> Iterator[Engine]:
    """The engine of a model, which ends with the command where it can be ended.

    Raises:
        EngineError: nobody knows the model, or what it needs is not installed.
        Fault: its file cannot be read, or an option is unknown or not for it.
    """
    asked = {"arithmetic": arithmetic, "speculate": speculate, "acceptance": acceptance}
    options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    for name, value in options.items():
        known = _KNOWN.get(name, (value,))
        if value not in known:
            raise Fault(f"--{name}: {value!r} is none of {', '.join(known)}")
        if not registry.is_local(model):
            what = "a pool computes nothing" if registry.is_pool(model) else f"{model} is none"
            raise Fault(f"--{name} is for local models, and {what}; leave it out")
    try:
        with bars() as update:
            told = partial(update, f"loading {model}")
            told(0, None)
            engine = registry.load_engine(
                model, lambda _stage, done, total: told(done, total), **options
            )
    except ValueError as error:  # options that do not go together
        raise Fault(str(error)) from error
    except OSError as error:
        raise Fault(f"the model {model!r} cannot be read: {error.strerror}") from error
    try:
        yield engine
    finally:
        close = getattr(engine, "close", None)
        if callable(close):
            close()
