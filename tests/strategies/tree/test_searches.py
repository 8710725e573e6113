"""What every search does, whatever it decides by."""

import pytest

from tests.core.lab import seen, uneven, whole
from tests.strategies.tree.world import LETTERS, SEARCHES, check, searched, thinker, worth
from ttc import Budget, Candidate, EngineError
from ttc.ports import Request
from ttc.strategies import Delimiter, FixedLength
from ttc.testing import ScriptedVerifier

each = pytest.mark.parametrize("name", SEARCHES)
TIMINGS = [(1, 0.1), (4, uneven(1)), (None, uneven(2))]


@each
@pytest.mark.parametrize("window", [4, 64])
def test_the_tree_is_the_same_for_any_workers_and_any_latencies(name: str, window: int) -> None:
    """Down to the trace, as long as nothing in flight was pruned."""
    runs = [
        searched(name, thinker(failing=0.1), window=window, seed=3, pace=pace, concurrency=slots)
        for slots, pace in TIMINGS
    ]

    outcomes = [run.outcome for run in runs]
    same = seen if any(outcome.usage.tokens_cancelled for outcome in outcomes) else whole
    assert [same(outcome) for outcome in outcomes] == [same(outcomes[0])] * len(runs)
    assert not any(outcome.timing_dependent for outcome in outcomes)


@each
@pytest.mark.parametrize(
    "budget", [Budget(tokens=300), Budget(calls=9), Budget(verifier_calls=7)], ids=str
)
def test_a_limit_ends_a_search_at_the_same_place_whatever_the_timing(
    name: str, budget: Budget
) -> None:
    """And with the best that there was until then.

    A lookahead draws on the budget beside the steps: there the outcome depends on timing.
    """
    outcomes = [
        searched(
            name, steps=Delimiter(max_tokens=8), budget=budget, pace=pace, concurrency=slots
        ).outcome
        for slots, pace in TIMINGS
    ]

    if name == "lookahead":
        assert all(outcome.candidates for outcome in outcomes)
        return
    assert [seen(outcome) for outcome in outcomes] == [seen(outcomes[0])] * len(outcomes)
    assert outcomes[0].candidates
    assert [outcome.timing_dependent for outcome in outcomes] == [()] * len(outcomes)


@each
def test_another_window_may_be_another_search_and_says_nothing_of_timing(name: str) -> None:
    outcome = searched(name, window=2).outcome

    assert outcome.stopped_by == "completed"
    assert outcome.answer is not None


@each
def test_results_that_are_told_as_they_come_are_named(name: str) -> None:
    outcome = searched(name, order="arrival", pace=uneven(4)).outcome

    assert outcome.answer is not None
    assert outcome.timing_dependent == ("arrival order was asked for",)


@each
def test_a_verifier_that_knows_nothing_still_gives_an_answer(name: str) -> None:
    """Zero signal: unknown for all."""
    outcome = searched(name, verifier=check(lambda _: None)).outcome

    assert outcome.answer is not None
    assert all(c.status == "finished" for c in outcome.candidates)


@each
def test_equal_scores_are_decided_by_launch(name: str) -> None:
    first, second = (searched(name, verifier=check(lambda _: 0.5)).outcome for _ in range(2))

    assert first.answer is not None
    assert seen(first) == seen(second)


@each
def test_a_failing_child_does_not_fail_the_rest(name: str) -> None:
    """It is data; what it had spent is booked, which the laboratory checks to the token."""
    run = searched(name, thinker(failing=0.3), seed=1)

    assert run.outcome.answer is not None
    assert all(c.status == "finished" for c in run.outcome.candidates)


@each
def test_where_everything_fails_the_outcome_says_why(name: str) -> None:
    outcome = searched(name, EngineError("the engine is down")).outcome

    assert outcome.answer is None
    assert {c.error for c in outcome.candidates} == {"the engine is down"}


@each
def test_every_solution_is_given_once(name: str) -> None:
    """Few letters, so that equal steps are common: no copy votes twice."""
    outcome = searched(name, thinker(letters="ab")).outcome

    texts = [candidate.text for candidate in outcome.candidates]
    assert len(texts) == len(set(texts)) > 0


@each
def test_a_verifier_sees_the_whole_problem_and_the_steps_to_the_letter(name: str) -> None:
    """What is scored is what is kept, delimiters and all."""
    verifier = check()
    run = searched(name, verifier=verifier)

    kept = {c.text for c in run.outcome.candidates}
    assert kept <= {c.text for c in verifier.seen}
    assert all(text.count("\n\n") == 3 for text in kept)
    asked = {next(c.branch.lineage()).text for c in verifier.seen}
    assert asked == {run.engine.requests[0].branch.text}


@each
def test_a_step_goes_on_from_the_very_tokens_of_the_one_before(name: str) -> None:
    """Nothing is tokenised again: each request begins with tokens that a request has given."""
    run = searched(name)
    given = [c.branch for c in run.outcome.candidates]

    for branch in given:
        segments = list(branch.lineage())
        assert [s.finish_reason for s in segments] == [None] * (len(segments) - 1) + ["stop"]
        words = "".join(run.engine.said[t] for s in segments[1:] for t in s.token_ids or ())
        assert words == branch.output


@each
def test_a_step_that_was_cut_by_its_length_goes_on(name: str) -> None:
    """Length is no end of a solution."""
    outcome = searched(name, steps=FixedLength(2)).outcome

    assert outcome.candidates
    assert all(c.text.rstrip().endswith(".") for c in outcome.candidates if c.answer)


@each
def test_what_never_ends_is_truncated_after_the_most_steps(name: str) -> None:
    def endless(request: Request) -> str:
        return f"and {LETTERS[request.seed % 9]}\n\n"

    outcome = searched(name, endless).outcome

    assert {c.status for c in outcome.candidates} <= {"truncated"}
    assert outcome.stopped_by == "no_valid_answer"


@each
def test_a_limit_before_the_first_solution_leaves_the_best_trajectories(name: str) -> None:
    """They come as they are, truncated, the best of them first."""
    run = searched(name, budget=Budget(calls=5), steps=Delimiter(max_tokens=8))

    assert run.outcome.stopped_by == "calls"
    assert {c.status for c in run.outcome.candidates} == {"truncated"}
    values = [worth(c) for c in run.outcome.candidates]
    if name not in ("lookahead", "granular", "particles"):
        assert values == sorted(values, reverse=True)  # type: ignore[type-var]


@each
def test_a_deadline_gives_what_was_found_by_then(name: str) -> None:
    run = searched(name, pace=lambda r: 0.01 if r.seed % 3 else 9.0, budget=Budget(seconds=2.0))

    assert run.clock.now() <= 2.5
    assert run.outcome.stopped_by in ("seconds", "completed")


def test_an_unknown_score_is_no_middle_score() -> None:
    """Known scores win against it, however low."""

    def half_known(candidate: Candidate) -> float | None:
        return 0.01 if candidate.text.startswith(("a", "so")) else None

    verifier = ScriptedVerifier(half_known, name="check")
    kept = {c.text[0] for c in searched("beam", verifier=verifier).outcome.candidates}

    assert kept <= {"a", "s"}


@pytest.mark.parametrize("name", ["beam", "rebase", "best_first", "thoughts"])
def test_a_search_spends_a_tight_budget_to_its_last_steps(name: str) -> None:
    """A step is mostly far shorter than it may be, so little room is room for one more."""
    run = searched(name, "so " * 30 + "on.\n\n", budget=Budget(tokens=250))

    assert run.outcome.stopped_by == "tokens"
    assert run.outcome.usage.tokens > 250 - 32
