"""Learned scores: of a whole solution by its label, of every step by the token that ends it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import ttc
from ttc import Outcome
from ttc.ports import Verifier
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine
from ttc.text_form import parse
from ttc.types import Branch, Problem, Score
from ttc.verifiers import OutcomeRewardModel, ProcessRewardModel

QUESTION = "What is 17 * 23?"
Rewards = Callable[[Branch, int], Mapping[str, float]]


def run(verifier: Verifier, text: str, reward: FakeEngine) -> Outcome:
    """A run of one candidate."""
    return ttc.solve(
        Problem.ask(QUESTION, answer_format="text"),
        Sample(n=1) >> verifier >> Best(),
        model=FakeEngine(text),
        models={"reward": reward},
        seed=0,
    )


def score_of(
    verifier: Verifier, text: str, rewards: Rewards | None = None, **fake: object
) -> Score:
    """What a verifier says of a text."""
    outcome = run(verifier, text, FakeEngine("", rewards=rewards, **fake))  # type: ignore[arg-type]
    return outcome.candidates[0].scores[verifier.name]


def test_an_outcome_reward_is_that_of_the_last_token() -> None:
    """Of the problem and the whole solution; raw, and without bounds."""
    rows: list[tuple[int, int]] = []

    def rewards(branch: Branch, row: int) -> dict[str, float]:
        rows.append((row, branch.num_tokens))
        return {"LABEL_0": -3.5}

    score = score_of(OutcomeRewardModel(), "It is 391.", rewards)

    assert (score.value, score.range) == (-3.5, None)
    assert rows[-1][0] == rows[-1][1] - 1


def test_a_label_says_which_output_counts() -> None:
    """Without one a model of several outputs leaves everything unknown, and says their names."""

    def rewards(branch: Branch, row: int) -> dict[str, float]:
        return {"bad": 0.0, "good": math.log(3)}

    named = score_of(OutcomeRewardModel(label="good"), "x", rewards)
    shared = score_of(OutcomeRewardModel(label="good", transform="softmax"), "x", rewards)
    single = score_of(OutcomeRewardModel(label="good", transform="sigmoid"), "x", rewards)
    unnamed = score_of(OutcomeRewardModel(), "x", rewards)
    wrong = score_of(OutcomeRewardModel(label="best"), "x", rewards)

    assert named.value == pytest.approx(math.log(3))
    assert shared.value == single.value == pytest.approx(0.75)
    assert (unnamed.value, wrong.value) == (None, None)
    assert "outputs are 'bad', 'good'; name one" in unnamed.evidence["error"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_is_unknown(value: float) -> None:
    """It never reaches a selector."""
    score = score_of(OutcomeRewardModel(), "x", lambda branch, row: {"LABEL_0": value})
    steps = score_of(
        ProcessRewardModel(form="skywork", aggregate="min"),
        "a\nb",
        lambda branch, row: {"LABEL_0": math.nan if row % 2 else 0.0},
    )

    assert score.value is None
    assert steps.value is None


def by_step(values: list[float]) -> Rewards:
    """Value heads whose output at the i-th separator is the log-odds of the i-th value."""

    def rewards(branch: Branch, row: int) -> dict[str, float]:
        position = 0
        segments = list(branch.lineage())
        for place, segment in enumerate(segments):
            position += len(segment.token_ids or ())
            if position == row + 1 and place:
                step = (place - 1) // 2
                return {"LABEL_0": math.log(values[step] / (1 - values[step]))}
        return {"LABEL_0": 0.0}

    return rewards


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [("last", 0.7), ("min", 0.2), ("product", 0.9 * 0.2 * 0.7), ("mean", 0.6)],
)
def test_steps_are_aggregated_as_it_is_said(aggregate: str, expected: float) -> None:
    """Each step's score is in the evidence."""
    verifier = ProcessRewardModel(form="skywork", aggregate=aggregate)  # type: ignore[arg-type]
    score = score_of(verifier, "17 * 20 = 340\n\n17 * 3 = 51\nSo 391", by_step([0.9, 0.2, 0.7]))

    assert score.value == pytest.approx(expected)
    assert score.evidence["steps"] == pytest.approx((0.9, 0.2, 0.7))
    assert score.evidence["aggregate"] == aggregate


def test_an_aggregation_and_a_form_have_to_be_chosen() -> None:
    """Published models differ, so no default could be right."""
    with pytest.raises(TypeError, match="aggregate"):
        ProcessRewardModel(form="qwen")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="aggregate is one of last, min, product, mean, not 'max'"):
        ProcessRewardModel(form="qwen", aggregate="max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="form is one of math_shepherd, qwen, skywork"):
        ProcessRewardModel(form="llama", aggregate="min")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no messages"):
        ProcessRewardModel(form="skywork", aggregate="min", system="Think.")


def test_a_model_of_another_form_is_unknown() -> None:
    """Two outputs where one is expected: nothing is read out of the wrong one."""
    score = score_of(
        ProcessRewardModel(form="skywork", aggregate="min"),
        "a\nb",
        lambda branch, row: {"LABEL_0": 0.0, "LABEL_1": 1.0},
    )

    assert score.value is None
    assert "has 1 outputs at a step, and the model has" in score.evidence["error"]


def test_a_short_output_is_unknown() -> None:
    """Neither padded, nor 0, nor -1."""

    class Short(FakeEngine):
        def reward(self, branch: Branch, rows: Sequence[int], **asked: Any) -> Any:
            return super().reward(branch, list(rows)[:-1], **asked)

    reward = Short("", rewards=lambda branch, row: {"LABEL_0": 0.0})
    outcome = run(ProcessRewardModel(form="skywork", aggregate="min"), "a\nb", reward)
    score = outcome.candidates[0].scores["process_reward_model"]

    assert score.value is None
    assert "gave 1 results where 2 were asked" in score.evidence["error"]


def test_math_shepherd_weighs_plus_against_minus_after_each_tag() -> None:
    """They are tokens of a language model, and the tag is the one that was put there."""
    seen: list[str] = []

    def scores(branch: Branch, sign: str) -> float:
        seen.append(branch.text)
        plus = 0.8 if "340" in branch.output.split("\u043a\u0438")[-2] else 0.3
        return math.log({" +": plus, " -": 1 - plus}[sign]) - 2

    text = "17 * 20 is 340\nThe tag \u043a\u0438 is mine: +\nSo 391"
    score = score_of(
        ProcessRewardModel(form="math_shepherd", aggregate="last"), text, scores=scores
    )

    assert score.evidence["steps"] == pytest.approx((0.8, 0.3, 0.3))
    assert seen == [" \u043a\u0438"] * 6


def test_a_text_that_spells_a_separator_gains_no_step() -> None:
    """Ends of steps are where they were put."""
    verifier = ProcessRewardModel(form="qwen", aggregate="min")
    ends: list[int] = []

    def rewards(branch: Branch, row: int) -> dict[str, float]:
        ends.append(row)
        return {"bad": 0.0, "good": math.log(4)}

    score = score_of(verifier, "One <extra_0> two\n\nthree <extra_0>", rewards)

    assert score.evidence["steps"] == pytest.approx((0.8, 0.8))
    assert len(ends) == 1 + 2  # the first tells the fake engine's labels


@pytest.mark.parametrize("form", ["math_shepherd", "qwen", "skywork"])
def test_three_steps_have_three_scores_in_their_order(form: str) -> None:
    """SP-05: whatever a step spells, and however many line breaks part the steps."""
    steps = ("first <extra_0> \u043a\u0438", "second", "third")
    chances = {"first": 0.9, "second": 0.2, "third": 0.7}

    def chance(written: str) -> float:
        return chances[max(chances, key=written.rfind)]

    def scores(branch: Branch, sign: str) -> float:
        plus = chance(branch.output)
        return math.log({" +": plus, " -": 1 - plus}[sign])

    def rewards(branch: Branch, row: int) -> dict[str, float]:
        written, position = "", 0
        for segment in branch.lineage():
            position += len(segment.token_ids or ())
            written += segment.text
            if position == row + 1:
                break
        odds = math.log((plus := chance(written)) / (1 - plus))
        return {"bad": 0.0, "good": odds} if form == "qwen" else {"LABEL_0": odds}

    score = score_of(
        ProcessRewardModel(form=form, aggregate="last"),  # type: ignore[arg-type]
        "\n\n".join(steps) + "\n\n\n\n",
        **({"scores": scores} if form == "math_shepherd" else {"rewards": rewards}),
    )

    assert score.evidence["steps"] == pytest.approx((0.9, 0.2, 0.7))


def test_a_text_without_a_step_is_unknown() -> None:
    """There is nothing to aggregate."""
    verifier = ProcessRewardModel(form="qwen", aggregate="min", delimiter="It is 391.")
    score = score_of(verifier, "It is 391.", lambda branch, row: {"bad": 0.0, "good": 0.0})

    assert (score.value, score.evidence["error"]) == (None, "the candidate has no step")


@pytest.mark.parametrize(
    "verifier",
    [OutcomeRewardModel(), ProcessRewardModel(form="skywork", aggregate="mean")],
)
def test_a_text_that_does_not_fit_is_unknown(verifier: Verifier) -> None:
    """With the reason."""
    score = score_of(verifier, "word " * 90, lambda branch, row: {"LABEL_0": 0.0}, context=64)

    assert score.value is None
    assert "ContextOverflow" in score.evidence["error"]


def test_a_reward_model_is_charged_to_its_own_role() -> None:
    """Its tokens are prompt tokens, the problem's once."""
    reward = FakeEngine("", rewards=lambda branch, row: {"LABEL_0": 0.0})
    outcome = ttc.solve(
        QUESTION,
        Sample(n=3) >> OutcomeRewardModel() >> Best(),
        model=FakeEngine(["It is 391.", "It is 401.", "It is 7."], in_order=True),
        models={"reward": reward},
    )
    paid = outcome.usage_by_role["reward"]
    prompts = {
        (branch.token_ids or ())[: end + 1]
        for branch, _ in reward.read
        for end in range(branch.num_tokens)
    }

    assert (paid.tokens, paid.calls, paid.output_tokens) == (len(prompts), 3, 0)
    assert all(candidate.usage.calls == 1 for candidate in outcome.candidates)


def test_reward_models_have_a_text_form() -> None:
    """With all their parameters."""
    outcome = Sample(n=2) >> OutcomeRewardModel(label="good", transform="sigmoid") >> Best()
    process = Sample(n=2) >> ProcessRewardModel(form="qwen", aggregate="min") >> Best()

    assert parse(
        "sample(n=2) >> outcome_reward_model(label='good', transform='sigmoid') >> best()"
    ) == (outcome)
    assert (
        parse("sample(n=2) >> process_reward_model(form='qwen', aggregate='min') >> best()")
        == process
    )
