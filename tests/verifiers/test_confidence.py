"""Scores out of the model's own probabilities."""

import asyncio
import math
from typing import cast

import pytest

import ttc
from ttc.ports import Scope, Verifier
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine
from ttc.types import Branch, Candidate, Problem, Score
from ttc.verifiers import SequenceProbability

PROMPT = Branch(text="What is 1 + 1?", token_ids=(1, 2, 3))


def _generated(parent: Branch, logprobs: tuple[float, ...] | None, *, call: str) -> Branch:
    return Branch(parent=parent, text="2", token_ids=(4,), logprobs=logprobs, call=call)


def _score(*branches: Branch) -> list[Score]:
    candidates = [Candidate(branch=branch, text=branch.output) for branch in branches]
    scope = cast("Scope", None)  # this verifier asks nothing of its scope
    problem = Problem.ask("What is 1 + 1?")
    return list(asyncio.run(SequenceProbability()(problem, candidates, scope)))


def test_the_score_is_the_geometric_mean_of_the_token_probabilities() -> None:
    """Wang et al., equation 1: exp of the mean log probability."""
    (score,) = _score(_generated(PROMPT, (math.log(0.5), math.log(0.125)), call="0.sample#0"))

    assert score.value == pytest.approx(0.25)
    assert score.range == (0.0, 1.0)


def test_the_length_of_a_text_does_not_change_its_score() -> None:
    """A sum would punish every further token."""
    short, long = _score(
        _generated(PROMPT, (math.log(0.5),), call="0.sample#0"),
        _generated(PROMPT, (math.log(0.5),) * 50, call="0.sample#1"),
    )

    assert long.value == pytest.approx(short.value)


def test_only_what_was_generated_counts() -> None:
    """A prompt and a cue are given, whatever their log probabilities are."""
    prompt = Branch(text="1 + 1", token_ids=(1,), logprobs=(-9.0,))
    first = _generated(prompt, (math.log(0.9),), call="0.sample#0")
    cue = Branch(parent=first, text="So", token_ids=(5,), logprobs=(-9.0,))
    second = _generated(cue, (math.log(0.4),), call="0.sample#1")

    (score,) = _score(second)

    assert score.value == pytest.approx(math.sqrt(0.9 * 0.4))


@pytest.mark.parametrize("logprobs", [None, ()])
def test_without_log_probabilities_the_score_is_unknown(logprobs: tuple[float, ...] | None) -> None:
    """Field defect 18: a missing score is never a number."""
    (score,) = _score(_generated(PROMPT, logprobs, call="0.sample#0"))

    assert score.value is None


def test_one_segment_without_log_probabilities_makes_the_whole_unknown() -> None:
    """A mean over a part would be another quantity."""
    first = _generated(PROMPT, (-0.1,), call="0.sample#0")

    (score,) = _score(_generated(first, None, call="1.refine#0"))

    assert score.value is None


def test_a_text_that_was_given_whole_is_unscored() -> None:
    """Nothing was generated."""
    (score,) = _score(PROMPT)

    assert score.value is None


def test_rounding_never_leaves_the_range_and_an_impossible_token_scores_zero() -> None:
    """A log probability may round above 0 and may be minus infinity."""
    above, impossible, broken = _score(
        _generated(PROMPT, (1e-9,), call="0.sample#0"),
        _generated(PROMPT, (-math.inf, -0.1), call="0.sample#1"),
        _generated(PROMPT, (math.nan,), call="0.sample#2"),
    )

    assert above.value == 1.0
    assert impossible.value == 0.0
    assert broken.value is None


def test_it_is_a_verifier_that_needs_log_probabilities() -> None:
    """What a graph reads before anything is spent."""
    verifier = SequenceProbability()

    assert isinstance(verifier, Verifier)
    assert verifier.requires == {"logprobs"}
    assert verifier.needs == "each"
    assert verifier.roles == frozenset()


def test_it_scores_the_samples_of_an_engine() -> None:
    """In a graph, every token has the probability exp(-0.5), and so has the whole."""
    strategy = Sample(n=2, max_tokens=8) >> SequenceProbability() >> Best()

    outcome = ttc.solve("What is 1 + 1?", strategy, model=FakeEngine("It is 2.", logprob=-0.5))

    assert outcome.candidate is not None
    score = outcome.candidate.scores["sequence_probability"].value
    assert score == pytest.approx(math.exp(-0.5))
