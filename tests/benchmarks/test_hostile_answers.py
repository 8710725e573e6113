"""What models write is never run by a grader."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttc.benchmarks.game24 import Game24
from ttc.benchmarks.math_equal import MathEqual
from ttc.benchmarks.tasks import ExactAnswer, Grader, Reference
from ttc.testing import finished

CODE = (
    "__import__('pathlib').Path({mark!r}).touch()",
    "(lambda: open({mark!r}, 'w').close())()",
    "[c for c in ().__class__.__base__.__subclasses__()] + [open({mark!r}, 'w')]",
    "24 if open({mark!r}, 'w') else 0",
    "\\boxed{{__import__('os').system('touch ' + {mark!r})}}",
)


@pytest.mark.parametrize("grader", [ExactAnswer(text=True), MathEqual(text=True), Game24()])
@pytest.mark.parametrize("code", CODE)
def test_code_in_an_answer_is_a_wrong_answer_and_is_not_run(
    grader: Grader, code: str, tmp_path: Path
) -> None:
    """Field defect 47: nothing that a model wrote is evaluated by a scorer."""
    mark = tmp_path / "ran"
    answer = code.format(mark=str(mark))
    grade = grader(Reference(answer="4 6 1 1"), finished(answer, text=answer))

    assert grade.value in (0.0, None)
    assert not mark.exists()
