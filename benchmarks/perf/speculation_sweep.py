"""Batches of 1 to 64 calls with a good, a poor and a random drafter, beside plain decoding.

The good one knows nine of ten tokens, the poor one looks n-grams up in sampled text, and the random
one says anything; the first and the last take no time. Results must be the same, and no batch may
take longer than without drafts by more than 3 %.

An engine is measured against itself, its drafter resting: two engines differ by where in memory
their weights lie. A pair of rounds runs the same calls both ways, in both orders, and its ratio is
plain time by that with drafts: of seconds, and of the seconds of the processor, which other load on
the machine moves less. A row tells the median over pairs and an interval of 95 % by order
statistics, which assumes nothing of how noise is distributed. The row "plain" rests in both rounds:
it tells how much of all this is noise.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
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

__all__ = ["place_of_interval", "sweep"]

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
) -> Iterator[dict[str, Any]]:
    """A row for each batch and drafter, as it is measured."""
    texts: dict[int, Sequence[int]] = {}
    for batch in options.batches:
        for name, make in _drafters(model, draft, texts).items():
            if name not in (options.drafters or [name]):
                continue
            engine = LocalEngine(
                open_model(model), name=model.stem, kv_bytes=options.kv_bytes, drafting=make
            )
            with closing(engine):
                yield _row(engine, name, batch, texts, ask, options)


def _drafters(
    model: Path, draft: Path | None, texts: Mapping[int, Sequence[int]]
) -> dict[str, Drafting | None]:
    """What drafts, by its name."""
    vocab, tokens = (source := open_model(model)).config.vocab, source.tokens
    drafters: dict[str, Callable[[], Drafter]] = {
        "good": lambda: Guesses(knowing(texts, RIGHT)),
        "poor": lambda: NgramDrafter("own"),
        "random": lambda: Guesses(at_random(vocab)),
    }
    found: dict[str, Drafting | None] = {"plain": None}
    found |= {name: Drafting(name=name, make=make) for name, make in drafters.items()}
    if draft is not None:
        found["model"] = drafting_of(draft, "coupled", tokens, None)
    return found


@contextmanager
def _at_rest(engine: LocalEngine) -> Iterator[None]:
    """Nothing is drafted meanwhile."""
    schedule = engine._batch.schedule
    speculation, schedule._speculation = schedule._speculation, None
    try:
        yield
    finally:
        schedule._speculation = speculation


def _run(engine: LocalEngine, requests: Sequence[Request]) -> Took:
    begun, processor = time.perf_counter(), time.process_time()
    calls = [engine.submit(request) for request in requests]
    texts = [call.future.result().token_ids or () for call in calls]
    seconds, processor = time.perf_counter() - begun, time.process_time() - processor
    return Took(seconds, processor, texts, sum((call.usage for call in calls), Usage()))


def _row(
    engine: LocalEngine,
    name: str,
    batch: int,
    texts: dict[int, Sequence[int]],
    ask: Ask,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """What came of one drafter in one batch."""
    plain: list[Took] = []
    drafted: list[Took] = []
    for pair in range(options.pairs):
        seeds = [1000 * (pair + 1) + branch for branch in range(batch)]
        with _at_rest(engine):  # reads the prompt, and tells the good one what will come
            known = _run(engine, [ask(engine, seed) for seed in seeds]).texts
        texts.update(zip(seeds, known, strict=True))
        for drafts in (False, True, True, False) if pair % 2 else (True, False, False, True):
            asked = [ask(engine, seed) for seed in seeds]
            with nullcontext() if drafts else _at_rest(engine):
                took = _run(engine, asked)
            assert took.texts == known, f"{name} has changed a text"
            (drafted if drafts else plain).append(took)
    tokens = sum(len(text) for took in drafted for text in took.texts)
    row: dict[str, Any] = {"name": f"{options.target} sweep batch={batch}: {name}"}
    row |= _ratios("ratio", plain, drafted, "seconds")
    row |= _ratios("ratio_of_processor_time", plain, drafted, "processor")
    row |= {
        "target": None if name == "plain" else LEAST_RATIO,
        "pairs": options.pairs,
        "tokens_per_s": round(tokens / sum(took.seconds for took in drafted), 2),
    }
    return row | _lines(sum((took.usage for took in drafted), Usage()))


def _ratios(
    name: str, plain: Sequence[Took], drafted: Sequence[Took], line: str
) -> dict[str, float | None]:
    """The median over pairs of rounds, and the interval of 95 % that it lies in."""
    before, after = ([getattr(took, line) for took in tooks] for tooks in (plain, drafted))
    firsts = range(0, len(before), 2)
    ratios = sorted((before[i] + before[i + 1]) / (after[i] + after[i + 1]) for i in firsts)
    place = place_of_interval(len(ratios))
    low, high = (None, None) if place is None else (ratios[place], ratios[-1 - place])
    found = {name: statistics.median(ratios), f"{name}_low": low, f"{name}_high": high}
    return {key: value if value is None else round(value, 3) for key, value in found.items()}


def place_of_interval(n: int) -> int | None:
    """Between which of n ordered values, from either end, a median lies with a chance of 95 %.

    Source: the sign test turned round: each value lies below the median with a chance of a half.
    """
    beyond, place = 0, -1
    while 40 * (beyond + math.comb(n, place + 1)) <= 2**n:
        place += 1
        beyond += math.comb(n, place)
    return place if place >= 0 else None


def _lines(usage: Usage) -> dict[str, Any]:
    """The physical lines that the calls were told."""
    names = ("draft_tokens", "rejected_draft_tokens", "flops", "kv_byte_seconds")
    return {name: getattr(usage, name) for name in names}
