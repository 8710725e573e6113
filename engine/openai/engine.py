"""OpenAIEngine: a model at any server that speaks OpenAI's API.

Its branches hold texts, so a prompt can be sampled as often as one likes, and no text is gone on
with: what forks is refused before anything is spent. With the model's own vocabulary, on servers
that take tokens and tell theirs, they hold tokens, and fork. What else the server can do was found
out by asking it; see `probe`.

A call is sent again only where it surely was not done; see `failures`. One that may have been done
is charged at its worst case, and so is one whose tokens nobody told.

Cost: less processor time for a whole call than a pooled HTTP client takes for its request alone.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ttc.constraints import Constraint
from ttc.engine.openai.bodies import body_of, body_of_tokens, constrained, prompt_text
from ttc.engine.openai.call import Call
from ttc.engine.openai.replies import Reply
from ttc.engine.openai.report import Report
from ttc.engine.openai.routes import Route, Routes
from ttc.engine.openai.service import CONNECT_S, Service
from ttc.engine.thread import LoopThread
from ttc.errors import EngineError
from ttc.ports import Capabilities, Reading, Request
from ttc.registry import install_hint
from ttc.tool_calls import Form
from ttc.types import Branch, Chunk, Problem

if TYPE_CHECKING:
    from ttc.engine.openai.connection import Connection
    from ttc.engine.texts import Texts

__all__ = ["OpenAIEngine", "http_client", "texts_of"]

_THREAD = LoopThread("ttc-openai")
_REMEMBERED = 4096


class OpenAIEngine:
    """Asks a service; implements `ttc.ports.Engine`."""

    def __init__(self, service: Service, report: Report | None = None) -> None:
        """An engine.

        Args:
            service: which model, and where.
            report: what was found out about its servers; by default they can sample, and no more.
        """
        self.service, self.report = service, report or Report()
        self.name = service.model
        seeds = "honoured" if self.report.seed else "not known to be honoured"
        self.numerics = f"{service.model}, {self.report.kind} server, seeds {seeds}"
        self.capabilities: Capabilities = self.report.capabilities(cancels=service.cancels)
        self._texts: Texts | None = None
        self.context: int | None = None  # it counts tokens, and without them nobody here does
        if self.report.tells_tokens is not None:
            self.context = self.report.context
            self._texts = texts_of(service, self.context)
        self.costs = None
        self.labels: tuple[str, ...] = ()
        self._routes: Routes | None = None
        self._loop: Any = None
        self._seen: OrderedDict[str, str] = OrderedDict()
        self.headers = headers_of(service)
        """What every request carries."""

    def __repr__(self) -> str:
        return f"OpenAIEngine({self.service})"

    def root(self, problem: Problem, role: str) -> Branch:
        """What the server is told of a problem: its tokens, or JSON where nobody knows them.

        Raises:
            EngineError: the API has no form for it, or the server takes no tools.
        """
        if self._texts is not None:
            return self._texts.root(problem, role)
        if problem.tools and not self.report.tools:
            self._refuse("was not found to take tools, so none can be told to it")
        text = prompt_text(problem)
        more = self.report.overhead
        count = len(text.encode()) + more if more else None
        return Branch(role=role, text=text, token_ids=None, token_count=count)

    @property
    def call_form(self) -> Form:
        """How its replies hold calls: between tags, whatever the model itself writes.

        Where it is asked by tokens, as the model writes them.
        """
        if self._texts is not None:
            return self._texts.call_form
        return "hermes" if self.report.tools else "react"

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with `text`; see `ttc.ports.Engine`.

        Raises:
            EngineError: the engine has no tokens.
        """
        if self._texts is None:
            self._refuse(f"goes on with no text, so {text!r} cannot be appended; leave out tails")
        return self._texts.append(branch, text, as_token=as_token)

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """A branch's first tokens; see `ttc.ports.Engine`.

        Raises:
            EngineError: the engine has no tokens.
        """
        if self._texts is None:
            self._refuse("has texts without tokens, so none can be cut; run searches elsewhere")
        return self._texts.cut(branch, num_tokens)

    def body_of(self, request: Request) -> tuple[str, bytes]:
        """The path and the body of a request.

        Raises:
            EngineError: it asks for what the server cannot do, or was not found to do.
        """
        if self._texts is None:
            return body_of(request, self.name, self.report)
        prompt = self._texts.prompt_of(request.branch)
        room = (self.context or 2**31) - len(prompt)
        fitting = replace(request, max_tokens=min(request.max_tokens, room))
        return body_of_tokens(fitting, prompt, self.name, self.report)

    def reply_to(
        self,
        request: Request,
        on_chunk: Callable[[Chunk], None] | None,
        after: Reply | None = None,
    ) -> Reply:
        """What will come of a request; `after` an attempt at it."""
        if self._texts is None or self.report.tells_tokens is None:
            return Reply(request, on_chunk, after)
        from ttc.engine.openai.token_replies import TokenReply

        before = after if isinstance(after, TokenReply) else None
        return TokenReply(request, self._texts.tokens, self.report.tells_tokens, on_chunk, before)

    def submit(self, request: Request, on_chunk: Callable[[Chunk], None] | None = None) -> Call:
        """Queues a call."""
        loop = _THREAD.loop
        call = Call(self, request, on_chunk, loop)
        loop.call_soon_threadsafe(self._start, call)
        return call

    def _start(self, call: Call) -> None:
        call.start(self.routes())

    def check_copy(self, reply: Reply) -> None:
        """Looks whether a reply is another call's, as a cache between here and there gives it.

        Raises:
            EngineError: it is; a copy counts for nothing.
        """
        if reply.id is None or not self.report.ids:
            return
        if self._seen.get(reply.id) == reply.text != "":
            raise EngineError(
                f"the server of {self.name} answered with a copy of an earlier reply, "
                f"{reply.id[:60]!r}; turn the cache before it off"
            )
        self._seen[reply.id] = reply.text
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    def routes(self) -> Routes:
        """The servers, for the running loop: that of the engines' own thread."""
        loop = _THREAD.loop
        if self._routes is None or self._loop is not loop:
            routes = [Route(url, partial(_connection, url)) for url in self.service.urls]
            limits = {"concurrency": self.service.concurrency, "rate": self.service.rate}
            self._routes, self._loop = Routes(routes, **limits), loop  # type: ignore[arg-type]
            weakref.finalize(self, _close, self._routes, loop).atexit = False
        return self._routes

    def check_constraint(self, constraint: Constraint) -> None:
        """Whether the server was found to hold to such a constraint."""
        constrained(constraint, self.report)

    def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None, owner: str = ""
    ) -> Reading:
        """Always refused."""
        self._refuse("tells of no next tokens; run on an engine that does")

    def score(self, branch: Branch, suffixes: Sequence[Branch], *, owner: str = "") -> Reading:
        """Always refused."""
        self._refuse("scores no text; run on an engine that does")

    def reward(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Always refused."""
        self._refuse("gives no rewards; run on a reward model")

    def hidden(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Always refused."""
        self._refuse("tells of no hidden states; run on an engine that does")

    def close(self) -> None:
        """Closes the connections; calls that run are cut."""
        routes, self._routes = self._routes, None
        if routes is not None:
            _THREAD.run(_closed(routes))

    def _refuse(self, what: str) -> NoReturn:
        raise EngineError(f"{self.name} is asked through a text API: it {what}")


def texts_of(service: Service, context: int | None = None) -> Texts:
    """What a service's model reads.

    Raises:
        EngineError: what that needs is not installed.
        ModelFileError: there is no such vocabulary.
    """
    try:
        from ttc.engine.local.hub.models import find
        from ttc.engine.texts import Texts
    except ModuleNotFoundError as error:
        raise EngineError(
            f"a service's tokenizer needs {error.name}: {install_hint('local')}"
        ) from None
    path = Path(service.tokenizer or "")
    where = path if path.exists() else find(path)
    return Texts.load(where, name=service.model, context=context)


async def _closed(routes: Routes) -> None:
    for route in routes.all:
        route.close()


def _close(routes: Routes, loop: asyncio.AbstractEventLoop) -> None:
    """Closes the connections of an engine that is gone."""
    with suppress(RuntimeError):  # the loop is gone as well
        asyncio.run_coroutine_threadsafe(_closed(routes), loop)


def headers_of(service: Service) -> list[tuple[str, str]]:
    """What every request to a service carries.

    Raises:
        EngineError: what it needs is not installed.
    """
    try:
        import h11  # noqa: F401 - so that its absence is told before a call
        import httpx2  # noqa: F401
        import orjson  # noqa: F401
        import tenacity  # noqa: F401
    except ModuleNotFoundError as error:
        raise EngineError(
            f"OpenAI-compatible servers need {error.name}: {install_hint('openai')}"
        ) from None
    headers = [
        ("content-type", "application/json"),
        ("accept", "text/event-stream, application/json"),
        ("accept-encoding", "identity"),
        ("user-agent", "ttc"),
    ]
    if service.key is not None:
        headers.append(("authorization", f"Bearer {service.key}"))
    return headers


def http_client(service: Service, url: str) -> Any:
    """A client for one server, which sends nothing by itself and follows no redirect."""
    headers = headers_of(service)  # before the import, whose absence it tells
    import httpx2

    return httpx2.AsyncClient(
        verify=_trust(url),
        trust_env=False,
        headers=headers,
        timeout=httpx2.Timeout(service.silence, connect=CONNECT_S, pool=None),
        limits=httpx2.Limits(max_connections=None),
    )


def _connection(url: str) -> Connection:
    """A connection to one server, which is yet to be opened."""
    from ttc.engine.openai.connection import Connection

    return Connection(url, _trust(url) or None)


def _trust(url: str) -> Any:
    """The certificates that are trusted; none where there is nothing to verify."""
    return _certificates() if url.startswith("https:") else False


@cache
def _certificates() -> Any:
    """Those of the system, which take a while to read."""
    import ssl

    return ssl.create_default_context()
