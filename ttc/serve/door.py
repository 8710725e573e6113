"""The door: what every request passes before anything is made of it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ttc.serve.refusal import Refusal
from ttc.serve.watching import ClientGone

__all__ = ["Door", "direct", "host_of", "read_json"]

_BODY_S = 30.0
_SEND = "ttc.send"


class Door:
    """Lets those in who call the server by one of its names, so that no web page can reach it.

    A page of a stranger's whose name leads to this machine (DNS rebinding) has another host.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Checks the host."""
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"host"]
            host = host_of(given[0].decode("latin-1")) if len(given) == 1 else ""
            if host not in self._hosts:
                refusal = Refusal(
                    400,
                    "the Host header names another server; call it by a name that it knows "
                    "(ttc serve --allow-host NAME)",
                    code="invalid_host",
                )
                await refusal.response()(scope, receive, send)
                return
        scope[_SEND] = send
        await self._app(scope, receive, send)


def direct(scope: Scope, send: Send) -> Send:
    """What sends past the layers behind the door, which only watch how a response begins."""
    given: Send = scope.get(_SEND, send)
    return given


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


async def read_json(request: Request, most: int) -> tuple[Any, int]:
    """The JSON value of a request's body, and how many bytes it has.

    Raises:
        Refusal: it is none, or too large, or too slow.
        ClientGone: it ended before.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "the body is JSON; send Content-Type: application/json")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise Refusal(408, f"the body did not come within {_BODY_S:g} s") from None
    except ClientDisconnect:
        raise ClientGone from None
    try:
        return orjson.loads(body), len(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the body is no JSON: {error}", code="invalid_json") from None


def _too_large(most: int) -> Refusal:
    return Refusal(
        413,
        f"the body has more than {most} bytes",
        code="request_too_large",
        headers={"Connection": "close"},
    )
