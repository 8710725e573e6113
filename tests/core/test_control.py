"""Control: a run is changed while it runs, within one step of its engine."""

import threading
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ttc
from tests.core.lab import PROMPT, QUESTION, Solved, solved, talker, uneven
from ttc import Budget, Control, Outcome, PriceError
from ttc.prices import Price, Prices
from ttc.strategies import Best, Sample, SelfConsistency, Vote
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier
from ttc.types import Event

LONG = "so it may well be that the answer is 1"
SIX = Sample(n=6, max_tokens=20) >> Vote()
PRICE = Price(model="fake", date=date(2026, 1, 1), input=1, output=4)  # type: ignore[arg-type]


def steered(
    graph: Any, at: dict[float, Callable[[Control], object]], *args: Any, **kwargs: Any
) -> Solved:
    """A run that is changed at some moments; every token takes 0.1 s."""
    clock, control = ManualClock(), Control()
    for moment, change in at.items():
        clock.call_later(moment, lambda change=change: change(control))  # type: ignore[misc]
    return solved(graph, *args, control=control, clock=clock, **kwargs)


def statuses(outcome: Outcome) -> list[tuple[str | None, int]]:
    """How each call ended, and what it was charged."""
    records = [r for r in outcome.trace if r.kind == "call"]
    return [(r.detail.get("finish") or r.detail.get("refused"), r.usage.tokens) for r in records]


def test_a_lowered_limit_ends_the_newest_calls_until_the_others_fit() -> None:
    """Six calls hold 20 tokens each, and have three each when 50 are allowed: two are left."""
    run = steered(SIX, {0.35: lambda c: c.set_budget(tokens=PROMPT + 52)}, LONG)

    assert statuses(run.outcome) == [("stop", PROMPT + 10), ("stop", 10)] + [("cancelled", 3)] * 4
    assert run.outcome.answer == "1"
    assert run.outcome.stopped_by == "tokens"
    assert run.outcome.timing_dependent[0] == "the limit of tokens was changed"
    assert isinstance(run.outcome.refusal, ttc.BudgetExceeded)
    assert "was lowered to 60 while the call ran" in str(run.outcome.refusal)


def test_a_lowered_limit_acts_before_the_engines_next_token() -> None:
    """In the event loop's next step, so no call that is ended gives another one."""
    run = steered(SIX, {0.35: lambda c: c.set_budget(tokens=0)}, LONG)

    assert run.engine.output_tokens == 6 * 3
    assert run.outcome.usage.tokens == PROMPT + 18
    assert run.outcome.usage.calls == 6
    assert (run.outcome.answer, run.outcome.stopped_by) == (None, "tokens")


def test_what_ended_before_a_limit_fell_is_the_best_so_far() -> None:
    """Also where an earlier call was still running."""

    def pace(request: Any) -> float:
        return 1.0 if run_first.setdefault(request.seed, len(run_first)) == 0 else 0.01

    run_first: dict[int, int] = {}
    run = steered(SIX, {0.5: lambda c: c.set_budget(calls=0)}, LONG, pace=pace)

    assert [c.status for c in run.outcome.candidates] == ["finished"] * 5
    assert (run.outcome.answer, run.outcome.stopped_by) == ("1", "calls")


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.sampled_from(["tokens", "calls", "flops", "cost_usd"]),
    st.floats(0.0, 0.6),
    st.floats(0.0, 1.2),
    st.integers(0, 99),
)
def test_nothing_is_spent_beyond_a_lowered_limit_but_what_was_spent(
    resource: str, share: float, moment: float, salt: int
) -> None:
    """In parts that run together, behind a verifier, and with calls that fail."""
    graph = (SIX | Sample(n=5, max_tokens=9)) >> ScriptedVerifier({"1": 0.4}) >> Vote()
    script, pace = talker(failing=0.2), uneven(salt)
    whole = solved(graph, script, pace=pace, prices=Prices([PRICE])).outcome
    limit = share * getattr(whole.usage, resource)
    limit = int(limit) if resource in ("tokens", "calls") else limit
    at_change: list[float] = []

    def change(control: Control) -> None:
        at_change.append(spent(engines[0], resource))
        control.set_budget(**{resource: limit})

    engines: list[FakeEngine] = []
    clock, control = ManualClock(), Control()
    clock.call_later(moment, lambda: change(control))
    with pytest.MonkeyPatch.context() as patch:
        made = FakeEngine.__init__

        def init(self: FakeEngine, *args: Any, **kwargs: Any) -> None:
            made(self, *args, **kwargs)
            engines.append(self)

        patch.setattr(FakeEngine, "__init__", init)
        run = solved(graph, script, pace=pace, prices=Prices([PRICE]), control=control, clock=clock)
    before = at_change[0] if at_change else spent(run.engine, resource)

    assert spent(run.engine, resource) <= max(limit, before) * (1 + 1e-12)


def spent(engine: FakeEngine, resource: str) -> float:
    """What an engine has been asked for until now, by its own count."""
    from tests.core.lab import calls, prompt_tokens

    return {
        "tokens": prompt_tokens(engine.requests) + engine.output_tokens,
        "calls": calls(engine.requests),
        "flops": engine.flops,
        "cost_usd": (engine.input_tokens + 4 * engine.output_tokens) / 1e6,
    }[resource]


def test_a_raised_limit_lets_on_who_waits() -> None:
    """Two calls fit; the third begins when the limit rises, and not before."""
    run = steered(
        SIX,
        {0.55: lambda c: c.set_budget(tokens=PROMPT + 120)},
        LONG,
        budget=Budget(tokens=PROMPT + 40),
    )

    assert [c.status for c in run.outcome.candidates] == ["finished"] * 6
    assert run.outcome.stopped_by == "completed"
    assert run.outcome.usage.seconds == pytest.approx(0.55 + 1.0)


def test_a_deadline_may_be_moved_in_both_directions() -> None:
    """Earlier, later, and away."""
    slow = {"pace": 1.0, "budget": Budget(seconds=5)}
    earlier = steered(SIX, {0.5: lambda c: c.set_budget(seconds=2)}, LONG, **slow)
    later = steered(SIX, {0.5: lambda c: c.set_budget(seconds=60)}, LONG, **slow)
    away = steered(SIX, {0.5: lambda c: c.set_budget(seconds=None)}, LONG, **slow)
    past = steered(SIX, {3.5: lambda c: c.set_budget(seconds=1)}, LONG, **slow)

    assert earlier.outcome.usage.seconds == pytest.approx(2.0)
    assert earlier.outcome.stopped_by == "seconds"
    assert later.outcome.answer == away.outcome.answer == "1"
    assert past.outcome.usage.seconds == pytest.approx(3.5)


def test_a_paused_run_starts_nothing_until_it_is_resumed() -> None:
    """The two that run go on to their end; the result is that of a run without a pause."""
    graph = Sample(n=6, max_tokens=20, ahead=2) >> ScriptedVerifier({"1": 0.5}) >> Best()
    paused = steered(graph, {0.5: lambda c: c.pause(), 7.0: lambda c: c.resume()}, LONG)
    plain = solved(graph, LONG)

    assert paused.outcome.trace == plain.outcome.trace
    assert paused.outcome.timing_dependent == ()
    assert paused.outcome.usage.seconds == pytest.approx(7.0 + 2.0)


def test_parts_that_run_together_are_paused_with_the_rest() -> None:
    """Their accounts stand apart, and wait at the same gate."""
    graph = (Sample(n=3, max_tokens=20, ahead=1) | Sample(n=3, max_tokens=20, ahead=1)) >> Vote()
    run = steered(
        graph,
        {0.5: lambda c: c.pause(), 7.0: lambda c: c.resume()},
        LONG,
        budget=Budget(tokens=1000),
    )

    assert len(run.outcome.candidates) == 6
    assert run.outcome.usage.seconds == pytest.approx(7.0 + 2.0)


def test_a_deadline_ends_a_pause() -> None:
    """Time goes on, and who waits at the gate is refused."""
    graph = Sample(n=4, max_tokens=20, ahead=2) >> Vote()
    run = steered(graph, {0.5: lambda c: c.pause()}, LONG, budget=Budget(seconds=3))

    assert (run.outcome.answer, run.outcome.stopped_by) == ("1", "seconds")
    assert len(run.outcome.candidates) == 2


def test_a_cancelled_run_gives_its_best_so_far() -> None:
    """And books what had been spent."""
    graph = Sample(n=6, max_tokens=20, ahead=2) >> Vote()
    run = steered(graph, {1.25: lambda c: c.cancel()}, LONG)

    assert (run.outcome.answer, run.outcome.stopped_by) == ("1", "cancelled")
    assert statuses(run.outcome) == [
        ("stop", PROMPT + 10),
        ("stop", 10),
        ("cancelled", 2),
        ("cancelled", 2),
    ]
    assert run.outcome.timing_dependent == ("the run was cancelled by hand",)


def test_a_cancelled_call_is_a_cancelled_candidate() -> None:
    """Its siblings go on; one that still waits for admission may be cancelled as well."""
    run = steered(
        SIX,
        {0.35: lambda c: c.cancel(call="0.sample#1"), 0.45: lambda c: c.cancel(call="0.sample#4")},
        LONG,
        budget=Budget(tokens=PROMPT + 60),
    )
    found = [(c.status, c.error) for c in run.outcome.candidates]

    assert found[1] == ("cancelled", "it was cancelled by hand")
    assert found[4][1] == "it was cancelled by hand"
    assert [status for status, error in found if error is None] == ["finished"] * 4
    assert run.outcome.timing_dependent[0] == "a call was cancelled by hand"


def test_a_changed_price_holds_for_calls_that_start_later() -> None:
    """Those in flight are paid as they were reserved."""
    graph = Sample(n=2, max_tokens=20, ahead=1) >> Vote()
    dear = Price(model="fake", date=date(2026, 2, 1), input=10, output=40)  # type: ignore[arg-type]
    run = steered(
        graph,
        {0.35: lambda c: c.set_price(dear)},
        LONG,
        prices=Prices([PRICE]),
        budget=Budget(cost_usd=1),
    )

    assert run.outcome.usage.cost_usd == pytest.approx(11 * (PROMPT + 4 * 10) / 1e6)
    assert run.outcome.prices["policy"] == dear


def many(at: dict[float, Callable[[Control], object]], count: int, **kwargs: Any) -> list[Outcome]:
    """A run over many problems that is changed at some moments."""
    clock, control = ManualClock(), Control()
    for moment, change in at.items():
        clock.call_later(moment, lambda change=change: change(control))  # type: ignore[misc]
    engine = FakeEngine(LONG, clock=clock, seconds_per_token=0.1)
    return clock.run(
        ttc.asolve_many(
            [QUESTION] * count,
            Sample(n=3, max_tokens=11, ahead=1) >> Vote(),
            model=engine,
            control=control,
            clock=clock,
            seed=0,
            **kwargs,
        )
    )


def test_what_a_run_over_many_problems_has_left_is_divided_anew() -> None:
    """Of 4 problems, two at a time; the first two have spent 38 each when 116 are allowed."""
    outcomes = many(
        {3.5: lambda c: c.set_budget(tokens=38 * 2 + 40)},
        4,
        budget=Budget(tokens=4 * 38),
        concurrency=2,
    )

    assert [o.usage.tokens for o in outcomes] == [38, 38, 18, 18]
    assert [o.stopped_by for o in outcomes] == ["completed", "completed", "tokens", "tokens"]
    assert sum(o.usage.tokens for o in outcomes) <= 38 * 2 + 40


def test_one_problem_of_many_may_be_changed_or_cancelled_by_its_place() -> None:
    """Before it has begun as well as after; the others do not notice."""

    def steer(control: Control) -> None:
        control.cancel(problem=1)
        control.cancel(problem=3)
        control.set_budget(2, calls=1)

    outcomes = many(
        {0.5: steer},
        5,
        concurrency=2,
    )

    assert [o.stopped_by for o in outcomes] == [
        "completed",
        "cancelled",
        "calls",
        "cancelled",
        "completed",
    ]
    assert [o.usage.calls for o in outcomes] == [3, 1, 1, 0, 3]
    assert outcomes[0].timing_dependent == outcomes[4].timing_dependent == ()


def test_a_deadline_of_many_problems_may_be_moved() -> None:
    """For those that run and those that wait."""
    outcomes = many({0.5: lambda c: c.set_budget(seconds=3.5)}, 3, concurrency=1)

    assert [o.stopped_by for o in outcomes] == ["completed", "seconds", "seconds"]


def test_a_cap_for_each_problem_outlives_a_change_of_the_whole() -> None:
    """Of tokens as of time; each problem takes 38 tokens and three seconds."""
    free = lambda c: c.set_budget(tokens=None, seconds=90)  # noqa: E731
    outcomes = many({0.5: free}, 2, per_problem=Budget(tokens=28, seconds=60), concurrency=1)
    late = many({0.5: free}, 2, per_problem=Budget(seconds=2.5), concurrency=1)

    assert [o.usage.tokens for o in outcomes] == [28, 28]
    assert [o.stopped_by for o in late] == ["seconds", "seconds"]


def test_the_deadline_of_a_run_over_one_problem_may_be_raised() -> None:
    """As that of a run over many."""
    outcomes = many({0.5: lambda c: c.set_budget(seconds=9)}, 1, budget=Budget(seconds=1))

    assert [o.stopped_by for o in outcomes] == ["completed"]


def test_a_deadline_that_is_moved_into_the_past_blames_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The event loop was not blocked."""
    steered(SIX, {3.5: lambda c: c.set_budget(seconds=1)}, LONG, pace=1.0)

    assert "blocked the event loop" not in caplog.text


def test_a_change_before_the_start_holds_from_the_start() -> None:
    """Whoever makes a Control may use it at once."""
    control = Control()
    control.set_budget(calls=2)
    outcome = ttc.solve(QUESTION, SelfConsistency(n=4), model=FakeEngine(LONG), control=control)

    assert (outcome.usage.calls, outcome.stopped_by) == (2, "calls")


def test_another_thread_may_change_a_run_and_look_at_it() -> None:
    """As the command line does, from another process."""
    control, seen, begun = Control(), {}, threading.Event()

    def watch(event: Event) -> None:
        if event.kind == "candidate":
            begun.set()

    def steer() -> None:
        begun.wait(30)
        seen.update(control.state().result(timeout=30))
        control.cancel()

    thread = threading.Thread(target=steer)
    thread.start()
    outcome = ttc.solve(
        QUESTION,
        Sample(n=10_000, max_tokens=20, ahead=2) >> Vote(),
        model=FakeEngine(LONG, seconds_per_token=1e-3),
        control=control,
        watch=watch,
    )
    thread.join()

    assert (outcome.answer, outcome.stopped_by) == ("1", "cancelled")
    assert (seen["problems"], seen["ended"], seen["paused"]) == (1, 0, False)
    assert seen["running"][0]["usage"]["tokens"] > 0


def test_a_control_is_for_one_run_and_refuses_what_cannot_be() -> None:
    """An unknown limit, one that cannot be kept, and a second run."""
    control: Any = Control()
    with pytest.raises(TypeError, match="token"):
        control.set_budget(token=3)
    with pytest.raises(ValueError, match="tokens is a number of at least 0"):
        control.set_budget(tokens=-3)
    ttc.solve(QUESTION, SelfConsistency(n=1), model=FakeEngine(LONG), control=control)
    with pytest.raises(PriceError, match="has no price"):
        control.set_budget(cost_usd=3)
    with pytest.raises(ValueError, match="has had a run already"):
        ttc.solve(QUESTION, SelfConsistency(n=1), model=FakeEngine(LONG), control=control)
    control.cancel()  # too late, and harmless
