"""HttpVerifier, on a server of this very process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import ttc
from ttc import GraphError, Outcome, Problem
from ttc.graph_files import to_json
from ttc.strategies import Best, Sample, Vote
from ttc.testing import FakeEngine
from ttc.text_form import parse, write
from ttc.verifiers import HttpVerifier

Answer = Callable[[Any], tuple[int, dict[str, str], bytes]]
REPLIES = ["The answer is 1.", "The answer is 2.", "The answer is 3."]


def scoring(scores: Callable[[dict[str, Any]], object]) -> Answer:
    """A server that scores each item."""

    def answer(body: Any) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps({"scores": [scores(item) for item in body["items"]]}).encode()

    return answer


class Server:
    """What a server was asked, and where it is."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/score"
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.release = threading.Event()


@contextmanager
def served(answer: Answer, *, held: bool = False) -> Iterator[Server]:
    """A server that answers so; `held`: not before it is told to."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.bodies.append(body)
            server.paths.append(self.path)
            server.headers.append({k.lower(): v for k, v in self.headers.items()})
            if held:
                server.release.wait(30)
            status, headers, content = answer(body)
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                return  # whoever asked has left

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(http.server_port)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        http.shutdown()
        http.server_close()
        thread.join()


def solved(verifier: HttpVerifier, n: int = 3) -> Outcome:
    """A run of a strategy that asks it."""
    engine = FakeEngine(REPLIES, in_order=True)
    return ttc.solve("Which?", Sample(n=n) >> verifier >> Best(), model=engine, seed=0)


def told(outcome: Outcome) -> list[tuple[float | None, str]]:
    """The scores, and why they are unknown."""
    scores = [c.scores["http"] for c in outcome.candidates]
    return [(score.value, str(score.evidence.get("error", ""))) for score in scores]


def test_candidates_are_scored_in_one_request() -> None:
    """Each with its problem, its text and its answer."""
    with served(scoring(lambda item: int(item["answer"]) / 4)) as server:
        outcome = solved(HttpVerifier(server.url, wait=0.2))

    assert outcome.answer == "3"
    assert [value for value, _ in told(outcome)] == [0.25, 0.5, 0.75]
    assert outcome.usage.verifier_calls == 3
    assert server.bodies == [
        {
            "items": [
                {"problem": "Which?", "text": text, "answer": str(n)}
                for n, text in enumerate(REPLIES, 1)
            ]
        }
    ]


def test_problems_that_are_solved_at_once_share_requests() -> None:
    """And no request holds more than a batch."""
    problems = [Problem.ask(f"Question {n}?") for n in range(6)]
    with served(scoring(lambda item: 0.5)) as server:
        verifier = HttpVerifier(server.url, wait=0.2, batch=8)
        outcomes = ttc.solve_many(
            problems, Sample(n=3) >> verifier >> Best(), model=FakeEngine(REPLIES), seed=0
        )

    sizes = [len(body["items"]) for body in server.bodies]
    assert all(outcome.answer for outcome in outcomes)
    assert sum(sizes) == 18
    assert len(sizes) < 18
    assert max(sizes) <= 8


BAD: dict[str, tuple[Answer, str]] = {
    "status": (lambda _: (500, {}, b"no"), "answered 500, not 200"),
    "redirect": (lambda _: (307, {"location": "/elsewhere"}, b""), "answered 307, not 200"),
    "no json": (lambda _: (200, {}, b"<html>"), "gave no scores"),
    "deep": (lambda _: (200, {}, b"[" * 100_000), "gave no scores"),
    "no scores": (lambda _: (200, {}, b'{"score": 1}'), "gave no scores"),
    "no object": (lambda _: (200, {}, b"[0.5, 0.5, 0.5]"), "gave no scores"),
    "too few": (lambda _: (200, {}, b'{"scores": [0.5]}'), "gave no scores"),
    "too long": (lambda _: (200, {}, b" " * 300_000), "sent more than 200,000 bytes"),
    "compressed": (lambda _: (200, {"content-encoding": "gzip"}, b"x"), "compressed its reply"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_reply_leaves_the_scores_of_its_batch_unknown(fault: str) -> None:
    """With the reason, and the run goes on."""
    answer, reason = BAD[fault]
    with served(answer) as server:
        outcome = solved(HttpVerifier(server.url, wait=0.2, max_bytes=200_000))

    assert outcome.stopped_by == "no_finite_score"
    for value, why in told(outcome):
        assert value is None
        assert f"VerifierError: {server.url} {reason}" in why
    assert set(server.paths) == {"/score"}


@pytest.mark.parametrize("value", ["0.5", True, [0.5], 1.5, -0.1, 1e999, float("nan"), None])
def test_a_score_that_is_none_is_unknown_alone(value: object) -> None:
    """The others of its batch stand."""
    with served(scoring(lambda item: value if item["answer"] == "3" else 0.5)) as server:
        outcome = solved(HttpVerifier(server.url, wait=0.2))

    assert [known for known, _ in told(outcome)] == [0.5, 0.5, None]
    assert outcome.answer == "1"


def test_a_server_that_hangs_is_left_after_a_time() -> None:
    """And its batch is unknown."""
    with served(scoring(lambda item: 1), held=True) as server:
        outcome = solved(HttpVerifier(server.url, wait=0.2, seconds=0.3))

    assert all("took more than 0.3 seconds" in why for _, why in told(outcome))


def test_a_server_that_is_not_there_leaves_scores_unknown() -> None:
    """As any verifier that fails does."""
    with served(scoring(lambda item: 1)) as server:
        url = server.url

    outcome = solved(HttpVerifier(url))

    assert all("cannot be asked" in why for _, why in told(outcome))


def test_a_deadline_ends_a_request() -> None:
    """Nothing waits for a server that nobody waits for."""
    with served(scoring(lambda item: 1), held=True) as server:
        graph = Sample(n=2) >> HttpVerifier(server.url) >> Vote()
        outcome = ttc.solve(
            "?", graph, model=FakeEngine(REPLIES), seed=0, budget=ttc.Budget(seconds=0.5)
        )

    assert outcome.stopped_by == "seconds"


def test_a_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph, a trace and an error hold its name alone."""
    monkeypatch.setenv("SCORER", "s3cret")
    with served(scoring(lambda item: 1)) as server:
        verifier = HttpVerifier(server.url, token="SCORER")
        outcome = solved(verifier)
        missing = solved(HttpVerifier(server.url, token="NOWHERE"))

    assert server.headers[0]["authorization"] == "Bearer s3cret"
    assert "s3cret" not in f"{verifier}{outcome}"
    assert all("has no NOWHERE" in why for _, why in told(missing))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "file:///etc/passwd"}, "url is http"),
        ({"url": "http://"}, "url is http"),
        ({"url": 8000}, "url is http.*not 8000"),
        ({"url": "http://me:secret@host/"}, "no password"),
        ({"range": (1.0, 0.0)}, "the lower one first"),
        ({"seconds": 0}, "are positive"),
        ({"batch": 0}, "are positive"),
    ],
)
def test_options_are_checked(options: dict[str, Any], reason: str) -> None:
    """Before anything is asked."""
    with pytest.raises(ValueError, match=reason):
        HttpVerifier(**{"url": "http://localhost/score", **options})


def test_no_strategy_of_a_stranger_makes_requests() -> None:
    """It has no name in texts and files."""
    graph = Sample(n=2) >> HttpVerifier("http://localhost/") >> Best()

    for form in (write, to_json):
        with pytest.raises(GraphError, match="HttpVerifier is not registered"):
            form(graph)
    with pytest.raises(GraphError, match="nothing is called 'http_verifier'"):
        parse("sample() >> http_verifier('http://localhost/') >> best()")
