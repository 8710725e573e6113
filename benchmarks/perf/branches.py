"""What branches cost: forking, and what the tree of pages adds to a step.

Run as `python benchmarks/perf/branches.py [--json PATH]`. Times are processor time, medians of
rounds; the spread is the distance from the fastest to the slowest. The tree has pages of 16 tokens;
a prompt has 1,500. No model computes anything: what is measured is the book-keeping.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ttc.benchmarks.results import write_result
from ttc.engine.local.cutting import Cutter
from ttc.engine.local.files.gguf import read_gguf
from ttc.engine.local.hub.models import find
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.local.tree import Path as PagePath
from ttc.engine.local.tree import RadixTree
from ttc.types import Branch

MODEL = "smollm2-135m"
FORKS = 10_000
PROMPT = list(range(1_500))
ROWS = 64
STEPS = 64


def forks(tokens: TextTokens) -> Iterator[float]:
    """Microseconds of a fork at a random token of 1,500 generated ones."""
    draw = random.Random(0)
    ids = tuple(draw.randrange(1_000, 40_000) for _ in PROMPT)
    root = Branch(text="", token_ids=tuple(PROMPT))
    whole = Branch(
        parent=root, text="", token_ids=ids, logprobs=(-1.0,) * len(ids), finish_reason="length"
    )
    cutter = Cutter(tokens)
    places = [draw.randint(1_501, 3_000) for _ in range(FORKS)]
    while True:
        begun = time.process_time()
        for place in places:
            cutter.cut(whole, place)
        yield (time.process_time() - begun) / FORKS * 1e6


def admission() -> dict[str, float]:
    """Microseconds of a match, of letting 64 forks join, of a step of theirs, of their leaving."""
    tree, found, paths = RadixTree(4_096, 16), dict[str, float](), list[PagePath]()
    trunk = tree.join(tree.match(PROMPT))
    tree.grow(trunk, len(PROMPT))
    tree.record(trunk, PROMPT)
    tree.release(trunk)
    found["match"] = timed(lambda: tree.match(PROMPT))
    found["join"] = timed(lambda: paths.extend(fork(tree) for _ in range(ROWS)))
    found["step"] = timed(lambda: steps(tree, paths)) / STEPS
    found["leave"] = timed(lambda: leave(tree, paths))
    return found


def fork(tree: RadixTree) -> PagePath:
    """A call that joins on the prompt."""
    path = tree.join(tree.match(PROMPT))
    tree.copies.clear()
    return path


def steps(tree: RadixTree, paths: list[PagePath]) -> None:
    """All that the tree does in steps of calls that decode, each its own tokens."""
    for number in range(STEPS):
        for i, path in enumerate(paths):
            tree.grow(path, path.length + 1)
            tree.record(path, (1_000 * i + number,))
            tree.note(path, path.length - 1, {number: -1.0})
        tree.shares(paths)


def leave(tree: RadixTree, paths: list[PagePath]) -> None:
    """Lets all calls end."""
    for path in paths:
        tree.release(path)


def timed(work: Callable[[], Any]) -> float:
    """Microseconds of processor time."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1e6


def row(name: str, values: list[float], unit: str, target: float) -> dict[str, Any]:
    """A row of the table."""
    median = statistics.median(values)
    return {
        "name": name,
        "value": round(median, 2),
        "unit": unit,
        "spread": round(max(values) - min(values), 2),
        "target": target,
    }


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each figure")
    arguments = parser.parse_args()
    tokens = TextTokens.from_gguf(read_gguf(find(MODEL)))
    each_fork = forks(tokens)
    next(each_fork)  # spells the branch
    costs = [next(each_fork) for _ in range(arguments.rounds)]
    found = [admission() for _ in range(arguments.rounds)]
    rows = [
        row(f"fork {FORKS} branches", costs, "microseconds each", 10.0),
        row("match 1,500 tokens", [f["match"] for f in found], "microseconds", 300.0),
        row(f"let {ROWS} forks join", [f["join"] for f in found], "microseconds", 20_000.0),
        row(f"pages of a step of {ROWS} rows", [f["step"] for f in found], "microseconds", 300.0),
        row(f"let {ROWS} calls leave", [f["leave"] for f in found], "microseconds", 20_000.0),
    ]
    for each in rows:
        print(f"{each['name']:32} {each['value']:10.1f} {each['unit']}, spread {each['spread']}")
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
