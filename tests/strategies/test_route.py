"""Route: how sure a look is decides which graph runs."""

from __future__ import annotations

import pytest

from tests.core.lab import solved
from ttc.errors import GraphError
from ttc.graph import Flow
from ttc.strategies import Greedy, Route, Sample, Vote
from ttc.text_form import parse, write

LOOK = Sample(n=2) >> Vote()
ONE, TWO, THREE = (f"The answer is {i}." for i in (1, 2, 3))
HARD, MIDDLE = Sample(n=3) >> Vote(), Sample(n=1) >> Vote()
ROUTE = Route(LOOK, HARD, MIDDLE, below=(0.5, 0.9))


def test_a_sure_look_is_the_result() -> None:
    outcome = solved(ROUTE, ONE).outcome
    assert (outcome.answer, outcome.usage.calls, outcome.stopped_by) == ("1", 2, "completed")


@pytest.mark.parametrize(
    ("replies", "calls"),
    [(["No idea.", "No idea.", ONE, ONE, TWO], 5), ([ONE, TWO, THREE], 3)],
)
def test_a_look_below_a_threshold_takes_its_graph_alone(replies: list[str], calls: int) -> None:
    """No answer at all is below the first; one of two agrees with the second."""
    outcome = solved(ROUTE, replies, in_order=True).outcome
    assert outcome.usage.calls == calls
    assert outcome.answer == {5: "1", 3: "3"}[calls]


def test_where_the_graph_has_no_answer_the_look_has_the_last_word() -> None:
    outcome = solved(ROUTE, [ONE, TWO, "No idea."], in_order=True).outcome
    assert outcome.answer == "1"


def test_at_worst_it_costs_the_look_and_the_dearest_graph() -> None:
    graph = Route(Sample(n=2, max_tokens=10) >> Vote(), Sample(n=5, max_tokens=7) >> Vote(),
                  Sample(n=1, max_tokens=90) >> Vote(), below=(0.5, 0.9))  # fmt: skip
    cost = graph.bound(Flow())
    assert (cost.tokens, cost.calls) == (2 * 10 + 90, 2 + 5)


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (lambda: Route(LOOK, below=()), "has 1 graphs and 0 thresholds"),
        (lambda: Route(LOOK, HARD, below=(0.5, 0.9)), "has 2 graphs and 2 thresholds"),
        (lambda: Route(LOOK, HARD, MIDDLE, below=(0.9, 0.5)), "rises from above 0"),
        (lambda: Route(LOOK, HARD, below=(1.5,)), "rises from above 0"),
        (lambda: Route(LOOK, Sample(n=2), below=(0.5,)), "part 1 must give one finished"),
    ],
)
def test_a_route_that_leads_nowhere_is_refused(made: object, fault: str) -> None:
    assert callable(made)
    with pytest.raises(GraphError, match=fault):
        made().validate()


@pytest.mark.parametrize("below", ["0.5", ("a",)])
def test_thresholds_are_numbers(below: object) -> None:
    with pytest.raises(TypeError, match="is a list of numbers"):
        Route(LOOK, HARD, below=below)  # type: ignore[arg-type]


def test_its_text_gives_it_back() -> None:
    text = "route(sample(n=2) >> vote(), sample(n=3) >> vote(), greedy(), below=(0.5, 0.9))"
    assert parse(write(parse(text))) == Route(LOOK, HARD, Greedy(), below=(0.5, 0.9))
