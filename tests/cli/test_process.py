"""The command line as a process: signals, pipes, terminals, imports, and a real model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

MAIN = "import sys; from ttc.cli import main; sys.exit(main())"
FAKE = """
import signal
import sys
from ttc import registry
from ttc.cli import main
from ttc.testing import FakeEngine

class Engine(FakeEngine):
    def submit(self, request, on_chunk=None):
        print("started", flush=True)
        return super().submit(request, on_chunk)

signal.signal(signal.SIGINT, signal.default_int_handler)  # else a shell's `&` has it ignored
pace = float(sys.argv.pop(1))
engine = Engine("The answer is 4.", seconds_per_token=pace)
registry.load_engine = lambda model, progress=None: engine
sys.exit(main())
"""
posix = pytest.mark.skipif(os.name != "posix", reason="signals, pipes and terminals of POSIX")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def test_without_arguments_the_help_is_printed() -> None:
    """On stdout, and that is no fault."""
    done = _run()

    assert (done.returncode, done.stderr) == (0, "")
    for command in ("solve", "graph", "doctor", "pull", "demo"):
        assert f" {command} " in done.stdout


def test_the_version_is_printed() -> None:
    """One line."""
    assert _run("--version").stdout == "ttc 0.1.0\n"


def test_commands_that_need_no_engine_import_none() -> None:
    """Torch takes seconds to import."""
    heavy = "{'torch', 'numpy', 'networkx'} & set(sys.modules)"
    script = f"import sys; from ttc.cli import main; main(); print({heavy}, file=sys.stderr)"
    command = [sys.executable, "-c", script, "graph", "self_consistency(n=4)"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert done.stderr == "set()\n"


@posix
def test_ctrl_c_is_one_line_and_exit_code_130() -> None:
    """While a call is running."""
    command = [sys.executable, "-c", FAKE, "60", "solve", "q", "--budget", "calls=1"]
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, out, err) == (130, "", "ttc: interrupted\n")


def test_the_traceback_of_a_bug_cannot_steer_the_terminal() -> None:
    """It may quote a model: control characters are shown as a mark, and no line looks like ours."""
    script = (
        "import ttc.registry; from ttc.cli import main\n"
        "def broken(model, progress=None):\n"
        "    raise RuntimeError('\\x1b[2J\\nttc: all is well')\n"
        "ttc.registry.load_engine = broken; main()"
    )
    command = [sys.executable, "-c", script, "solve", "q"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    assert "\x1b" not in done.stderr
    assert "\nttc: all is well" not in done.stderr


@posix
def test_a_broken_pipe_is_quiet() -> None:
    """As with `ttc graph ... | head -0`."""
    command = [sys.executable, "-c", MAIN, "graph", "greedy()"]
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()

    err = process.stderr.read()
    process.stderr.close()

    assert (process.wait(30), err) == (1, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_an_output_that_is_full_is_a_fault() -> None:
    """One line, as any other."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", MAIN, "graph", "greedy()"]
        done = subprocess.run(command, stdout=full, stderr=-1, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert done.stderr == "ttc: standard output cannot be written: No space left on device\n"


@posix
def test_progress_is_shown_where_stderr_is_a_terminal() -> None:
    """Samples, tokens of the limit, and the leader."""
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", FAKE, "0.05", "solve", "q", "--json"]
    process = subprocess.Popen(command, stdout=-1, stderr=theirs)
    os.close(theirs)
    out, _ = process.communicate(timeout=60)
    seen = b""
    while piece := _read(ours):
        seen += piece
    os.close(ours)

    assert out.count(b"schema_version") == 1
    assert b"loading smollm2-135m" in seen
    assert b"of 4,000 tokens, leading: 4 (" in seen


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so where the other end has gone
        return b""


@pytest.mark.model
def test_a_real_model_answers_within_its_budget() -> None:
    """SmolLM2, from question to JSON."""
    strategy = "self_consistency(n=4, max_tokens=64)"

    done = _run(
        *("solve", "What is 2 + 3?", "--strategy", strategy, "--budget", "tokens=200"),
        *("--seed", "1", "--json"),
    )

    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert 0 < found["usage"]["tokens"] <= 200
    assert len(found["candidates"]) >= 1
    assert done.returncode == 0
