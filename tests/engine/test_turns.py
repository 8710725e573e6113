"""Whose turn it is."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ttc.engine.local.reading import Reading
from ttc.engine.local.turns import OwnerTurns, by_owner


def waiting(*calls: tuple[str, float]) -> list[Reading]:
    """Calls of owners, with priorities, in order of arrival."""
    made = []
    for arrival, (owner, priority) in enumerate(calls):
        call = Reading([1], {}, lambda _: None)
        call.owner, call.priority, call.arrival = owner, priority, arrival
        made.append(call)
    return made


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=9, max_size=90))
def test_owners_are_served_alike(costs: list[tuple[str, int]]) -> None:
    """While each has calls, no two are further apart than the two dearest calls."""
    calls = waiting(*((owner, 0.0) for owner, _ in costs))
    turns, served = OwnerTurns(), Counter[str]()
    for call in calls:
        turns.enter(call.owner)
    left = Counter(owner for owner, _ in costs)
    for each in turns.merged(by_owner(calls), lambda c: costs[c.arrival][1]):
        if min(left[o] for o in left) > 0 and served:
            apart = max(served[o] for o in left) - min(served[o] for o in left)
            assert apart <= 2 * 9
        served[str(each.owner)] += costs[each.arrival][1]
        left[str(each.owner)] -= 1


def test_greater_priorities_come_first_whoever_owns_them() -> None:
    """And among equals the owner that was served least."""
    calls = waiting(("a", 0.0), ("a", 0.0), ("b", 0.0), ("b", 2.0), ("c", 1.0))
    turns = OwnerTurns()
    for call in calls:
        turns.enter(call.owner)
    turns.serve("a", 5)
    lines = {o: sorted(c, key=lambda x: -x.priority) for o, c in by_owner(calls).items()}

    assert [c.arrival for c in turns.merged(lines, lambda _: 1)] == [3, 4, 2, 0, 1]


def test_nobody_saves_turns_up() -> None:
    """Who comes late, or comes back, begins with the count of the one that was served least."""
    turns = OwnerTurns()
    turns.enter("old")
    turns.serve("old", 1000)
    turns.enter("new")
    calls = waiting(("old", 0.0), ("new", 0.0), ("old", 0.0), ("new", 0.0))
    order = [c.owner for c in turns.merged(by_owner(calls), lambda _: 1)]

    assert order == ["old", "new", "old", "new"]


def test_a_line_that_is_closed_gives_no_more() -> None:
    """The others go on."""
    calls = waiting(("a", 0.0), ("b", 0.0), ("a", 0.0), ("b", 0.0))
    turns, closed, given_out = OwnerTurns(), set[str](), []
    for call in calls:
        turns.enter(call.owner)
    for each in turns.merged(by_owner(calls), lambda _: 1, closed):
        given_out.append(each.arrival)
        closed.add("a")

    assert given_out == [0, 1, 3]
