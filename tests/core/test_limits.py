"""Limits: each one refuses, shrinks or cuts, and the best so far is the result."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.core.lab import PROMPT, solved, talker
from ttc import Budget, EngineError, GraphError, Tail
from ttc.ports import Request
from ttc.strategies import Best, Cascade, Greedy, Sample, SelfConsistency, Vote, confidence
from ttc.testing import ScriptedVerifier
from ttc.types import Record

SCORES = ScriptedVerifier({"1": 0.5, "2": 0.25})


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(tokens=PROMPT + 30), "tokens"),
        (Budget(calls=3), "calls"),
        (Budget(verifier_calls=2), "verifier_calls"),
        (Budget(seconds=0.35), "seconds"),
    ],
)
def test_every_limit_binds_and_returns_the_best_so_far(budget: Budget, reason: str) -> None:
    """A limit ends a run with what it has, and says which limit it was."""
    graph = Sample(n=8, max_tokens=10, ahead=2) >> SCORES >> Best()
    run = solved(graph, "The answer is 1.", budget=budget, pace=0.05)

    assert run.outcome.answer == "1"
    assert run.outcome.stopped_by == reason
    assert 1 <= len(run.outcome.candidates) < 8
    for resource in ("tokens", "calls", "verifier_calls"):
        limit = getattr(budget, resource)
        assert limit is None or getattr(run.outcome.usage, resource) <= limit


@pytest.mark.parametrize(
    "budget", [Budget(tokens=0), Budget(calls=0), Budget(seconds=0), Budget(tokens=PROMPT)]
)
def test_a_budget_that_allows_nothing_spends_nothing(budget: Budget) -> None:
    """The outcome has no answer and names the limit."""
    run = solved(SelfConsistency(n=3), budget=budget)

    assert run.outcome.answer is None
    assert run.engine.calls == run.outcome.usage.tokens == 0
    assert run.outcome.stopped_by in ("tokens", "calls", "seconds")


def test_a_call_that_does_not_fit_is_shrunk_to_half_and_no_further() -> None:
    """What is granted is in the trace; below its floor a call is refused."""
    run = solved(
        Sample(n=3, max_tokens=10) >> Vote(), "no end " * 30, budget=Budget(tokens=PROMPT + 26)
    )

    assert [r.detail.get("granted") for r in calls(run.outcome.trace)] == [10, 10, 6]
    assert run.outcome.usage.tokens == PROMPT + 26

    run = solved(
        Sample(n=3, max_tokens=10) >> Vote(), "no end " * 30, budget=Budget(tokens=PROMPT + 24)
    )

    assert [r.detail.get("granted", r.detail.get("refused")) for r in calls(run.outcome.trace)] == [
        10,
        10,
        "tokens",
    ]


def test_only_the_first_call_of_a_problem_may_shrink_to_sixteen_tokens() -> None:
    """So that a small budget gives at least one answer, whenever the first call ends."""
    graph = Sample(n=2, max_tokens=100) >> Vote()
    first = solved(graph, "no end " * 90, budget=Budget(tokens=PROMPT + 16))
    second = solved(graph, "no end " * 90, budget=Budget(tokens=PROMPT + 149))
    refused = solved(graph, "no end " * 90, budget=Budget(tokens=PROMPT + 15))

    assert [r.detail.get("granted") for r in calls(first.outcome.trace)] == [16, None]
    assert [r.detail.get("granted") for r in calls(second.outcome.trace)] == [100, None]
    assert refused.engine.calls == 0


def test_at_least_says_how_far_a_call_may_shrink() -> None:
    """It is the node's own choice."""
    graph = Sample(n=2, max_tokens=10, at_least=1) >> Vote()
    run = solved(graph, "no end " * 30, budget=Budget(tokens=PROMPT + 11))

    assert [r.detail["granted"] for r in calls(run.outcome.trace)] == [10, 1]


def test_unused_tokens_come_back_for_later_calls() -> None:
    """Ten calls of up to 30 tokens run in a budget of 50 output tokens, since each needs three."""
    run = solved(
        Sample(n=10, max_tokens=30, at_least=3) >> Vote(),
        "it is 4",
        budget=Budget(tokens=PROMPT + 50),
    )

    assert run.outcome.usage.calls == 10
    assert run.outcome.usage.tokens == PROMPT + 30


def test_calls_launched_at_once_never_hold_more_than_there_is() -> None:
    """OR-01: of eight that may use 30 of 100, three run at a time, also after one has failed."""

    def script(request: Request) -> str | EngineError:
        said = "one " * 9 + "two"
        return EngineError("lost", output_tokens=10) if request.call.endswith("#1") else said

    graph = Sample(n=8, max_tokens=30, at_least=30) >> Vote()
    run = solved(graph, script, budget=Budget(tokens=PROMPT + 100))
    usage, statuses = run.outcome.usage, [c.status for c in run.outcome.candidates]

    assert run.engine.most_active == 3
    assert (usage.calls, usage.tokens) == (8, PROMPT + 80)
    assert statuses == ["finished", "failed", *["finished"] * 6]


def test_a_call_that_needs_more_than_there_is_is_refused() -> None:
    """OR-01, last case."""
    graph = Sample(n=2, max_tokens=101, at_least=101) >> Vote()
    run = solved(graph, "It is 4.", budget=Budget(tokens=PROMPT + 100))

    assert (run.engine.calls, run.outcome.stopped_by) == (0, "tokens")


def test_a_refused_sample_ends_the_sampling_and_leaves_one_record() -> None:
    """Those launched after it are as if they had never been, at any concurrency."""
    traces = [
        solved(Sample(n=40) >> Vote(), budget=Budget(calls=3), pace=pace).outcome.trace
        for pace in (0.0, 0.1)
    ]

    assert [r.detail.get("refused") for r in calls(traces[0])] == [None, None, None, "calls"]
    assert traces[0] == traces[1]


def test_a_limit_of_a_rung_leaves_the_answer_of_the_one_before() -> None:
    """A cascade that runs out of budget gives what it has."""
    ladder = Cascade(
        Sample(n=2) >> Vote(), Sample(n=8) >> SCORES >> Best(), accept=confidence(0.99)
    )
    run = solved(ladder, ["I say: 1", "It is 2"], in_order=True, budget=Budget(calls=2))

    assert run.outcome.answer in ("1", "2")
    assert run.outcome.stopped_by == "calls"


def test_the_worst_case_is_known_before_and_never_exceeded() -> None:
    """A budget of exactly the worst case refuses nothing."""
    graph = Cascade(
        Sample(n=2, max_tokens=9, tail=Tail(cue=" So: ", max_tokens=3)) >> Vote(),
        Sample(n=4, max_tokens=6) >> SCORES >> Best(),
        accept=confidence(1.0),
    )
    free = solved(graph, talker(longest=20))
    bound = graph.worst_case(free.outcome.problem, free.engine)
    assert (bound.calls, bound.verifier_calls) == (6, 4)
    assert bound.tokens == PROMPT + 2 * (9 + 5 + 3) + 4 * 6
    run = solved(
        graph,
        talker(longest=20),
        budget=Budget(tokens=bound.tokens, calls=bound.calls, verifier_calls=bound.verifier_calls),
    )

    assert "refused" not in str(run.outcome.trace)
    assert run.outcome.usage.tokens <= (bound.tokens or 0)


def test_a_tail_is_one_ticket_with_its_call() -> None:
    """Where both do not fit, the call shrinks and its tail still runs."""
    tail = Tail(cue=" The answer is", max_tokens=2)
    graph = Sample(n=1, max_tokens=10, at_least=1, tail=tail) >> Vote()
    run = solved(graph, _endless_then_four, budget=Budget(tokens=PROMPT + 4 + 3 + 2))

    assert [r.detail["granted"] for r in run.outcome.trace] == [4 + 3 + 2]
    assert run.outcome.answer == "4"
    assert run.outcome.usage.calls == 1
    assert run.outcome.usage.tokens == PROMPT + 4 + 3 + 1


def _endless_then_four(request: Request) -> str:
    return " 4" if request.branch.text.endswith("The answer is") else "no end " * 30


def test_unused_tokens_of_a_tail_come_back() -> None:
    """A call that ends by itself never pays for its cue."""
    graph = Sample(n=1, max_tokens=10, tail=Tail(cue=" The answer is", max_tokens=2)) >> Vote()
    run = solved(graph, "It is 4.")

    assert run.outcome.usage.tokens == PROMPT + 3


def test_a_prompt_that_fills_the_context_is_a_failed_candidate() -> None:
    """Nothing is sent, and the message holds both numbers."""
    run = solved(Greedy(), context=PROMPT)

    assert run.engine.calls == 0
    assert run.outcome.candidates[0].status == "failed"
    assert "leaves no room in the 8 tokens" in (run.outcome.candidates[0].error or "")


def test_max_tokens_are_cut_to_what_the_context_holds() -> None:
    """The engine never sees more than it can do."""
    run = solved(Greedy(max_tokens=100), "no end " * 30, context=PROMPT + 5)

    assert run.engine.requests[0].max_tokens == 5


sample: Any = Sample
vote: Any = Vote
limits: Any = Budget


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample(n=4, temprature=1), "temprature"),
        (lambda: limits(token=4), "token"),
        (lambda: limits(tokens=-1), "tokens is a number of at least 0, not -1"),
        (lambda: limits(tokens=True), "tokens is a number of at least 0, not True"),
        (lambda: limits(tokens=1.5), "tokens is a whole number, not 1.5"),
        (lambda: limits(seconds=float("nan")), "seconds is a number of at least 0, not nan"),
        (lambda: solved("sample(m=4) >> vote()"), "unexpected keyword argument 'm'"),
        (lambda: solved(sample(n=0) >> vote()), "n is a whole number of at least 1, not 0"),
        (lambda: solved(sample(until="ab") >> vote()), "until is a tuple of strings"),
        (lambda: solved(sample(until=("",)) >> vote()), "none of them empty"),
        (lambda: solved(sample(tail="So") >> vote()), "tail='So' is no Tail"),
        (lambda: solved(sample(role="") >> vote()), "role is the name"),
        (lambda: solved(sample(n=2) >> vote(by="x")), "the vote is not weighted"),
        (lambda: solved(sample(n=2) >> vote(stop=3)), "stop=3 is no rule"),
    ],
)
def test_an_unknown_or_unusable_option_is_an_error(
    call: Callable[[], object], message: str
) -> None:
    """Nothing is accepted and silently ignored."""
    with pytest.raises((TypeError, ValueError, GraphError), match=message):
        call()


def calls(trace: tuple[Record, ...]) -> list[Record]:
    """The records of engine calls."""
    return [record for record in trace if record.kind == "call"]
