"""The machine that gives units away: within its budget, by its allocator's word, in order."""

import math
from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttc.allocate import (
    Allocation,
    Allocator,
    Bandit,
    Belief,
    Bid,
    GreedyGain,
    Open,
    OptScale,
    Progress,
    ShadowPrice,
    Terms,
    Uniform,
    UniformStop,
    Unit,
)

BELIEF = Belief(0.25, 1.2)
ALLOCATORS: tuple[type[Allocator], ...] = (
    Uniform,
    UniformStop,
    GreedyGain,
    Bandit,
    OptScale,
    ShadowPrice,
)


def machine(
    allocator: Allocator, tokens: int, count: int = 3, *, unit: int | None = 10, **terms: int
) -> Allocation:
    """A machine of problems called 0, 1, 2 and so on."""
    limits = Terms(tokens=tokens, num_problems=count, unit=unit, **terms)
    return Allocation(allocator, limits, [str(i) for i in range(count)])


def given_away(allocation: Allocation, *, gain: float = 0.5, tokens: int = 10) -> list[int]:
    """Which problem each unit goes to, if every result is the same."""
    problems: list[int] = []
    while True:
        asked = allocation.ask()
        if isinstance(asked, Unit):
            problems.append(asked.problem)
            continue
        oldest = allocation.oldest
        if oldest is None:
            return problems
        allocation.tell(oldest, tokens=tokens, offer=(gain, tokens, None))


@st.composite
def allocators(draw: st.DrawFn) -> Allocator:
    """Any built-in allocator."""
    return draw(st.sampled_from(ALLOCATORS))(
        window=draw(st.integers(1, 9)),
        num_open=draw(st.integers(1, 6)),
        belief=draw(st.sampled_from([None, BELIEF])),
        beliefs=draw(st.sampled_from([{}, {"0": Belief(0.9, 5.0), "3": Belief(0.0, 2.0)}])),
    )


@given(allocators(), st.integers(0, 400), st.integers(0, 9), st.integers(0, 2**32))
def test_no_run_exceeds_its_budget_at_any_instant(
    allocator: Allocator, tokens: int, count: int, seed: int
) -> None:
    """Whatever units cost, come to, are void, or how large the next one is said to be."""
    random = Random(seed)
    calls, cap = random.choice([None, 5]), random.choice([None, 60])
    terms = Terms(tokens=tokens, num_problems=count, calls=calls, per_problem=cap)
    run = Allocation(allocator, terms, [str(i) for i in range(count)])
    given_to: dict[int, int] = {}
    num_units = 0
    while True:
        asked = run.ask()
        assert run.spent + run.reserved <= tokens
        if isinstance(asked, Open):
            size = random.randint(1, 40)
            run.size(asked.problem, need=size, floor=random.randint(1, size))
        elif asked is not None:
            num_units += 1
            assert asked.tokens > 0
        elif (oldest := run.oldest) is None:
            break
        else:
            is_void = random.random() < 0.1
            spent = 0 if is_void else random.randint(0, oldest.tokens)
            given_to[oldest.problem] = given_to.get(oldest.problem, 0) + spent
            offer = random.choice([None, (0.0, 5.0, 1.0), (0.3, 5.0, None)])
            num_units -= is_void
            run.tell(oldest, tokens=spent, offer=offer, is_void=is_void)
            if is_void:
                run.size(oldest.problem, need=30, floor=3)
    assert run.reserved == 0
    assert run.spent == sum(given_to.values()) <= tokens
    assert calls is None or num_units <= calls
    assert cap is None or max(given_to.values(), default=0) <= cap


def test_a_unit_is_given_by_the_results_outside_the_window_alone() -> None:
    """With a window of 3, the fourth unit sees the first result, and only that."""
    run = machine(GreedyGain(window=3), 1000)
    assert [type(run.ask()) for _ in range(4)] == [Unit, Unit, Unit, type(None)]
    oldest = run.oldest
    assert oldest is not None
    run.tell(oldest, tokens=10, offer=(0.4, 10.0, None))

    bid = run.bid(oldest.problem)
    assert bid is not None
    assert (bid.told, bid.in_flight, bid.spent, bid.gain) == (1, 0, 10, 0.4)
    assert isinstance(run.ask(), Unit)
    assert run.ask() is None


def test_results_are_told_in_order_and_cost_at_most_their_unit() -> None:
    """Anything else is a fault of the driver."""
    run = machine(Uniform(window=2), 1000)
    first, second = run.ask(), run.ask()
    assert isinstance(first, Unit)
    assert isinstance(second, Unit)
    with pytest.raises(ValueError, match="cannot be told"):
        run.tell(second, tokens=1)
    with pytest.raises(ValueError, match="at 11 tokens"):
        run.tell(first, tokens=11)


def test_uniform_gives_everyone_the_same() -> None:
    """Its share whole, whatever the results; with `uniform_stop` until a problem is decided."""
    assert sorted(given_away(machine(Uniform(), 90), gain=0.0)) == [0] * 3 + [1] * 3 + [2] * 3
    assert sorted(given_away(machine(UniformStop(window=1), 90), gain=0.0)) == [0, 1, 2]
    assert sorted(given_away(machine(UniformStop(), 90))) == [0] * 3 + [1] * 3 + [2] * 3


def test_what_uniform_stop_leaves_goes_to_nobody() -> None:
    """A problem that is decided leaves its share unspent, where greedy gain uses it."""

    def play(allocator: Allocator) -> dict[int, int]:
        run, units = machine(allocator, 90), deque[Unit]()
        counts = dict.fromkeys(range(3), 0)
        while True:
            asked = run.ask()
            if isinstance(asked, Unit):
                units.append(asked)
                counts[asked.problem] += 1
            elif not units:
                return counts
            else:
                unit = units.popleft()
                gain = 0.0 if unit.problem == 0 else 0.1
                run.tell(unit, tokens=10, offer=(gain, 10.0, None))

    assert play(UniformStop(window=1)) == {0: 1, 1: 3, 2: 3}
    assert sum(play(GreedyGain(window=1)).values()) == 9


def test_a_problem_gets_no_more_than_its_cap() -> None:
    """The last unit is refused where its worst case does not fit."""
    assert sorted(given_away(machine(GreedyGain(), 1000, per_problem=25))) == [0, 0, 1, 1, 2, 2]


def test_the_last_unit_is_shrunk_to_what_is_left() -> None:
    """Down to its floor, once nothing in flight can give anything back."""
    run = machine(GreedyGain(window=4), 25, 1, unit=None)
    assert run.ask() == Open(0)
    run.size(0, need=10, floor=5)
    units = [run.ask(), run.ask()]
    assert run.ask() is None
    for unit in units:
        assert isinstance(unit, Unit)
        run.tell(unit, tokens=10, offer=(0.5, 10.0, None))

    last = run.ask()
    assert isinstance(last, Unit)
    assert (last.tokens, last.is_shrunk) == (5, True)


def test_solved_and_hopeless_problems_are_closed() -> None:
    """And the driver is told of it, so that their runs can end."""
    run = machine(GreedyGain(window=1, beliefs={"0": Belief(0.0)}, belief=BELIEF), 1000)
    for _ in range(2):
        unit = run.ask()
        assert isinstance(unit, Unit)
        run.tell(unit, tokens=10, offer=(0.0, 10.0, None))

    assert {1, 2} <= set(run.closed)
    assert run.bid(1) is None


def test_problems_wait_outside_until_there_is_room() -> None:
    """Of ten, no more than two are open at once; all come to their turn."""
    run = machine(UniformStop(window=1, num_open=2), 1000, 10)
    turns = []
    while isinstance(unit := run.ask(), Unit):
        turns.append(unit.problem)
        assert sum(run.bid(i) is not None for i in range(10)) <= 2
        run.tell(unit, tokens=10, offer=(0.0, 10.0, None))

    assert turns == list(range(10))


@pytest.mark.parametrize("weight", [1.2, 7.0, math.inf])
def test_a_belief_counts_units_in_flight(weight: float) -> None:
    """The chance that one more is the first success: the product over those before it."""
    belief = Belief(0.3, weight)
    for failures in (0, 2):
        for in_flight in range(5):
            missed = math.prod(1 - belief.after(failures + others) for others in range(in_flight))
            expected = missed * belief.after(failures + in_flight)
            assert belief.first_success(failures, in_flight) == pytest.approx(expected)


def test_units_in_flight_lower_the_worth_of_one_more() -> None:
    """By belief and by offer; failures lower it too."""
    greedy = GreedyGain()
    for bid in (Bid(belief=BELIEF), Bid(gain=0.4, told=1)):
        worth = [greedy.worth(bid._replace(in_flight=k)) for k in range(4)]
        assert worth == sorted(worth, reverse=True)
        assert len(set(worth)) == 4
    assert greedy.worth(Bid(belief=BELIEF, told=5)) < greedy.worth(Bid(belief=BELIEF))


def test_beliefs_are_trusted_as_far_as_results_bear_them_out() -> None:
    """Where easy problems fail and hard ones do not, what is believed of all counts."""
    bid = Bid(belief=Belief(0.9, 10.0), doubt=Belief(0.2, 10.0))
    up, down = 0.5, 0.5
    for _ in range(6):
        up, down = bid.trusting(up, solved=True), bid.trusting(down, solved=False)

    assert up > 0.95
    assert down < 0.05
    assert Bid(belief=BELIEF).trusting(0.5, solved=False) == 0.5


def test_bandit_drops_the_sure_and_the_hopeless() -> None:
    """By confidence, or once its failures leave too small a chance."""
    bandit = Bandit(confidence=0.9, least=0.2, delta=0.1)

    assert bandit.worth(Bid(told=2, confidence=0.95, gain=0.1)) == 0
    assert bandit.worth(Bid(told=1, confidence=1.0, gain=0.1)) > 0
    assert bandit.worth(Bid(told=10)) > 0  # 1 - 0.1^(1/10) = 0.206
    assert bandit.worth(Bid(told=11)) == 0  # 0.189
    assert bandit.worth(Bid(told=3, in_flight=2)) < bandit.worth(Bid(told=3))


@pytest.mark.parametrize(("chance", "units"), [(0.2, 14), (0.05, 59)])
def test_optscale_samples_until_its_target_is_likely(chance: float, units: int) -> None:
    """`ln(0.05) / ln(F)`: 14 units at F = 0.8, and 59 at 0.95."""
    optscale = OptScale(beliefs={"0": Belief(chance, math.inf)}, window=1)

    assert len(given_away(machine(optscale, 10_000, 1))) == units
    assert not given_away(machine(OptScale(beliefs={"0": Belief(0.01, math.inf)}), 1000, 1))


def test_the_price_clears_the_budget() -> None:
    """The lowest at which a problem is expected to spend no more than its part."""
    price = ShadowPrice(belief=Belief(0.5, 2.0))
    tight, ample = (
        price.price(Progress(tokens=t, num_problems=10, mean_cost=10.0)) for t in (120, 250)
    )

    assert tight == pytest.approx(1 / 3)  # 1 + 1/2 units are more than 1.2: a second is not bought
    assert ample < tight
    assert price.price(Progress(tokens=100, num_problems=10, arrived=10)) == 0


def test_without_a_belief_the_price_follows_the_spend() -> None:
    """Up where more is spent than the budget bears, and down where less is."""
    price = ShadowPrice()
    high = Progress(tokens=1000, num_problems=100, spent=400, arrived=20, closed=10, price=0.2)
    low = Progress(tokens=1000, num_problems=100, spent=40, arrived=20, closed=10, price=0.2)

    assert price.price(high) > 0.2 > price.price(low)


def test_parameters_out_of_range_are_refused() -> None:
    """With their value."""
    with pytest.raises(ValueError, match="window is a whole number of at least 1, not 0"):
        GreedyGain(window=0)
    with pytest.raises(ValueError, match="num_open"):
        GreedyGain(num_open=0)
    with pytest.raises(ValueError, match="a mean in"):
        Belief(1.2)
