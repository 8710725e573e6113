"""Rules that end a vote early: the same answer for less, and how they compose."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.lab import solved, talker
from ttc import Candidate, Score
from ttc.strategies import CannotBeOvertaken, Exhausted, Sample, SelfConsistency, Tally, Vote
from ttc.strategies.stopping import StopRule
from ttc.testing import finished

RULE = CannotBeOvertaken()
ANSWERS = st.lists(st.sampled_from(["1", "2", "3", None]), min_size=1, max_size=12)
WEIGHTS = st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0])


def tally(answers: str, at_most: int | None) -> Tally:
    """A vote in which each letter is an answer, and a dash none."""
    counted = Tally(at_most=at_most)
    for answer in answers:
        counted.add(finished(None if answer == "-" else answer))
    return counted


@pytest.mark.parametrize(
    ("answers", "at_most", "decided"),
    [
        ("", 3, False),
        ("1", 3, False),
        ("11", 3, True),
        ("11", 4, False),
        ("112", 4, False),
        ("1112", 5, True),
        ("1-1", 4, True),
        ("---", 4, False),
        ("1", 1, True),
        ("12", 2, False),
        ("111111", None, False),
    ],
)
def test_a_lead_must_exceed_all_that_may_still_come(
    answers: str, at_most: int | None, decided: bool
) -> None:
    """Strictly; and where nothing bounds what may come, it is never decided."""
    assert RULE(tally(answers, at_most)) is decided


@given(ANSWERS)
def test_stopping_early_never_changes_the_answer(answers: list[str | None]) -> None:
    """Against the whole vote, for every order of answers."""
    whole = Tally(at_most=len(answers))
    early = Tally(at_most=len(answers))
    stopped = False
    for answer in answers:
        candidate = finished(answer)
        whole.add(candidate)
        if not stopped:
            early.add(candidate)
            stopped = RULE(early)

    assert [c.answer for c, _ in early.ranking()][:1] == [c.answer for c, _ in whole.ranking()][:1]


def weighed(answer: str | None, weight: float | None) -> Candidate:
    """A finished candidate with a score."""
    return replace(finished(answer), scores={"s": Score(value=weight)})


@given(st.lists(st.tuples(st.sampled_from(["1", "2", "3", None]), WEIGHTS), max_size=10))
def test_stopping_early_never_changes_a_weighted_answer(
    votes: list[tuple[str | None, float | None]],
) -> None:
    """Each sample that may come could weigh the most that a score can."""
    whole = Tally(weighted=True, at_most=len(votes))
    early = Tally(weighted=True, at_most=len(votes))
    stopped = False
    for answer, weight in votes:
        candidate = weighed(answer, weight)
        whole.add(candidate)
        if not stopped:
            early.add(candidate)
            stopped = RULE(early)

    assert [c.answer for c, _ in early.ranking()][:1] == [c.answer for c, _ in whole.ranking()][:1]


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_self_consistency_gives_the_answer_of_the_whole_vote(seed: int) -> None:
    """With all its calls, and for less."""
    early = solved(SelfConsistency(n=7), talker(), seed=seed).outcome
    whole = solved(Sample(n=7, temperature=0.8) >> Vote(), talker(), seed=seed).outcome

    assert early.answer == whole.answer
    assert early.usage.tokens <= whole.usage.tokens


class After(StopRule):
    """Stops after some samples."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __call__(self, tally: Tally) -> bool:
        """Whether there are enough."""
        return tally.num_samples >= self.samples


def test_rules_compose() -> None:
    """`|` stops when either does, `&` when both do; their names tell it."""
    three = tally("123", 9)

    assert (After(3) | RULE)(three)
    assert not (After(3) & RULE)(three)
    assert (After(3) & (After(2) | RULE))(three)
    assert not (Exhausted() | RULE)(three)
    assert (Exhausted() | RULE).name == "exhausted | cannot_be_overtaken"
    assert (After(3) & RULE).name == "after & cannot_be_overtaken"
    assert Exhausted() | RULE == Exhausted() | CannotBeOvertaken()
    with pytest.raises(TypeError, match="unsupported operand"):
        RULE | 3


def test_a_rule_of_ones_own_stops_a_vote() -> None:
    """And names what stopped the run."""
    outcome = solved(Sample(n=9, ahead=1) >> Vote(stop=After(4) | RULE), "It is 1").outcome

    assert outcome.stopped_by == "after | cannot_be_overtaken"
    assert outcome.usage.calls == 4
    decision = outcome.trace[-1]
    assert (decision.path, decision.kind) == ("1.vote", "decision")
    assert decision.detail == {"rule": "after | cannot_be_overtaken", "num_samples": 4}


def test_a_vote_over_a_pool_knows_how_many_may_come() -> None:
    """The sum over its parts."""
    pool = (Sample(n=2, ahead=1) | Sample(n=3, ahead=1)) >> Vote(stop=RULE)
    outcome = solved(pool, "The answer is 1.").outcome

    assert outcome.stopped_by == "cannot_be_overtaken"
    assert len(outcome.candidates) == 3
