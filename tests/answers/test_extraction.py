"""Which answer a text states, and when it states none."""

import pytest

from ttc.answers import answer_key, extract_answer
from ttc.types import AnswerFormat, FinishReason

STATEMENT_FORMATS: tuple[AnswerFormat, ...] = ("auto", "boxed", "marked", "number")
LENIENT_FORMATS: tuple[AnswerFormat, ...] = ("auto", "number")
MARKED_FORMATS: tuple[AnswerFormat, ...] = ("auto", "marked", "number")


@pytest.mark.parametrize("format", STATEMENT_FORMATS)
@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"Hence \boxed{\dfrac{\sqrt{3}}{1+\frac{1}{5}}}.", r"\dfrac{\sqrt{3}}{1+\frac{1}{5}}"),
        (r"\boxed{\left\{1,2\right.}", r"\left\{1,2\right."),
        (r"It is \fbox{7}.", "7"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"A stray { before \boxed{7}", "7"),
    ],
)
def test_braces_nest_and_escaped_braces_are_characters(
    text: str, content: str, format: AnswerFormat
) -> None:
    """EX-01: a box ends at the brace that closes it."""
    assert extract_answer(text, format) == content


@pytest.mark.parametrize("format", STATEMENT_FORMATS)
def test_the_last_box_wins(format: AnswerFormat) -> None:
    """EX-02: a corrected box is the answer, and not one part of a list."""
    text = r"First I got \boxed{12}. A check gives \boxed{14}, so the result is \boxed{14}."

    assert extract_answer(text, format) == "14"


@pytest.mark.parametrize("text", ["It could be 41, 43 or 42.", "The answer is 42"])
def test_the_boxed_format_takes_nothing_but_a_box(text: str) -> None:
    """EX-04, strict: no box is no answer."""
    assert extract_answer(text, "boxed") is None


def test_a_list_of_guesses_is_no_answer_and_a_statement_is() -> None:
    """EX-04, lenient: naming every candidate does not pay."""
    assert extract_answer("It could be 41, 43 or 42.") is None
    assert extract_answer("The answer is 42") == "42"


@pytest.mark.parametrize("text", ["The answer is 41 or 42.", "The answer is 41, 42, 43."])
def test_a_marked_list_does_not_equal_one_of_its_members(text: str) -> None:
    """EX-04: a list after a marker stays a list."""
    keys = {answer_key(number) for number in ("41", "42", "43")}

    assert answer_key(extract_answer(text)) not in keys
    assert extract_answer(text, "number") is None


@pytest.mark.parametrize("finish_reason", ["length", "stop", None])
@pytest.mark.parametrize("format", STATEMENT_FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        r"so the count is \boxed{12",
        r"\boxed{\frac{3}{4}",
        r"\boxed{5}? No: \boxed{6",
        r"12 is \boxed",
    ],
)
def test_an_unclosed_box_is_no_answer(
    text: str, format: AnswerFormat, finish_reason: FinishReason | None
) -> None:
    """EX-05: what an open box holds is unknown text, and it is the latest statement."""
    assert extract_answer(text, format, finish_reason=finish_reason) is None


@pytest.mark.parametrize("format", STATEMENT_FORMATS)
def test_an_open_reasoning_block_leaves_no_answer(format: AnswerFormat) -> None:
    """EX-06: a guess in a scratchpad that was cut is not an answer."""
    text = r"<think>try 5: \boxed{5}? no, that fails because"

    assert extract_answer(text, format, finish_reason="length") is None
    assert extract_answer("The answer is 5. <think>Or", format) is None


@pytest.mark.parametrize("format", MARKED_FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        r"<think>\boxed{5}?</think>The answer is \boxed{6}",
        r"maybe \boxed{5}</think>\boxed{6}",
        "<think>Answer: 4</think>Answer: 5</think>Answer: 6",
    ],
)
def test_only_the_text_after_the_last_reasoning_block_counts(
    text: str, format: AnswerFormat
) -> None:
    """EX-06: the opening tag may come from the template."""
    assert extract_answer(text, format) == "6"


@pytest.mark.parametrize("format", MARKED_FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        "Check: 17 + 2*41 = 99, fine.\n\n---\n\nFinal answer: **58**",
        "**Answer:** `58`",
        "Final answer: __58__.",
        "**Answer**: 58",
        "The answer is:\n\n58",
        "The final answer is $58$.",
        "The answer is:\n\\[\n58\n\\]",
    ],
)
def test_markup_does_not_stick_to_the_answer(text: str, format: AnswerFormat) -> None:
    """EX-08: emphasis, code marks, math delimiters and full stops are not part of an answer."""
    assert extract_answer(text, format) == "58"


@pytest.mark.parametrize("format", LENIENT_FORMATS)
@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("So the bill comes to $1,290.00.", "1290"),
        (r"He pays \$7.50", "7.5"),
        ("The ratio is 3.", "3"),
        ("about -$4", "-4"),
    ],
)
def test_money_and_full_stops_do_not_hide_a_number(
    text: str, gold: str, format: AnswerFormat
) -> None:
    """EX-09: currency, grouping commas, `.00` and the sentence's end change no value."""
    assert answer_key(extract_answer(text, format)) == answer_key(gold)


@pytest.mark.parametrize("format", MARKED_FORMATS)
def test_the_last_marker_wins_over_a_recited_example(format: AnswerFormat) -> None:
    """EX-10: the leftmost match is the example of the prompt."""
    text = "The sample said: 2+1 so #### 3. For my task: 8+9, so\n#### 17"

    assert extract_answer(text, format) == "17"


@pytest.mark.parametrize("format", MARKED_FORMATS)
def test_a_wrong_interim_answer_does_not_win(format: AnswerFormat) -> None:
    """Field defect 1: the first match is taken instead of the last."""
    text = "Answer: 12? I check: the answer is 12. That fails, so the answer is 14."

    assert extract_answer(text, format) == "14"


@pytest.mark.parametrize(
    "text", ["Then 2 * 3 = 6. Adding 4 gives 10.", "2 * 3 = 6\nSo the total is 10."]
)
def test_a_later_statement_wins_over_an_earlier_equation(text: str) -> None:
    """Field defect 1, without a marker."""
    assert extract_answer(text) == "10"


def test_the_same_answer_in_other_prose_is_one_class() -> None:
    """Field defect 2: texts are compared by their answers, never as texts."""
    texts = [
        "17 * 23 = 391",
        "The product is **391**.",
        r"\boxed{391}",
        "So we get 391, I think.",
        "391",
    ]

    assert {extract_answer(text) for text in texts} == {"391"}


@pytest.mark.parametrize("format", [*STATEMENT_FORMATS, "text"])
@pytest.mark.parametrize("text", ["", "  \n\t", "**", "..."])
def test_an_empty_text_has_no_answer(text: str, format: AnswerFormat) -> None:
    """Field defect 12: nothing is never an answer."""
    assert extract_answer(text, format) is None


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "Sorry, I cannot work with 17.",
        "I don't know whether it is not 17.",
        "The answer is not 17.",
        "Is it 17?",
        "What is 17 * 23?",
    ],
)
def test_a_refusal_a_denial_and_a_question_state_nothing(text: str) -> None:
    """Field defect 12: a number that is mentioned is not yet an answer."""
    assert extract_answer(text) is None


@pytest.mark.parametrize("format", MARKED_FORMATS)
@pytest.mark.parametrize(
    "text",
    ["Answer:", "Answer: 5\nFinal answer:", "Answer: 5\n\nFinal answer: **\n", r"5 = \boxed{ }"],
)
def test_a_marker_with_nothing_after_it_is_no_answer(text: str, format: AnswerFormat) -> None:
    """The last marker decides, even if it says nothing."""
    assert extract_answer(text, format) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("17 * 23 = 391", "391"),
        (r"\[ 17 \times 23 = 391 \]", "391"),
        ("17 * 23 = 391.\n\nI hope this helps!", "391"),
        ("17 * 23 = 391. This took 2 steps.", "391"),
        ("0 - 4 = -4", "-4"),
        ("So $x = 5$.", "5"),
        ("It costs 16 \\times 3 = 48 \\text{ dollars}", "48"),
        ("The sum is 12.", "12"),
        ("17 times 23 is 391", "391"),
        ("12 is the sum.", "12"),
        ("The answer is 391 because 17 * 23 = 391.", "391"),
        ("The answer is 12 eggs.", "12"),
        ("So, the answer is indeed 8.", "8"),
        ("There were 5 apples, which are red.", "5"),
        (r"The chance is \frac{3}{4}.", r"\frac{3}{4}"),
        ("She has 2 2/3 cups.", "2 2/3"),
    ],
)
def test_auto_reads_an_asserted_number(text: str, answer: str) -> None:
    """A plain question gets a plain reply, without any marker."""
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "x = 5 or x = 6",
        "The sum is x + 1.",
        "The line is 2*x-5*y+4=0",
        "f(t)=0",
        "It has 4 10/3 parts",
        "The roots are 3 and 4.",
        "The number of days after subtracting 4 is called a week.",
        "It is 5 million.",
        "1. Add.\n2. Divide.",
        "The points are 3,4,5.",
    ],
)
def test_auto_takes_no_piece_of_a_larger_expression(text: str) -> None:
    """EQ-03, EQ-07: a list, an equation and a part of a number are no number."""
    assert extract_answer(text) is None


def test_an_equation_after_a_marker_is_not_reduced_to_its_right_side() -> None:
    """EQ-07: two unrelated equations that end in 0 stay apart."""
    answers = [extract_answer(f"The answer is {line}") for line in ("2*x-5*y+4=0", "2x+7y-3=0")]

    assert answers == ["2*x-5*y+4=0", "2x+7y-3=0"]


def test_a_heading_with_a_number_is_not_a_marker() -> None:
    """`#### 4. Calculate` opens a section."""
    assert extract_answer("#### 4. Calculate\nThe total is 7.") == "7"


@pytest.mark.parametrize(
    ("text", "answer"),
    [("The answer is (B).", "(B)"), ("Answer: Paris. It lies on the Seine.", "Paris")],
)
def test_a_marked_answer_may_be_a_text(text: str, answer: str) -> None:
    """An answer ends with its sentence."""
    assert extract_answer(text) == answer


def test_the_number_format_takes_the_last_number() -> None:
    """The lenient rule of GSM8K."""
    assert extract_answer("First 5, then 7 apples were left over.", "number") == "7"


def test_the_text_format_takes_the_whole_text() -> None:
    """Less the reasoning and the white space around it."""
    assert extract_answer("<think>hm</think>\n  To be.\n", "text") == "To be."


@pytest.mark.parametrize("finish_reason", ["length", "cancelled", "error"])
@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("The answer is 12", "auto"),
        ("The answer is 12.", "marked"),
        ("Answer: 5\nFinal answer:", "marked"),
        ("#### 12", "number"),
        ("The sum is 12", "auto"),
        ("The sum is 12.", "auto"),
        ("17 * 23 = 391. And 391 / 23 = 1", "number"),
        ("To be or", "text"),
    ],
)
def test_a_statement_that_runs_into_the_cut_is_no_answer(
    text: str, format: AnswerFormat, finish_reason: FinishReason
) -> None:
    """The next token might have changed it."""
    assert extract_answer(text, format, finish_reason=finish_reason) is None


@pytest.mark.parametrize(
    "text", [r"\boxed{12} so", "The answer is 12. So", "Answer: 12\n", "The sum is 12, which"]
)
def test_a_statement_that_was_complete_before_the_cut_counts(text: str) -> None:
    """A cut after an answer does not take it away."""
    assert extract_answer(text, finish_reason="length") == "12"
