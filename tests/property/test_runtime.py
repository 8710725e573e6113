"""Runs of random strategies under random limits, failures, latencies and cancellations."""

import asyncio
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

import ttc
from tests.core.lab import (
    QUESTION,
    CheckedEngine,
    Ledgers,
    check_no_task_is_left,
    prompt_tokens,
    seen,
    solved,
    talker,
    uneven,
    whole,
)
from tests.property.graphs import bounded, budgets, strategies
from ttc import Budget, Node, Outcome
from ttc.testing import ManualClock

SEEDS = st.integers(0, 2**32)
FAILING = st.sampled_from([0.0, 0.0, 0.2, 1.0])
SLOTS = st.sampled_from([None, 1, 2, 4])


@settings(max_examples=150, deadline=None)
@given(strategies(), budgets(), SEEDS, FAILING, SLOTS)
def test_every_run_is_settled_and_counted_to_the_token(
    graph: Node, budget: Budget, seed: int, failing: float, slots: int | None
) -> None:
    """No account is ever overdrawn, and ledger, usage, trace and engine agree at the end."""
    solved(
        graph,
        talker(failing, longest=5),
        budget=bounded(graph, budget),
        seed=seed,
        pace=uneven(seed),
        concurrency=slots,
    )


@settings(max_examples=200, deadline=None)
@given(strategies(), budgets(), SEEDS, FAILING, st.integers(0, 120), st.integers(1, 5))
def test_a_run_can_be_cancelled_at_any_step(
    graph: Node, budget: Budget, seed: int, failing: float, steps: int, stride: int
) -> None:
    """Nothing stays reserved, no task and no call is left, and what was spent is booked."""
    clock, ledgers = ManualClock(), Ledgers()
    engine = CheckedEngine(talker(failing, longest=5), clock=clock, seconds_per_token=uneven(seed))
    engine.ledgers = ledgers

    async def run() -> None:
        task = asyncio.ensure_future(
            ttc.asolve(
                QUESTION,
                graph,
                model=engine,
                budget=bounded(graph, budget),
                seed=seed,
                clock=clock,
            )
        )
        for step in range(steps):
            await asyncio.sleep(0)
            if step % stride == 0:
                clock.jump()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        check_no_task_is_left()

    with ledgers:
        clock.run(run())
    if ledgers.accounts:  # it may have been cancelled before it began
        ledgers.check()
        ledgers.check_settled()
        assert engine.active == 0
        spent = ledgers.accounts[0].spent["tokens"]
        assert spent == prompt_tokens(engine.requests) + engine.output_tokens


def was_cut(outcome: Outcome) -> bool:
    """Whether a stop or a refusal ended calls that were running."""
    finishes = {record.detail.get("finish") for record in outcome.trace}
    refused = {record.detail.get("refused") for record in outcome.trace}
    return (
        "cancelled" in finishes or outcome.usage.tokens_cancelled > 0 or "verifier_calls" in refused
    )


@settings(max_examples=70, deadline=None, derandomize=True)
@given(strategies(), budgets(seconds=False), SEEDS, FAILING)
def test_timing_changes_nothing_but_what_a_stop_cuts_off(
    graph: Node, budget: Budget, seed: int, failing: float
) -> None:
    """One outcome and one trace at any concurrency and any latency, under tight limits too.

    Where a stop cut calls in flight, all but their records and their tokens is the same. Where more
    than that may differ, the outcome names the reason.
    """
    runs = [
        solved(
            graph,
            talker(failing, longest=5),
            budget=bounded(graph, budget),
            seed=seed,
            pace=uneven(salt),
            concurrency=slots,
        ).outcome
        for salt, slots in ((1, None), (2, 1), (3, 4), (4, 16))
    ]
    if any(outcome.timing_dependent for outcome in runs):
        return
    same = seen if any(was_cut(outcome) for outcome in runs) else whole

    assert [same(outcome) for outcome in runs[1:]] == [same(runs[0])] * 3
