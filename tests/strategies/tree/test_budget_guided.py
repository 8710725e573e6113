"""BG-MCTS against sums done by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.strategies.tree.lab import Node, grown, searched, tell
from ttc.strategies.tree.budget_guided import BudgetGuidedPolicy


def asked(policy: BudgetGuidedPolicy, *nodes: Node) -> int:
    """The node that is extended next; every node of the tree cost 10 tokens."""
    expansion = policy.ask(grown(policy, *nodes), 0)[1]
    assert expansion is not None
    return expansion.parent


def test_a_node_gets_two_children_first_and_then_one_at_a_time() -> None:
    policy = BudgetGuidedPolicy(token_budget=10_000)
    _, asks = searched(policy, 2)

    assert [e.parent for e in asks] == [0, 0]
    assert asked(policy, (0, 0.9), (0, 0.1), (1, 0.9)) == 1


def test_the_value_of_a_node_grows_with_depth_as_the_budget_goes() -> None:
    """Node 1 has scores 0.2 and 0.6 at depths 1 and 2; u = 30 / 120; the deepest depth is 2.

    0.4 + kappa * 0.25 * 1.5 / 2 = 0.5875 with kappa 1, 0.775 with 2.
    """
    for kappa, value in ((1.0, 0.5875), (2.0, 0.775)):
        policy = BudgetGuidedPolicy(token_budget=120, depth_weight=kappa)
        state = grown(policy, (0, 0.2), (0, 0.5), (1, 0.6))

        assert policy.value(state, state.tree[1]) == pytest.approx(value)


def test_finished_answers_say_how_deep_is_deep() -> None:
    """One at depth 1 and one at depth 2: D is 1.5, whatever is deeper than that."""
    policy = BudgetGuidedPolicy(token_budget=80)
    state: Any = policy.init()
    for parent, status in ((0, "finished"), (0, "open"), (2, "finished"), (2, "open")):
        state = grown_by(policy, state, parent, status)

    assert policy.value(state, state.tree[4]) == pytest.approx(0.5 + 0.5 * 2 / 1.5)


def grown_by(policy: BudgetGuidedPolicy, state: Any, parent: int, status: Any) -> Any:
    """With one node more."""
    state = replace(state, tree=state.tree.expand(parent)[0])
    return tell(policy, state, 0.5, status=status)


def test_the_best_child_is_compared_with_a_new_one_by_its_whole_selection_score() -> None:
    """Scores 0.2 and 0.8, u = 0.2: a new one has 0.5 + lambda * 0.8 * 0.09.

    Child 2: 0.8 + 0.2 * 1 / 1 + sqrt 2 * 0.8 * (e^0.8 / (e^0.2 + e^0.8)) * sqrt(ln 2) = 1.608,
    so a new one wins where lambda is more than (1.608 - 0.5) / 0.072 = 15.39.
    """
    prior = math.exp(0.8) / (math.exp(0.2) + math.exp(0.8))
    score = 0.8 + 0.2 + math.sqrt(2) * 0.8 * prior * math.sqrt(math.log(2))
    limit = (score - 0.5) / (0.8 * 0.09)
    tree: tuple[Node, ...] = ((0, 0.2), (0, 0.8))

    assert limit == pytest.approx(15.39, abs=0.01)
    assert asked(BudgetGuidedPolicy(token_budget=100, width_weight=limit - 0.01), *tree) == 2
    assert asked(BudgetGuidedPolicy(token_budget=100, width_weight=limit + 0.01), *tree) == 0


def test_at_the_end_of_the_budget_it_does_not_explore() -> None:
    """With u near 1: child 1 is the better one, though it was visited three times."""
    tree: tuple[Node, ...] = ((0, 0.6), (0, 0.55), (1, 0.6), (1, 0.6), (2, 0.55), (2, 0.5))

    assert asked(BudgetGuidedPolicy(token_budget=61, exploration_weight=2.0), *tree) in (1, 3, 4)


def test_an_unknown_score_is_no_zero() -> None:
    """Beside 0.5 a child of unknown score has the same prior, and its parent's value."""
    policy = BudgetGuidedPolicy(token_budget=10_000)
    state = grown(policy, (0, None), (0, 0.5))

    assert policy.value(state, state.tree[1]) is None
    assert policy.value(state, state.tree[0]) == pytest.approx(0.5, abs=0.01)


def test_duplicates_and_failures_leave_no_depth_behind_where_they_were_cancelled() -> None:
    policy = BudgetGuidedPolicy(token_budget=100)
    state, _ = policy.ask(policy.init(), 0)
    state = tell(policy, state, None, status="cancelled")

    assert (state.deepest, state.num_finished, dict(state.depths)) == (1, 0, {})
