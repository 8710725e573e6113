"""A server on the fake engine, and its clients."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
import openai

from ttc.ports import Engine
from ttc.serve import App, Keys, Service, Settings, background
from ttc.testing import FakeEngine

ASKED: list[Any] = [{"role": "user", "content": "What is 17 * 23?"}]
SAID = ("The answer is 391.", "The answer is 401.", "So it is 391. The answer is 391.")
LONG = " ".join(f"word{n}" for n in range(1000))


class Served:
    """A running server, with what it runs on."""

    def __init__(self, url: str, service: Service, engine: FakeEngine, http: httpx2.Client) -> None:
        self.url, self.service, self.engine, self.http = url, service, engine, http
        self.root = url.removesuffix("/v1")

    def client(self, key: str = "none", **options: Any) -> Any:
        """OpenAI's own client. Its types tell apart what a test leaves open."""
        return openai.OpenAI(base_url=self.url, api_key=key, **{"max_retries": 0, **options})

    def post(
        self,
        path: str = "/chat/completions",
        *,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> httpx2.Response:
        """A plain request with what a chat has at least."""
        shared: dict[str, Any] = {"model": "fake"} if "completions" in path else {}
        if path == "/chat/completions":
            shared["messages"] = ASKED
        return self.http.post(self.url + path, json={**shared, **body}, headers=headers)

    def frames(self, path: str = "/chat/completions", **body: Any) -> list[str]:
        """The lines of a stream that are not empty."""
        reply = self.post(path, stream=True, **body)
        return [line for line in reply.text.split("\n") if line]

    def chunks(self, path: str = "/chat/completions", **body: Any) -> list[dict[str, Any]]:
        """What a stream says as JSON, up to its end."""
        lines = self.frames(path, **body)
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]

    def fault(self, status: int = 400, /, **body: Any) -> dict[str, Any]:
        """The error of a chat that is refused."""
        reply = self.post(**body)
        assert reply.status_code == status, reply.text
        error: dict[str, Any] = reply.json()["error"]
        return error


@contextmanager
def serving(
    engine: FakeEngine | None = None,
    *,
    keys: Keys | None = None,
    roles: Mapping[str, Engine] | None = None,
    models: Mapping[str, Engine] | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """A server in the background."""
    engine = engine or FakeEngine(SAID)
    service = Service(models or {"fake": engine}, roles=roles, settings=Settings(**settings))
    with httpx2.Client(timeout=30, verify=False) as http, background(App(service, keys)) as url:
        yield Served(url, service, engine, http)


def eventually(is_true: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_true():
            return True
        time.sleep(0.005)
    return False
