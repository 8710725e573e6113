"""The routes of the viewer: the list of runs, the page of one, and what the page asks for.

    /                 the runs that the caller may see
    /NAME             the page of one
    /NAME/data        its document, or what is new `?after=` a version
    /NAME/text        the text of one call, `?id=` it
    /NAME/find        the calls whose text holds `?text=`

Whose runs they are is decided by the `Source`, which is given every request; nothing is known of
keys here.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ttc.errors import RecordError
from ttc.view.page import headers, list_page, live_page
from ttc.view.run import RunView
from ttc.view.sources import Source

__all__ = ["routes_of"]


def routes_of(source: Source) -> list[Route]:
    """The routes, to be mounted under a prefix of their own."""

    def runs(request: Request) -> Response:
        return HTMLResponse(list_page(source.runs(request)), headers=headers())

    def page(request: Request) -> Response:
        seen = _view(source, request)
        return HTMLResponse(live_page(seen.name), headers=headers())

    def data(request: Request) -> Response:
        try:
            after = int(request.query_params.get("after", "0"))
        except ValueError:
            raise HTTPException(400, "after is a version, a whole number") from None
        return _json(source, request, lambda seen: seen.document(after))

    def text(request: Request) -> Response:
        row = request.query_params.get("id", "")
        return _json(source, request, lambda seen: seen.text(row))

    def find(request: Request) -> Response:
        wanted = request.query_params.get("text", "")
        return _json(source, request, lambda seen: seen.find(wanted))

    return [
        Route("/", runs),
        Route("/{name}", page),
        Route("/{name}/data", data),
        Route("/{name}/text", text),
        Route("/{name}/find", find),
    ]


def _view(source: Source, request: Request) -> RunView:
    seen = source.view(request, request.path_params["name"])
    if seen is None:
        raise HTTPException(404, "there is no such run")
    return seen


def _json(source: Source, request: Request, read: Callable[[RunView], object]) -> Response:
    seen = _view(source, request)
    with seen.lock:
        try:
            seen.refresh()
        except RecordError as error:
            raise HTTPException(410, str(error)) from error
        told = read(seen)
    if told is None:
        raise HTTPException(404, "there is no such call")
    return JSONResponse(told, headers=headers())
