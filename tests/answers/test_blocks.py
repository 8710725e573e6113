"""Choices, programs and JSON: the last complete one, or none."""

import pytest

from ttc.answers import answer_key, extract_answer


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is (B).", "B"),
        ("Answer: **D**", "D"),
        ("Answer: (d) 42", "D"),
        ("The answer is B because it is.", "B"),
        (r"So \boxed{\text{(C)}}.", "C"),
        ("A is wrong and C is wrong.\n\nB", "B"),
        ("Answer: A? No. The answer is C.", "C"),
        ("The answer is a good thing.", None),
        ("It could be A, B or C.", None),
        ("The answer is 42.", None),
        (r"\boxed{B", None),
        ("", None),
    ],
)
def test_a_choice_is_a_letter_that_is_stated(text: str, letter: str | None) -> None:
    """Field defect 3: the extractor of choices finds nothing where nothing is chosen."""
    assert extract_answer(text, "choice") == letter


def test_a_number_is_found_where_no_choice_is() -> None:
    """Field defect 3: answers with equal first characters stay apart."""
    answers = [extract_answer(f"The answer is {number}.") for number in ("12", "120", "1.2")]

    assert len({answer_key(answer) for answer in answers}) == 3


def test_the_last_closed_block_is_the_program() -> None:
    """One that is cut off is no answer, whatever stood before it."""
    first, second = "```python\nx = 1\n```\n", "```python\ny = 2\n"

    assert extract_answer(first, "code") == "x = 1\n"
    assert extract_answer(first + second + "```", "code") == "y = 2\n"
    assert extract_answer(first + second, "code", finish_reason="length") is None
    assert extract_answer("x = 1", "code") is None


def test_programs_are_one_up_to_idle_white_space() -> None:
    """And not up to anything else."""
    keys = [answer_key(code, "code") for code in ("a = 1\nb\n", "a = 1  \n\nb", "a  = 1\nb")]

    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('so {"a": [1, "}"]} and {"b": 2}.', '{"b": 2}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ("[1, 2]", "[1, 2]"),
        ('{"steps":["a","b"', None),
        ('{"a": 1} and {"b": [1', None),
        ("{x}", None),
        ('{"a": NaN}', None),
        ("[" * 100 + "]" * 100, None),
    ],
)
def test_json_is_whole_or_no_answer(text: str, value: str | None) -> None:
    """SO-01: a list that was cut is never repaired into a shorter one."""
    assert extract_answer(text, "json") == value


def test_equal_tool_calls_share_a_key() -> None:
    """The order of arguments and white space are no difference; the name is one."""
    calls = [
        '{"name": "f", "arguments": {"a": 1, "b": 2}}',
        '{"arguments":{"b":2,"a":1},"name":"f"}',
        '{"name": "g", "arguments": {"a": 1, "b": 2}}',
    ]
    keys = [answer_key(call, "json") for call in calls]

    assert keys[0] == keys[1] != keys[2]
    assert keys[0] == ("call", "f", '{"a":1,"b":2}')
