"""Clients that leave: nothing of their request lives on, and what it spent is booked. KV-04."""

import socket
from collections.abc import Callable

import orjson
import pytest

from tests.serve.lab import ASKED, LONG, Served, eventually, serving
from ttc.ports import Generation, Request
from ttc.testing import FakeEngine

SLOW = 0.02
MODELS = [
    "fake",
    "fake@self_consistency(n=4, max_tokens=1000)",
    "fake@best_of_n(verifier=mean_logprob(), n=3, max_tokens=1000)",
]


class Counting(FakeEngine):
    """A slow engine that counts how often a call is cancelled."""

    def __init__(self, concurrency: int | None = None) -> None:
        super().__init__(LONG, seconds_per_token=SLOW, concurrency=concurrency)
        self.cancelled: list[str] = []

    def submit(self, request: Request, on_chunk: Callable[..., None] | None = None) -> Generation:  # type: ignore[override]
        """Notes its end by hand."""
        generation = super().submit(request, on_chunk)
        cancel = generation.cancel

        def counted() -> int:
            self.cancelled.append(request.call)
            return cancel()

        generation.cancel = counted  # type: ignore[method-assign]
        return generation


def _leaving(served: Served, body: dict[str, object]) -> socket.socket:
    """A connection whose request was sent, and whose reply nobody reads."""
    host, port = served.root.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    content = orjson.dumps({"messages": ASKED, **body})
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    connection.sendall(head.encode() + content)
    return connection


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", MODELS)
def test_a_client_that_leaves_ends_its_calls(stream: bool, model: str) -> None:
    engine = Counting()
    with serving(engine) as server:
        connection = _leaving(server, {"model": model, "stream": stream, "max_tokens": 1000})
        assert eventually(lambda: engine.output_tokens >= 5)
        connection.close()

        assert eventually(lambda: not server.service.jobs)
        assert engine.active == 0
        spent = server.service.ledger.server.spent
        prompt = 7
        assert spent["tokens"] == engine.output_tokens + prompt
        assert not any(server.service.ledger.server.reserved.values())
        assert len(engine.cancelled) == len(set(engine.cancelled)) == engine.calls


def test_a_client_that_leaves_while_it_waits_is_forgotten() -> None:
    engine = Counting()
    with serving(engine, concurrency=1) as server:
        first = _leaving(server, {"model": "fake"})
        assert eventually(lambda: engine.active == 1)
        waiting = [_leaving(server, {"model": "fake", "stream": s}) for s in (False, True)]
        assert eventually(lambda: server.service.line.waiting == 2)
        for connection in waiting:
            connection.close()
        assert eventually(lambda: server.service.line.waiting == 0)
        assert engine.calls == 1
        first.close()
        assert eventually(lambda: not server.service.jobs)

    assert server.service.line.running == 0


def test_a_reply_that_was_read_cancels_nothing() -> None:
    """No flood of cancellations after an orderly end."""
    engine = Counting()
    with serving(engine) as server:
        for stream in (False, True):
            assert server.post(stream=stream, max_tokens=3).status_code == 200
        assert eventually(lambda: not server.service.jobs)

    assert engine.cancelled == []


def test_a_client_that_stops_reading_holds_up_nobody() -> None:
    with serving(FakeEngine("The answer is 4."), concurrency=4) as server:
        deaf = [_leaving(server, {"model": "fake", "stream": True, "n": 64}) for _ in range(3)]
        assert server.post().status_code == 200
        for connection in deaf:
            connection.close()
        assert eventually(lambda: not server.service.jobs)
