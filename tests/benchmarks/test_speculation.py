"""What the benchmark of speculation makes of what it has measured."""

from __future__ import annotations

from ttc.benchmarks.perf.speculation import Took, in_turns, row
from ttc.benchmarks.perf.speculation_sweep import place_of_interval
from ttc.types import Problem


def took(seconds: float, *, reading: float = 1.0, text: int = 7, **counted: float) -> Took:
    return Took(seconds, 2 * seconds, reading, {"output_tokens": 10, **counted}, [(text,)])


PLAIN = [took(5.0, draft_tokens=0, rejected_draft_tokens=0)] * 3
DRAFTED = {"draft_tokens": 8, "rejected_draft_tokens": 5, "wrong_draft_tokens": 2}


def test_a_ratio_is_the_median_over_prompts() -> None:
    fast = [took(seconds, **DRAFTED) for seconds in (2.0, 4.0, 5.0)]

    found = row("ngram coupled", {"plain": PLAIN, "ngram coupled": fast})

    assert (found["ratio"], found["ratio_of_processor_time"]) == (1.25, 1.25)
    assert found["ratio_of_decoding"] == round(4 / 3, 3)  # a second of each was the prompt's


def test_acceptance_leaves_out_what_came_after_the_first_wrong_token() -> None:
    found = row("ngram coupled", {"plain": PLAIN, "ngram coupled": [took(4.0, **DRAFTED)] * 3})

    assert (found["tried"], found["accepted"]) == (24, 9)
    assert found["acceptance"] == 9 / (9 + 6)


def test_no_ratio_is_told_where_other_texts_are_written() -> None:
    found = row("model maximal", {"plain": PLAIN, "model maximal": [took(4.0, **DRAFTED)] * 3})

    assert not any(name.startswith("ratio") for name in found)


def test_no_prompt_is_begun_after_the_time_is_over() -> None:
    asked: list[Problem] = []

    def way(problem: Problem, seed: int) -> Took:
        asked.append(problem)
        return took(1.0)

    sets = {"maths": [Problem.ask("1 + 1?")], "code": [Problem.ask("Sort.")]}

    assert list(in_turns({"plain": way}, sets, end=0.0)) == []
    assert asked == []


def test_the_interval_of_a_median_is_that_of_the_sign_test() -> None:
    # The chance that 6 of 6 values, or 15 of 20, lie on one side of the median is below 2.5 %.
    assert [place_of_interval(n) for n in (5, 6, 8, 9, 20)] == [None, 0, 0, 1, 5]
