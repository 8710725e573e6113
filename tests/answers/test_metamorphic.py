"""Rewriting an answer without changing what it says."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.answers import answer_key, extract_answer
from ttc.types import AnswerFormat, FinishReason

FORMATS: tuple[AnswerFormat, ...] = ("auto", "boxed", "marked", "number", "text")
FINISHES: tuple[FinishReason | None, ...] = (None, "stop", "length", "cancelled", "error")
PIECES = st.sampled_from(
    [
        *(
            "\\boxed{",
            "}",
            "{",
            "</think>",
            "<think>",
            "The answer is ",
            "Answer:",
            "#### ",
            "\n",
            " ",
            ". ",
        ),
        *(
            "17",
            "-4",
            "1,234",
            "\\frac{1}{2}",
            "=",
            "**",
            "$",
            "?",
            " or ",
            " not ",
            "x",
            "is ",
            "%",
            "\\",
        ),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=25).map("".join))
NUMBERS = st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=1000)
DECIMALS = st.decimals(-(10**6), 10**6, places=3)


def _slash(number: Fraction) -> str:
    return f"{number.numerator}/{number.denominator}"


def _frac(number: Fraction) -> str:
    sign = "-" if number < 0 else ""
    return rf"{sign}\frac{{{abs(number.numerator)}}}{{{number.denominator}}}"


def _mixed(number: Fraction) -> str:
    whole, rest = divmod(abs(number), 1)
    sign = "-" if number < 0 else ""
    return f"{sign}{whole} {_slash(rest)}" if whole and rest else _slash(number)


def _doubled(number: Fraction) -> str:
    return f"{number.numerator * 2} / {number.denominator * 2}"


@pytest.mark.parametrize("spell", [_slash, _frac, _mixed, _doubled])
@given(number=NUMBERS)
@settings(max_examples=50, deadline=None)
def test_equal_numbers_share_a_key_in_every_form(
    spell: Callable[[Fraction], str], number: Fraction
) -> None:
    """The key of a number is its value."""
    assert answer_key(spell(number)) == ("number", number)


@pytest.mark.parametrize(
    "form", ["{}", "{:,}", "{}00", "${}", r"\${}", " {} ", "{}.", "${}$", r"\({}\)"]
)
@given(number=DECIMALS)
@settings(max_examples=25, deadline=None)
def test_decimals_keep_their_key_under_grouping_and_money(form: str, number: object) -> None:
    """Commas, currency, zeros at the end and delimiters are spelling."""
    assert answer_key(form.format(number)) == ("number", Fraction(str(number)))


@pytest.mark.parametrize(
    "wrap",
    [
        "  {}\n",
        "**{}**",
        "`{}`",
        "_{}_",
        "${}$",
        r"\({}\)",
        r"\[ {} \]",
        "{}.",
        r"\text{{{}}}",
        "{{{}}}",
    ],
)
@given(answer=st.from_regex(r"[A-Za-z]{1,8}( [A-Za-z]{1,8}){0,2}|-?[0-9]{1,9}", fullmatch=True))
@settings(max_examples=25, deadline=None)
def test_white_space_and_markup_leave_the_key(wrap: str, answer: str) -> None:
    """Layers around an answer are not part of it."""
    assert answer_key(wrap.format(answer)) == answer_key(answer)


@given(answer=st.from_regex(r"\\frac\{[1-9]\}\{[1-9][0-9]?\}", fullmatch=True))
@settings(max_examples=25, deadline=None)
def test_latex_variants_leave_the_key(answer: str) -> None:
    """Size and spacing commands are typography."""
    variants = [
        answer.replace("frac", "dfrac"),
        answer.replace("frac", "tfrac"),
        answer.replace("}{", "} {"),
    ]

    assert {answer_key(variant) for variant in variants} == {answer_key(answer)}


@pytest.mark.parametrize(
    "frame",
    [
        r"Hence \boxed{{{}}}.",
        "The answer is {}.",
        "Answer: **{}**",
        "work\n#### {}",
        "So 1 + 1 = {}",
        "{}",
    ],
)
@given(number=NUMBERS)
@settings(max_examples=25, deadline=None)
def test_every_way_to_state_a_number_gives_its_key(frame: str, number: Fraction) -> None:
    """Extraction and key together are the value, however it was stated."""
    text = str(number)

    assert answer_key(extract_answer(frame.format(text))) == ("number", number)


@given(text=TEXTS, format=st.sampled_from(FORMATS), finish_reason=st.sampled_from(FINISHES))
@settings(max_examples=400, deadline=None)
def test_extraction_never_raises_and_an_answer_has_a_key(
    text: str, format: AnswerFormat, finish_reason: FinishReason | None
) -> None:
    """Whatever a model writes, there is an answer with a key, or none."""
    answer = extract_answer(text, format, finish_reason=finish_reason)

    assert answer is None or (answer.strip() == answer and answer_key(answer) is not None)


@given(text=TEXTS, format=st.sampled_from(FORMATS))
@settings(max_examples=200, deadline=None)
def test_a_cut_never_changes_an_answer(text: str, format: AnswerFormat) -> None:
    """A text that was cut has the answer that it would have had, or none."""
    cut = extract_answer(text, format, finish_reason="length")

    assert cut is None or cut == extract_answer(text, format)
