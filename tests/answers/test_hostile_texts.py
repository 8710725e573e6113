"""What a hostile or careless text may do to extraction: nothing."""

import ast
import re
import time
from pathlib import Path

import pytest

import ttc.answers
from ttc.answers import answer_key, extract_answer
from ttc.types import AnswerFormat

FORMATS: tuple[AnswerFormat, ...] = ("auto", "number")
VOCABULARY = {
    *("option", "choice", "code", "json"),
    *("answer", "boxed", "fbox", "think", "text", "number", "marked", "auto", "stop"),
    *("are", "was", "were", "equal", "equals", "makes", "gives", "gets", "yields", "becomes"),
    *("not", "never", "cannot", "unable", "unsure", "sorry", "and"),
    *("because", "since", "which", "where", "step", "part", "case"),
    *("indeed", "exactly", "simply", "just", "thus", "therefore", "about", "approximately", "the"),
    *("hundred", "thousand", "million", "billion", "trillion", "dozen"),
    *(
        "frac",
        "left",
        "right",
        "displaystyle",
        "textbf",
        "textit",
        "mathrm",
        "mathbf",
        "mbox",
        "quad",
    ),
}


@pytest.mark.parametrize(
    "unit",
    [
        *("1", "1,", "1 ", "1/", "1 1/", "1\\,", "{", "}", "\\boxed{", "\\frac{1}", "$", "\\", "."),
        *(
            "answer is ",
            "answer:\n",
            "#### 1 ",
            "is 1. ",
            "x=1. ",
            "or =1. ",
            "= ",
            "not ",
            "\n",
            " ",
        ),
        *("- ", "*", "<think>", "</think>", ", a", "#", "1e"),
    ],
)
def test_the_work_is_linear_in_the_text(unit: str) -> None:
    """A hundred kilobytes of any pattern take a moment; backtracking would take minutes."""
    assert _seconds_of(unit, size=100_000) < 5


@pytest.mark.parametrize("unit", ["1,", "\\boxed{", "answer is 1 ", "*"])
def test_a_megabyte_is_read_in_seconds(unit: str) -> None:
    """The size of a text changes the time in proportion."""
    assert _seconds_of(unit, size=1_000_000) < 20


def test_the_extractor_knows_no_answers() -> None:
    """Field defect 41: its patterns hold words of grammar and markup, and no literal number."""
    folder = Path(ttc.answers.__file__).parent
    paths = [folder / name for name in ("extraction.py", "blocks.py", "numbers.py")]
    texts = [text for path in paths for text in _literals(path.read_text("utf-8"))]
    words = {word for text in texts for word in re.findall(r"(?<![A-Za-z\\])[A-Za-z]{3,}", text)}

    assert len(texts) > 20
    assert words - VOCABULARY == set()
    assert [text for text in texts if re.search(r"[0-9]", text)] == []


def _seconds_of(unit: str, *, size: int) -> float:
    text = (unit * size)[:size] + "x"
    started = time.process_time()
    for format in FORMATS:
        answer_key(extract_answer(text, format))
    answer_key(text)
    return time.process_time() - started


def _literals(source: str) -> list[str]:
    """String constants but docstrings and exported names, less classes, quantifiers, escapes."""
    tree = ast.parse(source)
    docstrings = [node for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    lists = [node for node in ast.walk(tree) if isinstance(node, ast.List)]
    skipped = {id(part) for node in [*docstrings, *lists] for part in ast.walk(node)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [c.value for c in constants if isinstance(c.value, str) and id(c) not in skipped]
    noise = r"\[[^\]]*\]|\{[0-9,]+\}|\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\[0-9]"
    return [re.sub(noise, " ", text) for text in texts]
