"""What went wrong in searches of others."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest

from tests.core.lab import solved
from tests.strategies.tree.lab import grown, tell
from tests.strategies.tree.world import check, thinker
from ttc import Budget, GraphError
from ttc.strategies import (
    Best,
    FixedLength,
    MonteCarloTreeSearch,
    ParticleFiltering,
    Rebase,
    Vote,
)
from ttc.strategies.tree.monte_carlo import MonteCarloPolicy
from ttc.strategies.tree.selection import Select, bonus


@pytest.mark.parametrize("select", ["uct", "puct", "wu_uct"])
def test_a_new_child_has_one_visit_and_its_own_mean(select: Select) -> None:
    """OR-03: no visit comes from nowhere, and nothing is divided by none."""
    policy = MonteCarloPolicy(select=select, simulate=False)
    state = grown(policy, (0, 0.4), running=(0,))

    assert state.tree[2].num_visits == 0
    assert state.tree[2].mean_value is None
    state = tell(policy, state, 0.5)
    assert (state.tree[2].num_visits, state.tree[2].mean_value) == (1, 0.5)
    assert (state.tree[0].num_visits, state.tree[0].mean_value) == (2, pytest.approx(0.45))
    assert policy.ask(state, 0)[1] is not None


def test_what_was_never_visited_goes_first() -> None:
    """OR-03: with UCT at once; with PUCT by its prior, which may be nought."""
    for select in ("uct", "wu_uct"):
        assert bonus(select, 0.5, 1, 0, 0.0) == math.inf
        assert bonus(select, 0.5, 0, 1, 0.0) == 0.0
    assert bonus("puct", 1.25, 1, 0, 1 / 3) > bonus("puct", 1.25, 1, 1, 1 / 3) > 0
    assert bonus("puct", 1.25, 0, 0, 0.0) == 0.0


@pytest.mark.parametrize("select", ["uct", "puct", "wu_uct"])
def test_a_search_of_one_step_works_and_one_of_none_is_refused(select: Select) -> None:
    """OR-03: budget 1, and budget 0."""

    def search(num: int) -> MonteCarloTreeSearch:
        return MonteCarloTreeSearch(check(), max_expansions=num, select=select)

    assert solved(search(1) >> Best(), "The answer is 1.").outcome.answer == "1"
    with pytest.raises(GraphError, match="max_expansions is a whole number of at least 1, not 0"):
        (search(0) >> Best()).validate()


def test_no_particle_can_be_changed_through_another() -> None:
    """Field defect 22: copies of one ancestor share their steps, which nobody can change."""
    search = ParticleFiltering(check(lambda c: 0.9), num_particles=4, resample_below=1.0)
    first, *others = solved(search >> Vote(weighted=True), thinker()).outcome.candidates
    before = [(c.text, c.branch.token_ids, dict(c.scores)) for c in others]

    assert others
    with pytest.raises(FrozenInstanceError):
        first.branch.text = "changed"  # type: ignore[misc]
    first.scores.clear()  # type: ignore[attr-defined]
    assert [(c.text, c.branch.token_ids, dict(c.scores)) for c in others] == before


def test_a_limit_holds_over_all_steps_of_a_deep_tree() -> None:
    """Field defect 26: what the steps above have spent counts, to the token."""
    search = Rebase(check(), width=2, max_steps=100, steps=FixedLength(4))
    run = solved(search >> Vote(), "on and on and on", budget=Budget(tokens=100))

    deepest = max(len(list(c.branch.lineage())) for c in run.outcome.candidates)
    assert deepest > 5
    assert 90 < run.outcome.usage.tokens <= 100
    assert run.outcome.stopped_by == "tokens"
