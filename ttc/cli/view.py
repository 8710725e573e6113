"""`ttc view`: a kept run as a page, in a browser while it runs, or in a file."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from ttc.cli.terminal import Fault, say
from ttc.journal.runs import path_of
from ttc.registry import install_hint

__all__ = ["view"]

_HOST = "127.0.0.1"


def view(
    run: Annotated[
        str | None,
        typer.Argument(help="A run's name, or a path; without one, all runs.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Write the page to this file, and serve nothing.", show_default=False),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Where to serve; 0 is any free port.", min=0, max=65535)
    ] = 0,
    browse: Annotated[bool, typer.Option("--browse", help="Open it in a browser.")] = False,
) -> None:
    """Look at a run: its tree, its votes and what it spends, live or afterwards."""
    if output is not None:
        _write(run, output)
        return
    _serve(None if run is None else path_of(run), port, browse=browse)


def _write(run: str | None, output: Path) -> None:
    from ttc.view import written

    if run is None:
        raise Fault("--output writes one run; name it, `ttc runs list` tells all of them")
    page = written(run)
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Fault(f"{output} cannot be written: {error.strerror}") from error
    say(f"wrote {output} ({len(page.encode()) / 1e6:.1f} MB); open it in any browser")


def _serve(journal: Path | None, port: int, *, browse: bool) -> None:
    try:
        import uvicorn

        from ttc.view.local import application
    except ModuleNotFoundError as error:
        raise Fault(f"serving a page needs {error.name}: {install_hint('serve')}") from error
    made = application(journal)
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((_HOST, port))
        except OSError as error:
            raise Fault(f"port {port} cannot be taken: {error.strerror}; pass another") from error
        address = f"http://{_HOST}:{bound.getsockname()[1]}{made.path}"
        say(f"{address}\nfor you alone; Ctrl-C ends it")
        if browse:
            typer.launch(address)
        config = uvicorn.Config(made.app, log_level="warning", access_log=False, lifespan="off")
        uvicorn.Server(config).run(sockets=[bound])
