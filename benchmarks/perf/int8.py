"""How near int8 comes to float32: divergence, equal best tokens and perplexity on a text.

Run as `python benchmarks/perf/int8.py MODEL TEXT [--tokens N] [--json PATH]`. MODEL is a name or a
path of a language model, TEXT a file. Both arithmetics read its first tokens, each once.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import torch

from ttc.benchmarks.results import write_result
from ttc.engine.local import LocalEngine
from ttc.engine.local.attention import CHUNK, Span
from ttc.engine.local.hub.models import find
from ttc.engine.local.kv import KVPool
from ttc.engine.local.source import Arithmetic
from ttc.types import Problem

STEP = 256


def logprobs(path: Path, arithmetic: Arithmetic, ids: torch.Tensor) -> torch.Tensor:
    """Log probabilities of all tokens at every position, (tokens, vocab)."""
    with LocalEngine.load(path, arithmetic=arithmetic) as engine, torch.inference_mode():
        model, num_pages = engine._batch.model, -(-len(ids) // CHUNK)
        pool = KVPool(model.config, num_pages)
        parts = []
        for start in range(0, len(ids), STEP):
            piece = ids[start : start + STEP]
            spans = [Span(pages=range(num_pages), start=start, count=len(piece))]
            parts.append(model.forward(piece, spans, pool, torch.arange(len(piece))))
        return torch.cat(parts).log_softmax(-1)


def tokens_of(path: Path, text: str, count: int) -> torch.Tensor:
    """The first tokens of a text."""
    with LocalEngine.load(path) as engine:
        ids = engine.append(engine.root(Problem(prompt="\n"), "policy"), text).token_ids or ()
    return torch.tensor(ids[:count])


def perplexity(found: torch.Tensor, ids: torch.Tensor) -> float:
    """Of each token after those before it."""
    return math.exp(-found[:-1].gather(1, ids[1:, None]).mean().item())


def main() -> None:
    """Measures, prints, and writes the result where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", help="the name or path of a language model")
    parser.add_argument("text", type=Path, help="a file of text")
    parser.add_argument("--tokens", type=int, default=1152, help="how many of its first tokens")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    path = find(options.model)
    ids = tokens_of(path, options.text.read_text(encoding="utf-8"), options.tokens)
    wanted, found = (logprobs(path, kind, ids) for kind in ("fp32", "int8"))
    values = {
        "mean divergence, nats": (wanted.exp() * (wanted - found)).sum(-1).mean().item(),
        "most probable token equal": (wanted.argmax(-1) == found.argmax(-1)).float().mean().item(),
        "perplexity, fp32": perplexity(wanted, ids),
        "perplexity, int8": perplexity(found, ids),
    }
    print(f"{options.model}, {len(ids)} tokens")
    for name, value in values.items():
        print(f"{name:28}{value:.4f}")
    if options.json:
        rows = [{"name": name, "value": value} for name, value in values.items()]
        write_result(options.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
