"""Game of 24 is checked exactly, and never evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttc.benchmarks.game24 import Game24, game24, solves
from ttc.benchmarks.tasks import Reference
from ttc.errors import RecordError
from ttc.types import Branch, Candidate

NUMBERS = [1, 4, 8, 8]


@pytest.mark.parametrize(
    "formula",
    [
        "(8 / 4 + 1) * 8",
        "(8/4+1)*8 = 24",
        r"\left(\frac{8}{4} + 1\right) \times 8 = 24.",
        "8 \u00d7 (1 + 8 \u00f7 4)",
        "$(8 / 4 + 1) * 8$",
        "-(-8 / 4 - 1) * 8",
    ],
)
def test_a_formula_of_the_numbers_that_gives_24_is_right(formula: str) -> None:
    assert solves(formula, NUMBERS)


@pytest.mark.parametrize(
    "formula",
    [
        "8 + 8 + 8",  # other numbers
        "8 * 4 - 8",  # one number is missing
        "(8 / 4 + 1) * 8 * 1",  # one is used twice
        "(8 / 4 + 1) * 8 = 25",
        "8 / (4 - 4)",
        "24",
        "(8 / 4 + 1 * 8",
        "",
        "__import__('os')",
        "8 ** 8",
        "(" * 190,
        "9" * 201,
    ],
)
def test_anything_else_is_wrong(formula: str) -> None:
    assert not solves(formula, NUMBERS)


def test_a_quotient_is_no_rounded_number() -> None:
    assert solves("8 / (3 - 8 / 3)", [3, 3, 8, 8])
    assert not solves("8 / (3 - 2.6667)", [3, 3, 8, 8])


def test_a_candidate_without_an_answer_is_wrong() -> None:
    branch = Branch(text="no idea", token_ids=None)
    grade = Game24()(Reference(answer="1 4 8 8"), Candidate(branch=branch, status="finished"))
    assert grade.value == 0.0


def test_puzzles_are_read_in_the_file_s_order(tmp_path: Path) -> None:
    path = tmp_path / "puzzles.csv"
    path.write_text("Rank,Puzzles\n1,1 1 4 6\n2,1 4 8 8\n3,2 2 2 9\n")
    task = game24(path, first=1, num_problems=1)
    assert [item.reference.answer for item in task.items] == ["1 4 8 8"]
    assert "1 4 8 8" in task.problems[0].messages[0].content


def test_a_file_without_puzzles_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(RecordError, match="no column 'Puzzles'"):
        game24(path)
    with pytest.raises(RecordError, match="cannot be read"):
        game24(tmp_path / "missing.csv")


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        (b"Puzzles\n1 1 4 x\n", "line 2 holds no numbers, but '1 1 4 x'"),
        (b"Puzzles\n1 1 4 6\n\xe9\n", "is not in UTF-8"),
    ],
)
def test_what_is_no_puzzle_is_told_by_its_line(tmp_path: Path, table: bytes, fault: str) -> None:
    path = tmp_path / "puzzles.csv"
    path.write_bytes(table)
    with pytest.raises(RecordError, match=fault):
        game24(path)
