"""The replay engine: what a pool gives, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.pools.test_pool import completion, failed
from ttc import Budget, GraphError, Problem, RecordError, Sampling
from ttc.engine.replay import ReplayEngine
from ttc.graph import Node
from ttc.pools import Pool, score, write
from ttc.strategies import Best, Sample, Vote
from ttc.verifiers import Recorded

ANSWERS = ("1", "2", "2", "3")
POOL = Pool(
    completion("p", index, f"So the answer is {answer}.", num_tokens=5, finish_reason="stop")
    for index, answer in enumerate(ANSWERS)
)


def solve(strategy: Node | str, pool: Pool = POOL, **more: Any) -> ttc.Outcome:
    """What a strategy comes to on a pool."""
    return ttc.solve(pool.problems[0], strategy, model=ReplayEngine(pool), seed=0, **more)


def test_a_strategy_draws_in_recorded_order_without_replacement() -> None:
    outcome = solve("sample(n=4) >> vote()")

    assert [c.answer for c in outcome.candidates] == list(ANSWERS)
    assert (outcome.answer, outcome.confidence) == ("2", 0.5)
    assert outcome.usage.tokens == 4 * 5


def test_each_run_draws_from_the_first_on() -> None:
    engine = ReplayEngine(POOL)
    outcomes = [
        ttc.solve(POOL.problems[0], "sample(n=2) >> vote()", model=engine, seed=s) for s in (0, 1)
    ]

    assert [[c.answer for c in o.candidates] for o in outcomes] == [["1", "2"]] * 2


def test_a_later_stage_draws_what_an_earlier_one_left() -> None:
    outcome = solve("cascade(sample(n=2) >> vote(), sample(n=2) >> vote(), accept=confidence(0.9))")

    assert sorted(c.answer or "" for c in outcome.candidates) == ["1", "2", "2", "3"]
    assert outcome.usage.calls == 4


def test_a_stop_is_charged_what_was_drawn() -> None:
    outcome = solve("sample(n=4, ahead=1) >> vote(stop=cannot_be_overtaken())")

    assert outcome.usage.tokens == 5 * outcome.usage.calls


def test_a_completion_that_is_too_long_is_cut_on_the_token_clock() -> None:
    """It is truncated, and charged as many tokens as it was allowed."""
    outcome = solve("sample(n=4, max_tokens=3) >> vote()")

    assert [c.status for c in outcome.candidates] == ["truncated"] * 4
    assert outcome.usage.tokens == 4 * 3
    assert outcome.answer is None


def test_a_budget_holds_on_a_pool() -> None:
    outcome = solve("sample(n=4, max_tokens=5) >> vote()", budget=Budget(tokens=12))

    assert outcome.usage.tokens <= 12
    assert outcome.stopped_by == "tokens"


def test_recorded_scores_stand_for_their_verifier() -> None:
    pool = score(POOL, "reward", {("p", i): value for i, value in enumerate((9, 2, None, 4))})

    outcome = solve(Sample(n=4) >> Recorded(pool, "reward") >> Best(), pool)

    assert outcome.answer == "1"
    assert [c.scores["reward"].value for c in outcome.candidates] == [9, 2, 2, 4], "equal texts"


def test_many_problems_run_on_one_pool(tmp_path: Path) -> None:
    pool = Pool(
        [*POOL, *(replace(completion("q", i, "The answer is 7."), num_tokens=4) for i in (0, 1))]
    )
    write(tmp_path / "pool.jsonl", pool)

    outcomes = ttc.solve_many(
        pool.problems, "sample(n=2) >> vote()", model=str(tmp_path / "pool.jsonl"), seed=0
    )

    assert [outcome.answer for outcome in outcomes] == ["1", "7"]


def test_a_recorded_failure_is_a_failed_candidate() -> None:
    outcome = solve("sample(n=2) >> vote()", Pool([failed("p", 0), *list(POOL)[1:]]))

    assert [c.status for c in outcome.candidates] == ["failed", "finished"]
    assert outcome.candidates[0].error == "it broke"


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("sample(n=5) >> vote()", "the pool holds 4 completions of problem 'p', and one more"),
        ('sample(n=2, max_tokens=3, tail=tail(cue="So:")) >> vote()', "does not go on with 'So:'"),
        ('sample(n=2, until=("x",)) >> vote()', "was drawn without until="),
    ],
)
def test_what_a_pool_lacks_is_refused_by_name(strategy: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        solve(strategy)


def test_other_sampling_is_refused() -> None:
    pool = Pool(replace(c, sampling=Sampling(temperature=0.8)) for c in POOL)

    with pytest.raises(RecordError, match=r"drawn with temperature=0\.8, and temperature=1\.0 is"):
        solve("sample(n=2) >> vote()", pool)
    assert solve("sample(n=2, temperature=0.8) >> vote()", pool).usage.calls == 2


def test_other_problems_are_refused() -> None:
    engine = ReplayEngine(POOL)

    with pytest.raises(RecordError, match="holds no problem 'x'; it holds 1 others"):
        ttc.solve(Problem.ask("?", id="x"), "greedy()", model=engine)
    with pytest.raises(RecordError, match="asked something else as problem 'p'"):
        ttc.solve(Problem.ask("other", id="p"), "greedy()", model=engine)
    assert ttc.solve(Problem.ask("p"), Sample() >> Vote(), model=engine).answer == "1"


@pytest.mark.parametrize("allocator", [None, "greedy_gain"])
def test_a_problem_that_a_pool_lacks_leaves_the_others(allocator: str | None) -> None:
    """Its outcome holds the error, and nothing was spent on it."""
    outcomes = ttc.solve_many(
        [Problem.ask("?", id="x"), *POOL.problems],
        "sample(n=2, max_tokens=9) >> vote()",
        model=ReplayEngine(POOL),
        budget=Budget(tokens=99),
        allocator=allocator,
        seed=0,
    )

    assert "the pool holds no problem 'x'" in str(outcomes[0].error)
    assert (outcomes[0].usage.calls, outcomes[0].stopped_by) == (0, "error")
    assert outcomes[1].answer is not None


@pytest.mark.parametrize("allocator", ["uniform", "greedy_gain", "bandit"])
def test_a_problem_whose_completions_are_used_up_keeps_its_answer(allocator: str) -> None:
    """An allocator gives as many as there are; what was drawn stands, and the others go on."""
    others = [replace(completion("q", i, "It is 7."), num_tokens=4) for i in range(40)]
    pool = Pool([*POOL, *others])
    outcomes = ttc.solve_many(
        pool.problems,
        "sample(n=40, ahead=4, max_tokens=9) >> vote()",
        model=ReplayEngine(pool),
        budget=Budget(tokens=900),
        allocator=allocator,
        seed=0,
    )

    assert [outcome.answer for outcome in outcomes] == ["2", "7"]
    assert outcomes[0].stopped_by == "pool"
    assert "the pool holds 4 completions of problem 'p'" in str(outcomes[0].refusal)
    assert (outcomes[0].usage.calls, outcomes[0].usage.tokens) == (4, 20)
    assert outcomes[1].usage.calls > 4
    assert not outcomes[0].timing_dependent


def test_samples_without_a_number_end_with_the_pool() -> None:
    outcome = solve("sample(n='budget', ahead=3) >> vote()", budget=Budget(tokens=999_999))

    assert (outcome.answer, outcome.stopped_by, outcome.usage.calls) == ("2", "pool", 4)


def test_a_length_that_nobody_recorded_is_refused() -> None:
    """Nothing could be charged for it."""
    pool = Pool(replace(c, num_tokens=None) for c in POOL)

    with pytest.raises(RecordError, match="does not tell how many tokens p#0 has"):
        solve("sample(n=2) >> vote()", pool)


def test_more_tokens_than_were_allowed_are_refused() -> None:
    """What was cut might have gone on."""
    pool = Pool(replace(c, finish_reason="length") for c in POOL)

    with pytest.raises(RecordError, match="p#0 was cut after 5 tokens, and 512 are asked for"):
        solve("sample(n=2) >> vote()", pool)
    assert solve("sample(n=2, max_tokens=5) >> vote()", pool).usage.tokens == 10


def test_log_probabilities_are_there_if_all_have_them() -> None:
    graph = "sample(n=2) >> sequence_probability() >> best()"
    with pytest.raises(GraphError, match="logprobs"):
        solve(graph)

    pool = Pool(replace(c, logprobs=(-0.1,) * 5) for c in POOL)
    assert solve(graph, pool).answer == "1"


def test_a_run_on_a_pool_needs_no_journal(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="a run on it has no journal"):
        solve("sample(n=2) >> vote()", journal=tmp_path / "run")


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(RecordError, match="no column 'reward'; it has none"):
        Recorded(POOL, "reward")
