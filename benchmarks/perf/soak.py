"""A long run of random forks, cuts, scores, cancellations and faults that must leak nothing.

Run as `python benchmarks/perf/soak.py [--json PATH]`, for `SOAK_SECONDS` (1800 by default). The
engine gets little memory, so that calls give way and pages are evicted all the time, and its pages
are checked after every step. Faults are those of `soak_faults`: each ends its calls with the error
that belongs to it, and no other error is let through.

Whenever all calls have ended, every page must be available, no call may be known to the engine any
more, a probe must give the very tokens that it gave at first, and calls that ended well, among
whatever faults and neighbours, must give the same bits again. Now and then the engine's thread dies
and a new engine takes its place. At the end memory, open files, threads and calls that something
still holds must be what they were after the first fifth of the time.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError, Future, wait
from ctypes import CDLL
from dataclasses import fields
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, get_args

os.environ["TTC_CHECK_PAGES"] = "1"

from ttc.benchmarks.perf.soak_faults import Faults, Kind, Readers, kind_of
from ttc.benchmarks.results import Value, write_result
from ttc.constraints import Pattern
from ttc.engine.local import LocalEngine
from ttc.engine.local.call import Call
from ttc.engine.local.hub.models import find
from ttc.engine.local.path import path_tokens
from ttc.errors import EngineError
from ttc.ports import Request, Steerable
from ttc.types import Branch, Problem, Sampling

MODEL = "smollm2-135m"
NUM_PAGES = 96
MOST_OPEN = 24
ROUND = 150  # operations until all calls are waited for
LIVES = 8  # rounds until the engine's thread dies
KEPT = 64  # branches to go on from, and calls to make again
GROWTH = 32 << 20
"""Bytes of memory that allocators may keep without a leak."""
M_ARENA_MAX = -8  # of glibc's mallopt


def page_bytes() -> int:
    """Bytes of one page of the model's keys and values."""
    with LocalEngine.load(find(MODEL), name=MODEL) as engine:
        return engine._batch.page_bytes


class Soak:
    """Calls at random, and what came of them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.kv_bytes = NUM_PAGES * page_bytes()
        self.readers = Readers(self.random)
        self.ended: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.start()
        words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
        self.roots = [
            self.engine.root(Problem(prompt=" ".join(words * n)), "policy") for n in (1, 2, 6, 20)
        ]
        self.branches = list(self.roots)
        self.calls: list[tuple[Any, Future[Any], Request | None]] = []
        self.made: list[tuple[Request, Branch]] = []
        self.expected = self.probe()

    def start(self) -> None:
        """Loads an engine."""
        self.engine = LocalEngine.load(find(MODEL), name=MODEL, kv_bytes=self.kv_bytes)
        self.faults = Faults(self.engine)

    def stop(self) -> None:
        """Ends the engine, which must hold nothing."""
        assert self.engine.kv_bytes_used == 0
        self.engine.close()
        counters = self.engine.counters
        for name in ("steps", "output_tokens", "preemptions", "recomputed_tokens"):
            self.totals[name] += getattr(counters, name)
        self.totals += self.faults.made

    def probe(self) -> Branch:
        """What a call gives that must not change."""
        request = Request(
            branch=self.roots[2], max_tokens=24, sampling=Sampling(temperature=0), seed=0
        )
        return self.engine.submit(request).future.result(timeout=60)

    def request(self, branch: Branch, most: int) -> Request:
        """A request of random worth and sampling."""
        pick = self.random.choice
        sampling = Sampling(
            temperature=pick((0.0, 0.7, 1.0)),
            top_p=pick((None, None, 0.9)),
            frequency_penalty=pick((None, None, 0.5)),
            entropy=self.random.random() < 0.3,
            logprobs=pick((0, 0, 5)),
            constraint=Pattern("[a-z ]{1,40}") if branch in self.roots and pick((0, 1)) else None,
        )
        return Request(
            branch=branch,
            max_tokens=most,
            sampling=sampling,
            seed=self.random.getrandbits(60),
            priority=pick((0.0, 0.0, 1.0, -1.0)),
        )

    def operate(self) -> None:
        """One random operation."""
        kinds = (self.submit, self.submit, self.submit, self.cancel, self.fork, self.read)
        self.random.choice((*kinds, self.prioritise, self.cut, self.break_something))()
        self.forget_ended()
        while len(self.calls) > MOST_OPEN:
            futures = [future for _, future, _ in self.calls]
            assert wait(futures, return_when="FIRST_COMPLETED", timeout=120).done, "none ended"
            self.forget_ended()

    def submit(self, branch: Branch | None = None) -> None:
        """Extends a branch."""
        branch = branch or self.random.choice(self.branches)
        if branch.num_tokens > 700:
            branch = self.roots[0]
        request = self.request(branch, self.random.randint(1, 48))
        call = self.engine.submit(request, self.readers.some())
        self.calls.append((call, call.future, request))

    def stall(self) -> None:
        """A long call whose reader stops reading."""
        never_ends = tuple((token, -100.0) for token in self.engine._tokens.end_ids)
        sampling = Sampling(logit_bias=never_ends)
        request = Request(branch=self.roots[0], max_tokens=600, sampling=sampling, seed=1)
        call = self.engine.submit(request, self.readers.stopped())
        self.calls.append((call, call.future, None))

    def cancel(self) -> None:
        """Ends a call by its own method or by its future."""
        if self.calls:
            call, future, _ = self.random.choice(self.calls)
            self.random.choice((call.cancel, future.cancel))()

    def fork(self) -> None:
        """Goes on from a token of a call that runs."""
        calls = [call for call, _, _ in self.calls if hasattr(call, "fork")]
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
        """Scores a branch's end, or asks what comes next or for hidden states."""
        branch = self.random.choice(self.branches)
        if self.random.random() < 0.1:
            last = len(path_tokens(branch)) - 1  # without the end tokens that closed its segments
            reading: Any = self.engine.hidden(branch, [last])
        elif branch.parent is not None and branch.token_ids:
            reading = self.engine.score(branch.parent, [branch])
        else:
            reading = self.engine.next_tokens(branch, 5)
        self.calls.append((reading, reading.future, None))

    def prioritise(self) -> None:
        """Gives a call another worth."""
        calls = [call for call, _, _ in self.calls if hasattr(call, "prioritise")]
        if calls:
            self.random.choice(calls).prioritise(self.random.uniform(-2, 2))

    def break_something(self) -> None:
        """Lets one of the next steps fail, or a row of it."""
        kinds: tuple[Kind, ...] = ("nan", "nan", "model", "full", "full", "starved", "scheduler")
        if self.random.random() < 0.5:
            self.faults.pending.append(self.random.choice(kinds))

    def forget_ended(self) -> None:
        """Takes the calls in that have ended."""
        self.calls = [call for call in self.calls if not self.has_ended(*call[1:])]

    def has_ended(self, future: Future[Any], request: Request | None) -> bool:
        """Whether a call has ended; it is counted, and only known errors are let through."""
        if not future.done():
            return False
        try:
            result = future.result()
        except CancelledError:
            self.ended["cancelled"] += 1
        except EngineError as error:
            self.ended[kind_of(error)] += 1
        else:
            self.ended["generated" if isinstance(result, Branch) else "read"] += 1
            if isinstance(result, Branch) and result.token_ids:
                self.keep(self.branches, result)
                if request is not None:
                    self.keep(self.made, (request, result))
        return True

    def keep(self, kept: list[Any], new: Any) -> None:
        """Keeps something, in the place of another where there are many."""
        if len(kept) < KEPT:
            kept.append(new)
        else:
            kept[self.random.randrange(len(self.roots), KEPT)] = new

    def settle(self) -> None:
        """Waits for all calls; then nothing may be held, and nothing may have changed."""
        self.faults.pending.clear()
        self.stall()
        futures = [future for _, future, _ in self.calls]
        assert not wait(futures, timeout=300).not_done, "calls never ended"
        self.readers.release()
        self.forget_ended()
        assert not self.calls
        self.check()
        nans = self.ended["nan"], self.totals["nan"] + self.faults.made["nan"]
        assert nans[0] <= nans[1], f"{nans[1]} rows were broken, and {nans[0]} calls with them"

    def check(self) -> None:
        """Nothing is held, and what ended well comes again to the bit."""
        tree, schedule = self.engine._batch.tree, self.engine._batch.schedule
        for _ in range(100):  # the step of the last cancellation
            assert bits(self.probe()) == bits(self.expected), "a probe has changed"
            if not (self.engine.num_live or tree.paths):
                break
        assert not self.engine.num_live, "calls that have ended still run"
        assert not tree.paths, "calls that have ended still have pages"
        assert not schedule._present, "calls that have ended are still known"
        assert not schedule._turns.num_owners, "owners of calls that have ended have a share"
        assert self.engine.kv_bytes_used == 0
        assert tree.num_available == NUM_PAGES
        tree.check()
        for request, result in self.random.sample(self.made, min(3, len(self.made))):
            again = self.engine.submit(request).future.result(timeout=60)
            assert bits(again) == bits(result), f"a call gives something else: {request}"
            self.totals["made again"] += 1

    def die(self) -> None:
        """The engine's thread ends among calls; they are told, and a new engine goes on."""
        for _ in range(MOST_OPEN):
            self.submit()
        self.faults.pending.append("thread")
        futures = [future for _, future, _ in self.calls]
        assert not wait(futures, timeout=120).not_done, "nobody told of the thread's end"
        self.forget_ended()
        self.read_all()
        self.stop()
        self.start()
        self.check()

    def read_all(self) -> None:
        """Reads the text of every branch: one that nobody has read holds a whole vocabulary."""
        asked = (request.branch for request, _ in self.made)
        for branch in (*self.branches, *asked, *(result for _, result in self.made)):
            assert all(isinstance(segment.text, str) for segment in branch.lineage())


def bits(branch: Branch) -> tuple[Any, ...]:
    """What a call has given: its text, tokens and all that was measured of them."""
    return tuple(
        getattr(branch, each.name) for each in fields(branch) if each.name not in ("parent", "call")
    )


def held() -> dict[str, int]:
    """What the process holds: bytes of memory of its own, open files, threads, and calls."""
    gc.collect()
    CDLL(None).malloc_trim(0)  # what glibc keeps for later is held by nobody
    status = Path("/proc/self/status").read_text()
    memory = int(status.split("RssAnon:")[1].split()[0]) << 10
    files = len(list(Path("/proc/self/fd").iterdir()))
    calls = sum(isinstance(each, Call) for each in gc.get_objects())
    threads = threading.active_count()
    return {"memory": memory, "files": files, "threads": threads, "calls": calls}


def grown(samples: list[dict[str, int]]) -> dict[str, float]:
    """By how much what is held grew from the second to the last fifth of the time."""
    fifth = max(1, len(samples) // 5)
    early, late = samples[fifth : 2 * fifth] or samples, samples[-fifth:]
    return {
        name: median(each[name] for each in late) - median(each[name] for each in early)
        for name in samples[0]
    }


def run(soak: Soak, seconds: float) -> tuple[int, list[dict[str, int]]]:
    """Soaks for a while; gives how many operations it did, and what was held after each round."""
    begun, rounds = time.monotonic(), 0
    samples: list[dict[str, int]] = []
    while time.monotonic() - begun < seconds:
        for _ in range(ROUND):
            soak.operate()
        soak.settle()
        rounds += 1
        if rounds % LIVES == 0:
            soak.die()
        samples.append(held())
        print(f"after {rounds * ROUND} operations: {samples[-1]}", flush=True)
    return rounds * ROUND, samples


def main() -> int:
    """Soaks, and says what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="also write what was seen to this file")
    arguments = parser.parse_args()
    seconds = float(os.environ.get("SOAK_SECONDS", "1800"))
    seed = int(os.environ.get("SOAK_SEED", "0"))
    logging.getLogger("ttc").setLevel(logging.CRITICAL)  # it tells of every fault
    # Each engine has threads of its own, and glibc lets some of them have an arena. What is free in
    # one is of no use to another, so without this the process grows until there are 16 of them.
    CDLL(None).mallopt(M_ARENA_MAX, 1)
    soak = Soak(seed)
    operations, samples = run(soak, seconds)
    soak.stop()
    growth = grown(samples)
    missing = sorted(
        {*get_args(Kind), "reader gone", "reader stopped"} - {*soak.ended, *soak.totals}
    )
    leaks = [name for name in ("files", "threads", "calls") if growth[name] > 0]
    leaks += ["memory"] if growth["memory"] > GROWTH else []
    found: dict[str, Value] = {
        "seconds": seconds,
        "operations": operations,
        "rounds": len(samples),
        **{f"ended: {name}": count for name, count in sorted(soak.ended.items())},
        **{f"made: {name}": count for name, count in sorted(soak.totals.items())},
        **{f"grown: {name}": value for name, value in growth.items()},
        **{f"held: {name}": value for name, value in samples[-1].items()},
        "leaks": ", ".join(leaks) or "none",
        "ends that never came": ", ".join(missing) or "none",
    }
    for name, value in found.items():
        print(f"{name:32} {value}")
    if arguments.json is not None:
        rows = [{"name": name, "value": value} for name, value in found.items()]
        command = [f"SOAK_SECONDS={seconds:.0f}", "python", "benchmarks/perf/soak.py"]
        write_result(arguments.json, command=command, rows=rows, seed=seed)
    return bool(leaks)


if __name__ == "__main__":
    sys.exit(main())
