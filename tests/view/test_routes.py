"""The viewer's routes and its pages, as a client without a browser sees them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.meta.tree import ROOT
from tests.view.lab import QUESTION, VOTE, keep
from ttc.testing import FakeEngine
from ttc.view import KeptRuns, RunLine, RunView, document, routes, written
from ttc.view.local import application
from ttc.view.page import SCRIPTS, headers

ASSETS = ROOT / "ttc" / "view" / "assets"
HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)> {{SCRIPT}} \u202e"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vote, kept."""
    path = tmp_path_factory.mktemp("runs") / "vote.journal"
    keep(path, VOTE, engine=FakeEngine(["The answer is 205.", "The answer is 215."]))
    return path


@pytest.fixture
def client(journal: Path) -> TestClient:
    """A client of the routes over one journal."""
    return TestClient(Starlette(routes=[Mount("/ui", routes=routes(KeptRuns(journal)))]))


def embedded(page: str, name: str) -> Any:
    """What a page holds as data."""
    found = re.search(rf'id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def test_the_page_of_a_run_is_told_by_its_name(client: TestClient) -> None:
    answer = client.get("/ui/vote")

    assert answer.status_code == 200
    assert "<title>vote · ttc</title>" in answer.text
    assert embedded(answer.text, "document") == {"live": True}


def test_the_data_of_a_run_are_its_document(client: TestClient, journal: Path) -> None:
    whole = client.get("/ui/vote/data").json()

    assert whole == document(journal)
    assert client.get(f"/ui/vote/data?after={whole['version']}").json()["rows"] == []


def test_the_text_of_a_call_is_told_when_it_is_asked_for(client: TestClient) -> None:
    told = client.get("/ui/vote/text", params={"id": "0.sample#0"}).json()

    assert told["text"].startswith("The answer is 2")
    assert "text" not in json.dumps(client.get("/ui/vote/data").json()["rows"])
    assert len(client.get("/ui/vote/find", params={"text": "THE ANSWER"}).json()) == 8


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/nobody", 404),
        ("/ui/nobody/data", 404),
        ("/ui/vote/text?id=nobody", 404),
        ("/ui/vote/data?after=x", 400),
        ("/ui/..%2f..%2fetc%2fpasswd", 404),
        ("/ui/vote/data/more", 404),
    ],
)
def test_what_is_not_there_is_not_found(client: TestClient, path: str, status: int) -> None:
    assert client.get(path).status_code == status


def test_a_journal_that_is_gone_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    keep(path, VOTE, engine=FakeEngine("The answer is 1."))
    client = TestClient(Starlette(routes=routes(KeptRuns(path))))
    assert client.get("/run/data").status_code == 200

    path.unlink()

    answer = client.get("/run/data")
    assert answer.status_code == 410
    assert answer.text == "run cannot be read: No such file or directory"


def test_nobody_may_frame_store_or_load_anything_for_the_page(client: TestClient) -> None:
    """Every answer says so, and no script but the page's own may run."""
    for path in ("/ui/", "/ui/vote", "/ui/vote/data", "/ui/vote/text?id=0.sample%230"):
        told = client.get(path).headers
        policy = told["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert (told["x-content-type-options"], told["cache-control"]) == ("nosniff", "no-store")
    assert "access-control-allow-origin" not in headers()


def test_a_source_decides_who_sees_what(journal: Path) -> None:
    """The routes pass it every request, and know nothing of keys."""

    class Keyed:
        def runs(self, request: Request) -> list[RunLine]:
            self._check(request)
            return [RunLine(name="vote", state="finished", question=QUESTION, tokens=7)]

        def view(self, request: Request, name: str) -> RunView | None:
            self._check(request)
            return KeptRuns(journal).view(request, name)

        def _check(self, request: Request) -> None:
            if request.headers.get("authorization") != "Bearer mine":
                raise HTTPException(401, "a key is needed")

    client = TestClient(Starlette(routes=routes(Keyed())))
    for path in ("/", "/vote", "/vote/data", "/vote/text", "/vote/find"):
        assert client.get(path).status_code == 401
    mine = {"authorization": "Bearer mine"}
    assert "vote</a>" in client.get("/", headers=mine).text
    assert client.get("/vote/data", headers=mine).status_code == 200


# On this machine


def test_the_local_viewer_lies_behind_a_secret_and_answers_to_no_other_name(journal: Path) -> None:
    """Loopback is open to every user of a machine, and a journal is its owner's alone."""
    made, other = application(journal), application(journal)
    client = TestClient(made.app, base_url="http://127.0.0.1:8000")

    assert client.get(made.path).status_code == 200
    assert client.get("/vote").status_code == 404
    assert client.get(other.path).status_code == 404
    evil = TestClient(made.app, base_url="http://evil.example:8000")
    assert evil.get(made.path).status_code == 400


def test_the_list_tells_of_every_kept_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    local = application()
    client = TestClient(local.app, base_url="http://localhost")
    assert "No runs are kept." in client.get(local.path).text

    question = "<b>What</b> is 1?"
    keep(tmp_path / "runs" / "one.journal", VOTE, engine=FakeEngine("It is 1."), question=question)

    page = client.get(local.path).text
    assert '<a href="one">one</a>' in page
    assert "&lt;b&gt;What&lt;/b&gt; is 1?" in page
    assert "<b>What" not in page
    assert client.get(f"{local.path}one/data").json()["name"] == "one"


# Pages


def test_a_written_page_holds_all_of_a_run(journal: Path) -> None:
    page = written(journal)

    assert embedded(page, "document") == document(journal)
    assert len(embedded(page, "texts")) == 9
    assert "connect-src &#x27;none&#x27;" in page


def test_no_text_of_a_run_can_end_the_script_that_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    keep(path, VOTE, engine=FakeEngine(HOSTILE), question=HOSTILE)

    page = written(path)

    assert page.count("</script>") == page.count("<script") == 3
    assert "alert(1)</" not in page
    assert page.isascii() or "\u202e" not in page
    texts = embedded(page, "texts")
    assert texts["0.sample#0"]["text"] == HOSTILE


def test_the_policy_allows_the_script_and_the_style_that_are_there(journal: Path) -> None:
    """By their hashes: a page in which either was changed would show nothing."""
    import base64
    import hashlib

    page = written(journal)
    for tag in ("script", "style"):
        body = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[-1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src &#x27;sha256-{digest}&#x27;" in page


def test_the_script_never_makes_markup_of_a_text() -> None:
    """Nor does it write styles or handlers as attributes, which the policy forbids."""
    script = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    page = (ASSETS / "page.html").read_text(encoding="utf-8")

    markup = ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(")
    for word in markup:
        assert word not in script
    assert not re.search(r'\bstyle="|\son\w+="', page)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", script + page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_colour_is_read_well_on_every_ground(theme: str) -> None:
    """A contrast of 4.5 at least, as WCAG 2.2 asks of small text (criterion 1.4.3)."""
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    start = style.index(":root {" if theme == "light" else ':root[data-theme="dark"]')
    block = style[start : style.index("}", start)]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    pairs = [(ink, on) for ink in ("ink", "soft", "faint", "accent") for on in ("card", "raised")]
    pairs += [(name, f"{name}-soft") for name in ("good", "bad", "warn", "accent")]

    poor = {(a, b): c for a, b in pairs if (c := contrast(colours[a], colours[b])) < 4.5}
    assert poor == {}


def contrast(first: str, second: str) -> float:
    """The ratio of two colours' luminances; WCAG 2.2, definition of contrast ratio."""
    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
