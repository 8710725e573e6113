"""AB-MCTS: what each arm learns from, and how often each is chosen."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean, variance
from typing import Any

import pytest

from tests.strategies.tree.lab import Node, grown, tell
from ttc.strategies.tree.adaptive_branching import AdaptivePolicy
from ttc.strategies.tree.mixed_model import MixedModel
from ttc.strategies.tree.scores import Scores, draw_beta, draw_normal

REFERENCE: dict[str, Any] = json.loads(
    Path(__file__).with_name("mixed_model_reference.json").read_text(encoding="utf-8")
)
"""Choice frequencies by long Markov chains; `mixed_model_reference.py` made them."""


def chosen(policy: AdaptivePolicy, *nodes: Node, asks: int) -> Counter[int]:
    """How often each node is extended, over many seeds."""
    state = grown(policy, *nodes)
    for seed in range(10):  # the models of what is visited often are fit once
        state = replace(state, models=policy.ask(state, seed)[0].models)
    return Counter(policy.ask(state, seed)[1].parent for seed in range(asks))  # type: ignore[union-attr]


def test_generating_learns_from_direct_children_only() -> None:
    """Node 1 has a child and a grandchild; node 4 has none."""
    state = grown(AdaptivePolicy(), (0, 0.9), (1, 0.1), (2, 0.3), (0, 0.5))

    assert state.seen[0].direct == Scores.of([0.9, 0.5])
    assert state.seen[1].direct == Scores.of([0.1])
    assert state.seen[4].direct == Scores()


def test_going_on_learns_from_whatever_lies_deeper() -> None:
    state = grown(AdaptivePolicy(), (0, 0.9), (1, 0.1), (2, 0.3), (0, 0.5))

    assert state.seen[0].deeper == Scores.of([0.1, 0.3])
    assert state.seen[1].deeper == Scores.of([0.3])
    assert state.seen[1].all == Scores.of([0.9, 0.1, 0.3])


def test_an_unknown_score_reaches_no_arm() -> None:
    state = grown(AdaptivePolicy(), (0, 0.9), (1, None), (0, None))

    assert [state.seen[id].all for id in range(4)] == [Scores.of([0.9])] * 2 + [Scores()] * 2
    assert (state.seen[0].direct, state.seen[0].deeper) == (Scores.of([0.9]), Scores())


@pytest.mark.statistical
def test_a_normal_arm_draws_from_the_posterior_of_its_mean() -> None:
    """By hand: scores 0.2, 0.4, 0.6 give kappa 4, nu 4, m 0.3 and nu tau2 = 0.1 + 0.08 + 0.12.

    So the mean is Student's t of 4 degrees around 0.3 with scale sqrt(0.075 / 4), whose quartiles
    lie 0.7407 scales away. Of 20,000 draws 10,000 lie between them, give or take 71; 320 are 4.5
    deviations (7e-6).
    """
    random, scores = Random(1), Scores.of([0.2, 0.4, 0.6])
    draws = [draw_normal(scores, random) for _ in range(20_000)]
    quartile = 0.7407 * math.sqrt(0.075 / 4)

    assert abs(sum(abs(draw - 0.3) < quartile for draw in draws) - 10_000) < 320
    assert abs(sum(draw < 0.3 for draw in draws) - 10_000) < 320


@pytest.mark.statistical
def test_a_beta_arm_counts_a_score_as_a_part_of_a_success() -> None:
    """Scores 0.5 and 1 give Beta(2, 1): mean 2/3, variance 1/18.

    Of 20,000 draws the mean's deviation is 0.00167 and that of the variance 0.00043; 4.5 of them.
    """
    random, scores = Random(1), Scores.of([0.5, 1.0])
    draws = [draw_beta(scores, random) for _ in range(20_000)]

    assert fmean(draws) == pytest.approx(2 / 3, abs=0.0075)
    assert variance(draws) == pytest.approx(1 / 18, abs=0.002)


@pytest.mark.statistical
@pytest.mark.parametrize("case", REFERENCE)
def test_choices_of_m_are_those_of_long_markov_chains(case: str) -> None:
    """Within 0.02, over 20,000 draws, whose deviation is at most 0.0035.

    The closed form itself is within 0.004 of the chains, so 0.02 is 4.5 deviations off (7e-6).
    """
    model = MixedModel.fit([Scores.of(group) for group in REFERENCE[case]["groups"]])
    random, wins = Random(1), Counter[int]()
    for _ in range(20_000):
        prediction = model.predict(random)
        draws = (prediction.new, *prediction.groups)
        wins[draws.index(max(draws))] += 1

    for arm, frequency in enumerate(REFERENCE[case]["frequencies"]):
        assert wins[arm] / 20_000 == pytest.approx(frequency, abs=0.02)


def test_the_reference_has_the_cases_that_are_hard() -> None:
    """And its own errors are far below what it is used for."""
    assert len(REFERENCE) == 6
    assert {"all scores equal", "one group", "100 scores in a group"} <= set(REFERENCE)
    assert all(case["standard_error"] < 0.001 for case in REFERENCE.values())


@pytest.mark.statistical
def test_the_policy_chooses_as_often_as_its_model() -> None:
    """Two groups of two; 4,000 asks, whose deviation is at most 0.008: 0.04 is 5 of them (6e-7)."""
    nodes: tuple[Node, ...] = ((0, 0.2), (1, 0.4), (0, 0.7), (3, 0.8))
    model = MixedModel.fit([Scores.of([0.2, 0.4]), Scores.of([0.7, 0.8])])
    random = Random(1)
    predictions = [model.predict(random) for _ in range(20_000)]
    generated = sum(p.new >= max(p.groups) for p in predictions) / 20_000

    root = chosen(AdaptivePolicy(), *nodes, asks=4000)[0] / 4000

    assert root == pytest.approx(generated, abs=0.04)


@pytest.mark.statistical
@pytest.mark.parametrize("variant", ["M", "gaussian", "beta"])
def test_good_children_are_refined_and_bad_ones_are_not(variant: Any) -> None:
    """Twenty scores near 0.95 below node 1, twenty near 0.05 below node 2.

    Node 2 and what is below it get less than a twentieth of 400 asks. Two normal draws are that
    far apart that one in 1,000 would be much; 20 of 400 then have a chance below 1e-20.
    """
    good = [(1, 0.95 - 0.001 * i) for i in range(20)]
    bad = [(2, 0.05 + 0.001 * i) for i in range(20)]
    nodes: list[Node] = [(0, 0.95), (0, 0.05), *good, *bad]

    counts = chosen(AdaptivePolicy(variant=variant), *nodes, asks=400)

    assert sum(counts[id] for id in (2, *range(23, 43))) < 20


def test_the_model_of_a_node_is_kept_until_a_score_is_told_below_it() -> None:
    """Those beside the path stay the very same objects."""
    policy = AdaptivePolicy()
    state = grown(policy, (0, 0.5), (0, 0.5), (1, 0.9), (2, 0.5))
    for seed in range(60):
        state = policy.ask(state, seed)[0]
    kept = state.models[2]
    state = grown_by(policy, state, parent=1)

    assert {0, 1} & set(state.models) == set()
    assert state.models[2] is kept


def grown_by(policy: AdaptivePolicy, state: Any, *, parent: int) -> Any:
    """The state after the first ask in flight below a parent was told."""
    running = [id for id in state.tree[parent].children if state.tree[id].status == "running"]
    return tell(policy, state, 0.4, id=running[0])


def test_a_first_child_is_generated_without_a_draw() -> None:
    assert chosen(AdaptivePolicy(), asks=50) == {0: 50}


def test_the_grid_holds_the_posterior_where_it_is_narrow() -> None:
    """10,000 scores of deviation 0.2 leave sigma_y within 1 % of it, finer than the first grid."""
    normal = NormalDist(0.5, 0.2)
    scores = Scores.of([normal.inv_cdf((i + 0.5) / 10_000) for i in range(10_000)])
    model = MixedModel.fit([scores])

    low, high = model.within
    assert 0.15 < low < 0.2 < high < 0.25
    assert high - low < 0.08
