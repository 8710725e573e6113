"""What the completions of a pool come to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pools.test_pool import completion, failed
from ttc import Problem, RecordError
from ttc.benchmarks.data import task_named
from ttc.benchmarks.files import read_task
from ttc.benchmarks.metrics import best_of_k, maj_at_k, pass_at_k
from ttc.benchmarks.pools import estimates, graded
from ttc.benchmarks.tasks import ExactAnswer, Item, Reference, Task
from ttc.pools import Pool, score

TASK = Task(
    name="sums",
    items=tuple(Item(Problem.ask(p, id=p), Reference(answer="2")) for p in "pq"),
    grader=ExactAnswer(),
)


def pool(*answers: str) -> Pool:
    """Two problems with the same answers."""
    return Pool(
        completion(p, i, f"The answer is {a}.") for p in "pq" for i, a in enumerate(answers)
    )


def test_estimators_are_means_over_problems() -> None:
    scores = (0.1, 0.9, 0.5, 0.2)
    made = score(
        pool("2", "1", "2", "3"),
        "s",
        {(p, i): value for p in "pq" for i, value in enumerate(scores)},
    )

    found = {row.name: row.value for row in estimates(made, TASK, [1, 2, 4], score="s")}

    right = [True, False, True, False]
    assert found["accuracy of the completed"] == found["pass@1"] == 0.5
    assert found["coverage"] == 1.0
    assert found["pass@2"] == pytest.approx(pass_at_k(2, 4, 2))
    assert found["maj@2"] == pytest.approx(maj_at_k(["2", "1", "2", "3"], right, 2))
    assert found["best-of-2 by s"] == pytest.approx(best_of_k(scores, right, 2))
    assert found["best-of-4 by s"] == 0.0
    assert "maj@4" not in found, "it needs eight completions"


def test_failed_completions_are_wrong_and_are_told_apart() -> None:
    """BK-10: seven of ten are completed; what the others had written is not graded."""
    made = Pool(
        failed("p", i) if i in (2, 5, 8) else completion("p", i, "The answer is 2.")
        for i in range(10)
    )

    found = {row.name: row.value for row in estimates(made, TASK, [])}

    assert found["accuracy, failed ones wrong"] == 0.7
    assert found["accuracy of the completed"] == 1.0


def test_an_unknown_score_is_chosen_last() -> None:
    made = score(pool("2", "1"), "s", {(p, i): v for p in "pq" for i, v in enumerate((-5.0, None))})

    found = {row.name: row.value for row in estimates(made, TASK, [2], score="s")}

    assert found["best-of-2 by s"] == 1.0


def test_a_pool_of_other_problems_is_refused() -> None:
    with pytest.raises(RecordError, match="holds no problem of the task 'sums'"):
        graded(Pool([completion("x")]), TASK)


def test_files_of_problems_are_tasks(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    rows = [
        {"question": "1 + 1?", "answer": "It is two.\n#### 2"},
        {"unique_id": "b", "problem": "2 + 1?", "answer": "3"},
        {"id": 7, "prompt": "1 + 0 ="},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    task = task_named(str(path))

    assert [problem.id for problem in task.problems] == ["0", "b", "7"]
    assert [item.reference.answer for item in task.items] == ["2", "3", ""]
    assert task.problems[2].prompt == "1 + 0 ="
    assert len(task_named(f"{path}[:2]").items) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no problems"),
        ("{", "line 1 is no JSON"),
        ("[]", "line 1 is no JSON object"),
        ('{"a": 1}', "line 1 holds no problem"),
        ('{"id": 1, "prompt": "a"}\n{"id": 1, "prompt": "b"}', "need ids that tell them apart"),
    ],
)
def test_a_file_that_is_no_task_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "task.jsonl").write_text(content, encoding="utf-8")

    with pytest.raises(RecordError, match=message):
        read_task(tmp_path / "task.jsonl")


def test_an_unknown_task_is_told_with_those_that_there_are() -> None:
    with pytest.raises(
        RecordError, match="'sums' is no file, and none of the tasks; there is chain_sum"
    ):
        task_named("sums")
