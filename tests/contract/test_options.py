"""Every option of every node: a value of another kind is told by the option's name."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import pytest

from tests.contract.test_strategies import CASES
from ttc import GraphError, Node
from ttc.graph import Chain
from ttc.options import kind_faults
from ttc.strategies import BeamSearch, Best, Sample, Vote
from ttc.testing import ScriptedVerifier


def mistaken(name: str) -> Iterator[tuple[str, Node]]:
    """A case's strategy with a mapping for each option in turn, as long as that can be written."""
    graph = CASES[name](2, ScriptedVerifier({"1": 0.5}))
    parts: tuple[Any, ...] = graph.parts if isinstance(graph, Chain) else (graph,)
    for place, part in enumerate(parts):
        for field in fields(part):
            try:
                wrong = replace(part, **{field.name: {}})
            except TypeError:
                continue  # refused before there is a node
            yield field.name, Chain((*parts[:place], wrong, *parts[place + 1 :]))


@pytest.mark.parametrize("name", CASES)
def test_an_option_of_another_kind_is_named(name: str) -> None:
    """And never ends as whatever Python says of adding a mapping to a number."""
    for option, graph in mistaken(name):
        if option in ("actions", "ignoring", "confirm"):
            continue  # declared as more than plain values, and empty
        with pytest.raises(GraphError, match=option):
            graph.validate()


def test_several_options_are_told_at_once() -> None:
    graph = BeamSearch(ScriptedVerifier({}), num_beams="4", temperature="1") >> Best()  # type: ignore[arg-type]

    with pytest.raises(GraphError, match=r"temperature is a number(?s:.*)num_beams is a whole"):
        graph.validate()


def test_what_a_node_says_itself_is_told_once() -> None:
    with pytest.raises(GraphError) as caught:
        (Sample(n="4") >> Vote()).validate()  # type: ignore[arg-type]

    assert str(caught.value) == "0.sample: n is a whole number of at least 1, not '4'"


@dataclass
class Options:
    """Every plain kind."""

    whole: int = 1
    number: float = 1
    text: str | None = None
    switch: bool = False
    choice: Literal["a", "b"] = "a"
    row: tuple[float, ...] = (1, 2.5)
    other: object = None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"whole": 1.0}, "whole is a whole number, not 1.0"),
        ({"whole": True}, "whole is a whole number, not True"),
        ({"number": "1"}, "number is a number, not '1'"),
        ({"text": 1}, "text is a text or None, not 1"),
        ({"switch": 1}, "switch is True or False, not 1"),
        ({"choice": "c"}, "choice is 'a' or 'b', not 'c'"),
        ({"row": [1.0]}, "row is a tuple, each a number, not [1.0]"),
        ({"row": ("1",)}, "row is a tuple, each a number, not ('1',)"),
    ],
)
def test_a_plain_kind_is_told_in_words(given: dict[str, Any], told: str) -> None:
    assert list(kind_faults(Options(**given)).values()) == [told]


def test_values_of_their_kinds_are_no_faults() -> None:
    options = Options(whole=2, number=0.5, text="x", switch=True, choice="b", row=(), other={})

    assert kind_faults(options) == {}
