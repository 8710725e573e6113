"""Recorded pools of real models: published figures come out, and a pool equals itself."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest

from tests.meta.tree import ROOT
from ttc.benchmarks.data import task_named
from ttc.benchmarks.metrics import best_of_k, coverage, paired_bootstrap
from ttc.benchmarks.pools import Graded, estimates, graded
from ttc.pools.imports import import_pool

DATA = Path(os.environ.get("TTC_DATA", ROOT.parent / "shared" / "data")) / "pools"
"""The folder of data beside the repository, or that of `TTC_DATA`."""
MATH, GSM = DATA / "math100x8_reward.jsonl", DATA / "gsm8k100x16_qwen05.jsonl"

needs_math = pytest.mark.skipif(not MATH.exists(), reason=f"{MATH} is not there; set TTC_DATA")
needs_gsm = pytest.mark.skipif(not GSM.exists(), reason=f"{GSM} is not there; set TTC_DATA")
Vote = tuple[int | None, bool]
EQUIVALENT = {("72", "10{,}000", "10000")}
"""What the published grader calls wrong and ours right: problem, reference, answer."""


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


@needs_math
def test_the_published_figures_come_out() -> None:
    """Mean accuracy 0.91, majority over strings 0.93, best by reward 0.94, coverage 0.96."""
    rows = [row["candidates"] for row in _rows(MATH)]
    right = [[c["correct"] for c in made] for made in rows]
    best = [best_of_k([c["reward"] for c in made], [c["correct"] for c in made], 8)
            for made in rows]  # fmt: skip
    found = [fmean(map(fmean, right)), fmean(map(_majority, rows)), fmean(best), coverage(right)]
    assert found == pytest.approx([0.91, 0.93, 0.94, 0.96])


def _majority(made: Sequence[dict[str, Any]]) -> bool:
    """Of plain strings; of equally frequent ones the first."""
    counts = Counter(c["answer"] for c in made)
    winner = max(counts, key=lambda answer: counts[answer])
    return next(bool(c["correct"]) for c in made if c["answer"] == winner)


@needs_math
def test_every_disagreement_with_the_published_grader_is_known() -> None:
    rows, mine = _rows(MATH), graded(import_pool(MATH), task_named(str(MATH)))
    differing = {
        (str(row["id"]), row["gold"], c["answer"])
        for row in rows
        for c, one in zip(row["candidates"], mine[str(row["id"])], strict=True)
        if c["correct"] != one.is_right
    }
    assert differing == EQUIVALENT


@needs_math
def test_estimators_of_the_pool_agree_with_its_figures() -> None:
    """One completion is graded otherwise: 0.91 + 1/800, and one problem more is covered."""
    found = {
        e.name: e.value
        for e in estimates(import_pool(MATH), task_named(str(MATH)), [1, 8], score="reward")
    }
    assert found["pass@1"] == pytest.approx(0.91 + 1 / 800)
    assert found["coverage"] == pytest.approx(0.97)
    assert found["best-of-8 by reward"] == pytest.approx(0.95)


@pytest.fixture(scope="module")
def gsm() -> list[list[Graded]]:
    """Sixteen graded completions of each of a hundred problems."""
    return list(graded(import_pool(GSM), task_named(str(GSM))).values())


@needs_gsm
@pytest.mark.statistical
@pytest.mark.parametrize("is_vote", [False, True])
def test_a_pool_against_itself_is_seldom_told_apart(gsm: list[list[Graded]], is_vote: bool) -> None:
    """A/A: 400 splits of every problem's completions; 5 % of them are to differ.

    Under a rate of 5 % the share of 400 has a standard error of 1.1 %; the seed is fixed.
    """
    random, rejected = Random(17), 0
    votes = [_votes(problem) for problem in gsm]
    for split in range(400):
        halves: tuple[list[float], list[float]] = ([], [])
        for problem in votes:
            order = random.sample(problem, len(problem))
            for half, mine in zip(halves, (order[:8], order[8:]), strict=True):
                half.append(_voted(mine) if is_vote else sum(right for _, right in mine) / 8)
        rejected += paired_bootstrap(*halves, seed=split, resamples=1_000).p < 0.05
    assert 0.025 <= rejected / 400 <= 0.08


def _votes(problem: Sequence[Graded]) -> list[Vote]:
    """Answers by number, since their keys are slow to compare."""
    numbers: dict[object, int] = {}
    return [
        (None if one.key is None else numbers.setdefault(one.key, len(numbers)), one.is_right)
        for one in problem
    ]


def _voted(made: Sequence[Vote]) -> float:
    """Whether the most frequent answer is right; those that tie share."""
    keys = [key for key, _ in made if key is not None]
    if not keys:
        return 0.0
    counts = {key: keys.count(key) for key in keys}
    most = max(counts.values())
    right = {key for key, is_right in made if is_right}
    leaders = [key for key, count in counts.items() if count == most]
    return sum(key in right for key in leaders) / len(leaders)


@needs_gsm
def test_the_figures_of_the_gsm8k_pool_come_out(gsm: list[list[Graded]]) -> None:
    """One sample 0.19 and coverage 0.57, as its notes tell by a plainer extractor."""
    assert fmean(fmean(one.is_right for one in problem) for problem in gsm) == pytest.approx(
        0.20, abs=0.015
    )
    right = [[one.is_right for one in problem] for problem in gsm]
    assert coverage(right) == pytest.approx(0.57, abs=0.03)
