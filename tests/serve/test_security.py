"""Hostile clients: keys, hosts, bodies, labels and logs."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.lab import Served, eventually, serving
from ttc.errors import SettingsError
from ttc.serve import Keys, new_key
from ttc.serve.door import host_of
from ttc.testing import FakeEngine

SECRET = "open-sesame-open-sesame"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    """A server with two keys; bob may do little."""
    secrets, lines = {}, ""
    for name in ("alice", "bob"):
        secrets[name], own = new_key(name)
        lines += own
    lines += 'models = ["fake"]\nstrategies = ["sample", "vote"]\nbudget = { tokens = 50 }\n'
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    path.write_text(lines, encoding="utf-8")
    engines = {"fake": FakeEngine("The answer is 4."), "large": FakeEngine("The answer is 5.")}
    with serving(keys=Keys.read(path, f"carol={SECRET}"), models=engines) as server:
        yield server, secrets | {"carol": SECRET}


def _as(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def test_a_server_with_keys_lets_nobody_in_without_one(
    locked: tuple[Served, dict[str, str]],
) -> None:
    server, secrets = locked
    for given in ({}, _as("wrong"), _as("x"), {"authorization": secrets["alice"]}, _as("é" * 9)):
        encoded = {name: value.encode("utf-8") for name, value in given.items()}
        for path in ("/v1/models", "/metrics"):
            reply = server.http.get(server.root + path, headers=encoded)
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
        assert server.post(headers=encoded).status_code == 401  # type: ignore[arg-type]


def test_every_key_of_file_and_environment_opens(locked: tuple[Served, dict[str, str]]) -> None:
    server, secrets = locked

    for secret in secrets.values():
        assert server.http.get(f"{server.url}/models", headers=_as(secret)).status_code == 200
    assert server.http.get(f"{server.root}/health").status_code == 200


def test_a_key_is_held_to_its_models_strategies_and_budget(
    locked: tuple[Served, dict[str, str]],
) -> None:
    server, secrets = locked
    bob, alice = _as(secrets["bob"]), _as(secrets["alice"])
    listed = server.http.get(f"{server.url}/models", headers=bob).json()["data"]

    assert [model["id"] for model in listed] == ["fake"]
    assert server.post(headers=bob, model="large").status_code == 403
    assert server.post(headers=alice, model="large").status_code == 200
    assert server.post(headers=bob, model="fake@greedy()").status_code == 403
    assert server.post(headers=bob, model="fake@sample(max_tokens=9) >> vote()").status_code == 200
    spent = server.post(headers=bob, max_tokens=40)
    assert (spent.status_code, spent.json()["error"]["code"]) == (429, "insufficient_quota")
    assert server.post(headers=alice, max_tokens=40).status_code == 200


def test_a_key_reaches_no_model_by_a_role(tmp_path: Path) -> None:
    """A strategy of a stranger's may name roles, and behind them are models."""
    secret, lines = new_key("bob")
    path = tmp_path / "keys.toml"
    path.write_text(f'{lines}models = ["fake", "judge"]\n', encoding="utf-8")
    roles = {name: FakeEngine("The answer is 5.") for name in ("large", "judge")}
    with serving(keys=Keys.read(path, None), roles=roles) as server:
        spec = "fake@sample(role='{}') >> vote()"
        large = server.post(headers=_as(secret), model=spec.format("large"))
        judge = server.post(headers=_as(secret), model=spec.format("judge"))

    assert (large.status_code, judge.status_code) == (403, 200)
    assert roles["large"].calls == 0


def test_engines_of_one_kind_are_counted_in_one_text() -> None:
    class Metered(FakeEngine):
        def prometheus(self) -> str:
            return f"# TYPE ttc_engine_steps counter\nttc_engine_steps {self.calls}\n"

    with serving(models={"a": Metered("x"), "b": Metered("y")}) as server:
        text = server.http.get(f"{server.root}/metrics").text

    assert text.count("# TYPE ttc_engine_steps counter") == 1
    assert text.count("\nttc_engine_steps 0") == 2


def test_a_file_of_keys_holds_no_secret(tmp_path: Path) -> None:
    secret, lines = new_key("alice")
    path = tmp_path / "keys.toml"
    path.write_text(lines, encoding="utf-8")

    assert secret not in lines
    assert secret not in repr(Keys.read(path, None).all)
    assert Keys.read(path, None).find(f"Bearer {secret}").name == "alice"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a]\nsha256 = 'short'", "64 hexadecimal digits"),
        ("[a]\nsecret = 'x'", "not \\['secret'\\]"),
        ("a = 3", "the key a has"),
        ("[a", "cannot be read"),
        ("['a b']\nsha256 = 'x'", "not 'a b'"),
        (f"[a]\nsha256 = '{'0' * 64}'\nbudget = {{ dollars = 1 }}", "budget of the key a"),
    ],
)
def test_a_file_that_holds_no_keys_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError, match=fault):
        Keys.read(path, None)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least 16 characters, not 5"):
        Keys.read(None, "a=12345")


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]:80"]
)
def test_another_host_is_refused(served: Served, host: str) -> None:
    """A page of a stranger's, whose name leads here, has its own name in the header."""
    reply = served.http.get(f"{served.root}/health", headers={"host": host})

    assert reply.status_code == 400


@pytest.mark.parametrize(
    ("header", "name"),
    [("LocalHost:8000", "localhost"), ("[::1]:8000", "::1"), ("127.0.0.1", "127.0.0.1"), ("", "")],
)
def test_a_host_is_read_without_its_port(header: str, name: str) -> None:
    assert host_of(header) == name


def test_no_other_origin_is_let_in(served: Served) -> None:
    """A page cannot send JSON without asking first, and is not answered when it asks."""
    asked = served.http.request(
        "OPTIONS",
        f"{served.url}/chat/completions",
        headers={"origin": "http://evil.example", "access-control-request-method": "POST"},
    )
    plain = served.http.post(
        f"{served.url}/chat/completions", content=b"{}", headers={"content-type": "text/plain"}
    )

    assert asked.status_code == 405
    assert not any(name.startswith("access-control") for name in asked.headers)
    assert plain.status_code == 415


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b'{"model": NaN}', b'{"model": "\\ud800"}', b"[" * 100_000, b"\xff"],
)
def test_a_body_that_is_no_request_is_refused(served: Served, body: bytes) -> None:
    reply = served.http.post(
        f"{served.url}/chat/completions", content=body, headers={"content-type": "application/json"}
    )

    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_a_large_body_is_refused_before_it_is_read() -> None:
    with serving(max_body_bytes=10_000) as server:
        told = server.post(messages=[{"role": "user", "content": "x" * 20_000}])
        host, port = server.root.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                + b"2000\r\n" + b"x" * 0x2000 + b"\r\n" + b"2000\r\n" + b"x" * 0x2000 + b"\r\n"
            )  # fmt: skip
            chunked = connection.recv(1000)

    assert (told.status_code, told.json()["error"]["code"]) == (413, "request_too_large")
    assert chunked.startswith(b"HTTP/1.1 413")


def test_unknown_paths_and_methods_are_told_in_the_apis_shape(served: Served) -> None:
    missing = served.http.get(f"{served.url}/embeddings")
    wrong = served.http.get(f"{served.url}/chat/completions")

    assert (missing.status_code, missing.json()["error"]["param"]) == (404, None)
    assert wrong.status_code == 405


def test_metrics_count_without_a_word_of_a_client(served: Served) -> None:
    served.post(model="fake@self_consistency(n=2)", user="mallory-was-here")
    served.post(model="mallory-was-here")
    served.frames()
    text = served.http.get(f"{served.root}/metrics").text

    assert 'ttc_calls_total{model="fake"}' in text
    assert 'ttc_requests_total{endpoint="chat",status="404"}' in text
    assert "ttc_first_event_seconds_count" in text
    assert "mallory" not in text
    assert "self_consistency" not in text


def test_logs_hold_no_text(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    secret_words = "the-launch-code-is-7351"
    with caplog.at_level(logging.DEBUG):
        for body in (
            {"messages": [{"role": "user", "content": secret_words}]},
            {"messages": [{"role": "user", "content": secret_words}], "stream": True},
            {"model": f"fake@sample(role='{secret_words}') >> vote()"},
            {"model": secret_words},
            {secret_words: 1},
        ):
            served.post(**body)
        assert eventually(lambda: len([r for r in caplog.records if r.name == "ttc.serve"]) >= 5)
    own = [r.getMessage() for r in caplog.records if r.name.startswith(("ttc", "uvicorn"))]

    assert own
    assert not any(secret_words in message for message in own)
    assert not any("answer is" in message for message in own)


@pytest.mark.parametrize("lines", [b"x" * 400_000, b"x: y\r\n" * 60_000], ids=["one", "many"])
def test_a_head_without_an_end_is_hung_up_on(served: Served, lines: bytes) -> None:
    host, port = served.root.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        try:
            connection.sendall(b"GET /health HTTP/1.1\r\n" + lines)
            answer = connection.recv(1_000)
        except ConnectionError:  # it hung up before all was sent
            answer = b""

    assert answer == b""
    assert served.http.get(f"{served.root}/health").status_code == 200


def test_a_long_body_is_no_long_head(served: Served) -> None:
    """Pieces of a body that come by themselves count as none of its head."""
    content = b'{"messages": [], "model": "' + b"x" * 300_000 + b'"}'

    reply = served.http.post(
        f"{served.url}/chat/completions",
        content=(content[at : at + 5_000] for at in range(0, len(content), 5_000)),
        headers={"content-type": "application/json"},
    )

    assert reply.status_code == 400
