"""`ttc serve` and `ttc key`, as processes and as commands."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from ttc.cli import main

PROGRAM = """
import sys
from ttc import registry
from ttc.testing import FakeEngine
registry.load_engine = lambda model, progress=None: FakeEngine(
    "The answer is 4.", seconds_per_token=0.05
)
from ttc.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""The command on a fake engine."""


@contextmanager
def _running(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its base URL."""
    command = [sys.executable, "-c", PROGRAM, "serve", "--model", "m=fake", "--port", "0", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"serving m on (http://127\.0\.0\.1:\d+/v1)", line)
        assert found is not None, line + (process.stderr.read() if process.stderr else "")
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


def test_a_server_serves_and_ends_in_order() -> None:
    """One signal: what runs is answered, and the exit is clean. Its log is JSON."""
    body = {"model": "m", "messages": [{"role": "user", "content": "a-secret-question"}]}
    with _running("--strategy", "self_consistency(n=2)") as (process, url):
        with (
            httpx2.Client(timeout=30, verify=False) as http,
            http.stream("POST", f"{url}/chat/completions", json={**body, "stream": True}) as reply,
        ):
            lines = reply.iter_lines()
            assert next(lines) == ": waiting"
            process.send_signal(signal.SIGTERM)
            rest = "\n".join(lines)
        code = process.wait(30)
        log = process.stderr.read() if process.stderr is not None else ""

    assert "The answer is 4." in rest
    assert rest.rstrip().endswith("data: [DONE]")
    assert code == 0
    assert '"event":"request"' in log
    assert '"status":200' in log
    assert "a-secret-question" not in log


def test_keys_come_from_the_environment_and_go_nowhere() -> None:
    secret = "a-secret-of-the-environment"
    with (
        _running(TTC_SERVE_KEYS=f"me={secret}") as (_, url),
        httpx2.Client(timeout=30, verify=False) as http,
    ):
        without = http.get(f"{url}/models")
        with_key = http.get(f"{url}/models", headers={"authorization": f"Bearer {secret}"})

    assert (without.status_code, with_key.status_code) == (401, 200)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--host", "0.0.0.0"], "there are no keys"),
        (["--host", "192.168.1.1"], "there are no keys"),
        (["--strategy", "vote()"], "takes finished candidates"),
        (["--named", "x"], "is not NAME=VALUE"),
        (["--sampling", "both"], "none of request, strategy"),
        (["--request-budget", "coins=3"], "--request-budget"),
        (["--key-budget", "seconds=3"], "known only afterwards"),
        (["--model", "a@b=x"], "no name of its own without @"),
        (["--keys", "no-such-file.toml"], "cannot be read"),
        (["--port", "99999"], "65535"),
    ],
)
def test_a_server_that_cannot_be_is_refused(
    options: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options]) == 2
    assert fault in capsys.readouterr().err


def test_a_key_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.toml"

    assert main(["key", "alice", "--keys", str(path)]) == 0
    secret = capsys.readouterr().out.strip()
    assert main(["key", "alice", "--keys", str(path)]) == 2
    assert main(["key", "bob", "--keys", str(path)]) == 0
    assert secret.startswith("ttc-")
    assert secret not in path.read_text(encoding="utf-8")
    assert path.read_text(encoding="utf-8").count("sha256") == 2
