"""Batches of 1 to 64 calls with a good, a poor and a random drafter, beside plain decoding.

The good one knows nine of ten tokens, the poor one looks n-grams up in sampled text, and the random
one says anything; the first and the last take no time. Results must be the same, and no batch may
take longer than without drafts by more than 3 %.

Engines take turns: a pair of rounds runs every engine twice on the same calls, in both orders, and
a ratio is the median over pairs of plain time by that with drafts: of seconds, and of the seconds
of the processor, which other load on the machine moves less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ttc.benchmarks.perf.drafters import Guesses, at_random, knowing
from ttc.engine.local import LocalEngine

# isort: split
from ttc.engine.local.drafting.draft import Drafter
from ttc.engine.local.drafting.ngram import NgramDrafter
from ttc.engine.local.drafting.options import Drafting, drafting_of
from ttc.engine.local.source import open_model
from ttc.ports import Request
from ttc.types import Usage

__all__ = ["sweep"]

LEAST_RATIO = 0.97
RIGHT = 0.9
Ask = Callable[[LocalEngine, int], Request]


class Took(NamedTuple):
    """What calls that ran together took."""

    seconds: float
    processor: float
    texts: Sequence[Sequence[int]]
    usage: Usage


def sweep(
    model: Path, draft: Path | None, ask: Ask, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each batch and drafter."""
    texts: dict[int, Sequence[int]] = {}
    engines = _engines(model, draft, texts, options.kv_bytes)
    try:
        for engine in engines.values():
            _run(engine, [ask(engine, 0)])
        rows = []
        for batch in options.batches:
            rows += _rows(engines, batch, texts, ask, options)
        return rows
    finally:
        for engine in engines.values():
            engine.close()


def _engines(
    model: Path, draft: Path | None, texts: Mapping[int, Sequence[int]], kv_bytes: int
) -> dict[str, LocalEngine]:
    def load(drafting: Drafting | None) -> LocalEngine:
        return LocalEngine(open_model(model), name=model.stem, kv_bytes=kv_bytes, drafting=drafting)

    vocab, tokens = (source := open_model(model)).config.vocab, source.tokens
    drafters: dict[str, Callable[[], Drafter]] = {
        "good": lambda: Guesses(knowing(texts, RIGHT)),
        "poor": lambda: NgramDrafter("own"),
        "random": lambda: Guesses(at_random(vocab)),
    }
    found = {"plain": load(None)}
    for name, make in drafters.items():
        found[name] = load(Drafting(name=name, make=make))
    if draft is not None:
        found["model"] = load(drafting_of(draft, "coupled", tokens, None))
    return found


def _run(engine: LocalEngine, requests: Sequence[Request]) -> Took:
    begun, processor = time.perf_counter(), time.process_time()
    calls = [engine.submit(request) for request in requests]
    texts = [call.future.result().token_ids or () for call in calls]
    seconds, processor = time.perf_counter() - begun, time.process_time() - processor
    return Took(seconds, processor, texts, sum((call.usage for call in calls), Usage()))


def _rows(
    engines: Mapping[str, LocalEngine],
    batch: int,
    texts: dict[int, Sequence[int]],
    ask: Ask,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    took: dict[str, list[Took]] = {name: [] for name in engines}
    before = {name: dict(vars(engine.counters)) for name, engine in engines.items()}
    for pair in range(options.pairs):
        seeds = [1000 * (pair + 1) + branch for branch in range(batch)]
        names = list(engines)
        for name in (*names, *reversed(names)):  # plain first: so the good one knows what comes
            engine = engines[name]
            took[name].append(_run(engine, [ask(engine, seed) for seed in seeds]))
            texts.update(zip(seeds, took["plain"][-1].texts, strict=True))
            assert took[name][-1].texts == took["plain"][-1].texts, f"{name} has changed a text"
    rows = []
    for name, engine in engines.items():
        counted = {k: v - before[name][k] for k, v in vars(engine.counters).items()}
        row = {
            "name": f"{options.target} sweep batch={batch}: {name}",
            "ratio": _ratio(took, name, "seconds"),
            "ratio_of_processor_time": _ratio(took, name, "processor"),
            "target": None if name == "plain" else LEAST_RATIO,
            "tokens_per_s": round(counted["output_tokens"] / sum(t.seconds for t in took[name]), 2),
            "output_tokens": counted["output_tokens"],
            "steps": counted["steps"],
            "draft_seconds": round(counted["draft_s"], 3),
        }
        rows.append(row | _lines(sum((t.usage for t in took[name]), Usage())))
        print(rows[-1], flush=True)
    return rows


def _ratio(took: Mapping[str, Sequence[Took]], name: str, line: str) -> float:
    """The median over pairs of rounds."""
    plain, other = ([getattr(t, line) for t in took[n]] for n in ("plain", name))
    pairs = range(0, len(plain), 2)
    ratios = [(plain[i] + plain[i + 1]) / (other[i] + other[i + 1]) for i in pairs]
    median: float = statistics.median(ratios)
    return round(median, 3)


def _lines(usage: Usage) -> dict[str, Any]:
    """The physical lines that the calls were told."""
    names = ("draft_tokens", "rejected_draft_tokens", "flops", "kv_byte_seconds")
    return {name: getattr(usage, name) for name in names}
