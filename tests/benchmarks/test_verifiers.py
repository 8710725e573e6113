"""The grading of a recorded pool."""

import json
import os
from pathlib import Path

import pytest

from ttc.benchmarks.verifiers import disagreements, grade_pool, main, reflexive, summary

DATA = Path(os.environ.get("TTC_DATA", Path(__file__).parents[3] / "shared" / "data"))


def data(name: str) -> Path:
    """A recorded file; it skips where there is none."""
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not there; set TTC_DATA to the folder of data")
    return DATA / name


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Two problems of three candidates each."""
    rows = [
        ("1/2", [("0.5", True, 0.1), (r"\frac12", False, 0.9), ("3", False, 0.5)]),
        ("10{,}000", [("9999", False, 2.0), ("9999.0", False, 1.0), ("10000", False, -1.0)]),
    ]
    path = tmp_path / "pool.jsonl"
    lines = [
        {
            "id": index,
            "gold": gold,
            "candidates": [
                {"text": rf"So \boxed{{{a}}}.", "answer": a, "correct": right, "reward": reward}
                for a, right, reward in given
            ],
        }
        for index, (gold, given) in enumerate(rows)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def test_every_measure_is_told_by_both_graders(pool: Path) -> None:
    """The majority joins equal answers, and the pool's compares texts."""
    assert summary(grade_pool(pool)) == {
        "mean accuracy": (0.5, pytest.approx(1 / 6)),
        "coverage": (1.0, 0.5),
        "best by reward": (0.5, 0.0),
        "majority": (0.5, 0.5),
    }


def test_every_disagreement_is_listed_with_its_reason(pool: Path) -> None:
    """And nothing else is."""
    found = disagreements(grade_pool(pool))

    assert [(one.id, one.candidate, one.correct) for one in found] == [
        ("0", 1, True),
        ("1", 2, True),
    ]
    assert str(found[1]) == (
        "problem 1, candidate 2: gold '10{,}000', ttc reads '10000' as right (equal: number and "
        "number), the pool '10000' as wrong"
    )


def test_the_result_is_a_file_in_the_house_form(pool: Path, tmp_path: Path) -> None:
    """With a row for each measure."""
    main([str(pool), "--json", str(tmp_path / "result.json")])

    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result["command"].startswith("python -m ttc.benchmarks.verifiers pool.jsonl")
    assert [row["name"] for row in result["rows"]][:5] == [
        "mean accuracy", "coverage", "best by reward", "majority", "disagreements",
    ]  # fmt: skip


def test_the_recorded_pool_is_graded_as_published_but_for_one_candidate() -> None:
    """The published grader does not read 10{,}000 as a number."""
    graded = grade_pool(data("pools/math100x8_reward.jsonl"))

    assert {name: round(pair[1], 2) for name, pair in summary(graded).items()} == {
        "mean accuracy": 0.91, "coverage": 0.96, "best by reward": 0.94, "majority": 0.93,
    }  # fmt: skip
    assert [(one.id, one.gold, one.answer) for one in disagreements(graded)] == [
        ("72", "10{,}000", "10000")
    ]


def test_every_reference_equals_itself() -> None:
    """Out of a box, as a model would state it; and few of them are mere texts."""
    wrong, kinds = reflexive(data("math500.jsonl"))

    assert wrong == []
    assert kinds["text"] == 5
    assert sum(kinds.values()) == 500
