"""The viewer of a server: a key sees its own runs, live and afterwards."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ttc
from tests.serve.lab import LONG, SAID, Served, eventually, serving
from ttc.serve import Keys
from ttc.serve.traces import Trace
from ttc.strategies import SelfConsistency
from ttc.testing import FakeEngine
from ttc.view.recorder import Recorder
from ttc.view.run import RunView

SECRETS = {name: f"{name}-{name}-{name}-{name}" for name in ("alice", "bobby")}
SPEC = "fake@self_consistency(n=3)"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    keys = Keys.read(None, ",".join(f"{name}={secret}" for name, secret in SECRETS.items()))
    with serving(keys=keys) as server:
        yield server


def _as(name: str) -> dict[str, str]:
    secret = base64.b64encode(f"me:{SECRETS[name]}".encode()).decode()
    return {"authorization": f"Basic {secret}"}


def _ask(server: Served, name: str, **body: Any) -> str:
    headers = {"authorization": f"Bearer {SECRETS[name]}"}
    reply = server.post(headers=headers, **body).json()
    return str(reply["id"]).removeprefix("chatcmpl-")


def _rows(view: RunView) -> list[dict[str, Any]]:
    """Without the version at which each was told."""
    return [{**row, "v": 0} for row in view.document(0)["rows"]]


def test_a_browser_is_asked_for_a_key(served: Served) -> None:
    for path in ("/ui/", "/ui/some-run", "/ui/some-run/data"):
        reply = served.http.get(served.root + path)
        assert (reply.status_code, reply.headers["www-authenticate"][:5]) == (401, "Basic")
    wrong = {"authorization": "Basic " + base64.b64encode(b"me:wrong").decode()}
    assert served.http.get(f"{served.root}/ui/", headers=wrong).status_code == 401
    assert served.post(headers=_as("alice")).status_code == 401


def test_a_key_sees_its_own_runs(served: Served) -> None:
    run = _ask(served, "alice", model=SPEC)
    page = served.http.get(f"{served.root}/ui/", headers=_as("alice"))
    data = f"{served.root}/ui/{run}-0/data"

    assert f"{run}-0" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"] + page.text
    assert served.http.get(data, headers=_as("alice")).status_code == 200
    assert run not in served.http.get(f"{served.root}/ui/", headers=_as("bobby")).text
    assert served.http.get(data, headers=_as("bobby")).status_code == 404


def test_a_run_is_told_whole_once_it_has_ended(served: Served) -> None:
    run = _ask(served, "alice", model=SPEC)
    url = f"{served.root}/ui/{run}-0/data"

    def told() -> dict[str, Any]:
        document: dict[str, Any] = served.http.get(url, headers=_as("alice")).json()
        return document

    assert eventually(lambda: told()["state"] == "finished")
    assert len([row for row in told()["rows"] if row["id"].startswith("0.sample#")]) >= 2


def test_a_run_is_told_while_it_runs() -> None:
    engine = FakeEngine(LONG, seconds_per_token=0.01)
    with serving(engine) as server, ThreadPoolExecutor() as pool:
        reply = pool.submit(server.post, max_tokens=50)
        assert eventually(lambda: engine.active == 1)
        listed = server.http.get(f"{server.root}/ui/").text
        assert "17 * 23" in listed
        assert "running" in listed
        assert reply.result().status_code == 200


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_run_is_told_alike_whether_or_not_it_was_looked_at_before(is_watched: bool) -> None:
    asked, strategy = ttc.Problem.ask("What is 17 * 23?"), SelfConsistency(n=3)
    engine = FakeEngine(SAID)
    trace = Trace("run", asked, strategy, budget=ttc.Budget(), engines={"policy": engine})
    outcome = ttc.solve(asked, strategy, model=engine, watch=trace, seed=1)
    live = trace.view.document(0) if is_watched else None
    trace.finish(outcome)
    whole = Recorder("run", asked, strategy, engines={"policy": "fake"})
    whole.finish(outcome)

    assert live is None or (live["state"] == "running" and live["rows"])
    assert trace.view.document(0)["state"] == trace.line.state == "finished"
    assert _rows(trace.view) == _rows(whole)


def test_no_more_runs_are_kept_than_was_said() -> None:
    with serving(max_traces=2) as server:
        runs = [server.post().json()["id"].removeprefix("chatcmpl-") for _ in range(3)]
        page = server.http.get(f"{server.root}/ui/").text

    assert [run in page for run in runs] == [False, True, True]
