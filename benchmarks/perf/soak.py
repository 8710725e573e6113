"""A long run of random forks, cuts, scores, cancellations and faults that must leak nothing.

Run as `python benchmarks/perf/soak.py`, for `SOAK_SECONDS` (1800 by default). The engine gets
little memory, so that calls give way and pages are evicted all the time, and its pages are checked
after every step. Whenever all calls have ended, every page must be available, no call may be known
to the engine any more, and a probe must give the very tokens that it gave at first. At the end
memory, open files and threads must be what they were after the first fifth of the time.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

os.environ["TTC_CHECK_PAGES"] = "1"

from ttc.engine.local import LocalEngine
from ttc.engine.local.hub.models import find
from ttc.errors import EngineError
from ttc.ports import Request, Steerable
from ttc.types import Branch, Chunk, Problem, Sampling

MODEL = "smollm2-135m"
NUM_PAGES = 96
MOST_OPEN = 24
ROUND = 150  # operations until all calls are waited for
GROWTH = 32 << 20
"""Bytes of memory that allocators may keep without a leak."""


class Faults:
    """Breaks the model's steps, when it is told to."""

    def __init__(self, engine: LocalEngine) -> None:
        self.pending: list[str] = []
        self._forward = engine._batch.model.forward
        vars(engine._batch.model)["forward"] = self._broken

    def _broken(self, *args: Any) -> Any:
        kind = self.pending.pop() if self.pending else ""
        if kind == "raise":
            raise RuntimeError("a fault on purpose")
        outputs = self._forward(*args)
        if kind == "nan" and len(outputs):
            outputs[-1, 7] = float("nan")
        return outputs


class Soak:
    """Calls at random, and what came of them."""

    def __init__(self, engine: LocalEngine, seed: int) -> None:
        self.engine, self.random = engine, random.Random(seed)
        self.ended: Counter[str] = Counter()
        self.faults = Faults(engine)
        words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
        self.roots = [
            engine.root(Problem(prompt=" ".join(words * n)), "policy") for n in (1, 2, 6, 20)
        ]
        self.branches = list(self.roots)
        self.calls: list[tuple[Any, Future[Any]]] = []
        self.expected = self.probe()

    def probe(self) -> tuple[int, ...] | None:
        """What a call gives that must not change."""
        request = self.request(self.roots[2], 24, Sampling(temperature=0))
        return self.engine.submit(request).future.result().token_ids

    def request(self, branch: Branch, most: int, sampling: Sampling) -> Request:
        """A request of random worth."""
        return Request(
            branch=branch,
            max_tokens=most,
            sampling=sampling,
            seed=self.random.getrandbits(60),
            priority=self.random.choice((0.0, 0.0, 1.0, -1.0)),
        )

    def operate(self) -> None:
        """One random operation."""
        kinds = (self.submit, self.submit, self.submit, self.cancel, self.fork, self.read)
        self.random.choice((*kinds, self.prioritise, self.cut, self.break_something))()
        self.calls = [call for call in self.calls if not self.has_ended(call[1])]
        while len(self.calls) > MOST_OPEN:
            wait([future for _, future in self.calls], return_when="FIRST_COMPLETED", timeout=60)
            self.calls = [call for call in self.calls if not self.has_ended(call[1])]

    def submit(self, branch: Branch | None = None) -> None:
        """Extends a branch."""
        branch = branch or self.random.choice(self.branches)
        if branch.num_tokens > 700:
            branch = self.roots[0]
        sampling = Sampling(entropy=self.random.random() < 0.3, logprobs=self.random.choice((0, 5)))
        request = self.request(branch, self.random.randint(1, 48), sampling)
        call = self.engine.submit(request, self.listener())
        self.calls.append((call, call.future))

    def listener(self) -> Callable[[Chunk], None] | None:
        """Nobody, or one who may stop listening."""
        if self.random.random() < 0.5:
            return None
        left = self.random.choice((3, 10**6))

        def listen(chunk: Chunk) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise ConnectionError("the client has gone")

        return listen

    def cancel(self) -> None:
        """Ends a call by its own method or by its future."""
        if self.calls:
            call, future = self.random.choice(self.calls)
            self.random.choice((call.cancel, future.cancel))()

    def fork(self) -> None:
        """Goes on from a token of a call that runs."""
        calls = [call for call, _ in self.calls if hasattr(call, "fork")]
        if calls:
            call: Steerable = self.random.choice(calls)
            try:
                self.submit(call.fork(self.random.randint(1, 8)))
            except ValueError:
                self.ended["fork came too early"] += 1

    def cut(self) -> None:
        """Goes on from a token of what has ended."""
        branch = self.random.choice(self.branches)
        self.submit(self.engine.cut(branch, self.random.randint(1, branch.num_tokens)))

    def read(self) -> None:
        """Scores a branch's end, or asks what comes next."""
        branch = self.random.choice(self.branches)
        if branch.parent is not None and branch.token_ids:
            reading: Any = self.engine.score(branch.parent, [branch])
        else:
            reading = self.engine.next_tokens(branch, 5)
        self.calls.append((reading, reading.future))

    def prioritise(self) -> None:
        """Gives a call another worth."""
        calls = [call for call, _ in self.calls if hasattr(call, "prioritise")]
        if calls:
            self.random.choice(calls).prioritise(self.random.uniform(-2, 2))

    def break_something(self) -> None:
        """Lets one of the next steps fail, or a row of it."""
        if self.random.random() < 0.3:
            self.faults.pending.append(self.random.choice(("raise", "nan", "nan")))

    def has_ended(self, future: Future[Any]) -> bool:
        """Whether a call has ended; it is counted, and only known errors are let through."""
        if not future.done():
            return False
        try:
            result = future.result()
        except CancelledError:
            self.ended["cancelled"] += 1
        except EngineError as error:
            self.ended[str(error).split(":")[0][:40]] += 1
        else:
            self.ended["read" if isinstance(result, tuple) else "generated"] += 1
            if isinstance(result, Branch) and result.token_ids:
                if len(self.branches) < 64:
                    self.branches.append(result)
                else:
                    self.branches[self.random.randrange(len(self.roots), 64)] = result
        return True

    def settle(self) -> None:
        """Waits for all calls; then nothing may be held, and nothing may have changed."""
        self.faults.pending.clear()
        futures = [future for _, future in self.calls]
        assert not wait(futures, timeout=120).not_done, "calls never ended"
        assert all(map(self.has_ended, futures))
        self.calls.clear()
        self.faults.pending.clear()
        assert self.probe() == self.expected, "a probe has changed"
        tree = self.engine._batch.tree
        while self.engine.num_live or tree.paths:  # the step of the last cancellation
            self.probe()
        assert self.engine.kv_bytes_used == 0
        assert tree.num_available == NUM_PAGES
        tree.check()


def held() -> dict[str, int]:
    """What the process holds: bytes of memory, open files and threads."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    memory = int(status.split("VmRSS:")[1].split()[0]) << 10
    files = len(list(Path("/proc/self/fd").iterdir()))
    return {"memory": memory, "files": files, "threads": threading.active_count()}


def main() -> int:
    """Soaks, and says what was seen."""
    seconds = float(os.environ.get("SOAK_SECONDS", "1800"))
    seed = int(os.environ.get("SOAK_SEED", "0"))
    with LocalEngine.load(find(MODEL), name=MODEL) as loaded:
        page_bytes = loaded._batch.page_bytes
    with LocalEngine.load(find(MODEL), name=MODEL, kv_bytes=NUM_PAGES * page_bytes) as engine:
        soak, begun = Soak(engine, seed), time.monotonic()
        before: dict[str, int] = {}
        operations = 0
        while (elapsed := time.monotonic() - begun) < seconds:
            for _ in range(ROUND):
                soak.operate()
            operations += ROUND
            soak.settle()
            if not before and time.monotonic() - begun > seconds / 5:
                before = held()
        after, counters = held(), engine.counters
    print(f"{operations} operations in {elapsed:.0f} s: {dict(soak.ended.most_common())}")
    print(
        f"{counters.steps} steps, {counters.output_tokens} output tokens, "
        f"{counters.preemptions} calls gave way"
    )
    print(f"held after a fifth of the time: {before}; at the end: {after}")
    grown = after["memory"] - before["memory"]
    leaks = [name for name in ("files", "threads") if after[name] > before[name]]
    leaks += ["memory"] if grown > GROWTH else []
    print(f"leaks: {', '.join(leaks) or 'none'}")
    return bool(leaks)


if __name__ == "__main__":
    sys.exit(main())
