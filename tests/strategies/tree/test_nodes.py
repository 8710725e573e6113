"""The tree of a search."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.strategies.tree import Result, Tree


def grown(*parents: int) -> Tree:
    """A tree in which each ask extends one of the nodes before it, all told with the value 0.5."""
    tree = Tree.planted()
    for parent in parents:
        tree, expansion = tree.expand(parent)
        tree = tree.record(Result(id=expansion.id, status="open", value=0.5, tokens=2))
    return tree


def test_an_ask_is_in_flight_up_to_the_root_until_it_is_told() -> None:
    tree, expansion = grown(0).expand(1)

    assert (expansion.id, expansion.parent, expansion.depth) == (2, 1, 2)
    assert [node.num_in_flight for node in tree.path(2)] == [1, 1, 1]
    told = tree.record(Result(id=2, status="finished", value=1.0))
    assert [node.num_in_flight for node in told.path(2)] == [0, 0, 0]
    assert told[2].status == "finished"


def test_a_value_is_backed_up_to_the_root() -> None:
    tree, expansion = grown(0).expand(1)
    tree = tree.record(Result(id=expansion.id, status="open", value=0.9))

    assert [node.num_visits for node in tree.path(2)] == [1, 2, 2]
    assert tree[1].mean_value == pytest.approx(0.7)
    assert tree[0].value_max == 0.9
    assert tree[1].value == 0.5


def test_an_unknown_value_counts_as_a_visit_and_is_not_backed_up() -> None:
    tree, expansion = grown(0).expand(1)
    tree = tree.record(Result(id=expansion.id, status="open", value=None))

    assert [node.num_visits for node in tree.path(2)] == [1, 2, 2]
    assert [node.mean_value for node in tree.path(2)] == [None, 0.5, 0.5]


def test_a_cancelled_result_leaves_visits_and_values_alone() -> None:
    tree, expansion = grown(0).expand(1)
    tree = tree.drop(1).record(Result(id=expansion.id, status="cancelled"))

    assert (tree[0].num_visits, tree[0].num_in_flight, tree[2].status) == (1, 0, "dropped")


def test_dropping_a_node_drops_all_below_it_once() -> None:
    tree = grown(0, 1, 1, 0, 2)

    once = tree.drop(1)
    assert [once[id].status for id in range(6)] == ["open", *["dropped"] * 3, "open", "dropped"]
    assert (once.num_dropped, once.drop(2, 1).num_dropped) == (4, 4)


def test_a_duplicate_adds_to_its_twin_and_is_dropped() -> None:
    tree, expansion = grown(0).expand(0)
    tree = tree.record(Result(id=expansion.id, status="open", value=0.5, duplicate_of=1))

    assert (tree[1].multiplicity, tree[2].status) == (2, "dropped")


def test_only_open_nodes_can_be_extended() -> None:
    tree, _ = grown(0).expand(0)

    with pytest.raises(ValueError, match="node 2 is running; only open nodes can be extended"):
        tree.expand(2)


def test_a_comparison_takes_a_number_and_makes_no_node() -> None:
    tree, comparison = grown(0, 0).compare(1, 2)
    tree = tree.record(Result(id=comparison.id, status="finished", values={1: 0.2, 2: None}))

    assert (comparison.id, len(tree), tree.num_in_flight) == (3, 3, 0)
    assert (tree[1].value, tree[2].value) == (0.2, 0.5)
    assert tree.expand(0)[1].id == 4


def test_a_tree_can_be_pickled_and_an_old_one_stays_as_it_was() -> None:
    old = grown(0, 0)
    new, _ = old.expand(1)

    assert pickle.loads(pickle.dumps(new)) == new
    assert (len(old), old[1].children) == (3, ())


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.booleans()), max_size=30))
def test_counts_add_up_over_any_growth(moves: list[tuple[int, bool, bool]]) -> None:
    """Visits and flights at the root are those of the whole tree, whatever is dropped between."""
    tree, pending, num_told = Tree.planted(), [0][:0], 0
    for pick, tells, drops in moves:
        extensible = [id for id, node in sorted(tree.nodes.items()) if node.status == "open"]
        if tells and pending:
            id = pending.pop(0)
            gone = tree[id].status == "dropped"
            num_told += not gone
            tree = tree.record(Result(id=id, status="cancelled" if gone else "open", value=None))
        else:
            tree, expansion = tree.expand(extensible[pick % len(extensible)])
            pending.append(expansion.id)
        if drops and len(tree) > 1:
            tree = tree.drop(1 + pick % (len(tree) - 1))

    assert (tree[0].num_visits, tree[0].num_in_flight) == (num_told, len(pending))
    assert tree.num_dropped == sum(node.status == "dropped" for node in tree.nodes.values())
