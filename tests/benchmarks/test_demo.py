"""The demo, on a fake engine."""

import re

from ttc.benchmarks.demo import Progress, Row, run_demo
from ttc.ports import Request
from ttc.testing import FakeEngine
from ttc.types import Budget


def _engine() -> FakeEngine:
    """Greedy is off by one. Of its samples a third is right, and the wrong ones seldom agree."""

    def reply(request: Request) -> str:
        question = next(iter(request.branch.lineage())).text
        found = re.search(r"(\d) ([+-]) (\d) =", question)
        assert found is not None
        sign = 1 if found[2] == "+" else -1
        right = int(found[1]) + sign * int(found[3])
        is_greedy = request.sampling.temperature == 0
        wrong = 1 if is_greedy else request.seed % 50 + 1
        is_right = not is_greedy and request.seed % 3 == 0
        return f"The answer is {right if is_right else right + wrong}."

    return FakeEngine(reply)


def _demo() -> tuple[tuple[Row, ...], FakeEngine, list[Progress]]:
    engine = _engine()
    seen: list[Progress] = []
    return run_demo(engine, num_problems=5, n=8, seed=1, progress=seen.append), engine, seen


def test_the_rows_are_greedy_the_vote_and_the_oracle() -> None:
    """A vote beats greedy here, and nothing beats the oracle."""
    rows, _, _ = _demo()

    assert [row.name for row in rows] == [
        *("greedy", "self-consistency, n=8", "best of the same 8, by oracle"),
    ]
    assert [row.oracle for row in rows] == [False, False, True]
    assert rows[0].num_correct == 0 < rows[1].num_correct <= rows[2].num_correct
    assert {row.num_problems for row in rows} == {5}


def test_the_oracle_chooses_among_the_samples_of_the_vote() -> None:
    """It asks the engine for nothing more, and is charged for the same samples."""
    rows, engine, _ = _demo()

    assert engine.calls == 5 * (1 + 8)
    assert rows[2].tokens == rows[1].tokens
    assert rows[0].tokens < rows[1].tokens


def test_no_problem_spends_more_than_its_budget() -> None:
    """Where that is less than the samples could take, some are refused, and none is overrun."""
    rows = run_demo(_engine(), num_problems=5, n=8, budget=Budget(tokens=110), seed=1)

    assert all(row.most_tokens <= 110 for row in rows)


def test_a_row_knows_its_accuracy_and_interval() -> None:
    """Wilson, over problems."""
    row = Row(name="greedy", num_correct=5, num_problems=10, tokens=7, most_tokens=7, oracle=False)

    assert row.accuracy == 0.5
    assert row.interval.low < 0.5 < row.interval.high


def test_progress_counts_the_candidates_of_each_row() -> None:
    """From the first to the last."""
    _, _, seen = _demo()

    last = {progress.row: progress for progress in seen}
    assert [(p.done, p.total) for p in last.values()] == [(5, 5), (40, 40), (40, 40)]


def test_the_demo_is_a_function_of_its_seed() -> None:
    """The same rows again."""
    assert _demo()[0] == _demo()[0]
