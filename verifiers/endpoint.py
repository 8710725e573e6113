"""HttpVerifier: scores by an HTTP endpoint of one's own, asked in batches.

    Sample(n=8) >> HttpVerifier("http://localhost:8000/score") >> Best()

It posts `{"items": [{"problem": …, "text": …, "answer": …}, …]}` and reads
`{"scores": [0.9, null, …]}`: a number within the range for each item, or `null` for unknown. What
is asked within a few milliseconds, by whatever candidates and problems of an event loop, goes in
one request.

What comes back is not believed: redirects are not followed, a reply is cut at a size and a time,
and one that is not of the form leaves the scores of its batch unknown. It has no text form, so that
a strategy from a stranger makes no requests.

Cost: a verifier call for each candidate, and a request for each batch.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from ttc.errors import VerifierError
from ttc.ports import Scope
from ttc.prompts import question, solution
from ttc.registry import install_hint
from ttc.types import Candidate, Problem, Score

__all__ = ["HttpVerifier"]


@dataclass(frozen=True)
class HttpVerifier:
    """Asks an endpoint for scores."""

    url: str
    name: str = field(default="http", kw_only=True)
    range: tuple[float, float] = field(default=(0.0, 1.0), kw_only=True)
    """The bounds of its scores; a score outside is unknown."""
    seconds: float = field(default=30.0, kw_only=True)
    """The most that a request takes, from its connection to its last byte."""
    batch: int = field(default=64, kw_only=True)
    """The most candidates in a request."""
    wait: float = field(default=0.005, kw_only=True)
    """Seconds for which a batch waits for more."""
    max_bytes: int = field(default=1_000_000, kw_only=True)
    """The most bytes of a reply that are read."""
    token: str | None = field(default=None, kw_only=True)
    """The name of the environment variable with a bearer token, so that no secret is in a graph."""
    needs: Literal["each"] = field(default="each", init=False)
    requires: frozenset[str] = field(default=frozenset(), init=False)
    roles: frozenset[str] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        url: object = self.url
        parts = urlsplit(url if isinstance(url, str) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url is http://… or https://…, not {self.url!r}")
        if parts.username is not None or parts.password is not None:
            raise ValueError("url holds no password; name an environment variable by token=")
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"range is two numbers, the lower one first, not {self.range}")
        if not (self.seconds > 0 and self.batch >= 1 and self.wait >= 0 and self.max_bytes >= 1):
            raise ValueError(
                f"seconds ({self.seconds}), batch ({self.batch}) and max_bytes ({self.max_bytes}) "
                f"are positive, and wait ({self.wait}) is not negative"
            )

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate.

        Raises:
            VerifierError: the endpoint cannot be asked, or gives something else than scores.
        """
        asked, line = question(problem), _line_of(self)
        replies = [
            line.put({"problem": asked, "text": solution(c), "answer": c.answer})
            for c in candidates
        ]
        try:
            values = await asyncio.gather(*replies)
        finally:
            for reply in replies:
                reply.cancel()
        return tuple(self._score(value) for value in values)

    def _score(self, value: object) -> Score:
        low, high = self.range
        if value is None:
            return Score(value=None, range=self.range, evidence={"error": "it does not say"})
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:  # type: ignore[operator]
            error = f"{repr(value)[:40]} is no number from {low:g} to {high:g}"
            return Score(value=None, range=self.range, evidence={"error": error})
        return Score(value=float(value), range=self.range)  # type: ignore[arg-type]

    async def scores(self, items: Sequence[Mapping[str, Any]]) -> list[object]:
        """What the endpoint says of a batch.

        Raises:
            VerifierError: it cannot be asked, or gives something else than scores.
        """
        try:
            async with asyncio.timeout(self.seconds):
                body = await self._posted(items)
        except TimeoutError:
            raise VerifierError(f"{self.url} took more than {self.seconds:g} seconds") from None
        try:
            scores = json.loads(body)["scores"]
            if not isinstance(scores, list) or len(scores) != len(items):
                raise TypeError(f"scores is a list of {len(items)}")
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise VerifierError(f"{self.url} gave no scores: {error!r:.100}") from None
        return scores

    async def _posted(self, items: Sequence[Mapping[str, Any]]) -> bytes:
        http = _http()
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        if self.token is not None:
            if self.token not in os.environ:
                raise VerifierError(f"the environment has no {self.token}, which holds the token")
            headers["authorization"] = f"Bearer {os.environ[self.token]}"
        body = bytearray()
        try:
            async with (
                http.AsyncClient(verify=_trust(), trust_env=False, timeout=self.seconds) as client,
                client.stream(
                    "POST", self.url, json={"items": list(items)}, headers=headers
                ) as reply,
            ):
                if reply.status_code != 200:
                    raise VerifierError(f"{self.url} answered {reply.status_code}, not 200")
                if reply.headers.get("content-encoding", "identity") != "identity":
                    raise VerifierError(f"{self.url} compressed its reply, unasked")
                async for chunk in reply.aiter_raw():
                    body += chunk
                    if len(body) > self.max_bytes:
                        raise VerifierError(f"{self.url} sent more than {self.max_bytes:,} bytes")
        except (http.HTTPError, http.InvalidURL, OSError) as error:
            raise VerifierError(f"{self.url} cannot be asked: {error!r:.200}") from None
        return bytes(body)


class _Line:
    """What waits to be asked in one event loop, until a batch is full or has waited enough."""

    def __init__(self, verifier: HttpVerifier) -> None:
        self._verifier = verifier
        self._waiting: list[tuple[Mapping[str, Any], asyncio.Future[object]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    def put(self, item: Mapping[str, Any]) -> asyncio.Future[object]:
        """What will be said of an item."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[object] = loop.create_future()
        self._waiting.append((item, reply))
        if len(self._waiting) >= self._verifier.batch:
            self._send()
        elif self._timer is None:
            self._timer = loop.call_later(self._verifier.wait, self._send)
        return reply

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = [(item, reply) for item, reply in self._waiting if not reply.done()]
        self._waiting = []
        if not batch:
            return
        task = asyncio.get_running_loop().create_task(self._ask(batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        for _, reply in batch:
            reply.add_done_callback(
                lambda _: task.cancel() if all(other.done() for _, other in batch) else None
            )

    async def _ask(self, batch: Sequence[tuple[Mapping[str, Any], asyncio.Future[object]]]) -> None:
        """Asks, and tells everyone who still waits. Whoever asks last and leaves ends it."""
        try:
            values = await self._verifier.scores([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - those who wait are told of it
            for _, reply in batch:
                if not reply.done():
                    reply.set_exception(error)
            return
        for (_, reply), value in zip(batch, values, strict=True):
            if not reply.done():
                reply.set_result(value)


_LINES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[HttpVerifier, _Line]] = (
    WeakKeyDictionary()
)


def _line_of(verifier: HttpVerifier) -> _Line:
    """The line of a verifier in the running loop."""
    lines = _LINES.setdefault(asyncio.get_running_loop(), {})
    return lines.setdefault(verifier, _Line(verifier))


def _http() -> Any:
    try:
        import httpx2
    except ModuleNotFoundError:
        raise VerifierError(f"HttpVerifier needs httpx2: {install_hint('http')}") from None
    return httpx2


@cache
def _trust() -> Any:
    """The certificates that are trusted, which take a while to read."""
    import ssl

    return ssl.create_default_context()
