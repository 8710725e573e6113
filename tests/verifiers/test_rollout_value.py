"""The value of a prefix: what comes of it when it is finished several times."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import ttc
from ttc import Outcome
from ttc.errors import EngineError, GraphError
from ttc.function_node import node
from ttc.graph import Port
from ttc.ports import Scope, Stream, Verifier
from ttc.strategies import Best, Sample, Vote
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.text_form import parse, write
from ttc.types import Candidate, Score
from ttc.verifiers import (
    Judge,
    OutcomeRewardModel,
    PairwiseJudge,
    ProcessRewardModel,
    RolloutValue,
    SelfVerify,
    Tournament,
)

QUESTION = "What is 17 * 23?"
Replies = Sequence[str | EngineError]


def valued(
    verifier: Verifier, replies: Replies, *, count: int = 1, **models: FakeEngine
) -> tuple[list[Score], Outcome]:
    """The values of open candidates, all equal to the prompt, and the outcome of a run."""
    found: list[Score] = []

    @node(takes=Port("open", "many"))
    async def values(candidates: Stream[Candidate], scope: Scope):  # type: ignore[no-untyped-def]
        given = [candidate async for candidate in candidates]
        found.extend(await scope.verify(verifier, given * count))
        yield scope.finish(given[0], given[0].branch)

    outcome = ttc.solve(
        QUESTION,
        values >> Vote(),
        model=FakeEngine(replies, in_order=True),
        models=models,
        seed=0,
    )
    return found, outcome


def test_agreement_is_the_share_of_the_most_frequent_answer() -> None:
    """Of all rollouts, those without an answer too."""
    replies = ["It is 391.", "So 391.", "I give up", "I get 401."]
    (score,), outcome = valued(RolloutValue(m=4), replies)

    assert score.value == 0.5
    assert score.evidence == {"votes": (2, 1), "of": 4}
    assert outcome.usage_by_role["policy"].calls == 4


def test_a_rollout_that_failed_says_nothing() -> None:
    """It is in the evidence; one that is left agrees with itself, and is unknown."""
    broken = EngineError("no power")
    (score,), _ = valued(RolloutValue(m=3), ["It is 391.", broken, "It is 391."])
    (alone,), _ = valued(RolloutValue(m=3), ["It is 391.", broken, broken])

    assert score.value == 1
    assert score.evidence["unknown"] == ("no power",)
    assert alone.value is None


def test_a_verifier_scores_the_rollouts() -> None:
    """Their mean; no answer leads nowhere, and an unknown score does not count."""
    scripted = ScriptedVerifier({"391": 1.0, "401": 0.2})
    replies = ["It is 391.", "It is 401.", "I give up", "It is 7."]
    (score,), outcome = valued(RolloutValue(m=4, verifier=scripted), replies)

    assert score.value == pytest.approx((1.0 + 0.2 + 0.0) / 3)
    assert outcome.usage.verifier_calls == 1 + 3


def test_several_prefixes_are_rolled_out_at_once() -> None:
    """Rollouts belong to their own candidate."""
    replies = ["It is 1.", "It is 1.", "It is 2.", "It is 3."]
    scores, _ = valued(RolloutValue(m=2), replies, count=2)

    assert [score.value for score in scores] == [1, 0.5]


def test_a_finished_candidate_is_scored_itself() -> None:
    """Nothing is left to draw; by agreement it is unscored."""
    model = FakeEngine(["It is 391.", "It is 401."], in_order=True)
    scripted = ScriptedVerifier({"391": 0.9, "401": 0.1})
    rolled = RolloutValue(verifier=scripted)
    outcome = ttc.solve(QUESTION, Sample(n=2) >> rolled >> Best(), model=model)
    alone = ttc.solve(QUESTION, Sample(n=2) >> RolloutValue() >> Best(), model=model)

    assert [c.scores["rollout_value"].value for c in outcome.candidates] == [0.9, 0.1]
    assert model.calls == 4
    assert alone.stopped_by == "no_finite_score"


def test_what_its_verifier_needs_is_asked_of_the_verifiers_own_role() -> None:
    """The policy need not be a reward model, and the reward model need not fork."""
    reward = OutcomeRewardModel(transform="sigmoid")
    model = FakeEngine("It is 391.")
    strategy = Sample(n=1) >> RolloutValue(verifier=reward) >> Best()
    with pytest.raises(GraphError, match="needs reward, which the engine fake lacks"):
        ttc.solve(QUESTION, strategy, model=model, models={"reward": model})
    with pytest.raises(GraphError, match="no model is bound to the role 'reward'"):
        ttc.solve(QUESTION, strategy, model=model)
    bound = FakeEngine("", rewards=lambda branch, row: {"good": 0.0})

    outcome = ttc.solve(QUESTION, strategy, model=model, models={"reward": bound})
    assert outcome.candidates[0].scores["rollout_value"].value == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"m": 0}, "m is a whole number"),
        ({"m": 1}, "one rollout agrees with itself"),
        ({"temperature": 0}, "4 rollouts at temperature 0 are one"),
        ({"verifier": OutcomeRewardModel()}, "a mean needs scores with bounds"),
    ],
)
def test_what_makes_no_mean_is_refused(options: dict[str, object], message: str) -> None:
    """Before there is a graph."""
    with pytest.raises(ValueError, match=message):
        RolloutValue(**options)  # type: ignore[arg-type]


def test_it_has_a_text_form() -> None:
    """With the verifier inside."""
    text = "sample(n=2) >> rollout_value(m=8, verifier=judge(scale=(0, 1))) >> best()"
    graph = Sample(n=2) >> RolloutValue(m=8, verifier=Judge(scale=(0, 1))) >> Best()

    assert parse(text) == graph
    assert RolloutValue(verifier=SelfVerify()).roles == {"policy"}


@pytest.mark.parametrize(
    "verifier",
    [
        Judge(rubric='It\'s "right", or not.', scale=(0, 5), samples=2, temperature=0.5),
        PairwiseJudge(role="critic"),
        Tournament(comparisons=4, temperature=1.0),
        SelfVerify(chains=2, max_tokens=64),
        OutcomeRewardModel(label="good", transform="softmax"),
        ProcessRewardModel(form="qwen", aggregate="product", delimiter="\n", system="Think."),
        RolloutValue(m=2, verifier=ProcessRewardModel(form="skywork", aggregate="last")),
    ],
    ids=lambda verifier: verifier.name,
)
def test_every_verifier_that_asks_models_survives_being_written(verifier: Verifier) -> None:
    """The text reads as an equal graph."""
    graph = Sample(n=2) >> verifier >> Best()

    assert parse(write(graph)) == graph
