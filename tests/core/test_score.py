"""Calls that read: admitted, recorded, charged and ended as every other call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

import ttc
from tests.core.lab import QUESTION
from ttc import Budget, Outcome
from ttc.errors import BudgetExceeded, ContextOverflow, EngineError, NodeError
from ttc.function_node import node
from ttc.graph import Port
from ttc.ports import Request, Scope, Stream
from ttc.strategies import Vote
from ttc.testing import FakeEngine, ManualClock
from ttc.types import Branch, Candidate, Logprobs

Work = Callable[[Scope, Branch], Coroutine[Any, Any, Any]]


def run(work: Work, model: FakeEngine, **limits: int) -> tuple[Any, Outcome]:
    """What some work in a node's scope comes to, and the outcome of its run."""
    result: list[Any] = []

    @node(takes=Port("open", "many"))
    async def worker(candidates: Stream[Candidate], scope: Scope):  # type: ignore[no-untyped-def]
        async for candidate in candidates:
            result.append(await work(scope, candidate.branch))
            yield scope.finish(candidate, candidate.branch)

    outcome = ttc.solve(QUESTION, worker >> Vote(), model=model, budget=Budget(**limits), seed=0)
    return (result or [None])[0], outcome


def test_a_score_holds_the_tokens_and_their_log_probabilities() -> None:
    """Of texts and of tokens, in the order in which they are asked for."""

    async def work(scope: Scope, branch: Branch) -> tuple[Logprobs, ...]:
        return await scope.score(branch, ["yes it is", (1, 2)])

    (text, ids), _ = run(work, FakeEngine("", logprob=-0.25))

    assert (len(text.token_ids), text.values, text.total) == (3, (-0.25,) * 3, -0.75)
    assert ids == Logprobs(token_ids=(1, 2), values=(-0.25, -0.25))


def test_what_is_scored_counts_as_prompt_tokens_each_distinct_one_once() -> None:
    """Three suffixes that share their beginnings, and then all of it again."""

    async def work(scope: Scope, branch: Branch) -> int:
        await scope.score(branch, ["a b c", "a b d", "a"])
        await scope.score(branch, ["a b c", "e"])
        return branch.num_tokens

    prompt, outcome = run(work, FakeEngine(""))
    first, second = (record for record in outcome.trace if record.kind == "score")

    assert (first.usage.tokens, first.usage.calls) == (prompt + 4, 1)
    assert (second.usage.tokens, second.usage.calls) == (1, 1)
    assert outcome.usage.tokens == prompt + 5
    assert outcome.usage.output_tokens == 0
    assert first.usage.input_tokens == prompt + 7
    assert first.fingerprint != second.fingerprint


def test_a_score_that_does_not_fit_the_budget_is_refused() -> None:
    """Nothing is sent, and nothing spent; one token more, and it runs."""

    async def work(scope: Scope, branch: Branch) -> int:
        await scope.score(branch, ["a b c", "a b d"])
        return branch.num_tokens

    prompt, _ = run(work, FakeEngine(""))
    model = FakeEngine("")
    nothing, outcome = run(work, model, tokens=prompt + 3)
    enough, _ = run(work, FakeEngine(""), tokens=prompt + 4, calls=1)

    assert nothing is None
    assert (outcome.stopped_by, outcome.usage.tokens, model.calls) == ("tokens", 0, 0)
    assert outcome.refusal is not None
    assert (outcome.refusal.needed, enough) == (prompt + 4, prompt)


def test_a_score_waits_for_earlier_calls_to_give_back() -> None:
    """Admission is in launch order, whatever kind of call it is."""

    async def work(scope: Scope, branch: Branch) -> list[int]:
        done: list[int] = []

        async def generate() -> None:
            await scope.generate(branch, index=0, max_tokens=50, at_least=50)
            done.append(0)

        async def score() -> None:
            await scope.score(branch, ["a b c d e"])
            done.append(1)

        handles = [scope.spawn(generate()), scope.spawn(score())]
        for handle in handles:
            await handle
        return done

    (prompt, _) = run(_prompt_tokens, FakeEngine(""))
    done, outcome = run(work, FakeEngine("one two"), tokens=prompt + 50)

    assert done == [0, 1]
    assert outcome.usage.tokens == prompt + 2 + 5


def test_a_score_takes_the_share_of_its_run() -> None:
    """As what is generated does; otherwise a run that scores much would be served twice."""
    owners: dict[str, str] = {}

    class Shared(FakeEngine):
        def submit(self, request: Request, *told: Any) -> Any:
            owners["call"] = request.owner
            return super().submit(request, *told)

        def score(self, branch: Branch, suffixes: Any, *, owner: str = "") -> Any:
            owners["score"] = owner
            return super().score(branch, suffixes)

    async def work(scope: Scope, branch: Branch) -> None:
        await scope.generate(branch, index=0, max_tokens=4)
        await scope.score(branch, ["a"])

    run(work, Shared("yes"))

    assert owners["score"] == owners["call"] != ""


async def _prompt_tokens(scope: Scope, branch: Branch) -> int:
    return branch.num_tokens


class Slow(FakeEngine):
    """Its scores never come."""

    def score(self, branch: Branch, suffixes: Any, **asked: Any) -> Any:
        reading = super().score(branch, suffixes, **asked)
        reading.future = Future()
        return reading


def test_a_deadline_cuts_a_score_and_books_it() -> None:
    """What it was given has been spent; nothing stays reserved."""
    clock = ManualClock()

    @node(takes=Port("open", "many"))
    async def worker(candidates: Stream[Candidate], scope: Scope):  # type: ignore[no-untyped-def]
        async for candidate in candidates:
            await scope.score(candidate.branch, ["a b"])
            yield candidate

    outcome = clock.run(
        ttc.asolve(
            QUESTION,
            worker >> Vote(),
            model=Slow("", clock=clock),
            budget=Budget(seconds=5, tokens=100),
            clock=clock,
        )
    )
    (record,) = (record for record in outcome.trace if record.kind == "score")

    assert outcome.stopped_by == "seconds"
    assert record.usage.tokens == record.usage.tokens_cancelled > 2
    assert outcome.usage.tokens == record.usage.tokens


def test_a_cancelled_run_ends_its_scores() -> None:
    """And no task is left."""

    async def main() -> int:
        @node(takes=Port("open", "many"))
        async def worker(candidates: Stream[Candidate], scope: Scope):  # type: ignore[no-untyped-def]
            async for candidate in candidates:
                await scope.score(candidate.branch, ["a b"])
                yield candidate

        task = asyncio.create_task(ttc.asolve(QUESTION, worker >> Vote(), model=Slow("")))
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1


def test_an_engine_that_fails_is_the_nodes_to_handle() -> None:
    """The error names the call, and what it was given is booked."""

    class Broken(FakeEngine):
        def score(self, branch: Branch, suffixes: Any, **asked: Any) -> Any:
            reading = super().score(branch, suffixes, **asked)
            reading.future = Future()
            reading.future.set_exception(EngineError("no power"))
            return reading

    async def work(scope: Scope, branch: Branch) -> EngineError:
        try:
            await scope.score(branch, ["a"])
        except EngineError as error:
            return error
        raise AssertionError

    error, outcome = run(work, Broken(""))

    assert (str(error), error.call) == ("no power", "0.worker#score0")
    assert outcome.usage.calls == 1


def test_a_text_without_tokens_and_one_without_room_are_refused() -> None:
    """Before a place is taken in launch order."""

    async def empty(scope: Scope, branch: Branch) -> None:
        await scope.score(branch, [""])

    async def long(scope: Scope, branch: Branch) -> None:
        with pytest.raises(ContextOverflow, match="does not fit the 64 tokens"):
            await scope.score(branch, ["a " * 80])

    async def nothing(scope: Scope, branch: Branch) -> tuple[Logprobs, ...]:
        return await scope.score(branch, [])

    with pytest.raises(NodeError, match="at least one token"):
        run(empty, FakeEngine(""))
    assert run(long, FakeEngine("", context=64))[1].usage.calls == 0
    assert run(nothing, FakeEngine(""))[0] == ()


def test_rewards_come_by_label() -> None:
    """One mapping for each row that was asked for; the branch is paid once."""
    model = FakeEngine("", rewards=lambda branch, row: {"bad": -float(row), "good": float(row)})

    async def work(scope: Scope, branch: Branch) -> Any:
        longer = scope.append(branch, "a b")
        assert await scope.reward(branch, []) == ()
        return await scope.reward(longer, [1, 0])

    found, outcome = run(work, model)

    assert found == ({"bad": -1.0, "good": 1.0}, {"bad": 0.0, "good": 0.0})
    assert outcome.usage.calls == 1


def test_a_refused_score_raises_in_its_node() -> None:
    """A node may go on without it."""

    async def work(scope: Scope, branch: Branch) -> str:
        try:
            await scope.score(branch, ["a"])
        except BudgetExceeded as refusal:
            return refusal.resource
        return ""

    assert run(work, FakeEngine(""), calls=0)[0] == "calls"
