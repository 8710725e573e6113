"""A socket by which another process of the same user steers a run: one line of JSON each way.

It lies beside the run's journal as `runs/NAME.sock` in ttc's folder, with mode 0600, and is gone
when the run is.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import TimeoutError as Expired
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from ttc.cli.terminal import Fault
from ttc.config import settings
from ttc.control import Control
from ttc.errors import TTCError
from ttc.prices import Prices
from ttc.safe_text import safe_logger

__all__ = ["ask", "running", "socket_of", "steerable"]

_MOST_BYTES = 1 << 16
_log = safe_logger(__name__)
_PATIENCE_S = 10.0


def socket_of(run: str) -> Path:
    """Where a run listens while it runs."""
    return settings().home.value / "runs" / f"{run}.sock"


@contextmanager
def steerable(run: str) -> Iterator[Control]:
    """A control for a run, which other processes reach by the run's name until the block ends.

    Where no socket can be made, a line in the log says so, and the run goes on without it.
    """
    path, control = socket_of(run), Control()
    try:
        server = _listening(path)
    except (OSError, AttributeError) as error:
        _log.warning("no other process can steer this run: %s", error)
        yield control
        return
    with closing(server):
        thread = threading.Thread(target=_serve, args=(server, control), daemon=True)
        thread.start()
        try:
            yield control
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(_PATIENCE_S)


def running() -> list[str]:
    """The names of the runs that listen, sorted."""
    return sorted(path.stem for path in socket_of("").parent.glob("*.sock"))


def ask(run: str, order: Mapping[str, Any]) -> dict[str, Any]:
    """Sends an order to a run; gives the state that the run tells after it.

    Raises:
        Fault: nothing listens, or the run refuses the order.
    """
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
        client.settimeout(_PATIENCE_S)
        try:
            with _short(socket_of(run)) as name:
                client.connect(name)
            client.sendall(json.dumps(order).encode() + b"\n")
            answer = json.loads(_line(client))
        except (OSError, ValueError) as error:
            known = ", ".join(running()) or "none"
            raise Fault(f"no run {run!r} is running ({error}); running now: {known}") from error
    if "fault" in answer:
        raise Fault(str(answer["fault"]))
    return dict(answer)


def _listening(path: Path) -> socket.socket:
    """A socket at a path, for this user alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with _short(path) as name:
            server.bind(name)
        server.listen()
    except OSError:
        server.close()
        raise
    finally:
        os.umask(before)
    return server


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for a socket, short enough wherever its folder lies: the system allows 107 bytes."""
    if len(os.fsencode(path)) <= 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _serve(server: socket.socket, control: Control) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with closing(client):
            client.settimeout(_PATIENCE_S)
            with suppress(OSError):
                client.sendall(json.dumps(_answer(client, control)).encode() + b"\n")


def _answer(client: socket.socket, control: Control) -> dict[str, Any]:
    try:
        _obey(control, json.loads(_line(client)))
        return control.state().result(_PATIENCE_S)
    except Expired:
        return {"fault": "the run does not answer; something blocks its event loop"}
    except (TTCError, OSError, TypeError, ValueError, KeyError) as error:
        return {"fault": f"the run refuses: {error}"}


def _obey(control: Control, order: Mapping[str, Any]) -> None:
    """Does what an order says, in the order of its fields."""
    problem = order.get("problem")
    for name, value in order.items():
        if name == "budget":
            control.set_budget(problem, **value)
        elif name == "hold":
            (control.pause if value else control.resume)()
        elif name == "cancel":
            control.cancel(problem, call=order.get("call"))
        elif name == "prices":
            for price in Prices.parse(value, "the prices"):
                control.set_price(price)
        elif name not in ("problem", "call"):
            raise ValueError(f"{name!r} is no order")


def _line(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n") and len(received) < _MOST_BYTES:
        more = connection.recv(_MOST_BYTES)
        if not more:
            break
        received += more
    return received
