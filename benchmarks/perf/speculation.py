"""Speculative decoding: time and acceptance of each drafter, beside plain decoding in one run.

Run as `python benchmarks/perf/speculation.py [--target MODEL] [--draft MODEL] [--json PATH]`; with
`--sweep` it measures batches with drafters of known quality instead, see `speculation_sweep.py`.
The figures on problems are those of

    python benchmarks/perf/speculation.py --target qwen2.5-coder-1.5b-instruct-q4_k_m
        --draft qwen2.5-coder-0.5b-instruct-q4_k_m --texts gsm8k human_eval --data FOLDER
        --ways "ngram coupled" "model coupled" --prompts 30 --tokens 64 --minutes 15 --json PATH

All engines are loaded once and take turns, prompt by prompt and text by text, so that other load on
the machine meets all alike; `--peers FOLDER` adds llama.cpp's own speculation, out of a folder with
its server. After `--minutes` no further prompt is begun; what there is is told and written after
each. A ratio is the median over prompts of plain seconds by speculative seconds, of the same seeds:
of the whole call, of the processor, which other load moves less, and of what came after the prompt
was read. The bound is what constant acceptance would give
at best: the greatest (1 - a^(k+1)) / (1 - a) / (c k + r(k)) over k, with the measured acceptance a,
the draft model's step as a part of the model's, c, and r(k) the time of k + 1 rows by that of one.
A way whose name ends with ", one chain", as "tree coupled, one chain", tries no side chains.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ttc.benchmarks.perf import speculation_peers
from ttc.benchmarks.perf.drafters import keep_to_one_chain
from ttc.benchmarks.perf.speculation_sweep import sweep
from ttc.benchmarks.perf.speculation_texts import MATHS, prompts
from ttc.benchmarks.results import write_result
from ttc.engine.local import LocalEngine

# isort: split
from ttc.engine.local.curve import Curve, Load
from ttc.engine.local.drafting.draft_model import DraftModel
from ttc.engine.local.hub.models import find
from ttc.engine.local.path import path_tokens
from ttc.ports import Request
from ttc.types import Problem, Sampling

ACCEPTANCES = ("coupled", "maximal")
RATIOS = {
    "seconds": "ratio",
    "processor": "ratio_of_processor_time",
    "decoding": "ratio_of_decoding",
}
ALONE = ", one chain"
"""After a way's name: without side chains."""
CONTEXT = 200  # tokens, for which steps are predicted


class Took(NamedTuple):
    """What a prompt's branches took."""

    seconds: float
    processor: float | None
    """Seconds of the processor; `None` of another program."""
    reading: float
    """Seconds of the steps that read the prompt."""
    counted: Mapping[str, float]
    """By how much counters have grown."""
    texts: Sequence[Sequence[int]] = ()
    """What was written."""

    @property
    def decoding(self) -> float:
        """Seconds after the prompt was read; a draft model's reading of it is among them."""
        return self.seconds - self.reading


Way = Callable[[Problem, int], Took]
"""Decodes a prompt with a seed."""


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
    chosen |= {way: ways[way.removesuffix(ALONE)] for way in names if way.endswith(ALONE)}
    loaded = {way: LocalEngine.load(target, kv_bytes=kv_bytes, **o) for way, o in chosen.items()}
    for way, engine in loaded.items():
        speculation = engine._batch._speculation
        if way.endswith(ALONE) and speculation is not None:
            keep_to_one_chain(speculation._drafter)
    return loaded


def request(
    engine: LocalEngine, problem: Problem, seed: int, options: argparse.Namespace
) -> Request:
    """A call on a prompt, by the model's template."""
    sampling = Sampling(temperature=options.temperature, top_p=options.top_p)
    branch = engine.root(problem, "policy")
    return Request(branch=branch, max_tokens=options.tokens, sampling=sampling, seed=seed)


def run(engine: LocalEngine, options: argparse.Namespace, problem: Problem, seed: int) -> Took:
    """A way to decode: an engine of ours."""
    before, recent = counters(engine), engine.meter.recent
    last = recent[-1] if recent else None
    begun, processor = time.perf_counter(), time.process_time()
    calls = [
        engine.submit(request(engine, problem, 1000 * seed + branch, options))
        for branch in range(options.batch)
    ]
    texts = [call.future.result().token_ids or () for call in calls]
    seconds, processor = time.perf_counter() - begun, time.process_time() - processor
    steps = list(recent)
    since = next((place + 1 for place, step in enumerate(steps) if step is last), 0)
    reading = sum(step.seconds.total for step in steps[since:] if step.prefill_tokens)
    counted = {name: value - before[name] for name, value in counters(engine).items()}
    return Took(seconds, processor, reading, counted, texts)


def counters(engine: LocalEngine) -> dict[str, float]:
    """What an engine and its draft model have counted."""
    model = draft_model(engine)
    own = {} if model is None else {"draft_steps": model.steps, "draft_rows": model.rows}
    return dict(vars(engine.counters)) | own


def ask_peer(
    url: str, engine: LocalEngine, options: argparse.Namespace, problem: Problem, seed: int
) -> Took:
    """A way to decode: llama.cpp, greedily and one call, on the tokens that an engine reads."""
    told = speculation_peers.answer(
        url, path_tokens(engine.root(problem, "policy")), options.tokens
    )
    timings = told["timings"]
    reading, decoding = timings["prompt_ms"] / 1e3, timings["predicted_ms"] / 1e3
    tried, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
    counted = {
        "output_tokens": timings["predicted_n"],
        "draft_tokens": tried,
        "rejected_draft_tokens": tried - accepted,
    }
    return Took(reading + decoding, None, reading, counted)


def step_seconds(curve: Curve, rows: int, context: int) -> float:
    """What a step of so many rows takes by a curve, each after so many tokens."""
    return curve(Load(rows=rows, draws=rows, seen=rows * context))


def bound(acceptance: float, target: Curve, draft: Curve | None, context: int) -> float:
    """The greatest speed-up that a constant acceptance would allow at one call."""
    one = step_seconds(target, 1, context)
    c = step_seconds(draft, 1, context) / one if draft is not None else 0.0
    best = 1.0
    for k in range(1, 9):
        expected = sum(acceptance**j for j in range(k + 1))
        best = max(best, expected / (c * k + step_seconds(target, k + 1, context) / one))
    return best


def in_turns(
    ways: Mapping[str, Way], sets: Mapping[str, Sequence[Problem]], end: float
) -> Iterator[dict[str, dict[str, list[Took]]]]:
    """What each way took by texts, after each prompt; until a time is over."""
    took: dict[str, dict[str, list[Took]]] = {name: {way: [] for way in ways} for name in sets}
    for seed in range(1, 1 + max(map(len, sets.values()))):
        for name, problems in sets.items():
            if seed > len(problems) or time.monotonic() > end:
                continue
            order = sorted(ways, key=lambda way: (hash_of(way, seed), way))
            found = {way: ways[way](problems[seed - 1], seed) for way in order}
            for way, one in found.items():
                same = "coupled" not in way or one.texts == found["plain"].texts
                assert same, f"{way}: drafts have changed a text"
                took[name][way].append(one)
            told = ", ".join(f"{way} {one.seconds:.2f} s" for way, one in found.items())
            print(f"{name} {seed}: {told}", flush=True)
            yield took


def hash_of(way: str, seed: int) -> int:
    """An order of the ways that differs from round to round."""
    return (sum(map(ord, way)) * (2 * seed + 1)) % 97


def rows_of(
    took: Mapping[str, Mapping[str, Sequence[Took]]],
    loaded: Mapping[str, LocalEngine],
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """A row for each way to decode each text."""
    rows = []
    for name, by_way in took.items():
        for way, calls in by_way.items():
            if not calls:
                continue
            found: dict[str, Any] = {
                "name": f"{options.target} {name} batch={options.batch}: {way}"
            }
            found |= row(way, by_way)
            if way in loaded and options.batch == 1 and found["acceptance"] is not None:
                found |= predicted(loaded[way], found["acceptance"])
            rows.append(found)
    return rows


def row(way: str, took: Mapping[str, Sequence[Took]]) -> dict[str, Any]:
    """What is told of one way."""
    counted: Counter[str] = Counter()
    for call in took[way]:
        counted.update(call.counted)
    tokens, tried = counted["output_tokens"], counted["draft_tokens"]
    accepted, wrong = tried - counted["rejected_draft_tokens"], counted.get("wrong_draft_tokens")
    found: dict[str, Any] = {
        "prompts": len(took[way]),
        "tokens_per_s": round(tokens / sum(call.seconds for call in took[way]), 2),
        "tokens_per_s_decoding": round(tokens / sum(call.decoding for call in took[way]), 2),
        "output_tokens": int(tokens),
        "tried": int(tried),
        "accepted": int(accepted),
        "acceptance": None,
    }
    if accepted and wrong is not None:
        found["acceptance"] = round(accepted / (accepted + wrong), 4)
    others = ("steps", "draft_s", "draft_steps", "draft_rows")
    found |= {name: round(counted[name], 3) for name in others if name in counted}
    plain = "llama.cpp plain" if way.startswith("llama.cpp") else "plain"
    if way != plain and "maximal" not in way:  # that writes other texts, of other lengths
        for line, name in RATIOS.items():
            if getattr(took[way][0], line) is not None:
                pairs = zip(took[plain], took[way], strict=True)
                ratios = [getattr(a, line) / getattr(b, line) for a, b in pairs]
                found[name] = round(statistics.median(ratios), 3)
    return found


def predicted(engine: LocalEngine, acceptance: float) -> dict[str, Any]:
    """The bound, and how long steps of the model and of its draft model take by their curves."""
    model, curve = draft_model(engine), engine._batch.curve
    drafts = None if model is None else model.curve
    found = {"bound": round(bound(acceptance, curve, drafts, CONTEXT), 3)}
    if drafts is not None:
        found["draft_step_ms"] = round(1e3 * step_seconds(drafts, 1, CONTEXT), 2)
    for rows in (1, 2, 4):
        found[f"step_of_{rows}_ms"] = round(1e3 * step_seconds(curve, rows, CONTEXT), 2)
    return found


def draft_model(engine: LocalEngine) -> DraftModel | None:
    """What drafts, if it is a model."""
    speculation = engine._batch._speculation
    drafter = speculation._drafter if speculation is not None else None
    return drafter if isinstance(drafter, DraftModel) else None


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each way to decode, written as prompts are done."""
    target = find(options.target)
    draft = find(options.draft) if options.draft else None
    sets = {name: prompts(name, options.prompts, options.data) for name in options.texts}
    loaded = engines(target, draft, options.kv_bytes, options.ways)
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for engine in loaded.values():
            stack.callback(engine.close)
        ways: dict[str, Way] = {way: partial(run, e, options) for way, e in loaded.items()}
        if options.peers is not None:
            urls = speculation_peers.servers(
                stack, options.peers, target, draft, options.peer_lengths
            )
            ways |= {w: partial(ask_peer, url, loaded["plain"], options) for w, url in urls.items()}
        for way in ways.values():
            way(Problem.ask("Count to ten."), 0)
        end = time.monotonic() + 60 * options.minutes
        for took in in_turns(ways, sets, end):
            rows = rows_of(took, loaded, options)
            write(rows, options.json)
    return rows


def write(rows: Sequence[Mapping[str, Any]], path: Path | None) -> None:
    """Writes the rows, if there is a place for them."""
    if path is not None:
        write_result(path, command=["python", *sys.argv], rows=rows, seed=1)


def main() -> None:
    """Measures, prints, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--draft")
    parser.add_argument("--texts", nargs="+", default=["code"], help="maths, code, or tasks")
    parser.add_argument("--data", type=Path, help="a folder with the tasks' files")
    parser.add_argument("--ways", nargs="*", default=[])
    parser.add_argument("--prompts", type=int, default=8, help="of each text")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--kv-bytes", type=int, default=256 << 20)
    parser.add_argument("--peers", type=Path, help="the folder of llama.cpp's programs")
    parser.add_argument("--peer-lengths", type=int, nargs="*", default=[3])
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--drafters", nargs="*", help="of the sweep; by default all")
    parser.add_argument("--pairs", type=int, default=3, help="of rounds of the sweep")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.peers is not None and (options.batch, options.temperature) != (1, 0.0):
        parser.error("llama.cpp answers greedily, one call at a time: leave out --batch")
    if not options.sweep:
        for found in measure(options):
            print(found)
        return
    draft = find(options.draft) if options.draft else None

    def ask(engine: LocalEngine, seed: int) -> Request:
        return request(engine, Problem.ask(MATHS[seed // 1000 % len(MATHS)]), seed, options)

    rows: list[dict[str, Any]] = []
    for found in sweep(find(options.target), draft, ask, options):
        print(found, flush=True)
        rows.append(found)
        write(rows, options.json)


if __name__ == "__main__":
    main()
