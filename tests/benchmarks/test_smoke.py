"""The smoke table counts everything, goes on where it was, and says what it could have shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ttc.benchmarks.metrics import detectable_difference
from ttc.benchmarks.smoke import Cell, run_cell, tasks_in
from ttc.benchmarks.tasks import ExactAnswer, Item, Reference, Task
from ttc.testing import FakeEngine
from ttc.types import Problem

TASK = Task(
    name="sums",
    items=tuple(
        Item(Problem.ask(f"What is {i} + 1?", id=f"p{i}"), Reference(answer=str(i + 1)))
        for i in range(4)
    ),
    grader=ExactAnswer(),
)


def test_a_cell_grades_every_problem_and_counts_its_tokens() -> None:
    engine = FakeEngine(["The answer is 2."])
    cell = run_cell(TASK, "sample(n=2, max_tokens=16) >> vote()", 200, engine, seed=0)
    assert cell.grades == (0.0, 1.0, 0.0, 0.0)
    assert all(0 < tokens <= 200 for tokens in cell.tokens)


def test_a_row_gives_back_its_cell() -> None:
    cell = Cell(task="t", strategy="greedy()", budget=9, grades=(1.0, 0.0), tokens=(3, 4))
    row = json.loads(json.dumps(cell.row(cell, seed=0)))
    assert Cell.of_row(row) == cell
    assert (row["gain"], row["most_tokens"]) == (0.0, 4)


def test_few_problems_show_large_differences_only() -> None:
    few, many = [1.0, 0.0] * 5, [1.0, 0.0] * 500
    none = [0.0] * 1000
    assert detectable_difference(few, none[:10]) == pytest.approx(0.467, abs=0.001)
    assert detectable_difference(many, none) == pytest.approx(0.0443, abs=0.001)
    assert detectable_difference(none[:50], none[:50]) == pytest.approx(0.056, abs=0.001)


def test_tasks_ask_for_the_form_of_their_answers(tmp_path: Path) -> None:
    (tmp_path / "gsm8k_test.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    (tmp_path / "game24.csv").write_text("Puzzles\n1 4 8 8\n")
    makers = tasks_in(tmp_path, 1)
    assert "boxed" in makers["gsm8k"]().problems[0].messages[0].content
    assert makers["game24"]().problems[0].answer_format == "marked"
    assert "```python" in makers["human_eval"]().problems[0].messages[0].content
