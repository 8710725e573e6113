"""Scores out of what was measured at each token, with values computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

import ttc
from tests.verifiers.lab import PROMPT, generated, scored, values
from ttc.ports import Verifier
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine
from ttc.types import Branch, Candidate, Status
from ttc.verifiers import (
    Entropy,
    GroupConfidence,
    Margin,
    MeanLogprob,
    Perplexity,
    SelfCertainty,
    SequenceLogprob,
    SequenceProbability,
    Surprisal,
    TailEntropy,
)

LN2 = math.log(2)
HALVES = generated(
    logprobs=(-LN2, -3 * LN2),
    entropies=(0.5, 1.5),
    self_certainties=(2.0, 4.0),
    top_logprobs=((-LN2, -2 * LN2), (-LN2, -3 * LN2)),
)
"""Two tokens of the probabilities 1/2 and 1/8."""

ALL: list[Verifier] = [
    SequenceLogprob(),
    MeanLogprob(),
    SequenceProbability(),
    Perplexity(),
    Surprisal(),
    Entropy(),
    Margin(),
    SelfCertainty(),
    GroupConfidence(window=1),
    TailEntropy(window=1),
]
LOWERED = ("group_confidence", "margin", "sequence_probability", "tail_entropy")
"""Those whose score a token of no probability lowers, and does not make unknown."""
each = pytest.mark.parametrize("verifier", ALL, ids=lambda verifier: verifier.name)


@pytest.mark.parametrize(
    ("verifier", "expected"),
    [
        (SequenceLogprob(), -4 * LN2),
        (MeanLogprob(), -2 * LN2),
        (SequenceProbability(), 0.25),
        (Perplexity(), -4.0),
        (Surprisal(), 2 * LN2),
        (Entropy(), -1.0),
        (SelfCertainty(), 3.0),
        (Margin(), (0.25 + 0.375) / 2),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_each_score_has_its_hand_computed_value(verifier: Verifier, expected: float) -> None:
    """Probabilities 1/2 and 1/8: their product is 1/16, its square root 1/4."""
    assert values(verifier, [HALVES]) == pytest.approx([expected])


@each
@pytest.mark.parametrize(
    "changes",
    [
        {"text": ""},
        {"text": " \n"},
        {"status": "failed"},
        {"status": "cancelled"},
        {"logprobs": None, "entropies": None, "self_certainties": None, "top_logprobs": None},
        {"logprobs": (), "entropies": (), "self_certainties": (), "top_logprobs": ()},
    ],
)
def test_what_has_no_measured_text_is_unknown(verifier: Verifier, changes: dict[str, Any]) -> None:
    """VO-09 and field defect 18: never 0, -1 or a score for nothing; and it says why."""
    certain: dict[str, Any] = {
        "logprobs": (0.0,),
        "entropies": (0.0,),
        "self_certainties": (9.0,),
        "top_logprobs": ((0.0,),),
    }
    (score,) = scored(verifier, [generated(**(certain | changes))])

    assert score.value is None
    assert score.evidence["unknown"]


@each
def test_one_segment_that_was_not_measured_makes_the_whole_unknown(verifier: Verifier) -> None:
    """A mean over a part would be another quantity."""
    first = HALVES.branch
    second = Branch(parent=first, text="so", token_ids=(9,), call="1.refine#0")

    (score,) = scored(verifier, [Candidate(branch=second, text="2so", status="finished")])

    assert score.value is None


def _even(*values: float) -> Candidate:
    """A candidate whose every measure has these values."""
    return generated(
        logprobs=values,
        entropies=values,
        self_certainties=values,
        top_logprobs=tuple((value,) for value in values),
    )


@each
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_measure_that_is_no_number_never_wins(verifier: Verifier, broken: float) -> None:
    """VO-07: it is unknown, or the worst that there is; in either place."""
    bad, good = _even(broken, -0.1), _even(-0.1, -0.1)

    for order in ([bad, good], [good, bad]):
        known = dict(zip(map(id, order), values(verifier, order), strict=True))
        told = known[id(bad)]
        assert known[id(good)] is not None
        assert told is None or math.isfinite(told)
        if told is not None and broken != math.inf:
            assert verifier.name in LOWERED


@each
def test_a_text_that_was_given_does_not_count(verifier: Verifier) -> None:
    """A prompt with measures of its own, and a cue between two calls."""
    measures: dict[str, Any] = {
        "logprobs": (-1.0,),
        "entropies": (1.0,),
        "self_certainties": (1.0,),
        "top_logprobs": ((-1.0,),),
    }
    wild: dict[str, Any] = {
        "logprobs": (-9.0,),
        "entropies": (9.0,),
        "self_certainties": (9.0,),
        "top_logprobs": ((-9.0,),),
    }
    prompt = Branch(text="1 + 1", token_ids=(1,), **wild)
    first = Branch(parent=prompt, text="2", token_ids=(4,), call="0.sample#0", **measures)
    cue = Branch(parent=first, text="So", token_ids=(5,), **wild)
    second = Branch(parent=cue, text="2", token_ids=(6,), call="0.sample#0", **measures)
    candidates = [
        Candidate(branch=branch, text=branch.output, status="finished")
        for branch in (first, second)
    ]
    one, two = values(verifier, candidates)

    assert two == pytest.approx(2 * (one or 0) if verifier.name == "sequence_logprob" else one)


@pytest.mark.parametrize("status", ["finished", "truncated", "open"])
def test_a_prefix_can_be_scored(status: Status) -> None:
    """A search asks for the score of what is not finished."""
    assert values(MeanLogprob(), [generated(status=status, logprobs=(-1.0,))]) == [-1.0]


def test_a_perplexity_beyond_all_numbers_is_unknown() -> None:
    """It overflows, and does not raise."""
    assert values(Perplexity(), [generated(logprobs=(-1e5,))]) == [None]


@each
def test_an_engine_makes_what_a_verifier_reads(verifier: Verifier) -> None:
    """In a graph, with nothing said to the sampler."""
    strategy = Sample(n=3, max_tokens=8) >> verifier >> Best()

    outcome = ttc.solve("What is 1 + 1?", strategy, model=FakeEngine("It is 2."), seed=1)

    assert outcome.candidate is not None
    assert outcome.candidate.scores[verifier.name].value is not None


@each
def test_it_needs_no_engine_call_and_one_verifier_call(verifier: Verifier) -> None:
    """Everything was measured while it was sampled."""
    engine = FakeEngine("It is 2.")

    outcome = ttc.solve("?", Sample(n=3) >> verifier >> Best(), model=engine)

    assert engine.calls == 3
    assert outcome.usage.verifier_calls == 3


def test_the_surer_text_is_the_better_one_by_every_score_but_surprisal() -> None:
    """On a fake that is surer of one reply."""
    engine = FakeEngine(
        ["The answer is 1.", "The answer is 2."],
        logprob=lambda request: -0.01 if request.seed % 2 else -3.0,
    )
    for verifier in ALL:
        outcome = ttc.solve("?", Sample(n=12) >> verifier >> Best(), model=engine, seed=0)
        assert outcome.answer == ("1" if verifier.name == "surprisal" else "2"), verifier.name


def test_the_prompt_alone_is_unscored() -> None:
    """Nothing of it was generated."""
    assert values(MeanLogprob(), [Candidate(branch=PROMPT, text="x")]) == [None]
