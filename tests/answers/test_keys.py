"""When two answers are the same."""

import time
import tracemalloc
from fractions import Fraction

import pytest

from ttc.answers import answer_key
from ttc.answers.algebra import MAX_DIGITS


def test_equivalent_forms_share_a_key() -> None:
    """VO-02, field defect 5: raw text would split the vote for one half."""
    keys = [answer_key(a) for a in ("0.5", r"\frac{1}{2}", "3", "1/2", "3", r"50\%")]

    assert keys == [("number", Fraction(1, 2))] * 2 + [
        ("number", Fraction(3)),
        ("number", Fraction(1, 2)),
        ("number", Fraction(3)),
        ("number", Fraction(1, 2)),
    ]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (r"50\%", "50%", True),
        (r"50\%", "0.5", True),
        (r"50\%", r"\frac12", True),
        (r"50\%", "50", False),
        ("0.5", "50", False),
        (r"12.5\%", "1/8", True),
    ],
)
def test_a_percent_is_a_number_and_never_its_figure(first: str, second: str, same: bool) -> None:
    """EQ-02: votes for 0.5 and for 50 do not merge through 50%."""
    assert (answer_key(first) == answer_key(second)) is same


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2 2/3", "8/3", True),
        ("2 2/3", "2", False),
        ("2 2/3", "22/3", False),
        ("4 10/3", "10", False),
        ("4 10/3", "4", False),
        (r"2\frac{1}{2}", "2.5", True),
        ("-3 1/4", "-13/4", True),
        (r"-3\frac14", "-2.75", False),
    ],
)
def test_a_mixed_number_is_read_whole_or_not_at_all(first: str, second: str, same: bool) -> None:
    """EQ-03: the sign stands before the whole, and a part of 1 or more makes no number."""
    assert (answer_key(first) == answer_key(second)) is same


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("12,345", "12345", True),
        ("1{,}234", "1234", True),
        (r"1\,234", "1234", True),
        ("(1,234)", "1234", False),
        ("1, 234", "1234", False),
        ("12,34", "1234", False),
        ("0,123", "123", False),
        ("1,234,567.50", "1234567.5", True),
    ],
)
def test_a_comma_groups_exactly_three_digits_or_makes_a_list(
    first: str, second: str, same: bool
) -> None:
    """EQ-04: grouping, list and pair stay apart."""
    assert (answer_key(first) == answer_key(second)) is same


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (r"\frac34", "0.75", True),
        (r"\frac1{2}", "1/2", True),
        (r"\frac{1}2", "1/2", True),
        (r"\dfrac{5}{8}", "0.625", True),
        (r"\frac123", r"\frac{1}{23}", False),
        (r"\frac{2}{7}", r"\frac{2}{9}", False),
        (r"\frac{a}{bc}", r"\frac{ab}{c}", False),
        (r"\text{13}", "13", True),
        ("13_{8}", "13_{9}", False),
        ("(3,5)", "(5,3)", False),
        ("5!", "5", False),
    ],
)
def test_latex_is_read_without_guessing(first: str, second: str, same: bool) -> None:
    """EQ-01, EQ-10, EQ-15: one token is one argument, and nothing is sorted or dropped."""
    assert (answer_key(first) == answer_key(second)) is same


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("0.0000001", "0.0000003"),
        ("1/717897987691852588770249", "1/2153693963075557766310747"),
        ("1000000000000001", "1000000000000000"),
        ("1/3", "0.333333"),
    ],
)
def test_numbers_are_compared_exactly(first: str, second: str) -> None:
    """EQ-05: no tolerance merges what is only close."""
    assert answer_key(first) != answer_key(second)


@pytest.mark.parametrize(
    "text", ["$1,290.00", "1290", "1290.", r"\$1290", "1,290.0", "1.29e3", "+1290"]
)
def test_money_and_trailing_zeros_leave_the_number(text: str) -> None:
    """EX-09: they change the spelling alone."""
    assert answer_key(text) == ("number", Fraction(1290))


@pytest.mark.parametrize("answer", [None, "", " \n", "**", "$$", ".", r"\text{}"])
def test_nothing_has_no_key(answer: str | None) -> None:
    """EQ-14: two empty answers never agree, as `None` is no answer."""
    assert answer_key(answer) is None


@pytest.mark.parametrize(
    "text", ["Paris", " paris. ", "**Paris**", r"\text{Paris}", "$Paris$", '"Paris"']
)
def test_texts_differ_by_more_than_case_and_markup(text: str) -> None:
    """Everything that is no number is compared as a text."""
    assert answer_key(text) == ("text", "paris")


@pytest.mark.parametrize(
    "text", ["9" * (MAX_DIGITS + 1), "1/0", "--5", f"1/{'1' * (MAX_DIGITS + 1)}"]
)
def test_a_number_that_cannot_be_read_is_a_text(text: str) -> None:
    """EQ-16: the digits are bounded before anything is evaluated."""
    key = answer_key(text)

    assert isinstance(key, tuple)
    assert key[0] == "text"


def test_a_huge_exponent_costs_nothing() -> None:
    """EQ-16: ten characters never ask for a gigabyte."""
    tracemalloc.start()
    started = time.process_time()

    answer_key("1e999999999")
    answer_key(f"1/{'1' * 10_000}e999")

    assert time.process_time() - started < 0.5
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
