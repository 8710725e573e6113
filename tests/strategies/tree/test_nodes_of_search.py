"""The nodes of searches: what they refuse, what they may cost, and what is given to selectors."""

from __future__ import annotations

from typing import Any

import pytest

import ttc
from tests.core.lab import solved
from tests.strategies.tree.world import SEARCHES, check, thinker
from ttc import GraphError
from ttc.ports import Request
from ttc.strategies import (
    AStar,
    BeamSearch,
    Best,
    Delimiter,
    ParticleFiltering,
    Rebase,
    Sample,
    TreeOfThoughts,
    Vote,
)
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Branch
from ttc.verifiers import MeanLogprob, ProcessRewardModel, Rank, SelfVerify


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (BeamSearch(check(), num_beams=0), "num_beams is a whole number of at least 1, not 0"),
        (BeamSearch(check(), window=True), "window is a whole number of at least 1, not True"),
        (BeamSearch(check(), lookahead_steps=-1), "lookahead_steps is a whole number of at least"),
        (BeamSearch(check(), steps="x"), "steps='x' is no rule"),  # type: ignore[arg-type]
        (BeamSearch(check(), order="late"), "order is launch or arrival, not 'late'"),  # type: ignore[arg-type]
        (BeamSearch(check(), temperature=0.0), "at temperature 0 all children of a step are equal"),
        (BeamSearch(check(), temperature=-1.0), "temperature is finite and at least 0"),
        (BeamSearch(check(), role=""), "role is the name of a model's role"),
        (
            BeamSearch(Rank(check())),
            "rank_check scores candidates beside each other",
        ),
        (AStar(MeanLogprob()), "the score 'mean_logprob' has the range None, and a loss needs"),
        (ParticleFiltering(MeanLogprob()), "the range None, and odds need one from 0 to 1"),
        (ParticleFiltering(check(), target="all"), "target is product or final, not 'all'"),  # type: ignore[arg-type]
        (ParticleFiltering(check(), resample_below=2.0), "resample_below lies in 0 to 1, not 2.0"),
        (ParticleFiltering(check(), weight_temperature=0.0), "weight_temperature is finite and"),
        (Rebase(check(), balance_temperature=0.0), "balance_temperature is finite and above 0"),
        (Rebase(check(), rounding="up"), "rounding is largest_remainder or ceil, not 'up'"),  # type: ignore[arg-type]
        (TreeOfThoughts(check(), search="both"), "search is breadth_first or depth_first"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_spent(node: Any, fault: str) -> None:
    with pytest.raises(GraphError, match=fault):
        (node >> Vote()).validate()


def test_a_search_that_does_not_stand_first_is_refused() -> None:
    with pytest.raises(GraphError, match="takes open candidates and is given finished ones"):
        (Sample(n=2) >> BeamSearch(check()) >> Vote()).validate()


def test_what_is_no_verifier_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="'judge' is no verifier"):
        BeamSearch("judge")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_never_costs_more_than_its_worst_case(name: str) -> None:
    """Of steps that are as long as they may be, and never end."""
    graph = SEARCHES[name](check(), max_steps=3, steps=Delimiter(max_tokens=6)) >> Vote()
    run = solved(graph, lambda request: f"no end {request.seed} " * 9)
    bound = graph.worst_case(run.outcome.problem, run.engine)

    usage = run.outcome.usage
    for resource in ("tokens", "calls", "verifier_calls"):
        most = getattr(bound, resource)
        assert most is not None
        assert 0 < getattr(usage, resource) <= most
    assert len(run.outcome.candidates) <= (graph.parts[0].most_given or 0)  # type: ignore[attr-defined]


def test_what_a_verifier_asks_is_bounded_where_lengths_are() -> None:
    graph = BeamSearch(SelfVerify()) >> Vote()
    known, unknown = (
        graph.worst_case(ttc.Problem.ask("q"), FakeEngine(script)).tokens
        for script in ("so", lambda _: "so")
    )

    assert unknown is None
    assert known is not None


def test_roles_and_needs_are_those_of_the_steps_and_of_the_verifier() -> None:
    graph = BeamSearch(SelfVerify(role="judge"), role="draft") >> Vote()
    engine = FakeEngine(thinker())

    with pytest.raises(GraphError, match="no model is bound to the role 'judge'"):
        graph.validate({"draft": engine})
    models = {"draft": engine, "judge": FakeEngine("so")}
    outcome = ttc.solve("q", graph, model=FakeEngine("unasked"), models=models, seed=0)
    assert outcome.usage_by_role["draft"].calls > 0
    assert outcome.usage_by_role["judge"].calls > 0


def test_the_expression_of_the_design_runs() -> None:
    """Scores weigh votes with nothing between."""
    graph = BeamSearch(num_beams=4, beam_width=4, verifier=SelfVerify()) >> Vote(weighted=True)
    outcome = ttc.solve("q", graph, model=FakeEngine(thinker()), seed=0)

    assert outcome.answer is not None
    assert all(set(c.scores) == {"self_verify"} for c in outcome.candidates)


def test_particles_carry_their_weight_as_their_score() -> None:
    graph = ParticleFiltering(check(), num_particles=6) >> Vote(weighted=True)
    outcome = solved(graph, thinker()).outcome

    weights = [c.scores["particle_filtering"].value or 0.0 for c in outcome.candidates]
    assert sum(weights) == pytest.approx(1.0)
    assert all(0 < c.scores["particle_filtering"].evidence["effective"][0] <= 6
               for c in outcome.candidates)  # fmt: skip


@pytest.mark.parametrize(
    ("aggregate", "answer"), [("last", "2"), ("min", "1"), ("mean", "3"), ("product", "1")]
)
def test_the_winner_is_chosen_by_the_aggregate_that_is_set(aggregate: Any, answer: str) -> None:
    """Each way from steps to one score prefers another solution."""
    steps = {"1": [0.0, 0.0], "2": [-3.0, 4.0], "3": [-1.2, 3.5]}

    def reply(request: Request) -> str:
        if request.branch.parent is None:
            return f"start {1 + int(request.call.rpartition('#')[2]) % 3}\n"
        return f"The answer is {request.branch.output.split()[1]}."

    def reward(branch: Branch, row: int) -> dict[str, float]:
        kind = branch.output.split()[1] if "start" in branch.output else "1"
        first = row < branch.num_tokens - 1
        return {"value": steps[kind][0 if first else 1]}

    verifier = ProcessRewardModel(form="skywork", aggregate=aggregate)
    graph = BeamSearch(verifier, num_beams=3, beam_width=1, steps=Delimiter("\n")) >> Best()
    outcome = ttc.solve(
        "q", graph, model=FakeEngine(reply), models={"reward": FakeEngine("", rewards=reward)},
        seed=0,
    )  # fmt: skip

    assert {c.answer for c in outcome.candidates} == {"1", "2", "3"}
    assert outcome.answer == answer


def test_three_finished_beams_are_three_votes() -> None:
    """However many were asked for: no copy fills a place."""

    def reply(request: Request) -> str:
        return f"The answer is {min(3, int(request.call.rpartition('#')[2]))}."

    outcome = solved(BeamSearch(check(), num_beams=2, beam_width=2) >> Vote(), reply).outcome

    assert [c.answer for c in outcome.candidates] == ["1", "2", "3"]
    assert outcome.confidence == pytest.approx(1 / 3)


def test_a_foreign_random_call_changes_nothing() -> None:
    """No search reads the state of a global generator."""
    import random

    def reply(request: Request) -> str:
        random.random()
        said = thinker()(request)
        assert isinstance(said, str)
        return said

    for name in ("particles", "beam"):
        graph = SEARCHES[name](ScriptedVerifier(lambda c: len(c.text) % 7 / 7)) >> Vote()
        texts = []
        for seed in (1, 2):
            random.seed(seed)
            texts.append([c.text for c in solved(graph, reply).outcome.candidates])
        assert texts[0] == texts[1]
