"""UCT, PUCT and WU-UCT against sums done by hand."""

import math
from typing import Any

import pytest

from tests.strategies.tree.lab import Node, grown, searched, tell
from ttc.strategies.tree.monte_carlo import MonteCarloPolicy
from ttc.strategies.tree.selection import bonus


def asked(policy: MonteCarloPolicy, *nodes: Node, running: tuple[int, ...] = ()) -> int:
    """The node that is extended next."""
    _, expansion = policy.ask(grown(policy, *nodes, running=running), 0)
    assert expansion is not None
    return expansion.parent


def fixed(width: int = 2, **options: Any) -> MonteCarloPolicy:
    """A policy in which every node has at most so many children, and each is walked to."""
    return MonteCarloPolicy(widening_factor=width, widening_exponent=0.0, simulate=False, **options)


def test_the_bonuses_are_those_of_their_papers() -> None:
    """By a pocket calculator: ln 9 = 2.19722, ln(19662 / 19652) = 0.00050873."""
    assert bonus("uct", 1.5, 9, 4, 0.0) == pytest.approx(1.5 * math.sqrt(2.1972246 / 4))
    assert bonus("wu_uct", 1.0, 9, 4, 0.0) == pytest.approx(math.sqrt(2 * 2.1972246 / 4))
    assert bonus("puct", 1.25, 9, 4, 0.3) == pytest.approx(0.3 * 3 / 5 * (0.00050873 + 1.25))


def test_uct_weighs_the_mean_against_the_visits() -> None:
    """Child 1: mean 0.6 of 2 visits. Child 2: 0.4 of 1. ln 3 = 1.0986, so 0.741 against 1.048.

    So 0.6 + 0.741 w is more than 0.4 + 1.048 w as long as w is less than 0.651.
    """
    tree: tuple[Node, ...] = ((0, 0.9), (0, 0.4), (1, 0.3))

    assert asked(fixed(exploration_weight=0.64), *tree) == 1
    assert asked(fixed(exploration_weight=0.66), *tree) == 2


def test_without_a_weight_the_rules_own_is_taken() -> None:
    """Of UCT 0.1414: the gap of means at which 0.741 w against 1.048 w changes the choice is 0.043.

    Child 1 has the mean 0.56.
    """
    near: tuple[Node, ...] = ((0, 0.6), (0, 0.52), (1, 0.52))
    far: tuple[Node, ...] = ((0, 0.6), (0, 0.51), (1, 0.52))

    assert (asked(fixed(), *near), asked(fixed(), *far)) == (2, 1)
    assert (asked(fixed(select="wu_uct"), *near), asked(fixed(select="wu_uct"), *far)) == (2, 1)


def test_puct_needs_no_second_visit_of_a_bad_child() -> None:
    """N = 3, two children of prior 1/2: 0.5 sqrt 3 (1.25 + ln(19656/19652)) = 1.08271.

    Child 1: 0.6 + 1.08271 / 3 = 0.961. Child 2: v + 1.08271 / 2, more from v = 0.4196 on.
    """
    for value, chosen in ((0.41, 1), (0.43, 2)):
        assert asked(fixed(select="puct"), (0, 0.9), (0, value), (1, 0.3)) == chosen


def test_a_duplicate_adds_to_the_prior_of_the_child_that_it_equals() -> None:
    """Node 3 equals node 1, so that the priors are 2/3 and 1/3; both means are 0.5."""
    policy = fixed(3, select="puct")
    state = grown(policy, (0, 0.5), (0, 0.5), running=(0,))
    state = tell(policy, state, 0.5, duplicate_of=1)

    priors = policy._priors(state.tree[0], [state.tree[1], state.tree[2]], state.tree, 0)

    assert priors == [2 / 3, 1 / 3]


def test_wu_uct_counts_what_is_in_flight_and_uct_does_not() -> None:
    """Two equal children, and one ask in flight below the first."""
    tree: tuple[Node, ...] = ((0, 0.5), (0, 0.5))

    assert asked(fixed(select="wu_uct"), *tree, running=(1,)) == 2
    assert asked(fixed(select="uct"), *tree, running=(1,)) == 1
    assert asked(fixed(select="puct"), *tree, running=(1,)) == 1


def test_wu_uct_takes_the_score_of_its_equation() -> None:
    """N + O is 4 at the root, 1 + 2 at child 1 and 1 at child 2.

    Child 1: 0.8 + sqrt(2 ln 4 / 3) = 1.761. Child 2: v + sqrt(2 ln 4) = v + 1.665.
    """
    for value, chosen in ((0.09, 1), (0.11, 2)):
        policy = fixed(select="wu_uct", exploration_weight=1.0)
        assert asked(policy, (0, 0.8), (0, value), running=(1, 1)) == chosen


def test_virtual_loss_takes_from_the_mean_where_it_is_asked_for() -> None:
    """One in flight below child 1 halves its mean, and no exploration is left to hide it."""
    tree: tuple[Node, ...] = ((0, 0.9), (0, 0.5))

    assert asked(fixed(exploration_weight=0.0), *tree, running=(1,)) == 1
    assert asked(fixed(exploration_weight=0.0, virtual_loss=1.0), *tree, running=(1,)) == 2


def test_the_maximum_backs_up_the_best_value_of_a_subtree() -> None:
    tree: tuple[Node, ...] = ((0, 0.2), (0, 0.6), (1, 0.9))

    assert asked(fixed(exploration_weight=0.0, backup="mean"), *tree) == 2
    assert asked(fixed(exploration_weight=0.0, backup="max"), *tree) == 1


def test_an_unknown_value_leaves_the_mean_and_counts_as_a_visit() -> None:
    """Means 0.5 and 0.5, but child 1 was visited twice; with no exploration it is still first."""
    tree: tuple[Node, ...] = ((0, 0.5), (0, 0.5), (1, None))

    assert asked(fixed(exploration_weight=0.1), *tree) == 2
    assert asked(fixed(exploration_weight=0.0), *tree) == 1


def test_a_child_of_unknown_value_stands_for_its_parent() -> None:
    """The root's mean is 0.4, which is more than 0.3 and less than 0.5."""
    low: tuple[Node, ...] = ((0, None), (0, 0.3), (0, 0.5))

    assert asked(fixed(3, exploration_weight=0.0), *low) == 3
    assert asked(fixed(2, exploration_weight=0.0), *low[:2]) == 1


def test_a_node_widens_by_the_root_of_its_visits() -> None:
    """With k = 1 and alpha = 1/2: a child at 0, 2, 5 and 10 visits, where sqrt N passes 1, 2, 3."""
    policy, counts = MonteCarloPolicy(widening_exponent=0.5, simulate=False), []
    state = policy.init()
    for seed in range(11):
        state, _ = policy.ask(state, seed)
        counts.append(len(state.tree[0].children))
        state = tell(policy, state, 0.5)

    assert counts == [1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4]


def test_a_new_node_is_followed_to_its_end() -> None:
    """Four steps deep, and then a walk begins anew."""
    _, asks = searched(MonteCarloPolicy(), 8, depth=4)

    assert [e.parent for e in asks[:4]] == [0, 1, 2, 3]
    assert [e.depth for e in asks].count(4) == 2


def test_simulations_run_side_by_side_within_the_window() -> None:
    """Three begin at the root; each goes on as soon as its step is told."""
    _, asks = searched(MonteCarloPolicy(), 9, window=3, depth=3)

    assert [e.parent for e in asks] == [0, 0, 0, 1, 2, 3, 4, 5, 6]


def test_a_tree_that_cannot_grow_ends_the_search() -> None:
    """Of width 2 and depth 3 it has 2 + 4 + 8 nodes, each asked for once."""
    policy = fixed(2)
    state, asks = searched(policy, 50, depth=3)

    assert [sum(e.depth == depth for e in asks) for depth in (1, 2, 3)] == [2, 4, 8]
    assert policy.ask(state, 0)[1] is None


def test_a_full_node_whose_children_are_in_flight_waits() -> None:
    policy = fixed(2)
    state = policy.init()
    state, _ = policy.ask(state, 0)
    state, _ = policy.ask(state, 1)

    assert policy.ask(state, 2)[1] is None
    assert policy.ask(tell(policy, state, 0.5, id=1), 3)[1] is not None


def test_a_widening_node_never_waits() -> None:
    """So that a window of 16 is full from the start."""
    _, asks = searched(MonteCarloPolicy(), 16, window=16)

    assert [e.parent for e in asks] == [0] * 16


def test_what_ended_is_not_extended() -> None:
    """Failed, finished and truncated nodes, and all that is below them."""
    policy = fixed(2, exploration_weight=0.0)
    state = policy.init()
    for value, status in ((1.0, "finished"), (0.1, "open"), (0.9, "truncated"), (None, "failed")):
        state, expansion = policy.ask(state, 0)
        assert expansion is not None
        state = tell(policy, state, value, status=status)  # type: ignore[arg-type]

    assert state.tree[2].children == (3, 4)
    assert policy.ask(state, 0)[1] is None


def test_noise_changes_the_root_by_the_seed_alone() -> None:
    """And only its priors: at other nodes there is none."""
    policy = fixed(8, select="puct", root_noise=0.9)
    state = grown(policy, *[(0, 0.5)] * 8)

    def chosen(seed: int) -> int:
        expansion = policy.ask(state, seed)[1]
        assert expansion is not None
        return expansion.parent

    assert len({chosen(seed) for seed in range(40)}) > 4
    assert [chosen(seed) for seed in range(40)] == [chosen(seed) for seed in range(40)]
