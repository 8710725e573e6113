"""How fast the embedded engine is beside its peers: ratios, measured in turns in one run.

Run as `python benchmarks/perf/engine.py [--peers openvino,vllm,llama.cpp] [--json PATH]`. Every
round runs each piece of work here and then in each peer that is compared in it, so that other load
on the machine meets all alike. A ratio is the median over rounds of our tokens per second by those
of the peer; its spread is the distance from the least to the greatest. A peer that has not done a
work in `--peer-limit` seconds is not waited for: its row tells so. Where there are peers they
lie in one folder (`--folder`); see `peer_process.py`. Without `--peers` our own
figures alone are measured.

    samples    64 samples of 64 tokens of a prompt of 240, which is counted in, at temperature 1
    sample     one sample's tokens per second once its prompt is computed
    tree       a beam search of 8 x 8 and 10 steps of 32 tokens, and then 64 samples, of a prompt of
               1,500 tokens: for a peer the same tree as requests, with its prefix cache
    forks      10,000 branches of a running call: microseconds each
    roofs      a step's part of what the processor could do at most, measured beside it

Prompts differ from round to round, so that none is served from a cache. End tokens end nothing.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ttc.benchmarks.results import write_result
from ttc.config import settings
from ttc.engine.local import LocalEngine

# isort: split
from ttc.benchmarks.perf.branches import FORKS, forks
from ttc.benchmarks.perf.peer_process import PEERS, Done, Peer, Unfinished, started
from ttc.engine.local.hub.models import find
from ttc.ports import Request
from ttc.types import Branch, Problem, Sampling

MODEL, SMALL = "qwen2.5-coder-0.5b-instruct-q4_k_m", "smollm2-135m"
TEXT = (
    "A baker sells {} rolls in the morning and half as many in the afternoon. Each roll costs "
    "40 cents, and flour for a dozen costs one euro. How much does the baker earn on this day? "
)
SHORT, LONG = 240, 1500
SAMPLES, TOKENS = 64, 64
BEAMS, WIDTH, DEPTH = 8, 8, 10
MOST_MICROSECONDS = 10.0
KV_BYTES = 1 << 30


class Ours:
    """The embedded engine, asked as its peers are."""

    def __init__(self, engine: LocalEngine) -> None:
        engine._tokens.end_ids = frozenset()
        self.engine, self._seed = engine, 0

    def generate(self, prompts: Sequence[Sequence[int]], samples: int, tokens: int) -> Done:
        """So many samples of each prompt."""
        branches = [Branch(text="", token_ids=tuple(prompt)) for prompt in prompts]
        begun = time.perf_counter()
        calls = []
        for branch in branches:
            for _ in range(samples):
                self._seed += 1
                request = Request(
                    branch=branch, max_tokens=tokens, sampling=Sampling(), seed=self._seed
                )
                calls.append(self.engine.submit(request))
        outputs = [list(call.future.result().token_ids or ()) for call in calls]
        seconds = time.perf_counter() - begun
        assert all(len(output) == tokens for output in outputs)
        nested = [outputs[i : i + samples] for i in range(0, len(outputs), samples)]
        return Done(seconds, nested)

    def decode(self, prompt: Sequence[int], tokens: int) -> Done:
        """One sample of a prompt that is computed."""
        self.generate([prompt], 1, 1)
        return self.generate([prompt], 1, tokens)

    def prompt(self, count: int, round_number: int) -> list[int]:
        """So many tokens, of which the first are the round's own."""
        text = "".join(TEXT.format(1000 * round_number + count + i) for i in range(count // 20))
        ids = self.engine.root(Problem(prompt=text), "policy").token_ids or ()
        return list(ids[:count])


class Rate(NamedTuple):
    """Tokens in a time."""

    tokens: int
    seconds: float

    @property
    def value(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def samples(generator: Ours | Peer, prompt: Sequence[int], tokens: int) -> Rate:
    """64 samples."""
    done = generator.generate([prompt], SAMPLES, tokens)
    return Rate(SAMPLES * tokens, done.seconds)


def sample(generator: Ours | Peer, prompt: Sequence[int], tokens: int) -> Rate:
    """One sample, decoded."""
    return Rate(tokens, generator.decode(prompt, tokens).seconds)


def tree(generator: Ours | Peer, prompt: Sequence[int], tokens: int) -> Rate:
    """The beam search and the samples. Which candidates go on is drawn alike for all."""
    draw, beams, seconds = random.Random(len(prompt)), [list(prompt)], 0.0
    for _ in range(DEPTH):
        width = BEAMS * WIDTH // len(beams)
        done = generator.generate(beams, width, tokens // 2)
        seconds += done.seconds
        grown = [
            beam + output
            for beam, outputs in zip(beams, done.outputs, strict=True)
            for output in outputs
        ]
        beams = [grown[place] for place in sorted(draw.sample(range(len(grown)), BEAMS))]
    seconds += generator.generate([prompt], SAMPLES, tokens).seconds
    return Rate(DEPTH * BEAMS * WIDTH * (tokens // 2) + SAMPLES * tokens, seconds)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is compared."""

    name: str
    model: str
    """`main` or `small`."""
    measure: Callable[[Any, Sequence[int], int], Rate]
    prompt_tokens: int
    against: dict[str, tuple[float, float | None]]
    """The ratios to reach and to aim at, by peer."""


WORKS = (
    Work(
        name="samples",
        model="main",
        measure=samples,
        prompt_tokens=SHORT,
        against={"openvino": (1.8, 2.5), "vllm": (6.0, 8.0), "llama.cpp": (6.0, 8.0)},
    ),
    Work(
        name="sample",
        model="main",
        measure=sample,
        prompt_tokens=SHORT,
        against={"llama.cpp": (1.5, 2.0)},
    ),
    Work(
        name="samples",
        model="small",
        measure=samples,
        prompt_tokens=SHORT,
        against={"llama.cpp": (5.0, 8.0)},
    ),
    Work(
        name="sample",
        model="small",
        measure=sample,
        prompt_tokens=SHORT,
        against={"llama.cpp": (1.4, 1.6)},
    ),
    Work(
        name="tree",
        model="small",  # since it takes a peer minutes
        measure=tree,
        prompt_tokens=LONG,
        against={"vllm": (6.0, None)},
    ),
)


def compared(
    work: Work, ours: Ours, peers: dict[str, Peer], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """A row for each peer; where there is none, one for us alone."""
    rounds = options.tree_rounds if work.name == "tree" else options.rounds
    own: list[float] = []
    others: dict[str, list[float]] = {name: [] for name in work.against if name in peers}
    notes: dict[str, str] = {}
    for number in range(rounds):
        prompt = ours.prompt(work.prompt_tokens, 1 + number)
        own.append(work.measure(ours, prompt, options.tokens).value)
        for name in [name for name in others if name not in notes]:
            peers[name].allow(options.peer_limit)
            try:
                others[name].append(work.measure(peers[name], prompt, options.tokens).value)
            except Unfinished as fault:
                notes[name] = f"{name} {fault}"
                print(f"{work.name}: {notes[name]}", flush=True)
    title = f"{getattr(options, work.model)}: {work.name}"
    for name, found in others.items():
        target, goal = work.against[name]
        beside = own[: len(found) or None]
        ratios = [mine / its for mine, its in zip(beside, found, strict=False)]
        told = row(f"{title} / {name}", ratios, target, goal, beside, found)
        yield told | {"note": notes.get(name)}
    if not others and rounds:
        yield row(title, [], None, None, own, [])


def row(
    name: str,
    ratios: Sequence[float],
    target: float | None,
    goal: float | None,
    own: Sequence[float],
    peer: Sequence[float],
    unit: str = "tokens/s",
) -> dict[str, Any]:
    """A row of the table, which is printed, too."""
    found = {
        "name": name,
        "ratio": middle(ratios),
        "spread": round(max(ratios) - min(ratios), 3) if ratios else None,
        "target": target,
        "goal": goal,
        "ours": middle(own),
        "peer": middle(peer),
        "unit": unit,
        "rounds": len(own),
    }
    told = "" if found["ratio"] is None else f"{found['ratio']:8.2f} ({found['spread']:.2f})"
    print(
        f"{name:58}{told:>18}  target {target}, {found['ours']} / {found['peer']} {unit}",
        flush=True,
    )
    return found


def middle(values: Sequence[float]) -> float | None:
    """The median, or nothing."""
    return round(statistics.median(values), 4) if values else None


def fork_row(engine: LocalEngine, rounds: int) -> dict[str, Any]:
    """How long a fork takes; it holds no page."""
    each, before = forks(engine._tokens), engine.kv_bytes_used
    next(each)  # spells the branch
    found = [next(each) for _ in range(rounds)]
    assert engine.kv_bytes_used == before
    ratios = [MOST_MICROSECONDS / value for value in found]
    return row(f"fork {FORKS} branches", ratios, 1.0, None, found, [], "microseconds each")


def roof_row(ours: Ours, name: str, rows: int, rounds: int) -> dict[str, Any]:
    """The part of the roof that steps of so many rows reach, sampler and Python included."""
    engine, parts = ours.engine, []
    for number in range(rounds):
        engine.roofs()
        ours.generate([ours.prompt(SHORT, 100 + number)], rows, 24)
        steps = [step for step in engine.meter.recent if step.decode_tokens == rows == step.rows]
        fractions = [engine.meter.fraction(step) for step in steps[-20:]]
        parts.append(statistics.median(found.value for found in fractions if found is not None))
    target, goal = (0.6, 0.75) if rows == SAMPLES else (None, None)
    return row(f"{name}: {rows} rows / roof", parts, target, goal, parts, [], "of the roof")


@contextmanager
def loaded(
    model: str, names: Sequence[str], folder: Path, limit: float
) -> Iterator[tuple[Ours, dict[str, Peer]]]:
    """The model here, and in peers."""
    with ExitStack() as stack:
        path = find(model)
        own = stack.enter_context(LocalEngine.load(path, name=model, kv_bytes=KV_BYTES))
        ours = Ours(own)
        peers = {name: stack.enter_context(started(name, path, folder)) for name in names}
        stays: list[Ours | Peer] = [peer for peer in peers.values() if peer.stays]
        for peer in peers.values():
            peer.allow(limit)
        for generator in [ours, *stays]:
            with suppress(Unfinished):  # which its rows tell
                generator.generate([ours.prompt(SHORT, 0)], SAMPLES, 4)  # warms it up
        yield ours, peers


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    for kind in ("main", "small"):
        works = [work for work in WORKS if work.model == kind and work.name in options.only]
        names = [n for n in options.peers if any(n in work.against for work in works)]
        if not works and "roofs" not in options.only:
            continue
        model = getattr(options, kind)
        with loaded(model, names, options.folder, options.peer_limit) as (ours, peers):
            for work in works:
                yield from compared(work, ours, peers, options)
            if "roofs" in options.only:
                for count in (SAMPLES, 1):
                    yield roof_row(ours, model, count, options.rounds)
            if "forks" in options.only and kind == "small":
                yield fork_row(ours.engine, options.rounds)


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", type=names_of(PEERS), default=(), help=",".join(PEERS))
    parser.add_argument("--folder", type=Path, default=settings().home.value / "peers")
    parser.add_argument("--model", dest="main", default=MODEL, help="the model of most rows")
    parser.add_argument("--small", default=SMALL, help="the model of the other rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tree-rounds", type=int, default=5, help="rounds of the longest work")
    parser.add_argument("--peer-limit", type=float, default=900, help="seconds for one work")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of a sample; fewer to try it")
    kinds = ("samples", "sample", "tree", "forks", "roofs")
    parser.add_argument("--only", type=names_of(kinds), default=kinds, help=",".join(kinds))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for found in measured(options):
        rows.append(found)
        if options.json is not None:  # after every row: the next one may take a quarter of an hour
            write_result(options.json, command=["python", *sys.argv], rows=rows, seed=0)


def names_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Reads names with commas between them."""

    def names(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        if unknown := set(found) - set(known):
            raise argparse.ArgumentTypeError(f"there is no {sorted(unknown)}, but {list(known)}")
        return found

    return names


if __name__ == "__main__":
    main()
