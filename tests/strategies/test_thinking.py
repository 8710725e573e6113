"""Thinking longer, or less long: budget forcing, summaries, and ends that are not too early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp

import pytest

import ttc
from tests.core.lab import QUESTION, prompt_tokens, solved, talker
from ttc import Budget, EngineError, GraphError, Node, Outcome
from ttc.ports import Request
from ttc.strategies import BudgetForcing, SampleInRounds, Summarise, SureAnswer, Trace, Vote
from ttc.strategies.budget_forcing import suppressed
from ttc.testing import FakeEngine
from ttc.types import Branch, Problem

END = " </think>"
"""The end of a thought as a fake engine reads it, with the space before it."""


def forced(replies: Sequence[str | EngineError], **options: object) -> Outcome:
    """A run of one fork."""
    node = BudgetForcing(ends=END, **options)  # type: ignore[arg-type]
    return solved(node >> Vote(), replies, in_order=True).outcome


def kinds(outcome: Outcome) -> list[object]:
    """What nodes decided."""
    return [record.detail["rule"] for record in outcome.trace if record.kind == "decision"]


def test_a_thought_that_ends_is_followed_by_the_answer() -> None:
    """The end and the cue stand in the text, once."""
    outcome = forced(["17 * 23 is 391 </think> never read", " 391."])

    assert outcome.text == "17 * 23 is 391 </think>\nThe final answer is 391."
    assert (outcome.answer, outcome.usage.calls, kinds(outcome)) == ("391", 2, [])


def test_the_end_of_thinking_is_suppressed() -> None:
    """As often as was told; the thought goes on from its own tokens."""
    replies = ["It is 401 </think>", " no 381 </think>", " no 391 </think>", " 391."]
    outcome = forced(replies, waits=2)

    assert outcome.text == (
        "It is 401\nWait no 381\nWait no 391 </think>\nThe final answer is 391."
    )
    assert outcome.usage.calls == 4


def test_the_end_of_a_turn_is_suppressed_as_well() -> None:
    """A model that thinks in no block."""
    outcome = forced(["It is 401.", " No.", " 391."], waits=1)

    assert outcome.text == "It is 401.\nWait No. </think>\nThe final answer is 391."


def test_thinking_ends_at_its_cap() -> None:
    """The cap is over all thoughts together, and the forced end is told."""
    outcome = forced(["a b c </think>", " d e f g h", " 7."], waits=5, max_thinking=6)

    assert outcome.text == "a b c\nWait d e </think>\nThe final answer is 7."
    assert kinds(outcome) == ["forced_end"]


def test_no_token_is_written_twice() -> None:
    """What is suppressed keeps its tokens: prompts are paid once, to the token."""
    node = BudgetForcing(n=2, ends=END, waits=2)
    run = solved(node >> Vote(), talker(answers="12", longest=6))

    assert run.outcome.usage.tokens == prompt_tokens(run.engine.requests) + run.engine.output_tokens


def test_near_a_limit_thoughts_are_cut_so_that_every_fork_answers() -> None:
    """160 tokens for three forks of 20 answer tokens each."""

    def reply(request: Request) -> str:
        return " 7." if request.branch.text.endswith("answer is") else "so " * 200

    node = BudgetForcing(n=3, max_thinking=100, max_tokens=20)
    outcome = solved(node >> Vote(), reply, budget=Budget(tokens=260)).outcome

    assert [c.answer for c in outcome.candidates] == ["7", "7", "7"]
    assert outcome.usage.tokens <= 260


def test_where_nothing_is_left_to_think_it_answers_at_once() -> None:
    """A limit below a thought and an answer."""

    def reply(request: Request) -> str:
        return " 7." if request.branch.text.endswith("answer is") else "so " * 200

    node = BudgetForcing(max_thinking=100, max_tokens=20)
    outcome = solved(node >> Vote(), reply, budget=Budget(tokens=40)).outcome

    assert (outcome.answer, outcome.usage.calls) == ("7", 1)


def test_a_thought_whose_answer_is_refused_is_what_there_is() -> None:
    """It may hold the answer."""
    node = BudgetForcing(n=1)
    outcome = solved(node >> Vote(), "The answer is 7.", budget=Budget(calls=1)).outcome

    assert (outcome.answer, outcome.stopped_by) == ("7", "calls")


def test_an_opening_is_appended_where_the_template_has_none() -> None:
    """Before the first thought alone."""
    run = solved(
        BudgetForcing(opens="<think>", ends=END) >> Vote(), ["a </think>", " 7."], in_order=True
    )
    texts = [segment.text for segment in run.engine.requests[1].branch.lineage()]

    assert texts.count("<think>") == 1
    assert run.outcome.answer == "7"


class Merged(FakeEngine):
    """An engine one of whose tokens holds the end of the thought and the end's beginning."""

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """As tokens of one letter."""
        if as_token:
            raise EngineError("no one token is called so")
        ids = tuple(map(ord, text))
        return Branch(parent=branch, role=branch.role, text=text, token_ids=ids)


@pytest.mark.parametrize(
    ("ids", "tail", "is_cut"),
    [
        ((97, 98, 60, 101), 0, True),
        ((97, 9860, 101), 1, True),
        ((7, 9860, 101), 2, True),
        ((5,) * 9, 9, False),
    ],
)
def test_an_end_is_cut_out_token_by_token(ids: tuple[int, ...], tail: int, is_cut: bool) -> None:
    """What was written before it inside a token is appended again, if it is no longer than it."""
    text = "ab" if is_cut else "abcdefghi"
    engine = Merged("")
    root = engine.root(Problem.ask("?"), "policy")
    found = Branch(
        parent=root,
        text=text,
        token_ids=ids,
        logprobs=(-0.5,) * len(ids),
        finish_reason="stop",
        stop_reason="<e",
        call="0#0",
    )
    cut = suppressed(engine, found, "<e")  # type: ignore[arg-type]

    assert (cut is not None) is is_cut
    if cut is not None:
        tokens = [t for s in cut.lineage() if s.parent is not None for t in s.token_ids or ()]
        assert tokens == [97, 98]
        assert cut.output == "ab"
        assert sum(s.call is None and s.parent is not None for s in cut.lineage()) == (tail > 0)


def segments(
    replies: Callable[[Request], str | EngineError], *, n: int = 1, segments: int = 4
) -> Outcome:
    """A run of forks that sum up."""
    return solved(Summarise(max_tokens=8, n=n, segments=segments) >> Vote(), replies).outcome


def slow(request: Request) -> str:
    """Needs three segments, and says in a summary how far it came."""
    text = next(request.branch.lineage()).text
    if "You sum up" in text:
        return "Done: two." if "Done: one." in text else "Done: one."
    return "The answer is 7." if "Done: two." in text else "so " * 20


def test_reasoning_goes_on_from_its_summary() -> None:
    """Until it ends; each prompt shows the latest summary alone."""
    prompts: list[str] = []

    def noted(request: Request) -> str:
        prompts.append(next(request.branch.lineage()).text)
        return slow(request)

    outcome = segments(noted)

    assert (outcome.answer, outcome.usage.calls) == ("7", 5)
    assert "Done: two." in prompts[-1]
    assert "Done: one." not in prompts[-1]
    assert outcome.candidate is not None
    assert outcome.candidate.usage == outcome.usage


def test_the_last_segment_may_be_cut() -> None:
    """Then the candidate is truncated."""
    (candidate,) = segments(slow, segments=2).candidates

    assert (candidate.status, candidate.answer) == ("truncated", None)


def test_a_summary_that_fails_leaves_what_was_written() -> None:
    """And the other fork goes on."""
    count = iter(range(99))

    def reply(request: Request) -> str | EngineError:
        is_first = "You sum up" in request.branch.text and next(count) == 0
        return EngineError("it broke") if is_first else slow(request)

    outcome = segments(reply, n=2)

    assert [c.status for c in outcome.candidates] == ["truncated", "finished"]
    assert outcome.answer == "7"


def test_a_fork_that_ends_at_once_is_plain_sampling() -> None:
    """One call."""
    assert segments(lambda _: "The answer is 7.").usage.calls == 1


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (BudgetForcing(n=0), "n is a whole number"),
        (BudgetForcing(waits=-1), "waits is a whole number"),
        (BudgetForcing(ends=""), "ends is a text"),
        (BudgetForcing(waits=1, wait=""), "wait is a text"),
        (Summarise(segments=0), "segments is a whole number"),
        (Summarise(temperature=float("nan")), "temperature is"),
    ],
)
def test_faults_are_told_before_anything_runs(node: Node, fault: str) -> None:
    """With the value."""
    with pytest.raises(GraphError, match=fault):
        (node >> Vote()).validate()


def probed(answers: Sequence[str], sureness: Sequence[float | None]) -> Trace:
    """A trace with probes."""
    probes = tuple(f"The answer is{answer}" for answer in answers)
    return Trace(text="", num_tokens=0, probes=probes, sureness=tuple(sureness))


@pytest.mark.parametrize(
    ("answers", "sureness", "ends"),
    [
        ((" 4.",), (0.97,), True),
        ((" 4.",), (0.9,), False),
        ((" 4.", " 4."), (0.99, 0.5), False),
        (("",), (0.99,), False),
        ((" 4.",), (None,), False),
        ((" 4. Wait",), (0.99,), False),
        ((" 4, as we know",), (0.99,), True),
        ((), (), False),
    ],
)
def test_a_sure_answer_ends_a_thought(
    answers: Sequence[str], sureness: Sequence[float | None], ends: bool
) -> None:
    """The last one; silence, doubt and what was not measured go on (field defects 16 and 17)."""
    assert SureAnswer()(probed(answers, sureness)) is ends


def test_a_sure_answer_saves_the_rest_of_a_trace() -> None:
    """The probe's probability is the geometric mean of its tokens'."""

    def logprob(sure: float) -> Callable[[Request], float]:
        return lambda request: sure if request.branch.text.endswith("is") else -3.0

    def reply(request: Request) -> str:
        return " 7." if request.branch.text.endswith("is") else "so " * 100

    rule = SureAnswer(at_least=0.9, interval=32)
    graph = SampleInRounds(n=2, rule=rule, max_tokens=128) >> Vote()
    runs = [
        ttc.solve(QUESTION, graph, model=FakeEngine(reply, logprob=logprob(sure)), seed=0)
        for sure in (-0.05, -0.2)
    ]

    assert exp(-0.05) > 0.9 > exp(-0.2)
    assert [run.answer for run in runs] == ["7", None]
    assert runs[0].usage.calls < runs[1].usage.calls
