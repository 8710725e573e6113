"""One seed, one result: whatever the timing, the neighbours, the threads and the process."""

import os
import random
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable

import pytest

import ttc
from tests.core.lab import QUESTION, Solved, seen, solved, talker, uneven, whole
from ttc import Budget, Node, Problem
from ttc.ports import Request, Scope
from ttc.strategies import Best, Cascade, Sample, SelfConsistency, Vote, confidence
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier

SCORES = ScriptedVerifier({"1": 0.25, "2": 0.5, "3": 0.125})
GRAPHS: dict[str, Node] = {
    "vote": Sample(n=12) >> Vote(),
    "best": Sample(n=12) >> SCORES >> Best(),
    "pool": (Sample(n=5) | Sample(n=4) >> Vote()) >> SCORES >> Vote(weighted=True),
    "ladder": Cascade(
        Sample(n=3) >> Vote(), (Sample(n=2) | Sample(n=2)) >> Vote(), accept=confidence(0.9)
    ),
}
TIMINGS: list[tuple[int | None, Callable[[Request], float] | float]] = [
    (None, 0.0),
    (1, 0.1),
    (4, uneven(1)),
    (16, uneven(2)),
    (None, uneven(3)),
]
LIMITS = [None, Budget(tokens=90), Budget(tokens=1300), Budget(calls=5), Budget(verifier_calls=3)]


@pytest.mark.parametrize("budget", LIMITS, ids=str)
@pytest.mark.parametrize("name", GRAPHS)
def test_outcome_and_trace_do_not_depend_on_timing(name: str, budget: Budget | None) -> None:
    """Neither concurrency nor latencies change anything, where limits shrink or refuse as well."""
    runs = [
        solved(
            GRAPHS[name], talker(0.1), budget=budget, seed=3, pace=pace, concurrency=slots
        ).outcome
        for slots, pace in TIMINGS
    ]

    assert [outcome.timing_dependent for outcome in runs] == [()] * len(runs)
    same = seen if any(outcome.usage.tokens_cancelled for outcome in runs) else whole
    assert [same(outcome) for outcome in runs] == [same(runs[0])] * len(runs)


def test_another_seed_gives_another_result() -> None:
    """And a run without a seed draws one, and tells it."""
    texts = {
        str([c.text for c in solved(GRAPHS["vote"], talker(), seed=seed).outcome.candidates])
        for seed in range(4)
    }
    engine = FakeEngine(talker())
    first = ttc.solve(QUESTION, GRAPHS["vote"], model=engine)
    second = ttc.solve(QUESTION, GRAPHS["vote"], model=engine)
    again = ttc.solve(QUESTION, GRAPHS["vote"], model=engine, seed=first.seed)

    assert len(texts) == 4
    assert first.seed != second.seed
    assert whole(again) == whole(first)


def test_the_samples_of_one_prompt_differ_and_a_longer_run_begins_like_a_shorter_one() -> None:
    """Seeds come from the sample's index: no two samples share one, and n changes none of them."""
    four = solved(Sample(n=4) >> Vote(), talker()).engine.requests
    six = solved(Sample(n=6) >> Vote(), talker()).engine.requests

    assert len({request.seed for request in six}) == 6
    assert [request.seed for request in four] == [request.seed for request in six[:4]]


def test_a_problem_alone_and_among_others_gives_the_same_outcome() -> None:
    """`solve_many` divides its budget when it begins, so no problem sees another."""
    questions = [f"What is {i} and {i}?" for i in range(7)]
    engine = FakeEngine(talker(0.1))
    among = ttc.solve_many(
        questions, GRAPHS["pool"], model=engine, budget=Budget(tokens=7 * 200), seed=5
    )
    alone = [
        ttc.solve(q, GRAPHS["pool"], model=engine, budget=Budget(tokens=200), seed=5)
        for q in questions
    ]
    few = ttc.solve_many(
        questions,
        GRAPHS["pool"],
        model=engine,
        per_problem=Budget(tokens=200),
        seed=5,
        concurrency=2,
    )

    assert [whole(o) for o in among] == [whole(o) for o in alone] == [whole(o) for o in few]


def test_an_id_of_a_problem_does_not_enter_its_result() -> None:
    """It only names it."""
    outcomes = [
        ttc.solve(
            Problem.ask(QUESTION, id=name), GRAPHS["vote"], model=FakeEngine(talker()), seed=1
        )
        for name in ("a", "b")
    ]

    assert whole(outcomes[0]) == whole(outcomes[1])


def test_foreign_random_numbers_change_nothing() -> None:
    """Nothing reads the global generator, and nothing writes to it."""

    def run(seed: int) -> Solved:
        random.seed(seed)
        return solved(GRAPHS["ladder"], talker(), seed=9, pace=uneven(random.randrange(9)))

    state = random.Random(1).getstate()
    first, second = run(1), run(2)
    random.seed(1)
    solved(GRAPHS["vote"], talker())

    assert whole(first.outcome) == whole(second.outcome)
    assert random.getstate() == state


def test_two_threads_may_share_one_strategy() -> None:
    """It holds no state of a run."""
    graph = GRAPHS["pool"]
    expected = [whole(solved(graph, talker(), seed=seed).outcome)[:2] for seed in range(4)]
    found: dict[int, object] = {}

    def work(seed: int) -> None:
        outcome = ttc.solve(QUESTION, graph, model=FakeEngine(talker()), seed=seed)
        found[seed] = whole(outcome)[:2]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [found[seed] for seed in range(4)] == expected


def test_parameters_of_one_run_do_not_leak_into_another() -> None:
    """Two runs that take turns on one engine keep their own sampling and limits."""
    import asyncio

    clock = ManualClock()
    engine = FakeEngine("no end " * 20, clock=clock, seconds_per_token=1.0)

    async def both() -> list[ttc.Outcome]:
        return await asyncio.gather(
            *(
                ttc.asolve(
                    QUESTION,
                    Sample(n=3, temperature=temperature, max_tokens=length) >> Vote(),
                    model=engine,
                    clock=clock,
                    seed=length,
                    budget=Budget(tokens=100 * length),
                )
                for temperature, length in ((0.0, 2), (0.7, 5))
            )
        )

    cold, warm = clock.run(both())

    assert {r.sampling.temperature for r in engine.requests if r.max_tokens == 2} == {0.0}
    assert {r.sampling.temperature for r in engine.requests if r.max_tokens == 5} == {0.7}
    assert (cold.usage.output_tokens, warm.usage.output_tokens) == (6, 15)


PROGRAM = textwrap.dedent("""
    import ttc
    from ttc.strategies import Sample, Vote
    from ttc.testing import FakeEngine, ScriptedVerifier

    texts = [f"The answer is {n}." for n in ("8", "12", "8", "12")]
    engine = FakeEngine(texts, in_order=True)
    plain = ttc.solve("q", Sample(n=4) >> Vote(), model=engine, seed=0)
    scores = iter([0.1, 0.9, 0.2, 0.3])
    weigh = ScriptedVerifier(lambda _: next(scores))
    weighted = ttc.solve("q", Sample(n=4) >> weigh >> Vote(weighted=True), model=engine, seed=0)
    print(plain.answer, weighted.answer, plain.confidence, plain.trace, plain.candidate.lineage)
""")


def test_ties_are_broken_by_launch_order_in_every_process() -> None:
    """The order of hashes plays no part: 8 came first, and 12 weighs more."""
    printed = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("frozenset")[0]
        for seed in range(5)
    ]

    assert {text.split(" ", 3)[:3] == ["8", "12", "0.5"] for text in printed} == {True}


def test_a_cache_that_ignores_the_index_is_seen() -> None:
    """Forks of one branch are told apart by seed, so a cache keyed by the request is safe."""
    requests = solved(SelfConsistency(n=8), talker()).engine.requests
    keys = {(id(r.branch), r.max_tokens, r.sampling, r.until) for r in requests}

    assert len(keys) == 1
    assert len({r.seed for r in requests}) == 8


def test_every_reason_for_a_timing_dependent_result_is_named() -> None:
    """A deadline, a limit after a cancellation, and a limit that several nodes drew on."""
    deadline = solved(Sample(n=3) >> Vote(), pace=1.0, budget=Budget(seconds=0.5))
    ladder = Cascade(
        SelfConsistency(n=9, max_tokens=9), Sample(n=9) >> Vote(), accept=lambda _: False
    )
    cut = solved(ladder, "The answer is 1.", budget=Budget(calls=12), pace=uneven(1))
    one, two = (Judging(name, roles=frozenset({"policy"})) for name in ("one", "two"))
    graph = Sample(n=6) >> one >> two >> Best(by="two")
    shared = solved(graph, budget=Budget(calls=9), pace=uneven(1))

    assert deadline.outcome.timing_dependent == ("a physical limit acted: seconds",)
    assert cut.outcome.timing_dependent == ("the limit of calls acted after a cancellation",)
    assert shared.outcome.timing_dependent == (
        "the limit of calls acted while several nodes drew on it",
    )


def test_arrival_order_is_taken_only_where_it_is_asked_for_by_name() -> None:
    """The quick ones come first, the trace holds their order, and the outcome says so."""
    graph = Sample(n=6, max_tokens=20, order="arrival") >> Vote()
    run = solved(graph, talker(longest=12), pace=uneven(3)).outcome
    arrived = [c.branch.call for c in run.candidates]
    launched = [r.detail["launched"] for r in run.trace if "launched" in r.detail]

    assert arrived == [f"0.sample#{index}" for index in launched]
    assert sorted(launched) == list(range(6)) != launched
    assert run.timing_dependent == ("arrival order was asked for",)
    assert run.answer == Counter(c.answer for c in run.candidates if c.answer).most_common(1)[0][0]


def test_arrival_order_ends_at_a_limit_like_any_other() -> None:
    """A refused fork ends the sampling, and what has ended stands."""
    graph = Sample(n=9, max_tokens=9, order="arrival") >> Vote()
    run = solved(graph, "The answer is 1.", budget=Budget(calls=4), pace=uneven(1)).outcome

    assert (run.answer, run.stopped_by, run.usage.calls) == ("1", "calls", 4)


class Judging(ScriptedVerifier):
    """A verifier that asks the policy once for each candidate."""

    def __init__(self, name: str, roles: frozenset[str]) -> None:
        super().__init__({}, name=name, roles=roles)

    async def __call__(
        self, problem: Problem, candidates: object, scope: Scope
    ) -> tuple[ttc.Score, ...]:
        """Asks, and gives one score."""
        await scope.generate(scope.root(), index=0, max_tokens=4)
        return (ttc.Score(value=0.5),)
