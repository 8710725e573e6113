"""Selectors: who wins a vote or a maximum, and how sure of it they are."""

import math
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.lab import solved
from ttc import Budget, Candidate, Outcome, Score, node
from ttc.errors import GraphError
from ttc.ports import Scope, Stream
from ttc.sandbox.symbolic import Check, Checked, SymbolicPool
from ttc.strategies import Best, BestOfN, CannotBeOvertaken, Sample, SelfConsistency, Tally, Vote
from ttc.strategies.best import best_of
from ttc.testing import ScriptedVerifier, finished


def vote(answers: Sequence[str | None], scores: Sequence[float | None] | None = None) -> Outcome:
    """A vote over what some samples say, weighted if there are scores."""
    said = [f"The answer is {a}." if a else "I do not know." for a in answers]
    if scores is None:
        return solved(Sample(n=len(said)) >> Vote(), said, in_order=True).outcome
    return _weighed(said, scores, Vote(weighted=True))


def best(answers: Sequence[str | None], scores: Sequence[float | None]) -> Outcome:
    """The best of what some samples say."""
    said = [f"The answer is {a}." if a else "I do not know." for a in answers]
    return _weighed(said, scores, Best())


def _weighed(said: Sequence[str], scores: Sequence[float | None], selector: Vote | Best) -> Outcome:
    def score(candidate: Candidate) -> float | None:
        return scores[int((candidate.branch.call or "").partition("#")[2])]

    verifier = ScriptedVerifier(score, range=None if isinstance(selector, Best) else (0.0, 1.0))
    return solved(Sample(n=len(said)) >> verifier >> selector, said, in_order=True).outcome


def test_no_answer_never_wins_and_counts_in_the_denominator() -> None:
    """Three of six samples say nothing: 5 has two of six."""
    outcome = vote([None, None, None, "5", "5", "7"])

    assert (outcome.answer, outcome.confidence) == ("5", 2 / 6)


@pytest.mark.parametrize("answers", [[None, None], [None], [None, "", None]])
def test_without_any_answer_there_is_no_winner(answers: list[str | None]) -> None:
    """The outcome says so, and its answer is not a text."""
    outcome = vote(answers)

    assert (outcome.answer, outcome.confidence) == (None, None)
    assert outcome.stopped_by == "no_valid_answer"
    assert len(outcome.candidates) == len(answers)


def test_equivalent_answers_are_one_class() -> None:
    """Text would give 3; the representative is the first that was seen."""
    outcome = vote(["0.5", "\\frac{1}{2}", "3", "1/2", "3", "50\\%"])

    assert (outcome.answer, outcome.confidence) == ("0.5", 4 / 6)


def test_the_same_answer_in_other_words_is_one_class() -> None:
    """Answers are compared, never texts, nor pairs of answer and score."""
    said = ["So, adding up: the answer is 4.", "Hence 2 + 2. The answer is 4.", "The answer is 5."]

    assert solved(Sample(n=3) >> Vote(), said, in_order=True).outcome.answer == "4"
    assert vote(["4", "5", "4"], [0.5, 0.9, 0.3]).answer == "5"
    assert vote(["4", "5", "4"], [0.5, 0.8, 0.4]).answer == "4"


def test_ties_go_to_the_earliest_launched() -> None:
    """Unweighted the first, weighted the heavier."""
    assert vote(["8", "12", "8", "12"]).answer == "8"
    assert vote(["12", "8", "8", "12"]).answer == "12"
    assert vote(["8", "12", "8", "12"], [0.1, 0.9, 0.2, 0.3]).answer == "12"
    assert best(["1", "2", "3"], [0.5, 0.7, 0.7]).answer == "2"


@pytest.mark.parametrize(
    ("answers", "answer", "confidence"),
    [
        (["1"], "1", None),
        (["1", None], "1", 0.5),
        (["1", "1"], "1", 1.0),
        (["1", "2"], "1", 0.5),
        ([None, "2"], "2", 0.5),
    ],
)
@pytest.mark.parametrize("early", [False, True])
def test_one_and_two_samples(
    answers: list[str | None], answer: str, confidence: float | None, early: bool
) -> None:
    """One vote is never sure, and two may disagree, under every rule."""
    said = [f"The answer is {a}." if a else "I do not know." for a in answers]
    graph = SelfConsistency(n=len(said)) if early else Sample(n=len(said)) >> Vote()
    outcome = solved(graph, said, in_order=True).outcome

    assert (outcome.answer, outcome.confidence) == (answer, confidence)
    assert outcome.stopped_by == "completed"


@pytest.mark.parametrize(
    ("scores", "winner"),
    [
        ([math.nan, 0.2, 0.9], 2),
        ([0.2, math.nan, 0.9], 2),
        ([0.9, math.nan, 0.2], 0),
        ([math.nan, math.nan], None),
        ([math.inf, 0.5], 1),
        ([-math.inf, -math.inf], None),
        ([None, -3.0], 1),
    ],
)
def test_a_score_that_is_not_finite_never_wins(
    scores: list[float | None], winner: int | None
) -> None:
    """It is unknown, wherever it stands."""
    outcome = best([str(i) for i in range(len(scores))], scores)

    assert outcome.answer == (None if winner is None else str(winner))
    assert outcome.stopped_by == ("completed" if winner is not None else "no_finite_score")
    assert "nan" not in str([c.scores["scripted"].value for c in outcome.candidates])
    assert "inf" not in str([c.scores["scripted"].value for c in outcome.candidates])


@given(st.permutations([(0.1, "a"), (0.7, "b"), (None, "c"), (0.3, "d")]))
def test_the_best_does_not_depend_on_the_order(scored: list[tuple[float | None, str]]) -> None:
    """Only among ties does it."""
    candidates = [_scored(answer, value) for value, answer in scored]

    assert best_of(candidates, "scripted").answer == "b"


def _scored(answer: str, value: float | None) -> Candidate:
    candidate = finished(answer)
    return replace(candidate, scores={"scripted": Score(value=value)})


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        ([0.0, 1.0, 1.0], [0.9, 0.2, 0.4], 2),
        ([1.0, 1.0, 0.0], [0.4, 0.4, 0.9], 0),
        ([None, None, None], [0.1, 0.3, 0.2], 1),
        ([None, 0.0, None], [0.9, 0.1, 0.8], 1),
        ([0.5, 0.5, None], [None, 0.1, 0.9], 1),
        ([None, None, None], [None, None, None], None),
    ],
)
def test_a_second_score_decides_among_those_alike_and_where_the_first_is_unknown(
    first: list[float | None], second: list[float | None], winner: int | None
) -> None:
    """A known score beats an unknown one; two ties go to the first."""

    def told(scores: list[float | None]) -> Callable[[Candidate], float | None]:
        return lambda candidate: scores[int((candidate.branch.call or "").partition("#")[2])]

    scored = Sample(n=3) >> ScriptedVerifier(told(first))
    graph = (
        scored >> ScriptedVerifier(told(second), name="other") >> Best(by="scripted", then="other")
    )
    said = [f"The answer is {place}." for place in range(3)]
    outcome = solved(graph, said, in_order=True).outcome

    assert outcome.answer == (None if winner is None else str(winner))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"then": "other"}, "then='other' is a second score; name another one as the first"),
        ({"by": "other", "then": "other"}, "then='other' is a second score"),
        ({"by": "scripted", "then": "others"}, "no score is called 'others'; there is other, sc"),
        ({"by": "scripted", "then": "other", "soft": 0.1}, "soft=0.1 draws by one score"),
    ],
)
def test_a_second_score_is_refused_where_it_cannot_decide(
    options: dict[str, Any], message: str
) -> None:
    """By its name, before anything is spent."""
    graph = Sample(n=3) >> ScriptedVerifier({"1": 0.5}, name="other")
    if "by" in options:
        graph = graph >> ScriptedVerifier({"1": 0.5})
    with pytest.raises(GraphError, match=message):
        (graph >> Best(**options)).validate()


def test_what_has_no_answer_is_not_eligible() -> None:
    """However good its score: a high one of an empty text is vacuous."""
    outcome = best(["17", None, None], [0.6, 0.8, 1.0])

    assert outcome.answer == "17"
    assert [set(c.scores) for c in outcome.candidates] == [{"scripted"}, set(), set()]


def test_a_truncated_text_votes_only_with_a_complete_answer() -> None:
    """A marked answer before the cut counts; half a sentence does not."""
    whole = "The answer is \\boxed{4}. " + "and so on " * 20
    cut = "so " * 8 + "the answer is \\boxed{12"
    graph = Sample(n=3, max_tokens=12) >> Vote()
    outcome = solved(graph, [cut, whole, cut], in_order=True).outcome

    assert (outcome.answer, outcome.confidence) == ("4", 1 / 3)
    assert {c.status for c in outcome.candidates} == {"truncated"}


def test_unknown_weights_weigh_nothing_unless_all_are_unknown() -> None:
    """Then votes count."""
    assert vote(["1", "1", "2"], [None, None, 0.1]).answer == "2"
    assert vote(["1", "2", "2"], [None, None, None]).answer == "2"


def test_all_samples_are_scored_and_recorded() -> None:
    """Not only the first of equal ones."""
    verifier = ScriptedVerifier({"1": 0.5})
    outcome = solved(BestOfN(n=5, verifier=verifier), "The answer is 1.").outcome

    assert len(verifier.seen) == 5
    assert [c.scores["scripted"].value for c in outcome.candidates] == [0.5] * 5
    assert [r.kind for r in outcome.trace].count("verify") == 5


def test_a_verifier_that_needs_all_sees_them_together() -> None:
    """In launch order, those without an answer left out."""
    ranks = ScriptedVerifier({"1": 0.5, "2": 0.25}, needs="all")
    said = ["The answer is 2.", "I do not know.", "The answer is 1."]
    outcome = solved(Sample(n=3) >> ranks >> Best(), said, in_order=True).outcome

    assert [c.answer for c in ranks.seen] == ["2", "1"]
    assert outcome.answer == "1"
    assert outcome.usage.verifier_calls == 2


def test_candidates_that_could_not_be_scored_together_still_vote() -> None:
    """A limit that refuses the verifier leaves them unscored, and not lost."""
    ranks = ScriptedVerifier({"1": 0.5}, needs="all")
    graph = Sample(n=3) >> ranks >> Vote(weighted=True)
    outcome = solved(graph, "The answer is 1.", budget=Budget(verifier_calls=2)).outcome

    assert (outcome.answer, outcome.confidence) == ("1", 1.0)
    assert outcome.stopped_by == "verifier_calls"


def test_a_tally_tells_samples_votes_and_shares() -> None:
    """What rules and selectors see of a vote."""
    tally = Tally(at_most=6)
    for answer in ("1", None, "2", "2"):
        tally.add(finished(answer))
    first = finished("9")
    tally.add(first)
    tally.add(first)

    assert (tally.num_samples, tally.num_remaining) == (5, 1)
    assert [(c.answer, n) for c, n in tally.votes()] == [("1", 1), ("2", 2), ("9", 1)]
    assert [(c.answer, n) for c, n in tally.ranking()] == [("2", 2.0), ("1", 1.0), ("9", 1.0)]
    assert tally.share(first) == 1 / 5
    assert tally.share(finished("never said")) == 0


def test_a_failed_or_open_candidate_never_votes() -> None:
    """Whatever its answer."""
    tally = Tally()
    for status in ("open", "failed", "cancelled"):
        tally.add(replace(finished("1"), status=status))

    assert tally.ranking() == []
    assert tally.num_samples == 3


def test_a_vote_may_join_what_algebra_finds_equal() -> None:
    """By key the two spellings are apart, and the text that comes twice wins."""
    answers = ["(x+1)^2", "x+1", "x^2+2x+1", "x+1", "x(x+2)+1"]

    assert vote(answers).answer == "x+1"
    joined = _symbolic(answers)
    assert (joined.answer, joined.confidence) == ("(x+1)^2", 3 / 5)
    assert joined.timing_dependent == ()


@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_the_winner_of_a_symbolic_vote_has_no_order(order: tuple[int, ...]) -> None:
    """Whichever of its spellings comes first, the largest class wins."""
    answers = ["(x+1)^2", "x^2+2x+1", "x^2+1", r"\frac{(x+1)^3}{x+1}"]
    outcome = _symbolic([answers[index] for index in order])

    assert outcome.confidence == 3 / 4
    assert outcome.answer != "x^2+1"


def test_a_check_that_a_limit_ended_is_told_and_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers stay apart, and the outcome says that a second run may differ."""

    class Slow:
        def start(self) -> None:
            """It runs already."""

        async def check_all(self, checks: Sequence[Check]) -> list[Checked]:
            return [Checked(None, was_cut=True, cpu_seconds=0.5) for _ in checks]

    monkeypatch.setattr("ttc.sandbox.symbolic.shared_pool", Slow)
    outcome = _symbolic([r"\sin 2x", r"2\sin x\cos x"])

    assert (outcome.answer, outcome.confidence) == (r"\sin 2x", 1 / 2)
    assert outcome.timing_dependent == ("a limit ended a symbolic check",)
    assert outcome.usage.sandbox_seconds == 0.5


def test_a_symbolic_vote_with_an_open_question_is_not_stopped_early() -> None:
    """A later answer might join two rivals."""
    tally = Tally(at_most=4)
    tally.add(finished("10^{10^{10}}"))
    tally.add(finished("5"), {finished("10^{10^{10}}").key: None})
    tally.add(finished("5"))

    assert not tally.is_settled
    assert not CannotBeOvertaken()(tally)


def test_unknown_equivalences_are_refused() -> None:
    """When the graph is built."""
    graph = Sample(n=2) >> Vote(equivalence="text")  # type: ignore[arg-type]

    with pytest.raises(GraphError, match="equivalence is 'key' or 'symbolic', not 'text'"):
        graph.validate()


@pytest.mark.parametrize(
    ("calls", "share", "is_majority"),
    [("t", None, False), ("t-", 1 / 2, False), ("tt-", 2 / 3, True), ("tt--", 1 / 2, False)],
)
def test_a_majority_is_more_than_half(calls: str, share: float | None, is_majority: bool) -> None:
    """VO-06: over all samples, those that call no tool included; one alone is not sure."""
    said = {"t": '{"name": "f", "arguments": {"a": 1}}', "-": None}
    tally = Tally()
    for call in calls:
        tally.add(finished(said[call]))
    winner = tally.ranking()[0][0]

    assert tally.share(winner) == share
    assert (share is not None and share > 0.5) is is_majority


@pytest.mark.parametrize("selector", [Vote(), Vote(weighted=True), Best()])
def test_no_samples_are_an_error_or_no_answer_and_never_a_winner(selector: Vote | Best) -> None:
    """VO-06: to ask for none is a fault of the graph; where none comes, nobody is chosen."""
    with pytest.raises(GraphError, match="n is a whole number of at least 1"):
        (Sample(n=0) >> ScriptedVerifier({}) >> selector).validate()

    @node
    async def nobody(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate]:
        async for candidate in candidates:
            if candidate.status == "open":
                yield candidate

    graph = Sample(n=3) >> nobody >> ScriptedVerifier({}) >> selector
    outcome = solved(graph, ["The answer is 7."]).outcome
    assert (outcome.answer, outcome.confidence) == (None, None)
    assert outcome.stopped_by == "no_valid_answer"
    tally = Tally()
    assert (tally.ranking(), tally.leading_share(), tally.share(finished("7"))) == ([], None, None)


def test_close_numbers_do_not_make_a_vote_depend_on_its_order() -> None:
    """VO-04: by exact keys 7 has two votes against one, one and one, in all 120 orders."""
    answers = ["1.000", "1.009", "1.018", "7", "7"]
    for order in permutations(answers):
        outcome = vote(order)
        assert (outcome.answer, outcome.confidence) == ("7", 2 / 5)


def test_the_winner_of_a_tie_does_not_depend_on_the_hash_seed() -> None:
    """VO-03: five processes, one winner each way."""
    script = (
        "from ttc.strategies import Tally\n"
        "from ttc.testing import finished\n"
        "plain, weighted = Tally(), Tally(weighted=True)\n"
        "for answer, score in zip(['8', '12', '8', '12'], [0.1, 0.9, 0.2, 0.3]):\n"
        "    plain.add(finished(answer)); weighted.add(finished(answer, score=score))\n"
        "print(plain.ranking()[0][0].answer, weighted.ranking()[0][0].answer)\n"
    )
    winners = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(5)
    }

    assert winners == {"8 12\n"}


def test_a_run_gets_ready_for_algebra_only_where_a_node_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the first check need not wait, and nothing is started for others."""
    started: list[str] = []
    monkeypatch.setattr(SymbolicPool, "start", lambda pool: started.append(pool.kind))
    vote(["1", "2"])
    assert started == []

    _symbolic(["1", "2"])
    assert started == ["symbolic"]


def _symbolic(answers: Sequence[str]) -> Outcome:
    said = [f"The answer is \\boxed{{{answer}}}." for answer in answers]
    graph = Sample(n=len(said)) >> Vote(equivalence="symbolic")
    return solved(graph, said, in_order=True).outcome
