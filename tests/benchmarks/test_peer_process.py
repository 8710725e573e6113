"""Peers of the engine's benchmark, which run in processes of their own."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PERF = Path(__file__).parents[2] / "benchmarks" / "perf"
PEER = """
from peer_jobs import own_output, serve
with own_output() as answers:
    print("what a library says")
    serve(lambda prompts, n, tokens: [[prompt[:tokens]] * n for prompt in prompts], answers)
"""


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, which lies among scripts."""
    monkeypatch.syspath_prepend(str(PERF))
    return importlib.import_module("peer_process")


@pytest.fixture
def folder(tmp_path: Path, peers: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a peer that answers with the beginnings of its prompts."""
    (tmp_path / "peer_vllm.py").write_text(f"import sys\nsys.path[0] = {str(PERF)!r}\n{PEER}")
    monkeypatch.setattr(peers, "HERE", tmp_path)
    (tmp_path / "hf" / "model").mkdir(parents=True)
    (tmp_path / "vllm" / "bin").mkdir(parents=True)
    (tmp_path / "vllm" / "bin" / "python").symlink_to(sys.executable)
    return tmp_path


def test_a_peer_answers_jobs_and_stands_still_between_them(peers: Any, folder: Path) -> None:
    with peers.started("vllm", Path("model.gguf"), folder) as peer:
        for tokens in (1, 2):
            done = peer.generate([[3, 4, 5], [6, 7, 8]], 2, tokens)
            assert done.outputs == [[[3, 4, 5][:tokens]] * 2, [[6, 7, 8][:tokens]] * 2]
            assert done.seconds > 0
            os.waitid(os.P_PID, peer._process.pid, os.WSTOPPED | os.WNOWAIT)


def test_what_a_peer_said_before_it_ended_is_told(peers: Any, folder: Path) -> None:
    (folder / "peer_vllm.py").write_text("raise SystemExit('there is no such model')")
    started = peers.started("vllm", Path("model.gguf"), folder)
    with pytest.raises(SystemExit, match="there is no such model"):
        started.__enter__()


def test_llama_cpp_may_compute_its_samples_in_two_halves(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: Any) -> Any:
        count = int(command[command.index("-npl") + 1])
        line = f'{{"t_pp": 1.0, "t_tg": {10.0 if count == 64 else 4.0}}}'
        return subprocess.CompletedProcess(command, 0, stdout=f"loading\n{line}\n")

    monkeypatch.setattr(peers.subprocess, "run", run)
    bench = peers.LlamaBench(tmp_path, Path("model.gguf"))
    assert bench.generate([[1] * 240], 64, 64).seconds == 1 + 2 * 4
    assert bench.decode([1] * 240, 64).seconds == 4


def test_a_peer_that_does_not_answer_in_time_is_stopped_for_good(peers: Any, folder: Path) -> None:
    endless = PEER.replace("[[prompt[:tokens]] * n for prompt in prompts]", "signal.pause()")
    (folder / "peer_vllm.py").write_text(
        f"import signal, sys\nsys.path[0] = {str(PERF)!r}\n{endless}"
    )
    with peers.started("vllm", Path("model.gguf"), folder) as peer:
        peer.allow(0.1)
        for _ in range(2):
            with pytest.raises(peers.Unfinished, match=r"did not finish in 0\.1 s"):
                peer.generate([[3, 4, 5]], 2, 1)
        os.waitid(os.P_PID, peer._process.pid, os.WSTOPPED | os.WNOWAIT)


def test_llama_cpp_is_not_waited_for_either(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **options: Any) -> Any:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(peers.subprocess, "run", run)
    bench = peers.LlamaBench(tmp_path, Path("model.gguf"))
    bench.allow(30)
    with pytest.raises(peers.Unfinished, match="did not finish in 30 s"):
        bench.decode([1] * 240, 64)


def test_a_row_tells_that_a_peer_did_not_finish_and_keeps_the_rounds_that_it_did() -> None:
    engine = importlib.import_module("ttc.benchmarks.perf.engine")
    rates = iter((50.0, None))

    def measure(generator: Any, prompt: Any, tokens: int) -> Any:
        rate = 100.0 if generator is ours else next(rates)
        if rate is None:
            raise engine.Unfinished(7)
        return engine.Rate(round(rate), 1.0)

    ours = SimpleNamespace(prompt=lambda count, number: [1])
    peer = SimpleNamespace(allow=lambda seconds: None)
    work = dataclasses.replace(engine.WORKS[0], measure=measure, against={"vllm": (6.0, 8.0)})
    options = SimpleNamespace(rounds=3, peer_limit=7, tokens=4, main="a-model")
    (row,) = engine.compared(work, ours, {"vllm": peer}, options)
    assert (row["ratio"], row["rounds"]) == (2.0, 1)
    assert row["note"] == "vllm did not finish in 7 s"
