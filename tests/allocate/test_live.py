"""Allocators over runs that are alive: the same as the machine alone, at any concurrency."""

from collections.abc import AsyncGenerator, Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttc
from tests.allocate.lab import FIRST_RIGHT, RIGHT, Ran, laws, solved
from ttc import Budget, Candidate, Control, Node, node
from ttc.allocate import Allocator, Bandit, GreedyGain, OptScale, ShadowPrice, Uniform, UniformStop
from ttc.benchmarks.allocation import PRIOR, World, beliefs, play
from ttc.engine.simulator import SimulatedProblem
from ttc.graph import Port
from ttc.ports import Scope, Stream
from ttc.strategies import (
    CannotBeOvertaken,
    Cascade,
    Sample,
    SampleInRounds,
    SelfConsistency,
    Vote,
    confidence,
)
from ttc.testing import FakeEngine, ScriptedVerifier

WORLD = World(3, 24)
ALLOCATORS: Sequence[Allocator] = (
    Uniform(window=5),
    UniformStop(window=5),
    GreedyGain(window=5),
    GreedyGain(window=5, belief=PRIOR, beliefs=beliefs(WORLD.signal(0.7))),
    Bandit(window=5),
    OptScale(window=5, belief=PRIOR),
    ShadowPrice(window=5, belief=PRIOR, num_open=6),
    GreedyGain(window=5, num_open=4),
)


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("tokens", [8_000, 20_000])
def test_a_live_run_is_the_machine_alone(allocator: Allocator, tokens: int) -> None:
    """Driven by tasks, streams, ledger and engine it solves what it solves without them."""
    curve = play(allocator, tokens, WORLD)
    ran = solved(WORLD.laws, allocator, tokens, seed=WORLD.seed)

    assert sum(ran.solved) == curve.solved[-1]
    assert ran.tokens <= curve.spent[-1]
    cancelled = sum(outcome.usage.tokens_cancelled for outcome in ran.outcomes)
    assert ran.tokens - cancelled <= curve.spent[-1]


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(ALLOCATORS),
    st.integers(0, 9_000),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.01]),
)
def test_a_result_is_a_function_of_seed_budget_and_window(
    allocator: Allocator, tokens: int, concurrency: int, pace: float
) -> None:
    """Never of how many calls run at once, nor of how long they take."""
    some = WORLD.laws[:9]
    one = solved(some, allocator, tokens, concurrency=1, pace=0.01)
    other = solved(some, allocator, tokens, concurrency=concurrency, pace=pace)

    assert other.seen == one.seen
    assert not any(outcome.timing_dependent for outcome in other.outcomes)


def test_votes_share_a_budget_by_what_a_sample_would_add() -> None:
    """Easy votes end early, and leave their tokens to close ones."""
    easy = [SimulatedProblem(id=f"easy{i}", success=0.98) for i in range(4)]
    close = [SimulatedProblem(id=f"close{i}", success=0.55) for i in range(4)]
    graph = SelfConsistency(n=40, max_tokens=256, ahead=4)
    ran = solved([*easy, *close], GreedyGain(window=4), 16_000, graph=graph)
    calls = [outcome.usage.calls for outcome in ran.outcomes]

    assert sum(calls[:4]) * 2 < sum(calls[4:])
    assert all(ran.solved[:4])
    again = solved([*easy, *close], GreedyGain(window=4), 16_000, graph=graph, concurrency=1)
    assert again.seen == ran.seen


def test_a_problem_that_gets_no_more_says_so() -> None:
    """It returns the best that it has; those that got nothing have no answer."""
    hopeless = [SimulatedProblem(id=f"q{i}", success=0.0) for i in range(6)]
    ran = solved(hopeless, GreedyGain(window=2, num_open=3), 700)

    assert {outcome.stopped_by for outcome in ran.outcomes} == {"allocator"}
    assert any(outcome.usage.calls == 0 and outcome.answer is None for outcome in ran.outcomes)
    assert any(outcome.answer == "2" for outcome in ran.outcomes)
    refusal = ran.outcomes[0].refusal
    assert refusal is not None
    assert "the allocator gives this problem no further call" in str(refusal)


@node(gives=Port("finished", "one"))
async def last(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    """A selector of one's own, which offers nothing."""
    seen = [candidate async for candidate in candidates]
    if seen:
        yield seen[-1]


@pytest.mark.parametrize(
    "graph",
    [
        Cascade(SelfConsistency(n=3), SelfConsistency(n=6), accept=confidence(0.9)),
        (Sample(n=3) | Sample(n=2, ahead=1)) >> Vote(),
        Sample(n=4) >> ScriptedVerifier({"1": 1.0}, needs="all") >> Vote(weighted=True),
        SampleInRounds(n=4, first=2) >> Vote(),
        Sample(n=3) >> last,
        Sample(n=2) >> Vote() >> RIGHT >> Vote(),
    ],
    ids=["cascade", "pool", "all", "rounds", "own", "two selectors"],
)
@pytest.mark.parametrize("window", [1, 3])
def test_any_strategy_can_be_allocated(graph: Node, window: int) -> None:
    """Without a deadlock; where offers come by timing, the outcome says so."""
    ran = solved(laws(5), GreedyGain(window=window), 30_000, graph=graph)

    assert all(outcome.candidate is not None for outcome in ran.outcomes)
    reasons = {reason for outcome in ran.outcomes for reason in outcome.timing_dependent}
    assert "the allocator saw offers and results as they came" in reasons


def test_calls_are_given_away_as_well() -> None:
    """A limit of calls holds over all problems together."""
    budget = Budget(tokens=50_000, calls=17)
    ran = solved(laws(8), GreedyGain(window=4), 50_000, budget=budget)

    assert sum(outcome.usage.calls for outcome in ran.outcomes) == 17


def test_a_cap_holds_for_every_problem() -> None:
    """However much the allocator would give."""
    ran = solved(laws(8), GreedyGain(window=4), 50_000, per_problem=Budget(tokens=900))

    assert max(outcome.usage.tokens for outcome in ran.outcomes) <= 900


def test_a_bug_in_one_problem_leaves_the_others() -> None:
    """Its outcome holds the error, and its units go on to the rest."""

    @node(takes=Port("open", "many"))
    async def broken(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            branch = await scope.generate(candidate.branch, index=0, max_tokens=256)
            if scope.problem.id == "q1":
                raise ZeroDivisionError
            yield scope.finish(candidate, branch)

    ran = solved(laws(4), GreedyGain(window=2), 9_000, graph=broken >> Vote())

    assert [outcome.error is not None for outcome in ran.outcomes] == [False, True, False, False]
    assert all(ran.outcomes[i].candidate is not None for i in (0, 2, 3))


def test_a_deadline_ends_problems_that_wait_for_a_unit() -> None:
    """All return by then with what they have."""
    budget = Budget(tokens=90_000, seconds=5.0)
    ran = solved(laws(6), GreedyGain(window=2), 90_000, budget=budget, pace=0.01)

    assert ran.engine.clock.now() <= 5.5
    assert any(outcome.stopped_by == "seconds" for outcome in ran.outcomes)


def test_a_failed_call_is_a_unit_that_found_nothing() -> None:
    """What it cost is booked, and the problem goes on."""

    def reply(request: ttc.ports.Request) -> str | ttc.EngineError:
        return ttc.EngineError("it broke", output_tokens=2) if request.seed % 3 else "It is 1"

    outcomes = ttc.solve_many(
        [ttc.Problem.ask(f"{i}?", id=str(i)) for i in range(5)],
        SelfConsistency(n=6, max_tokens=8, ahead=2),
        model=FakeEngine(reply),
        budget=Budget(tokens=2_000),
        allocator="greedy_gain",
        seed=0,
    )

    assert sum(outcome.usage.calls for outcome in outcomes) == 30
    assert any(c.status == "failed" for outcome in outcomes for c in outcome.candidates)


def steered(moment: float, change: Callable[[Control], object], tokens: int = 4_000) -> Ran:
    """Four problems that nobody can solve, under an allocator that somebody steers."""
    hopeless = [SimulatedProblem(id=f"q{i}", success=0.0) for i in range(4)]
    return solved(hopeless, GreedyGain(window=4), tokens, steer=(moment, change))


def test_a_raised_limit_reaches_what_gives_units_away() -> None:
    """And a lowered one: what is left goes out by the same rule."""
    plain = steered(0.0, lambda control: None)
    raised = steered(3.0, lambda control: control.set_budget(tokens=8_000))
    lowered = steered(3.0, lambda control: control.set_budget(tokens=2_500))

    assert 3_700 < plain.tokens <= 4_000
    assert 7_700 < raised.tokens <= 8_000
    assert 2_200 < lowered.tokens <= 2_500
    assert all("the limit of tokens was changed" in o.timing_dependent for o in raised.outcomes)


def test_lowered_calls_end_units_that_have_no_call_yet() -> None:
    """Calls are given away too."""
    ran = steered(0.5, lambda control: control.set_budget(calls=2))

    assert sum(outcome.usage.calls for outcome in ran.outcomes) == 4, "those that ran by then"


def test_tokens_that_an_allocator_gives_away_cannot_be_without_a_limit() -> None:
    """Told at once, to whoever asks for it."""
    refused: list[str] = []

    def lift(control: Control) -> None:
        with pytest.raises(ValueError, match="cannot be lifted") as caught:
            control.set_budget(tokens=None)
        refused.append(str(caught.value))

    steered(0.5, lift)
    early = Control()
    early.set_budget(tokens=None)
    engine, budget = FakeEngine("It is 1"), Budget(tokens=99)
    with pytest.raises(ValueError, match="an allocator gives tokens away, so their limit"):
        ttc.solve_many(
            ["?"],
            SelfConsistency(n=1),
            model=engine,
            budget=budget,
            allocator="uniform",
            control=early,
        )

    assert refused


def test_an_allocator_needs_tokens_and_a_name_that_exists() -> None:
    """Refused before anything is spent."""
    engine = FakeEngine("It is 1")
    with pytest.raises(ValueError, match="an allocator gives tokens away"):
        ttc.solve_many(["?"], SelfConsistency(n=2), model=engine, allocator="uniform")
    with pytest.raises(ValueError, match="'nope' is none of the allocators: bandit, greedy_gain"):
        ttc.solve_many(
            ["?"],
            SelfConsistency(n=2),
            model=engine,
            budget=Budget(tokens=9),
            allocator="nope",
        )
    with pytest.raises(TypeError, match=r"allocator=3 is neither .* nor one of bandit, greedy_"):
        ttc.solve_many(
            ["?"],
            SelfConsistency(n=2),
            model=engine,
            budget=Budget(tokens=9),
            allocator=3,  # type: ignore[arg-type]
        )
    assert engine.calls == 0


def test_no_problems_are_no_work() -> None:
    """An empty list gives an empty list."""
    assert solved([], GreedyGain(), 100).outcomes == []


def test_a_vote_that_cannot_be_overtaken_frees_what_it_did_not_need() -> None:
    """Units in flight for a decided problem are cut; the others' results do not depend on it."""
    sure = [SimulatedProblem(id=f"q{i}", success=1.0) for i in range(3)]
    graph = Sample(n=9, max_tokens=256) >> Vote(stop=CannotBeOvertaken())
    runs = [
        solved(sure, Uniform(window=9), 30_000, graph=graph, concurrency=slots, pace=pace)
        for slots, pace in ((1, 0.01), (4, 0.01), (64, 0.0))
    ]

    assert [run.seen for run in runs] == [runs[0].seen] * 3
    assert all(outcome.stopped_by == "cannot_be_overtaken" for outcome in runs[0].outcomes)
    assert FIRST_RIGHT
