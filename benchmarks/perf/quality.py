"""What an arithmetic costs in quality: its distributions against those of float32, on a text.

Run as `python benchmarks/perf/quality.py TEXT [--arithmetic NAME ...] [--tokens N]
[--models MODEL ...] [--json PATH]`, where TEXT is a plain text, or JSON lines with `question` and
`answer`. At every position of its first tokens: the divergence KL(float32 || it) in nats, how often
the most probable token is the same, and the perplexity of both. All read the same file, so what the
file itself rounded away plays no part. `int8` is measured once more with keys and values of a byte
each.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any, get_args

from ttc.benchmarks.results import write_result
from ttc.engine.local import threads
from ttc.engine.local.hub.models import find

# isort: split
import torch

from ttc.config import Arithmetic
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.source import KVType, open_model

MODELS = ("smollm2-135m",)
ARITHMETICS: tuple[Arithmetic, ...] = ("int8", "file")
Types = tuple[Arithmetic, KVType | None]
"""Of weights, and of keys and values."""
MAX_DIVERGENCE, MIN_AGREEMENT = 0.015, 0.955
PIECE = 256


def text_of(path: Path) -> str:
    """What is read."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".jsonl":
        return text
    rows = [json.loads(line) for line in text.splitlines()]
    return "\n\n".join(f"{row['question']}\n{row['answer']}" for row in rows)


def log_probabilities(
    path: Path, arithmetic: Arithmetic, kv_type: KVType | None, text: str, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of every token at every position, (tokens, vocab), and the tokens."""
    source = open_model(path, arithmetic, kv_type=kv_type)
    ids = torch.tensor(source.tokens.encode(text)[:count])
    pages = range(-(-len(ids) // PAGE))
    parts = []
    with torch.inference_mode():
        model = source.build()
        pool = model.make_pool(len(pages))
        for start in range(0, len(ids), PIECE):
            part = ids[start : start + PIECE]
            span = Span(pages=pages, start=start, count=len(part))
            logits = model.forward(part, Plan([span]), pool, torch.arange(len(part)))
            parts.append(logits.log_softmax(-1))
    return torch.cat(parts), ids


def rows_of(
    model: str,
    types: Types,
    text: str,
    count: int,
    exact: torch.Tensor,
) -> list[dict[str, Any]]:
    """The figures of one model, arithmetic and type of keys and values."""
    arithmetic, kv_type = types
    found, ids = log_probabilities(find(model), arithmetic, kv_type, text, count)
    divergence = float((exact.exp() * (exact - found)).sum(-1).mean())
    agreement = float((exact.argmax(-1) == found.argmax(-1)).float().mean())
    losses = [float(-p[:-1].gather(1, ids[1:, None]).mean()) for p in (exact, found)]
    name = f"{Path(model).name.removesuffix('.gguf')}, {arithmetic}"
    name += f", kv {kv_type}" if kv_type else ""
    print(
        f"{name}: {len(ids)} tokens, divergence {divergence:.4f}, best equal {agreement:.4f}, "
        f"perplexity {math.exp(losses[0]):.3f} in fp32, {math.exp(losses[1]):.3f} in this"
    )
    figures: list[tuple[str, float, str, float | None]] = [
        ("tokens", len(ids), "", None),
        ("divergence, at most", divergence, "nats", MAX_DIVERGENCE),
        ("best token equal, at least", agreement, "", MIN_AGREEMENT),
        ("perplexity, fp32", math.exp(losses[0]), "", None),
        ("perplexity", math.exp(losses[1]), "", None),
    ]
    return [
        {"name": f"{name}: {what}", "value": value, "unit": unit, "target": target}
        for what, value, unit, target in figures
    ]


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("text", type=Path, help="what all arithmetics read")
    parser.add_argument("--models", nargs="*", default=MODELS, help="names or paths of GGUF files")
    parser.add_argument(
        "--arithmetic", nargs="+", default=ARITHMETICS, choices=get_args(Arithmetic)
    )
    parser.add_argument("--tokens", type=int, default=1152)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(threads.thread_count())
    text = text_of(arguments.text)
    rows, count = [], arguments.tokens
    for model in arguments.models:
        exact, _ = log_probabilities(find(model), "fp32", None, text, count)
        kinds: list[Types] = [(arithmetic, None) for arithmetic in arguments.arithmetic]
        kinds += [("int8", "int8")] if "int8" in arguments.arithmetic else []
        for types in kinds:
            rows += rows_of(model, types, text, count, exact)
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
