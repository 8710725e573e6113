"""What a decision of a tree search costs, and how many it needs to solve a problem; beside others.

Run as `python benchmarks/perf/policies.py [--nodes N] [--seeds N] [--peers PYTHON]
[--patience SECONDS] [--output FILE]`. Every search runs in a process of its own, on models that are
tables (`fake_tree.py`). Times are processor time of the thread, on the plain kind of tree, in which
nothing ends a trajectory; an ask is measured over the last 200 before so many nodes. Memory is what
the process grew by at its largest.

Evaluations to solve are the median over `--seeds` trees of each kind, and over the trees of all
kinds; a tree that was not solved counts as more than any. One ask comes after the other. Where
whole answers end a trajectory, new nodes are followed to their end, as they are by default. With
`--peers`, an interpreter that has treequest and its_hub, their searches run on the same trees
(`peers.py`); what takes longer than `--patience` seconds is ended, and its row says so.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ttc.benchmarks.results import write_result

HERE = Path(__file__).resolve().parent
SIZES = (100, 1000, 10_000)
LAST = 200
NAMES = (
    "uct",
    "puct",
    "wu_uct",
    "budget_guided",
    "adaptive_gaussian",
    "adaptive_beta",
    "adaptive_m",
)
PEERS = (
    "treequest_mcts",
    "treequest_mcts_inplace",
    "treequest_a",
    "treequest_a_inplace",
    "its_hub_particles",
)
COMPARED = 1000
"""Nodes of a search that is compared with those of others."""
PATIENT = 500
"""After how many a search is given up that solves a problem."""


def policy(name: str, nodes: int, has_ends: bool) -> Any:
    """A policy by its name here, as it comes."""
    from ttc.strategies.tree.adaptive_branching import AdaptivePolicy
    from ttc.strategies.tree.budget_guided import BudgetGuidedPolicy
    from ttc.strategies.tree.monte_carlo import MonteCarloPolicy

    if name == "budget_guided":
        return BudgetGuidedPolicy(token_budget=10 * nodes)
    if name.startswith("adaptive_"):
        variant = name.removeprefix("adaptive_")
        return AdaptivePolicy(variant="M" if variant == "m" else variant)  # type: ignore[arg-type]
    return MonteCarloPolicy(select=name, simulate=has_ends)  # type: ignore[arg-type]


def search(name: str, nodes: int, seed: int, kind: str, until_solved: bool) -> dict[str, Any]:
    """One search: the times of its asks and tells, and what the fake model saw."""
    from fake_tree import FakeTree, Key

    from ttc.strategies.tree import Expansion, Result
    from ttc.types import Status

    tree = FakeTree(seed, kind)
    chosen = policy(name, nodes, has_ends=tree.kind.depth is not None)
    keys: dict[int, Key] = {0: ()}
    state, asks, tells = chosen.init(), [], []
    for number in range(nodes):
        start = time.thread_time_ns()
        state, work = chosen.ask(state, (seed << 32) + number)
        asks.append(time.thread_time_ns() - start)
        if work is None:  # everything has come to its end
            break
        assert isinstance(work, Expansion)
        key = keys[work.id] = tree.child(keys[work.parent])
        status: Status = "finished" if tree.has_ended(key) else "open"
        result = Result(id=work.id, status=status, value=tree.score(key), tokens=10)
        start = time.thread_time_ns()
        state = chosen.tell(state, result)
        tells.append(time.thread_time_ns() - start)
        if until_solved and tree.solved_after:
            break
    return {"asks": asks, "tells": tells, "solved_after": tree.solved_after}


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a worker prints: one search of full size, or many that end when they are solved."""
    import numpy  # noqa: F401 - so that loading it counts as no search's memory
    from fake_tree import KINDS

    name, nodes = arguments.one, arguments.nodes
    if arguments.seeds:
        solved = {
            kind: [
                search(name, nodes, seed, kind, until_solved=True)["solved_after"]
                for seed in range(arguments.seeds)
            ]
            for kind in KINDS
        }
        return {"solved_after": solved}
    search(name, 20, 0, "plain", until_solved=False)
    before = rss_mib()
    run = search(name, nodes, 0, "plain", until_solved=False)
    run["mib"] = rss_mib() - before
    return run


def rss_mib() -> float:
    """The most memory that the process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def worker(
    script: str, python: str, *options: str, patience: float | None = None
) -> dict[str, Any]:
    """What a process of its own found, unless it takes longer than `patience` seconds."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    line = [python, str(HERE / script), *options]
    done = subprocess.run(
        line, env=environment, capture_output=True, text=True, check=True, timeout=patience
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def own_rows(name: str, nodes: int) -> list[dict[str, Any]]:
    """A row for each size of tree up to `nodes`."""
    run = worker("policies.py", sys.executable, "--one", name, "--nodes", str(nodes))
    rows = []
    for size in (size for size in SIZES if size <= nodes):
        asks = [ns / 1e6 for ns in run["asks"][max(0, size - LAST) : size]]
        tells = [ns / 1e6 for ns in run["tells"][max(0, size - LAST) : size]]
        total = (sum(run["asks"][:size]) + sum(run["tells"][:size])) / 1e9
        row = {
            "search": name,
            "nodes": size,
            "ask_ms_median": round(statistics.median(asks), 4),
            "ask_ms_p95": round(statistics.quantiles(asks, n=20)[-1], 4),
            "tell_ms_median": round(statistics.median(tells), 4),
            "cpu_s": round(total, 3),
            "asks_per_cpu_s": round(size / total, 1),
        }
        rows.append(row | ({"mib": round(run["mib"], 1)} if size == nodes else {}))
    return rows


def compared(run: Callable[..., dict[str, Any]], name: str, seeds: int) -> dict[str, Any]:
    """The row of a search at 1,000 nodes, and how many nodes it needs to solve a problem."""
    row: dict[str, Any] = {"compared": name, "nodes": COMPARED}
    try:
        full = run("--one", name, "--nodes", str(COMPARED))
        row["mib"] = round(full["mib"], 1)
        row["cpu_s"] = round((sum(full["asks"]) + sum(full["tells"])) / 1e9, 3)
        solved = run("--one", name, "--nodes", str(PATIENT), "--seeds", str(seeds))["solved_after"]
    except subprocess.TimeoutExpired as late:
        what = "problems" if "cpu_s" in row else "search"
        return row | {f"{what}_unfinished_after_s": late.timeout}
    trees = list(chain(*solved.values()))
    row["problems"], row["unsolved"] = len(trees), sum(after is None for after in trees)
    row["evaluations_to_solve_median"] = median_of(trees)
    row["by_kind"] = {kind: median_of(found) for kind, found in solved.items()}
    return row


def median_of(solved_after: Sequence[int | None]) -> float | None:
    """The median of evaluations to solve; `None` where half of the trees were not solved."""
    counts = [math.inf if after is None else after for after in solved_after]
    middle = statistics.median(counts)
    return middle if math.isfinite(middle) else None


def main() -> None:
    """Measures all, prints rows, and writes them where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, help="trees of each kind, 20 by default")
    parser.add_argument("--peers", help="an interpreter that has treequest and its_hub")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds for each of these")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments)))
        return
    rows = []
    for name in NAMES:
        for row in own_rows(name, arguments.nodes):
            rows.append(row)
            print(row)

    def own(*options: str) -> dict[str, Any]:
        return worker("policies.py", sys.executable, *options)

    def peer(*options: str) -> dict[str, Any]:
        return worker("peers.py", arguments.peers, *options, patience=arguments.patience)

    ways = [(own, name) for name in NAMES]
    ways += [(peer, name) for name in PEERS if arguments.peers]
    for way, name in ways:
        rows.append(compared(way, name, arguments.seeds or 20))
        print(rows[-1])
    if arguments.output:
        write_result(arguments.output, command=sys.argv, rows=rows, seed=0)


if __name__ == "__main__":
    main()
