"""The nodes of the Monte Carlo family, on fake models."""

from __future__ import annotations

import sys
from random import Random
from statistics import fmean
from typing import Any

import pytest

import ttc
from ttc import Budget, GraphError, Message, Node, NodeError, Outcome, Problem
from ttc.ports import Request
from ttc.strategies import (
    Action,
    AdaptiveBranchingMCTS,
    Best,
    BudgetGuidedMCTS,
    MonteCarloTreeSearch,
)
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.text_form import parse, write
from ttc.types import Candidate

STEPS = 3
"""Steps before an answer."""


def steps(request: Request) -> str:
    """Three steps of one digit each, and then an answer."""
    digit = Random(request.seed).randrange(10)
    is_last = request.branch.output.count("\n\n") == STEPS
    return f"The answer is {digit}." if is_last else f"So {digit}.\n\n"


def answer(request: Request) -> str:
    """A whole answer of one digit."""
    return f"The answer is {Random(request.seed).randrange(10)}."


def mean_digit(candidate: Candidate) -> float:
    """The more, the better."""
    digits = [int(letter) for letter in candidate.text if letter.isdigit()]
    return sum(digits) / (9 * len(digits))


CHECK = ScriptedVerifier(mean_digit, name="check")


def solved(strategy: Node, model: FakeEngine, **options: Any) -> Outcome:
    return ttc.solve("What is it?", strategy >> Best(), model=model, seed=0, **options)


@pytest.mark.statistical
@pytest.mark.parametrize("select", ["uct", "puct", "wu_uct"])
def test_a_search_finds_better_answers_as_it_goes_on(select: Any) -> None:
    """The last ten solutions of 160 steps against the first ten, over six seeds.

    A mean of 60 scores has a deviation of 0.021, and a difference of two of them 0.03: without any
    learning it would be 0.13 or more with a chance of 7e-6.
    """
    search = MonteCarloTreeSearch(
        CHECK, select=select, exploration_weight=0.05, backup="max", max_expansions=160
    )
    first, last = [], []
    for seed in range(6):
        outcome = ttc.solve("?", search >> Best(), model=FakeEngine(steps), seed=seed)
        scores = [candidate.scores["check"].value or 0.0 for candidate in outcome.candidates]
        first += scores[:10]
        last += scores[-10:]

    assert fmean(last) > fmean(first) + 0.13


def test_a_search_gives_whole_solutions_and_spends_what_it_may() -> None:
    outcome = solved(MonteCarloTreeSearch(CHECK, max_expansions=160), FakeEngine(steps))

    assert outcome.usage.calls == 160 >= outcome.usage.verifier_calls
    assert all(candidate.text.count("\n\n") == STEPS for candidate in outcome.candidates)


def test_a_budget_guided_search_fits_itself_to_the_budget_of_its_run() -> None:
    """It goes deep at the end, so that there are whole answers; with twice the budget, more."""
    few, many = (
        solved(BudgetGuidedMCTS(CHECK), FakeEngine(steps), budget=Budget(tokens=tokens))
        for tokens in (500, 1000)
    )

    assert few.usage.tokens <= 500 < many.usage.tokens <= 1000
    assert 0 < len(few.candidates) < len(many.candidates)


def test_a_budget_of_its_own_ends_a_budget_guided_search() -> None:
    """With 8 steps of at most 4 tokens in flight, it spends no more than 32 beyond."""
    outcome = solved(BudgetGuidedMCTS(CHECK, token_budget=200), FakeEngine(steps))

    assert 200 <= outcome.usage.tokens < 200 + 32 + 10


def test_a_budget_guided_search_without_a_budget_says_so() -> None:
    with pytest.raises(NodeError, match="it spends a token budget, and the run has none"):
        solved(BudgetGuidedMCTS(CHECK), FakeEngine(steps))


@pytest.mark.parametrize("variant", ["M", "gaussian", "beta"])
def test_adaptive_branching_writes_anew_and_revises(variant: Any) -> None:
    """The first eight are asked for before any is told, so they are new; later ones are both."""
    model = FakeEngine(answer)
    solved(AdaptiveBranchingMCTS(CHECK, variant=variant, max_expansions=64), model)
    shown = ["A check gave" in request.branch.text for request in model.requests]

    assert not any(shown[:8])
    assert {True, False} == set(shown[8:])


def test_a_revision_is_shown_the_answer_and_its_score() -> None:
    """As turns of the conversation."""
    model = FakeEngine(answer)
    solved(AdaptiveBranchingMCTS(CHECK, max_expansions=64), model)
    prompts = [r.branch.text for r in model.requests if "A check gave" in r.branch.text]

    user, assistant, wanted, *deeper = prompts[0].splitlines()
    digit = int(assistant.rpartition(" ")[2].strip("."))
    assert user == "user: What is it?"
    assert f"the score {digit / 9:.2f}, of at most 1" in wanted
    assert deeper == []


def revision_of(problem: Problem) -> Problem:
    """The problem that asks for another answer than 5, which had a score of 0.25."""
    search = AdaptiveBranchingMCTS(CHECK, revise="Again: {score}")
    score = ttc.Score.of(0.25, range=(0.0, 1.0))
    root = FakeEngine("").root(problem, "policy")
    return search._revision(Candidate(branch=root, text="5", scores={"check": score}), problem)


def test_after_a_raw_prompt_a_revision_follows_as_text() -> None:
    assert revision_of(Problem(prompt="2 + 3 = ")).prompt == "2 + 3 = 5\n\nAgain: 0.25\n\n"


def test_a_message_that_the_model_went_on_with_is_revised_as_a_whole() -> None:
    hello, begun = Message(role="user", content="Hi"), Message(role="assistant", content="It ")
    revision = revision_of(Problem(messages=(hello, begun), continue_last=True))

    assert [m.content for m in revision.messages] == ["Hi", "It 5", "Again: 0.25"]
    assert not revision.continue_last


def test_models_of_several_roles_write_one_tree() -> None:
    """The large one reads what the small one wrote as text, and the answers hold both."""
    small, large = FakeEngine(steps), FakeEngine(steps)
    actions = (Action("policy", 1.0), Action("large", 1.5))
    search = MonteCarloTreeSearch(
        CHECK, actions=actions, price_weight=0.01, exploration_weight=0.5, max_expansions=80
    )
    outcome = solved(search, small, models={"large": large})

    assert small.calls + large.calls == 80
    assert min(small.calls, large.calls) > 10
    assert {c.text.count("\n\n") for c in outcome.candidates} == {STEPS}
    assert any(r.branch.parent is not None and r.branch.call is None for r in large.requests)


def test_of_two_equal_models_the_cheap_one_writes() -> None:
    """A tenth of the price, and the same answers."""
    small, large = FakeEngine(answer), FakeEngine(answer)
    actions = (Action("policy", 1.0), Action("large", 10.0))
    search = AdaptiveBranchingMCTS(
        CHECK, actions=actions, price_weight=0.05, max_expansions=64, variant="gaussian"
    )
    solved(search, small, models={"large": large})

    assert small.calls > 50


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (MonteCarloTreeSearch(CHECK, select="ucb"), "select is one of uct, puct, wu_uct"),  # type: ignore[arg-type]
        (MonteCarloTreeSearch(CHECK, backup="sum"), "backup is one of mean, max"),  # type: ignore[arg-type]
        (MonteCarloTreeSearch(CHECK, widening_factor=0.5), "widening_factor lies between 1 and"),
        (MonteCarloTreeSearch(CHECK, widening_exponent=2), "widening_exponent lies between 0 and"),
        (MonteCarloTreeSearch(CHECK, root_noise=0.25), "root_noise would be ignored"),
        (MonteCarloTreeSearch(CHECK, select="wu_uct", virtual_loss=1.0), "leave out virtual_loss"),
        (MonteCarloTreeSearch(CHECK, price_weight=1.0), "prices that do not differ"),
        (MonteCarloTreeSearch(CHECK, max_expansions=0), "max_expansions is a whole number"),
        (BudgetGuidedMCTS(CHECK, token_budget=0), "token_budget is a whole number"),
        (BudgetGuidedMCTS(CHECK, depth_weight=-1.0), "depth_weight is a number of at least 0"),
        (AdaptiveBranchingMCTS(CHECK, variant="N"), "variant is one of M, gaussian, beta"),  # type: ignore[arg-type]
        (AdaptiveBranchingMCTS(CHECK, revise="{grade}"), "knows {score} alone"),
        (AdaptiveBranchingMCTS(CHECK, temperature=0.0), "at temperature 0 all answers"),
        (AdaptiveBranchingMCTS(CHECK, order="random"), "order is one of launch, arrival"),  # type: ignore[arg-type]
    ],
)
def test_options_that_make_no_sense_are_refused(node: Node, fault: str) -> None:
    with pytest.raises(GraphError, match=fault):
        (node >> Best()).validate()


@pytest.mark.parametrize(
    "node",
    [MonteCarloTreeSearch, BudgetGuidedMCTS, AdaptiveBranchingMCTS],
    ids=lambda n: n.__name__,
)
def test_scores_without_bounds_are_refused(node: Any) -> None:
    """Bonuses and priors are made for scores between 0 and 1."""
    unbounded = ScriptedVerifier(mean_digit, name="check", range=None)

    with pytest.raises(GraphError, match="needs scores between 0 and 1"):
        (node(unbounded) >> Best()).validate()


def test_without_numpy_the_mixed_model_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other variants do without."""
    monkeypatch.setitem(sys.modules, "numpy", None)

    with pytest.raises(GraphError, match=r"needs numpy: pip install .*\[local\].*gaussian or beta"):
        (AdaptiveBranchingMCTS(CHECK) >> Best()).validate()
    other = AdaptiveBranchingMCTS(CHECK, variant="beta", max_expansions=4)
    assert solved(other >> Best(), FakeEngine(answer)).candidates


def test_actions_with_prices_have_a_text_form() -> None:
    text = (
        "monte_carlo_tree_search(self_verify(), actions=(action('policy', 1.0), "
        "action('large', 10.0)), price_weight=0.02) >> best()"
    )
    graph = parse(text)

    assert parse(write(graph)) == graph
    assert graph.children()[0].roles == {"policy", "large"} | graph.children()[0].verifier.roles  # type: ignore[attr-defined]
