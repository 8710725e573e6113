"""The commands, and how their faults become exit codes.

    0    done
    2    a fault that the user can mend, told in one line
    130  interrupted by Ctrl-C

Any other exception is a bug, and keeps its traceback.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from typer.main import get_command

from ttc.cli.compare import compare
from ttc.cli.config import config
from ttc.cli.control import control
from ttc.cli.demo import demo
from ttc.cli.doctor import doctor
from ttc.cli.engines import default_model
from ttc.cli.eval import eval_
from ttc.cli.graph import graph
from ttc.cli.models import models
from ttc.cli.plan import plan
from ttc.cli.pool import pool
from ttc.cli.pull import pull, remove
from ttc.cli.runs import runs
from ttc.cli.sample import sample
from ttc.cli.serve import key, serve
from ttc.cli.shards import shards
from ttc.cli.solve import solve
from ttc.cli.terminal import Fault, complain, say
from ttc.cli.view import view
from ttc.errors import NodeError, SettingsError, TTCError
from ttc.registry import DISTRIBUTION

__all__ = ["app", "run"]

# What every bad option raises: some versions of typer bring this class along under a private name.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="ttc",
    add_completion=False,
    help="Turns extra inference into better answers, under a budget that it never exceeds.",
)
for _command in (
    solve,
    sample,
    serve,
    key,
    control,
    view,
    graph,
    doctor,
    pull,
    remove,
    models,
    config,
    demo,
):
    app.command()(_command)
app.command("eval")(eval_)
app.command()(compare)
app.command()(plan)
for _name, _group in {"runs": runs, "pool": pool, "shards": shards}.items():
    app.add_typer(_group, name=_name)


def _tell_version(wanted: bool) -> None:
    if wanted:
        try:
            say(f"ttc {version(DISTRIBUTION)}")
        except PackageNotFoundError:
            say("ttc, from a folder that is not installed")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    pass  # an eager option acts by itself


def run(arguments: Sequence[str]) -> int:
    """Runs one command; without any it prints the help.

    Args:
        arguments: the command and its options.

    Returns:
        The exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a narrow encoding is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        return _invoke(arguments or ["--help"])
    except BrokenPipeError:
        _drop_output()
        return 1
    except NodeError:
        raise
    except (Fault, TTCError) as error:
        complain(str(error))
        _flush_or_drop()
        return 2


def _invoke(arguments: Sequence[str]) -> int:
    command = get_command(app)
    defaults = {name: {"model": _model()} for name in _commands()}
    try:
        told, given = ("ttc", *arguments), list(arguments)
        with command.make_context("ttc", given, default_map=defaults, obj=told) as context:
            command.invoke(context)
    except typer.Exit as leave:
        return leave.exit_code
    except _USAGE_ERROR as error:
        message = getattr(error, "format_message", error.__str__)()
        raise Fault(f"{message.rstrip('.')}; see `ttc {_command_of(arguments)}--help`") from error
    return 0


def _model() -> str | Callable[[], str]:
    """The default of every command that takes a model; a fault is told where it is used."""
    try:
        return default_model()
    except SettingsError:
        return default_model


def _command_of(arguments: Sequence[str]) -> str:
    groups = [group.name for group in app.registered_groups]
    return f"{arguments[0]} " if arguments[0] in [*_commands(), *groups] else ""


def _commands() -> list[str]:
    commands = app.registered_commands
    return [c.name or c.callback.__name__ for c in commands if c.callback]


def _flush_or_drop() -> None:
    """Writes what is still buffered, where it can be written."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Sends what is still buffered nowhere, so that the interpreter's end does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
