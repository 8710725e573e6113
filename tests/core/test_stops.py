"""Stops: whoever has seen enough cancels everything upstream in one tick, and is refunded."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count

import pytest

import ttc
from tests.core.lab import PROMPT, check_no_task_is_left, seen, solved, uneven
from ttc import Budget, Candidate, Problem, Score, node
from ttc.graph import Port
from ttc.journal import derive_seed
from ttc.ports import Request, Scope, Stream
from ttc.strategies import (
    Best,
    CannotBeOvertaken,
    Cascade,
    Sample,
    SelfConsistency,
    Vote,
    confidence,
)
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier

ONE = Port("finished", "one")
SAID = "The answer is 1."


def slow_from(index: int, path: str = "0.sample") -> Callable[[Request], float]:
    """Latencies: the first calls of a node are fast, all later ones are very slow."""
    fast = {derive_seed(0, path, i) for i in range(index)}
    return lambda request: 0.1 if request.seed in fast else 10.0


def test_a_decided_vote_stops_the_sampling_and_is_refunded() -> None:
    """Three equal answers of five decide; two calls in flight are cut, and give back their rest."""
    run = solved(SelfConsistency(n=5), SAID, pace=slow_from(3), budget=Budget(tokens=5000))

    assert run.outcome.answer == "1"
    assert run.outcome.stopped_by == "cannot_be_overtaken"
    assert [c.answer for c in run.outcome.candidates] == ["1", "1", "1"]
    assert run.outcome.usage.calls == 5
    assert run.outcome.usage.tokens == PROMPT + 3 * 4
    assert run.clock.now() < 1


def test_a_stop_takes_effect_before_it_returns() -> None:
    """In that very step the engine runs nothing and the ledger holds nothing."""
    clock = ManualClock()
    engine = FakeEngine(SAID, clock=clock, seconds_per_token=slow_from(1))
    active, remaining = [], []

    @node(gives=ONE)
    async def impatient(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        first = await anext(candidates)
        active.append(engine.active)
        candidates.stop()
        active.append(engine.active)
        remaining.append(scope.remaining.tokens)
        yield first

    outcome = clock.run(
        ttc.asolve(
            "What?",
            Sample(n=4, max_tokens=50) >> impatient,
            model=engine,
            seed=0,
            clock=clock,
            budget=Budget(tokens=1000),
        )
    )

    assert active == [3, 0]
    assert remaining == [1000 - outcome.usage.tokens]


@pytest.mark.parametrize("verifier", [None, ScriptedVerifier(lambda _: 0.5)])
def test_a_stop_reaches_through_every_node_upstream(verifier: ScriptedVerifier | None) -> None:
    """Whatever lies between the vote and the samples."""
    many = Sample(n=9) if verifier is None else Sample(n=9) >> verifier
    graph = (many >> passed_on) >> Vote(stop=CannotBeOvertaken())  # unknown: no stop
    assert solved(graph, SAID).outcome.usage.calls == 9

    run = solved(many >> passed_on >> first_of, SAID, pace=slow_from(1))

    assert run.clock.now() < 1
    assert run.outcome.usage.tokens == PROMPT + 4


@node
async def passed_on(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    """Passes everything on."""
    async for candidate in candidates:
        yield candidate


@node(gives=ONE)
async def first_of(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    """Takes the first, and returns early, without a stop."""
    yield await anext(candidates)


def test_what_a_stop_cut_off_is_labelled_and_counts() -> None:
    """Tokens of calls whose candidate nobody took are a part of `tokens` all the same."""
    run = solved(
        SelfConsistency(n=5), [SAID, "so so so so so so so " + SAID], pace=uneven(3), seed=2
    )
    usage = run.outcome.usage
    kept = sum(c.usage.tokens for c in run.outcome.candidates)

    assert usage.tokens_cancelled == usage.tokens - kept > 0


def test_with_one_call_at_a_time_a_stop_cuts_nothing() -> None:
    """`ahead=1` spends the least."""
    run = solved(SelfConsistency(n=9, ahead=1), SAID, pace=uneven(1))

    assert run.outcome.usage.tokens_cancelled == 0
    assert run.outcome.usage.calls == 5


def test_calls_that_still_wait_are_stopped_without_a_charge() -> None:
    """A stop that frees tokens lets no waiting call slip in."""
    run = solved(
        SelfConsistency(n=16, max_tokens=10),
        SAID,
        pace=slow_from(9),
        budget=Budget(tokens=PROMPT + 9 * 4 + 10),
    )

    assert run.outcome.stopped_by == "cannot_be_overtaken"
    assert run.outcome.usage.calls == run.engine.calls < 16
    assert run.outcome.timing_dependent == ()


def test_a_vote_of_a_rung_keeps_what_earlier_rungs_spent() -> None:
    """Only what lies upstream of a stop is cut."""
    ladder = Cascade(Sample(n=2) >> Vote(), SelfConsistency(n=5), accept=confidence(0.8))
    run = solved(
        ladder,
        lambda request: f"It is {next(numbers)}" if request.max_tokens == 512 else SAID,
        in_order=True,
    )

    assert run.outcome.usage.tokens_cancelled == 0


numbers = count()


def test_a_judge_of_a_kept_candidate_is_not_labelled() -> None:
    """What scored a candidate belongs to it."""
    judge = Judge()
    graph = Sample(n=5) >> judge >> Vote(stop=CannotBeOvertaken())
    run = solved(graph, lambda r: "1" if "judge" in r.branch.text else SAID, roles=["judge"])
    kept = [r for r in run.outcome.trace if r.kind == "call" and not r.usage.tokens_cancelled]

    assert [r.path for r in kept if r.path.startswith("1.verify")][:3] == [
        "1.verify/0",
        "1.verify/1",
        "1.verify/2",
    ]


class Judge(ScriptedVerifier):
    """A verifier that asks an engine."""

    def __init__(self) -> None:
        super().__init__({}, name="judge", roles=frozenset({"judge"}))

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One call, and one score for all."""
        await scope.generate(scope.root("judge"), index=0, max_tokens=4)
        return (Score(value=0.5),) * len(candidates)


def test_stopping_a_stream_that_has_ended_changes_nothing() -> None:
    """What it gave stays used."""

    @node
    async def late(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        everything = [candidate async for candidate in candidates]
        candidates.stop()
        candidates.stop()
        for candidate in everything:
            yield candidate

    assert solved(Sample(n=3) >> late >> Vote()).outcome.usage.tokens_cancelled == 0


def test_a_stop_changes_neither_answer_nor_candidates_at_any_concurrency() -> None:
    """Nor the tokens that were not cut off."""
    script = [SAID, SAID, "so so so so so The answer is 2.", "well I think The answer is 1."]
    runs = [
        solved(SelfConsistency(n=16), script, seed=5, pace=uneven(salt), concurrency=slots).outcome
        for salt, slots in ((0, 1), (1, 4), (2, 16), (3, None))
    ]

    assert len({str(seen(outcome)) for outcome in runs}) == 1
    assert len({outcome.usage.tokens for outcome in runs}) > 1


def test_best_needs_all_and_stops_nothing() -> None:
    """A maximum is not known before the last."""
    run = solved(Sample(n=6) >> ScriptedVerifier({"1": 0.1, "2": 0.9}) >> Best(), pace=uneven(1))

    assert run.outcome.usage.tokens_cancelled == 0
    assert run.outcome.stopped_by == "completed"


def test_cancelling_the_caller_stops_everything() -> None:
    """`asolve` settles before the cancellation goes on, and turns it into nothing else."""
    clock = ManualClock()
    engine = FakeEngine(SAID, clock=clock, seconds_per_token=1.0)

    async def run() -> None:
        task = asyncio.ensure_future(
            ttc.asolve("What?", Sample(n=5) >> Vote(), model=engine, clock=clock)
        )
        while engine.output_tokens < 3:
            await asyncio.sleep(0)
            clock.jump()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.active == 0
        check_no_task_is_left()

    clock.run(run())
