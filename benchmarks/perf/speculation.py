"""Speculative decoding: time and acceptance of each drafter, beside plain decoding in one run.

Run as `python benchmarks/perf/speculation.py [--target MODEL] [--draft MODEL] [--json PATH]`; with
`--sweep` it measures batches with drafters of known quality instead, see `speculation_sweep.py`.

All engines are loaded once and take turns: every round of prompts runs on each, so that other load
on the machine meets all alike. A ratio is the median over rounds of plain seconds by speculative
seconds, of the same prompts with the same seeds; so is that of the processor's seconds, which other
load moves less. The bound is what constant acceptance would give
at best: the greatest (1 - a^(k+1)) / (1 - a) / (c k + r(k)) over k, with the measured acceptance a,
the draft model's step as a part of the model's, c, and r(k) the time of k + 1 rows by that of one.
`--peers FOLDER` measures llama.cpp's own speculation on the same prompts, out of a folder with its
server.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ttc.benchmarks.perf import speculation_peers
from ttc.benchmarks.perf.speculation_sweep import sweep
from ttc.benchmarks.results import write_result
from ttc.engine.local import LocalEngine

# isort: split
from ttc.engine.local.curve import Curve, Load
from ttc.engine.local.drafting.draft_model import DraftModel
from ttc.engine.local.hub.models import find
from ttc.engine.local.path import path_tokens
from ttc.ports import Request
from ttc.types import Branch, Problem, Sampling

MATHS = [
    "Tom has 3 boxes of 12 eggs and breaks 5 eggs. How many eggs are left? Think step by step.",
    "A train runs 60 km in 45 minutes. How far does it run in 2 hours? Think step by step.",
    "Anna is 4 years older than Ben, and together they are 30. How old is Ben? Think step by step.",
    "A shirt costs 40 dollars and is 15% off. What do 3 of them cost? Think step by step.",
]
CODE = [
    "Write a Python class Stack with push, pop, peek, is_empty and size, and tests for each.",
    "Write Python functions that turn Celsius into Fahrenheit and back, and test both.",
    "Rewrite this with type hints and repeat it whole:\n\ndef total(items):\n    result = 0\n"
    "    for item in items:\n        if item.price > 0:\n"
    "            result += item.price * item.count\n"
    "    return result\n",
    "Write a Python function that parses a CSV line into fields, with quotes, and tests.",
]
ACCEPTANCES = ("coupled", "maximal")
CONTEXT = 200  # tokens, for which steps are predicted


def engines(
    target: Path, draft: Path | None, kv_bytes: int, names: Sequence[str]
) -> dict[str, LocalEngine]:
    """An engine for each way to decode."""
    ways: dict[str, dict[str, Any]] = {
        "plain": {},
        "ngram coupled": {"speculate": "ngram"},
        "ngram maximal": {"speculate": "ngram", "acceptance": "maximal"},
        "tree coupled": {"speculate": "tree"},
    }
    if draft is not None:
        for acceptance in ACCEPTANCES:
            ways[f"model {acceptance}"] = {"speculate": draft, "acceptance": acceptance}
    chosen = {way: o for way, o in ways.items() if way == "plain" or not names or way in names}
    return {way: LocalEngine.load(target, kv_bytes=kv_bytes, **o) for way, o in chosen.items()}


def request(engine: LocalEngine, text: str, seed: int, options: argparse.Namespace) -> Request:
    """A call on a prompt, by the model's template."""
    branch: Branch = engine.root(Problem.ask(text), "policy")
    sampling = Sampling(temperature=options.temperature, top_p=options.top_p)
    return Request(branch=branch, max_tokens=options.tokens, sampling=sampling, seed=seed)


def run(
    engine: LocalEngine, text: str, seed: int, options: argparse.Namespace
) -> tuple[float, float, list[Any]]:
    """Seconds of a prompt's branches, by the clock and of the processor, and what they wrote."""
    begun, processor = time.perf_counter(), time.process_time()
    calls = [
        engine.submit(request(engine, text, 1000 * seed + branch, options))
        for branch in range(options.batch)
    ]
    texts = [call.future.result().token_ids for call in calls]
    return time.perf_counter() - begun, time.process_time() - processor, texts


def bound(acceptance: float, target: Curve, draft: Curve | None, context: int) -> float:
    """The greatest speed-up that a constant acceptance would allow at one call."""

    def seconds(curve: Curve, rows: int) -> float:
        return curve(Load(rows=rows, draws=rows, seen=rows * context))

    one = seconds(target, 1)
    c = seconds(draft, 1) / one if draft is not None else 0.0
    best = 1.0
    for k in range(1, 9):
        expected = sum(acceptance**j for j in range(k + 1))
        best = max(best, expected / (c * k + seconds(target, k + 1) / one))
    return best


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each way to decode."""
    target = find(options.target)
    draft = find(options.draft) if options.draft else None
    loaded = engines(target, draft, options.kv_bytes, options.ways)
    prompts = chosen(options)
    for engine in loaded.values():
        run(engine, "Count to ten.", 0, options)
    seconds: dict[str, list[float]] = {way: [] for way in loaded}
    processor: dict[str, list[float]] = {way: [] for way in loaded}
    before = {way: dict(vars(engine.counters)) for way, engine in loaded.items()}
    models = {way: draft_model(engine) for way, engine in loaded.items()}
    computed = {way: (m.steps, m.rows) if m else (0, 0) for way, m in models.items()}
    written: dict[str, list[Any]] = {way: [] for way in loaded}
    for seed, text in enumerate(prompts, 1):
        for way in sorted(loaded, key=lambda way: (hash_of(way, seed), way)):
            took, worked, texts = run(loaded[way], text, seed, options)
            seconds[way].append(took)
            processor[way].append(worked)
            written[way].append(texts)
    rows = []
    for way, engine in loaded.items():
        counted = {k: v - before[way][k] for k, v in vars(engine.counters).items()}
        if "coupled" in way:
            assert written[way] == written["plain"], f"{way}: drafts have changed a text"
        found = row(way, engine, counted, seconds, options) | drafted(engine, computed[way])
        found["ratio_of_processor_time"] = median_ratio(processor, way)
        rows.append(found)
        print(rows[-1], flush=True)
    for engine in loaded.values():
        engine.close()
    return rows


def hash_of(way: str, seed: int) -> int:
    """An order of the ways that differs from round to round."""
    return (sum(map(ord, way)) * (2 * seed + 1)) % 97


def row(
    way: str,
    engine: LocalEngine,
    counted: dict[str, float],
    seconds: dict[str, list[float]],
    options: Any,
) -> dict[str, Any]:
    """What is told of one way."""
    per_token = sum(seconds[way]) / counted["output_tokens"]
    tried, rejected = counted["draft_tokens"], counted["rejected_draft_tokens"]
    wrong = counted["wrong_draft_tokens"]
    alpha = (tried - rejected) / (tried - rejected + wrong) if tried > rejected else None
    found: dict[str, Any] = {
        "name": f"{options.target} {options.texts} batch={options.batch}: {way}",
        "tokens_per_s": round(1 / per_token, 2),
        "output_tokens": int(counted["output_tokens"]),
        "steps": int(counted["steps"]),
        "tried": int(tried),
        "accepted": int(tried - rejected),
        "acceptance": round(alpha, 4) if alpha is not None else None,
        "draft_seconds": round(counted["draft_s"], 3),
    }
    if way != "plain":
        found["ratio"] = median_ratio(seconds, way)
        if "maximal" not in way:
            found["ratio_of_sums"] = round(sum(seconds["plain"]) / sum(seconds[way]), 3)
        if alpha is not None and options.batch == 1:
            model = draft_model(engine)
            curves = engine._batch.curve, model.curve if model is not None else None
            found["bound"] = round(bound(alpha, *curves, CONTEXT), 3)
    return found


def median_ratio(took: dict[str, list[float]], way: str) -> float | None:
    """Plain time by a way's; `None` where that writes other texts, of other lengths."""
    if "maximal" in way:
        return None
    pairs = zip(took["plain"], took[way], strict=True)
    return round(statistics.median(plain / other for plain, other in pairs), 3)


def drafted(engine: LocalEngine, before: tuple[int, int]) -> dict[str, Any]:
    """What a draft model has computed since, and how long its step takes by its curve."""
    model = draft_model(engine)
    if model is None:
        return {}
    steps, rows = model.steps - before[0], model.rows - before[1]
    one, whole = Load(rows=1, draws=1, seen=CONTEXT), Load(rows=4, draws=4, seen=4 * CONTEXT)
    curve = engine._batch.curve
    found = {"draft_step_ms": model.curve(one), "step_ms": curve(one), "step_of_4_ms": curve(whole)}
    told = {name: round(1e3 * seconds, 2) for name, seconds in found.items()}
    return {"draft_steps": steps, "draft_rows": rows, **told}


def draft_model(engine: LocalEngine) -> DraftModel | None:
    """What drafts, if it is a model."""
    speculation = engine._batch._speculation
    drafter = speculation._drafter if speculation is not None else None
    return drafter if isinstance(drafter, DraftModel) else None


def peers(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """llama.cpp with and without speculation, greedily, one call after another."""
    target = find(options.target)
    engine = LocalEngine.load(target, kv_bytes=options.kv_bytes)
    prompts = [path_tokens(engine.root(Problem.ask(text), "policy")) for text in chosen(options)]
    engine.close()
    draft = find(options.draft) if options.draft else None
    rows: list[dict[str, Any]] = []
    for way, how in speculation_peers.ways(draft, options.peer_lengths).items():
        found = speculation_peers.written(folder, target, how, prompts, options.tokens)
        found["name"] = f"{options.target} {options.texts} batch=1: llama.cpp {way}"
        found["ratio"] = round(found["tokens_per_s"] / (rows or [found])[0]["tokens_per_s"], 3)
        print(found, flush=True)
        rows.append(found)
    return rows


def chosen(options: argparse.Namespace) -> list[str]:
    """The prompts."""
    texts, count = {"maths": MATHS, "code": CODE}[options.texts], int(options.prompts)
    return (texts * count)[:count]


def main() -> None:
    """Measures, prints, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--draft")
    parser.add_argument("--texts", choices=["maths", "code"], default="code")
    parser.add_argument("--ways", nargs="*", default=[])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--kv-bytes", type=int, default=256 << 20)
    parser.add_argument("--peers", type=Path, help="the folder of llama.cpp's programs")
    parser.add_argument("--peer-lengths", type=int, nargs="*", default=[3, 5])
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--pairs", type=int, default=3, help="of rounds of the sweep")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.sweep:
        draft = find(options.draft) if options.draft else None

        def ask(engine: LocalEngine, seed: int) -> Request:
            return request(engine, MATHS[seed // 1000 % len(MATHS)], seed, options)

        rows = sweep(find(options.target), draft, ask, options)
    else:
        rows = measure(options)
    if options.peers is not None:
        rows += peers(options.peers, options)
    if options.json is not None:
        write_result(options.json, command=["python", *sys.argv], rows=rows, seed=1)


if __name__ == "__main__":
    main()
