"""The application: OpenAI's endpoints, in front of every strategy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ttc.serve.ask import Ask
from ttc.serve.chat import chat_ask
from ttc.serve.completions import completions_ask
from ttc.serve.door import Door, read_json
from ttc.serve.frames import Frames
from ttc.serve.job import Job
from ttc.serve.keys import Key, Keys
from ttc.serve.logs import log_failure, log_request
from ttc.serve.metrics import CONTENT_TYPE, Metrics
from ttc.serve.refusal import Refusal, refusal_of
from ttc.serve.reply import Choice, choices_of
from ttc.serve.service import Service
from ttc.serve.settings import Settings
from ttc.serve.shapes import whole
from ttc.serve.traces import Traces
from ttc.serve.watching import ClientGone, while_there
from ttc.view import routes

__all__ = ["App"]

_GONE = 499
Read = Callable[[Any, Settings], Ask]


class App:
    """An ASGI application.

    Args:
        service: what runs requests.
        keys: who may ask; nobody needs a key where there is none.
    """

    def __init__(self, service: Service, keys: Keys | None = None) -> None:
        self.service, self.keys = service, keys or Keys()
        self.metrics = Metrics(service)
        self._traces = service.traces = Traces(service.settings.max_traces, self._viewer)
        self._settings = service.settings
        self._app: ASGIApp = Door(
            Starlette(routes=self._routes(), exception_handlers={HTTPException: _told}),
            service.settings.hosts,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        await self._app(scope, receive, send)

    def _routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/health", self._health),
            Mount("/ui", routes=routes(self._traces)),
            Route("/metrics", self._guarded("metrics", self._metrics)),
            Route("/v1/models", self._guarded("models", self._models)),
            Route("/v1/models/{name:path}", self._guarded("models", self._model)),
            Route(
                "/v1/chat/completions",
                self._guarded("chat", lambda request: self._generate(request, chat_ask)),
                methods=["POST"],
            ),
            Route(
                "/v1/completions",
                self._guarded(
                    "completions", lambda request: self._generate(request, completions_ask)
                ),
                methods=["POST"],
            ),
        ]

    def _guarded(
        self, endpoint: str, handle: Callable[[Request], Awaitable[Any]]
    ) -> Callable[[Request], Awaitable[Any]]:
        """A handler whose faults are told in the API's shape, and whose end is counted."""

        async def serve(request: Request) -> Any:
            began = time.monotonic()
            try:
                response = await handle(request)
            except ClientGone:
                response = Response(status_code=_GONE)
                self.metrics.gone()
            except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
                refusal = refusal_of(error)
                response = refusal.response()
                if refusal.__cause__ is not None:
                    log_failure(refusal.__cause__)
                log_request(endpoint=endpoint, status=refusal.status, code=refusal.code)
            if isinstance(response, Response):
                self.metrics.ended(endpoint, response.status_code, time.monotonic() - began)
            return response

        return serve

    async def _health(self, _: Request) -> Response:
        if self.service.is_draining:
            return _json({"status": "draining"}, 503)
        return _json({"status": "ok"})

    async def _metrics(self, request: Request) -> Response:
        self._key(request)
        return Response(self.metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def _models(self, request: Request) -> Response:
        return _json({"object": "list", "data": self._listed(self._key(request))})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        for entry in self._listed(self._key(request)):
            if entry["id"] == name:
                return _json(entry)
        raise Refusal(404, "there is no such model", code="model_not_found", param="model")

    def _listed(self, key: Key) -> list[dict[str, Any]]:
        """The models that a key may use, and with them the named strategies."""
        names = [name for name in self.service.models if key.models is None or name in key.models]
        strategies = [
            name
            for name in self._settings.named
            if key.strategies is None or name in key.strategies
        ]
        ids = [*names, *(f"{name}@{strategy}" for name in names for strategy in strategies)]
        return [{"id": one, "object": "model", "created": 0, "owned_by": "ttc"} for one in ids]

    def _key(self, request: Request) -> Key:
        return self.keys.find(request.headers.get("authorization"))

    def _viewer(self, request: Request) -> Key:
        """Whose key a browser brings; it asks its user for it, as a password.

        Raises:
            HTTPException: it brings none.
        """
        try:
            return self.keys.find(request.headers.get("authorization"), is_browser=True)
        except Refusal as refusal:
            headers = {"WWW-Authenticate": 'Basic realm="ttc: the key is the password"'}
            raise HTTPException(refusal.status, str(refusal), headers) from None

    async def _generate(self, request: Request, read: Read) -> Any:
        key = self._key(request)
        body, size = await read_json(request, self._settings.max_body_bytes)
        ask = read(body, self._settings)
        job = await self.service.accept(key, ask, size)
        model = body["model"]
        if ask.stream:
            return Frames(self.service, job, model, lambda *end: self._streamed(job, *end))
        work = asyncio.ensure_future(self.service.perform(job))
        try:
            outcomes = await while_there(work, job, request.receive)
            choices = await choices_of(job, outcomes)
        except Refusal as refusal:
            self._count(job, [], refusal.status, refusal.code)
            raise
        except ClientGone:
            self._count(job, [], _GONE, None)
            raise
        self._count(job, choices, 200, None)
        return _json(whole(job, model, choices))

    def _streamed(
        self, job: Job, choices: list[Choice], fault: Exception | None, first: float | None
    ) -> None:
        """Counts a stream that has ended."""
        status, code = 200, None
        if isinstance(fault, Refusal):
            status, code = fault.status, fault.code
            if fault.__cause__ is not None:
                log_failure(fault.__cause__)
        elif isinstance(fault, ClientGone):
            status = _GONE
            self.metrics.gone()
        elif fault is not None:
            status = 500
            log_failure(fault)
        if first is not None:
            self.metrics.first(first)
        self.metrics.ended(job.ask.endpoint, status, time.monotonic() - job.began)
        self._count(job, choices, status, code)

    def _count(self, job: Job, choices: Sequence[Choice], status: int, code: str | None) -> None:
        self.metrics.used(job.ask.model, job.usage)
        log_request(
            endpoint=job.ask.endpoint,
            id=job.id,
            key=job.key.name,
            model=job.ask.model,
            status=status,
            code=code,
            stream=job.ask.stream,
            n=job.ask.n,
            seconds=round(time.monotonic() - job.began, 3),
            tokens=job.usage.tokens,
            calls=job.usage.calls,
            stopped_by=[choice.outcome.stopped_by for choice in choices],
        )


def _json(content: Any, status: int = 200) -> Response:
    headers = {"x-content-type-options": "nosniff"}
    return Response(orjson.dumps(content), status, headers, "application/json")


async def _told(_: Request, error: Exception) -> Response:
    """What starlette refuses by itself, such as an unknown path, in the API's shape."""
    assert isinstance(error, HTTPException)
    refusal = Refusal(
        error.status_code, str(error.detail), code="not_served", headers=error.headers
    )
    return refusal.response()
