"""Text checks, and texts and patterns that would hang them."""

from __future__ import annotations

import time
from typing import Any

import pytest

import ttc
from tests.verifiers.lab import generated, scored, values
from ttc import GraphError
from ttc.ports import Verifier
from ttc.registry import lookup
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine
from ttc.types import Problem
from ttc.verifiers import Constraint, Exact, JsonSchema, Length, Regex, RoundTrip
from ttc.verifiers.patterns import TooMuchWork, compiled, fits


def of_text(verifier: Verifier, *texts: str) -> list[float | None]:
    return values(verifier, [generated(text, text=text) for text in texts])


PATIENCE_S = 5.0
"""What a bounded check may take on a busy machine; unbounded, each would take years."""


def test_an_exact_answer_is_compared_by_value_or_to_the_letter() -> None:
    """1/2 is 0.5 by value; by letter it is not."""
    assert of_text(Exact("0.5", "yes"), "1/2", "yes", "no") == [1.0, 1.0, 0.0]
    assert of_text(Exact("0.5", to_the_letter=True), "0.5", "1/2", "0.5 ") == [1.0, 0.0, 0.0]


def test_an_exact_check_reads_the_answer_by_default() -> None:
    """Whatever the text around it says."""
    candidate = generated("7", text="So the answer is 7.")

    assert values(Exact("7"), [candidate]) == [1.0]
    assert values(Exact("7", of="text"), [candidate]) == [0.0]


def test_a_pattern_is_searched_or_matched_whole() -> None:
    """In the text as it is kept."""
    assert of_text(Regex(r"\d+"), "a 17 b", "none") == [1.0, 0.0]
    assert of_text(Regex(r"\d+", whole=True), "17", "a 17") == [1.0, 0.0]


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+$", r"^(\w+\s?)*!$", "(.*)*=x"])
def test_a_pattern_that_backtracks_for_ever_elsewhere_ends(pattern: str) -> None:
    """Linear in the text."""
    started = time.perf_counter()
    (value,) = of_text(Regex(pattern), "a" * 50_000 + "?")

    assert value == 0.0
    assert time.perf_counter() - started < PATIENCE_S


def test_a_text_that_is_too_long_for_its_pattern_is_unknown() -> None:
    """Linear is not fast where a pattern has thousands of steps; 0 would be a guess."""
    started = time.perf_counter()
    (score,) = scored(Regex("(a?){900}a{900}b"), [generated(text="a" * 100_000)])

    assert score.value is None
    assert "100000 characters are too many" in score.evidence["unknown"]
    assert time.perf_counter() - started < PATIENCE_S


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("(?=a)b", "perl operator"), (r"(a)\1", "escape"), ("(", r"missing \)"), ("a{9999}", "repet")],
)
def test_a_pattern_beyond_the_language_is_refused_when_it_is_made(
    pattern: str, reason: str
) -> None:
    """With the pattern and the reason."""
    with pytest.raises(ValueError, match=rf"is not in the language of RE2: .*{reason}"):
        Regex(pattern)


def test_half_a_surrogate_pair_is_unknown() -> None:
    """It is no text that a pattern could be matched with."""
    assert of_text(Regex("a"), "\ud800a") == [None]


def test_lengths_are_counted_between_bounds() -> None:
    """Both are inclusive."""
    assert of_text(Length(at_most=2), "one two", "one two three") == [1.0, 0.0]
    assert of_text(Length("characters", at_least=3, at_most=4), "ab", "abc", "abcde") == [0, 1, 0]
    assert of_text(Length("lines", at_least=2), "a\nb", "a b") == [1.0, 0.0]


@pytest.mark.parametrize(
    "options", [{}, {"at_least": 3, "at_most": 2}, {"unit": "tokens", "at_most": 3}, {"of": "it"}]
)
def test_bounds_that_bind_nothing_are_refused(options: dict[str, Any]) -> None:
    """An option that does nothing is an error."""
    with pytest.raises(ValueError, match=r"leave no bound|unit is words|of is text"):
        Length(**options)


ALL: list[Verifier] = [
    Exact("x", of="text"),
    Regex(".*"),
    Regex("^$"),
    Length(at_most=9),
    JsonSchema("{}"),
    Constraint(lambda text: True),
    RoundTrip(lambda text: "What is 1 + 1?", of="text"),
]


@pytest.mark.parametrize("verifier", ALL, ids=lambda verifier: repr(verifier)[:16])
@pytest.mark.parametrize("changes", [{"text": ""}, {"text": " \n"}, {"status": "failed"}])
def test_an_empty_or_failed_candidate_passes_nothing(
    verifier: Verifier, changes: dict[str, Any]
) -> None:
    """VO-09: not even a check that an empty text would pass."""
    assert values(verifier, [generated(**changes)]) == [None]
    assert values(Exact("x"), [generated(None)]) == [None]


@pytest.mark.parametrize(
    ("verdict", "value"),
    [(True, 1.0), (False, 0.0), (0.25, 0.25), (None, None), (float("nan"), None)],
)
def test_a_constraint_is_a_function_of_the_text(verdict: object, value: float | None) -> None:
    """Yes, no, a share, or it cannot tell."""
    assert of_text(Constraint(lambda text: verdict), "x") == [value]  # type: ignore[arg-type, return-value]


def test_a_constraint_may_wait() -> None:
    """An asynchronous function is awaited."""

    async def check(text: str) -> bool:
        return text == "x"

    assert of_text(Constraint(check), "x", "y") == [1.0, 0.0]


@pytest.mark.parametrize("verdict", [2.0, -1, "nonsense"])
def test_a_constraint_that_fails_leaves_the_score_unknown(verdict: object) -> None:
    """In a run: a number out of range, or none at all."""
    verifier = Constraint(lambda text: verdict)  # type: ignore[arg-type, return-value]

    outcome = ttc.solve("?", Sample() >> verifier >> Best(), model=FakeEngine("It is 1."))

    assert outcome.stopped_by == "no_finite_score"


def test_a_registered_constraint_is_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an unknown name is refused, with those that there are."""
    from ttc import registry

    monkeypatch.setitem(registry._BUILT_IN, "checks", {"is_key": "ttc.answers:answer_key"})  # type: ignore[index, unused-ignore]

    assert Constraint("is_key").function == "is_key"
    assert lookup("checks", "is_key") is not None
    with pytest.raises(GraphError, match="no check is called 'other'; there is is_key"):
        Constraint("other")
    with pytest.raises(GraphError, match=r"no check is called 'os\.system'"):
        Constraint("os.system")


def test_the_text_that_is_checked_is_the_text_that_is_kept() -> None:
    """Field defect 20: to the letter, with what surrounds it."""
    seen: list[str] = []

    def check(text: str) -> bool:
        seen.append(text)
        return True

    reply = "  So:\n the answer is 7.  "
    outcome = ttc.solve("?", Sample() >> Constraint(check) >> Best(), model=FakeEngine(reply))

    assert seen == [outcome.text]


def test_a_solution_leads_back_to_the_question() -> None:
    """By value, as 4 squared is 16.0; the evidence is what came back."""
    problem = Problem.ask("16")
    verifier = RoundTrip(lambda answer: str(float(answer) ** 2))

    def score(answer: str) -> float | None:
        outcome = ttc.solve(
            problem, Sample() >> verifier >> Best(), model=FakeEngine(f"The answer is {answer}.")
        )
        return outcome.candidates[0].scores["round_trip"].value

    assert (score("4"), score("5")) == (1.0, 0.0)


def test_what_has_no_inverse_is_unknown() -> None:
    """Neither `None` nor an exception is a verdict; the others keep theirs."""

    def inverse(text: str) -> str | None:
        return {"a": "What is 1 + 1?", "b": None}[text]

    assert of_text(RoundTrip(inverse), "a", "b", "c") == [1.0, None, None]


def test_work_is_characters_times_steps() -> None:
    """The same text fits a smaller pattern."""
    assert fits(compiled("a"), "a" * 100_000, whole=False)
    with pytest.raises(TooMuchWork):
        fits(compiled("a{900}"), "a" * 100_000, whole=False)
