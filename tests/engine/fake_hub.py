"""A hub on this machine: repositories in memory, behind the addresses that huggingface_hub asks."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

LARGE = 1_000
"""Files of this size are told with a SHA-256, as those in large-file storage are."""
MOST_REQUESTS = 60
_FILE = re.compile(r"/(org/[\w.-]+)/resolve/([0-9a-f]{40})/(.+)")
_INFO = re.compile(r"/api/models/(org/[\w.-]+)/revision/(.+)")


class Seen(NamedTuple):
    """A request that the hub got."""

    path: str
    """Of a file its name, else the whole path."""
    range: str | None
    token: str | None


class Refusal(NamedTuple):
    """An answer in place of content."""

    status: int
    code: str | None = None


class FakeHub:
    """What the hub holds and does; tests change it, and look at what it was asked."""

    def __init__(self) -> None:
        self.revisions: dict[tuple[str, str], dict[str, bytes]] = {}
        self.seen: list[Seen] = []
        self.cuts: dict[str, list[int]] = {}
        """For a file, after how many bytes its next answers are cut."""
        self.refusals: dict[str, Refusal] = {}
        """For a file, or a repository."""
        self.sent: Counter[str] = Counter()
        """The bytes of each file that were sent."""
        self.has_ranges = True
        self.lies: dict[str, Any] = {}
        """What is told of every file in place of the truth: `size`, `blobId`, `lfs`."""
        self.address = ""

    def add(self, repo: str, files: Mapping[str, bytes], *revisions: str) -> str:
        """Adds a commit to which revisions lead, `main` by default. Returns the commit."""
        commit = sha1(repr(sorted(files.items())).encode()).hexdigest()
        for revision in (*(revisions or ("main",)), commit):
            self.revisions[repo, revision] = dict(files)
        return commit

    def files_asked(self) -> list[str]:
        """The names of all files that were asked for, in order."""
        return [seen.path for seen in self.seen if not seen.path.startswith("/api/")]

    def info(self, repo: str, revision: str) -> dict[str, Any]:
        """What the hub tells of a revision."""
        files = self.revisions[repo, revision]
        commit = next(
            name
            for (where, name), content in self.revisions.items()
            if where == repo and content == files and len(name) == 40
        )
        return {"id": repo, "sha": commit, "siblings": [self._told(*i) for i in files.items()]}

    def _told(self, name: str, content: bytes) -> dict[str, Any]:
        blob = sha1(b"blob %d\0" % len(content) + content).hexdigest()
        told: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob}
        if len(content) >= LARGE:
            digest = sha256(content).hexdigest()
            told["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 130}
        return told | self.lies


@contextmanager
def serving(hub: FakeHub) -> Iterator[None]:
    """Serves a hub until the end of the block."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with _Server(("127.0.0.1", 0), handler) as server:
        hub.address = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(name="hub", autouse=True)
def hub_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub of its own, a home of its own, and no settings of this machine."""
    utils = pytest.importorskip("huggingface_hub.utils")
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TTC_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("ttc.engine.local.hub.client._PAUSE_S", 0.0)
    monkeypatch.setattr("ttc.config.config_file", lambda: tmp_path / "config.toml")
    monkeypatch.setenv("TTC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hub = FakeHub()
    with serving(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub
        utils.close_session()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that went away


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body go together, so that no acknowledgement is waited for
    timeout = 5

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        found = _FILE.fullmatch(path)
        authorization = self.headers.get("Authorization")
        name = found[3] if found else path
        self.hub.seen.append(Seen(name, self.headers.get("Range"), authorization))
        refusal = Refusal(508) if len(self.hub.seen) > MOST_REQUESTS else None
        repo = (found or _INFO.fullmatch(path) or [path, path])[1]
        refusal = refusal or self.hub.refusals.get(name) or self.hub.refusals.get(repo)
        if refusal is not None:
            self._refuse(refusal)
        elif found:
            self._file(self.hub.revisions[found[1], found[2]][name], name)
        else:
            self._info(path)

    def _info(self, path: str) -> None:
        found = _INFO.fullmatch(path)
        known = {repo for repo, _ in self.hub.revisions}
        if found is None or found[1] not in known:
            self._refuse(Refusal(404, "RepoNotFound"))
        elif (found[1], found[2]) not in self.hub.revisions:
            self._refuse(Refusal(404, "RevisionNotFound"))
        else:
            content = json.dumps(self.hub.info(found[1], found[2])).encode()
            self._send(200, content)

    def _file(self, content: bytes, name: str) -> None:
        status, headers = 200, {"ETag": f'"{sha256(content).hexdigest()}"'}
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if wanted and self.hub.has_ranges:
            start = int(wanted[1])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            status, content = 206, content[start:]
        cuts = self.hub.cuts.get(name)
        sent = content[: cuts.pop(0)] if cuts else content
        self.hub.sent[name] += len(sent)
        self._send(status, sent, {"Content-Length": str(len(content)), **headers})
        self.close_connection = len(sent) < len(content)

    def _refuse(self, refusal: Refusal) -> None:
        headers = {"X-Error-Code": refusal.code} if refusal.code else {}
        self._send(refusal.status, b"{}", headers)

    def _send(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | dict(headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
