"""What every policy of the Monte Carlo family promises."""

import pickle
import random
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from tests.strategies.tree.lab import searched
from ttc.strategies.tree import Policy
from ttc.strategies.tree.actions import Action
from ttc.strategies.tree.adaptive_branching import AdaptivePolicy
from ttc.strategies.tree.budget_guided import BudgetGuidedPolicy
from ttc.strategies.tree.monte_carlo import MonteCarloPolicy

TWO = (Action(name="small", price=1.0), Action(name="large", price=10.0))
POLICIES: dict[str, Policy[Any]] = {
    "uct": MonteCarloPolicy(),
    "puct": MonteCarloPolicy(select="puct", root_noise=0.25, backup="max"),
    "wu_uct": MonteCarloPolicy(select="wu_uct", actions=TWO, price_weight=0.01),
    "fixed width": MonteCarloPolicy(
        widening_factor=3, widening_exponent=0.0, virtual_loss=1.0, simulate=False
    ),
    "M": AdaptivePolicy(),
    "gaussian": AdaptivePolicy(variant="gaussian"),
    "beta": AdaptivePolicy(variant="beta", actions=TWO, price_weight=0.01),
    "budget guided": BudgetGuidedPolicy(token_budget=1000),
}
each = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@each
@pytest.mark.parametrize("window", [1, 5])
def test_a_search_that_was_pickled_goes_on_with_the_same_asks(
    policy: Policy[Any], window: int
) -> None:
    """In the middle of it, with what is in flight."""
    state, _ = searched(policy, 40)
    again = pickle.loads(pickle.dumps(state))

    assert (
        searched(policy, 40, state=again, window=window)[1]
        == (searched(policy, 40, state=state, window=window)[1])
    )


@each
def test_foreign_random_calls_change_nothing(policy: Policy[Any]) -> None:
    """Neither are global generators read, nor are they written."""
    random.seed(1)
    _, asks = searched(policy, 40)
    here = random.getstate()
    random.seed(2)

    def noisy(expansion: Any, above: float) -> float:
        random.random()
        return above

    _, quiet = searched(policy, 40, values=lambda _, above: above)

    assert searched(policy, 40)[1] == asks
    assert searched(policy, 40, values=noisy)[1] == quiet
    random.seed(1)
    assert here == random.getstate()


@each
def test_a_state_never_changes(policy: Policy[Any]) -> None:
    """Whoever goes back to an old one finds it as it was."""
    old, _ = searched(policy, 20)
    before = pickle.dumps((old.tree, old.open_nodes))

    first = searched(policy, 20, state=old)[1]

    assert pickle.dumps((old.tree, old.open_nodes)) == before
    assert searched(policy, 20, state=old)[1] == first
    with pytest.raises(FrozenInstanceError):
        old.tree = None


@each
def test_a_lag_of_tells_gives_one_tree(policy: Policy[Any]) -> None:
    """Asks are a function of the tells that they see; nothing runs out of step."""
    _, asks = searched(policy, 60, window=8)

    assert [e.id for e in asks] == list(range(1, 61))
    assert searched(policy, 60, window=8)[1] == asks


@each
def test_unknown_scores_stop_no_search(policy: Policy[Any]) -> None:
    _, asks = searched(policy, 40, values=lambda _, above: None)

    assert len(asks) == 40
