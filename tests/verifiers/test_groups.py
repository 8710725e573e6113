"""DeepConf groups, tails and semantic entropy, by hand."""

from __future__ import annotations

import math

import pytest

from tests.verifiers.lab import generated, scored, values
from ttc.types import Candidate
from ttc.uncertainty import (
    bottom_mean,
    entropy_of,
    group_means,
    group_window,
    length_outliers,
    mean,
    tail_window,
    token_confidences,
)
from ttc.verifiers import AnswerProbability, GroupConfidence, SemanticEntropy, TailEntropy
from ttc.verifiers.groups import Take


def trace(*confidences: float) -> Candidate:
    """A candidate with these token confidences: of two logprobs, whose mean is the negative."""
    return generated(top_logprobs=tuple((-c / 2, -3 * c / 2) for c in confidences))


def test_a_token_confidence_is_the_negative_mean_of_the_greatest_logprobs() -> None:
    """Equation 2 of DeepConf."""
    assert token_confidences([(-0.5, -1.5, -4.0), (0.0, -6.0)]) == pytest.approx([2.0, 3.0])


@pytest.mark.parametrize(
    ("take", "expected"), [("lowest", 1.5), ("tail", 3.5), ("mean", 2.5), ("bottom", 1.75)]
)
def test_groups_have_their_hand_computed_values(take: Take, expected: float) -> None:
    """Windows of two have the means 1.5 2.5 3.5 3.5 2.5 2.0 1.5 2.0 3.5; four are the low half."""
    candidate = trace(1, 2, 3, 4, 3, 2, 2, 1, 3, 4)

    verifier = GroupConfidence(take=take, window=2, share=0.5)

    assert values(verifier, [candidate]) == pytest.approx([expected])


def test_a_text_shorter_than_the_window_is_one_group() -> None:
    """Its mean."""
    assert values(GroupConfidence(take="lowest", window=50), [trace(1, 2, 6)]) == [3.0]


def test_the_window_follows_the_median_of_the_first_candidates() -> None:
    """An eighth of it: later candidates do not change it."""
    candidates = [trace(*[1.0] * 320, *[9.0] * 80), *[trace(*[1.0] * 400)] * 2, trace(*[1.0] * 9)]
    free = GroupConfidence(take="tail", warm_up=3)

    assert free.needs == "all"
    assert values(free, candidates) == values(GroupConfidence(take="tail", window=50), candidates)
    assert GroupConfidence(window=50).needs == "each"


@pytest.mark.parametrize(
    ("lengths", "window"), [([8], 32), ([800, 80, 8000], 100), ([99999], 2048), ([400, 800], 75)]
)
def test_the_window_lies_within_its_bounds(lengths: list[int], window: int) -> None:
    """An eighth of the median, from 32 to 2,048."""
    assert group_window(lengths) == window


def test_unmeasured_traces_leave_the_others_alone() -> None:
    """Unknown, beside a score."""
    assert values(GroupConfidence(), [generated(logprobs=(-1.0,)), trace(2.0)]) == [None, 2.0]
    assert values(GroupConfidence(), [generated(logprobs=(-1.0,))]) == [None]


@pytest.mark.parametrize(
    "options", [{"take": "best"}, {"window": 0}, {"share": 0.0}, {"share": 1.5}, {"warm_up": 0}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    """With the value."""
    with pytest.raises(ValueError, match=str(next(iter(options.values())))):
        GroupConfidence(**options)  # type: ignore[arg-type]


def test_group_means_are_the_means_of_every_window() -> None:
    """Against the definition."""
    series = [math.sin(i) for i in range(40)]

    assert group_means(series, 7) == pytest.approx(
        [mean(series[i : i + 7]) for i in range(34)], abs=1e-12
    )
    assert bottom_mean([3.0, 1.0, 2.0], 0.1) == 1.0


def test_a_tail_is_scored_by_the_exponential_of_its_negative_entropy() -> None:
    """The lowest entropy is the highest score, and it can weigh votes."""
    sure, unsure = generated(entropies=(3.0, 0.0)), generated(entropies=(0.0, math.log(2)))

    assert values(TailEntropy(window=1), [sure, unsure]) == pytest.approx([1.0, 0.5])


def test_the_tail_is_as_long_as_lengths_and_entropies_say() -> None:
    """sqrt(10,000) / 0.5 = 200; bounded by 64 and 2,048."""
    assert tail_window([10_000], 0.5) == 200
    assert tail_window([100, 300], 2.0) == 64
    assert tail_window([10_000], 0.0) == 2048


def test_odd_lengths_are_unknown_among_sixteen() -> None:
    """The twentieth of them farthest from the median, and none among fewer."""
    even = [generated(entropies=(0.5,) * 100)] * 15
    odd = generated(entropies=(0.5,))
    (score,) = scored(TailEntropy(), [*even, odd])[-1:]

    assert score.value is None
    assert "outlier" in score.evidence["unknown"]
    assert None not in values(TailEntropy(), [*even[1:], odd])
    assert values(TailEntropy(), [*even, odd]).count(None) == 1


def test_of_equally_odd_lengths_the_later_are_dropped() -> None:
    """Forty texts lose two."""
    assert length_outliers([10] * 37 + [5, 15, 15]) == {38, 39}
    assert length_outliers([10] * 15) == set()


def answered(*answers: str | None) -> list[Candidate]:
    return [generated(answer, logprobs=(-1.0,)) for answer in answers]


def test_semantic_entropy_by_counts() -> None:
    """Three of four say 2: H = -(3/4 ln 3/4 + 1/4 ln 1/4), over ln 4."""
    scores = scored(SemanticEntropy(), answered("2", "2.0", "3", "2"))
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))

    assert [s.value for s in scores] == pytest.approx([1 - entropy / math.log(4)] * 4)
    assert scores[0].evidence == {"entropy": pytest.approx(entropy), "classes": 2, "samples": 4}


@pytest.mark.parametrize(("answers", "value"), [(("2",) * 5, 1.0), (("1", "2", "3"), 0.0)])
def test_full_agreement_is_one_and_none_is_zero(answers: tuple[str, ...], value: float) -> None:
    """The bounds."""
    assert values(SemanticEntropy(), answered(*answers)) == pytest.approx([value] * len(answers))


def test_a_single_sample_is_no_agreement() -> None:
    """One vote says nothing; samples without an answer do not count."""
    assert values(SemanticEntropy(), answered("2")) == [None]
    assert values(SemanticEntropy(), answered("2", None, None)) == [None, None, None]


def test_probabilities_weigh_classes() -> None:
    """Length-normalised 1/2 and 1/4 for one answer, 1/4 for the other: 3/4 and 1/4."""
    logs = [math.log(p) for p in (0.5, 0.25, 0.25)]
    candidates = [
        generated("2", logprobs=(logs[0],) * 3),
        generated("7", logprobs=(logs[1],)),
        generated("2", logprobs=(logs[2],) * 9),
    ]

    assert values(AnswerProbability(), candidates) == pytest.approx([0.75, 0.25, 0.75])
    assert values(AnswerProbability(weigh="count"), candidates) == pytest.approx(
        [2 / 3, 1 / 3, 2 / 3]
    )
    entropy = entropy_of([3, 1])
    assert values(SemanticEntropy(weigh="probability"), candidates) == pytest.approx(
        [1 - entropy / math.log(3)] * 3
    )


def test_an_answer_without_probability_is_unknown_and_spoils_nothing() -> None:
    """No number is filled in for it."""
    candidates = [generated("2", logprobs=None), *answered("3", "4")]

    assert values(AnswerProbability(), candidates) == [None, 0.5, 0.5]


def test_only_what_weighs_is_required() -> None:
    """Counting needs nothing of an engine."""
    assert SemanticEntropy().requires == frozenset()
    assert AnswerProbability().requires == {"logprobs"}
    with pytest.raises(ValueError, match="weigh is one of count, probability, not 'votes'"):
        SemanticEntropy(weigh="votes")  # type: ignore[arg-type]
