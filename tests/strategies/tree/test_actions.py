"""Several models in one tree, with a price on each."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.strategies.tree.lab import searched
from ttc.strategies.tree import Expansion, Policy
from ttc.strategies.tree.actions import Action, action_faults
from ttc.strategies.tree.adaptive_branching import AdaptivePolicy
from ttc.strategies.tree.monte_carlo import MonteCarloPolicy

SMALL, LARGE = Action(name="small", price=1.0), Action(name="large", price=10.0)
PRICED: dict[str, Any] = {"actions": (SMALL, LARGE), "price_weight": 0.02}
"""The large one pays where it scores better by 0.02 * (10 - 1) = 0.18."""
POLICIES: dict[str, Policy[Any]] = {
    "uct": MonteCarloPolicy(exploration_weight=0.2, **PRICED),
    "puct": MonteCarloPolicy(select="puct", **PRICED),
    "wu_uct": MonteCarloPolicy(select="wu_uct", exploration_weight=0.15, **PRICED),
    "M": AdaptivePolicy(**PRICED),
    "gaussian": AdaptivePolicy(variant="gaussian", **PRICED),
    "beta": AdaptivePolicy(variant="beta", **PRICED),
}
each = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def used(policy: Policy[Any], *, gap: float) -> Counter[str]:
    """Which models were used in the second half of 400 asks, the large one better by a gap."""

    def value(expansion: Expansion, above: float) -> float:
        mean = 0.4 + (gap if expansion.action == "large" else 0.0)
        return min(1.0, max(0.0, Random(expansion.id).gauss(mean, 0.1)))

    _, asks = searched(policy, 400, values=value)
    return Counter(e.action for e in asks[200:])


@each
def test_of_two_equal_models_the_cheap_one_is_used(policy: Policy[Any]) -> None:
    assert used(policy, gap=0.0)["small"] > 170


@each
def test_the_dear_model_is_used_where_it_is_better_by_more_than_the_break_even(
    policy: Policy[Any],
) -> None:
    """0.18 of score; at half of it the cheap one is used, at one and a half times the dear one."""
    assert used(policy, gap=0.09)["small"] > 150
    assert used(policy, gap=0.27)["large"] > 150


def test_every_action_is_tried_once_by_uct() -> None:
    """However dear it is."""
    policy = MonteCarloPolicy(actions=(SMALL, LARGE), price_weight=100.0)

    assert [e.action for e in searched(policy, 5)[1]][:2] == ["small", "large"]


@pytest.mark.parametrize(
    ("actions", "weight", "fault"),
    [
        ((), 0.0, "at least one Action"),
        (("small",), 0.0, "'small' is no Action"),
        ((SMALL, SMALL), 0.0, "two actions are called 'small'"),
        ((SMALL, LARGE), 0.0, "price_weight=0 makes them count for nothing"),
        ((SMALL,), 0.1, "weighs prices that do not differ"),
        ((SMALL, LARGE), -1.0, "price_weight is a number of at least 0"),
        ((Action(price=float("nan")),), 0.0, "the price of action 'step'"),
    ],
)
def test_prices_that_mean_nothing_are_refused(actions: Any, weight: float, fault: str) -> None:
    (said,) = action_faults(actions, weight)

    assert fault in said
