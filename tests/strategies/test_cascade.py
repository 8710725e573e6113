"""Cascade: rungs in order, until one's candidate is accepted."""

from tests.core.lab import solved
from ttc import Candidate, confidence
from ttc.strategies import Best, Cascade, Sample, SelfConsistency, Vote
from ttc.testing import ScriptedVerifier

SURE, UNSURE = "The answer is 1.", ["The answer is 2.", "The answer is 3."]


def test_a_sure_first_rung_is_enough() -> None:
    """Nothing of the second is spent."""
    ladder = Cascade(Sample(n=2) >> Vote(), Sample(n=9) >> Vote(), accept=confidence(0.9))
    outcome = solved(ladder, SURE).outcome

    assert (outcome.answer, outcome.stopped_by) == ("1", "accepted")
    assert outcome.usage.calls == 2


def test_an_unsure_rung_is_followed_by_the_next() -> None:
    """Each reads the same input; the trace tells how far it came."""
    ladder = Cascade(Sample(n=2) >> Vote(), Sample(n=3) >> Vote(), accept=confidence(0.9))
    outcome = solved(ladder, [*UNSURE, SURE, SURE, SURE], in_order=True).outcome

    assert (outcome.answer, outcome.confidence) == ("1", 1.0)
    assert outcome.usage.calls == 5
    assert outcome.stopped_by == "completed"
    assert [c.answer for c in outcome.candidates] == ["2", "3", "1", "1", "1"]


def test_a_single_vote_is_never_sure() -> None:
    """One sample says nothing of its own certainty."""
    ladder = Cascade(Sample(n=1) >> Vote(), Sample(n=2) >> Vote(), accept=confidence(0.0))

    assert solved(ladder, SURE).outcome.usage.calls == 3


def test_if_none_is_accepted_the_last_answer_counts() -> None:
    """Also where the last rung has none."""
    ladder = Cascade(Sample(n=2) >> Vote(), Sample(n=2) >> Vote(), accept=confidence(1.0))
    outcome = solved(ladder, [*UNSURE, "No idea.", "No idea."], in_order=True).outcome

    assert outcome.answer == "2"
    assert outcome.stopped_by == "completed"


def test_a_rung_without_an_answer_does_not_name_the_end_of_the_run() -> None:
    """A later rung found one."""
    ladder = Cascade(
        Sample(n=1) >> Vote(),
        Sample(n=3) >> ScriptedVerifier({"1": 0.5}) >> Best(),
        accept=confidence(0.5),
    )
    outcome = solved(ladder, ["No idea.", SURE, SURE, SURE], in_order=True).outcome

    assert (outcome.answer, outcome.stopped_by) == ("1", "completed")


def test_a_rule_may_be_any_function_of_the_candidate() -> None:
    """It sees answer, scores and confidence."""

    def has_one(candidate: Candidate) -> bool:
        return candidate.answer == "1"

    ladder = Cascade(SelfConsistency(n=2), SelfConsistency(n=2), accept=has_one)
    outcome = solved(ladder, ["The answer is 2."] * 2 + [SURE] * 2, in_order=True).outcome

    assert (outcome.answer, outcome.usage.calls) == ("1", 4)
