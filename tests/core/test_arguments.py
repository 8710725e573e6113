"""What a caller gives by mistake: refused before anything is spent, with what to give instead."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import ttc
from ttc import Budget, Message, Node, NodeError, Problem, RecordError, Sampling, node
from ttc.ports import Scope, Stream
from ttc.strategies import Sample, Verify, Vote
from ttc.testing import FakeEngine
from ttc.types import Candidate

VOTE = Sample(n=2) >> Vote()
SAYS = FakeEngine("The answer is 4.")

ONE: dict[str, tuple[dict[str, Any], str]] = {
    "no question": ({"problem": None}, "a problem is a question or a ttc.Problem, not None"),
    "an empty question": ({"problem": " "}, "a question has some text, which ' ' has not"),
    "a class for a strategy": ({"strategy": Vote}, r"the class Vote; make one by calling it: Vote"),
    "a list of nodes": ({"strategy": [VOTE]}, "a strategy is a graph of nodes, or its text form"),
    "no model": ({"model": None}, "no model is bound to the role 'policy'; pass model="),
    "a number for a model": ({"model": 5}, "'policy' is a name, a path or an engine, not 5"),
    "a class for a model": ({"model": FakeEngine}, "not the class FakeEngine; make one by calling"),
    "a model of no role": ({"models": {3: SAYS}}, "models binds roles by their names, which 3"),
    "a role without a model": ({"models": {"judge": None}}, "'judge' is a name, a path or an eng"),
    "a list of models": ({"models": [SAYS]}, "models is a mapping of roles to models"),
    "a number for a budget": ({"budget": 100}, r"budget is a ttc.Budget, as Budget\(tokens=1_000"),
    "a text for a seed": ({"seed": "7"}, "seed is a whole number, not '7'"),
    "a half seed": ({"seed": 1.5}, "seed is a whole number, not 1.5"),
    "a bool for a seed": ({"seed": True}, "seed is a whole number, not True"),
    "an unknown sandbox": ({"sandbox": "ful"}, "sandbox is auto, full or none, not 'ful'"),
    "a text for a watcher": ({"watch": "x"}, "watch is a function of an Event, not 'x'"),
    "a number for a clock": ({"clock": 5}, r"clock has now\(\) and call_later"),
    "a number for a control": ({"control": 5}, "control is a ttc.Control, not 5"),
    "a mapping for prices": ({"prices": {}}, "prices is a ttc.prices.Prices"),
    "a number for a journal": ({"journal": 5}, "journal is the path of a file or a folder"),
}
MANY: dict[str, tuple[dict[str, Any], str]] = {
    "one question": ({"problems": "What?"}, "problems is a list of them.*there is ttc.solve"),
    "one problem": ({"problems": Problem.ask("What?")}, "problems is a list of them"),
    "a mapping": ({"problems": {"a": 1}}, "problems is a list of questions or of ttc.Problem"),
    "a number among them": ({"problems": ["a", 5]}, "a question or a ttc.Problem, not 5"),
    "a text for how many": ({"concurrency": "4"}, "whole number of at least 1, not '4'"),
    "a number for each": ({"per_problem": 5}, "per_problem is a ttc.Budget"),
}


@pytest.mark.parametrize(("given", "told"), ONE.values(), ids=ONE)
def test_solve_tells_what_an_argument_should_be(given: dict[str, Any], told: str) -> None:
    arguments = {"problem": "What?", "strategy": VOTE, "model": SAYS, **given}

    with pytest.raises((TypeError, ValueError, ttc.GraphError), match=told):
        ttc.solve(**arguments)


@pytest.mark.parametrize(("given", "told"), MANY.values(), ids=MANY)
def test_solve_many_tells_what_an_argument_should_be(given: dict[str, Any], told: str) -> None:
    arguments = {"problems": ["What?"], "strategy": VOTE, "model": SAYS, **given}

    with pytest.raises((TypeError, ValueError), match=told):
        ttc.solve_many(**arguments)


def test_problems_may_come_from_a_generator() -> None:
    outcomes = ttc.solve_many((f"{n} + 1?" for n in range(3)), VOTE, model=SAYS)

    assert [outcome.answer for outcome in outcomes] == ["4", "4", "4"]


def test_a_model_may_be_a_path_object(tmp_path: Path) -> None:
    with pytest.raises(ttc.EngineError, match=r"none\.gguf"):
        ttc.solve("What?", VOTE, model=tmp_path / "none.gguf")


VALUES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a hot temperature": (Sampling, {"temperature": "hot"}, "temperature is a number, not 'hot'"),
    "a text for top_p": (Sampling, {"top_p": "1"}, "top_p is a number, not '1'"),
    "a dict for a message": (
        Problem,
        {"messages": ({"role": "user"},)},
        r"messages are ttc.Message, as Message\(role='user'",
    ),
    "a made-up format": (
        Problem.ask,
        {"question": "x", "answer_format": "nr"},
        "answer_format is one of auto, boxed.* not 'nr'",
    ),
    "a made-up role": (Message, {"role": "human", "content": "x"}, "role is one of system, user"),
    "no content": (Message, {"role": "user", "content": None}, "content is a text, not None"),
    "a text for a confidence": (ttc.confidence, {"at_least": "0.9"}, "a confidence lies in"),
    "a class in a graph": (Sample().__rshift__, {"other": Vote}, "Vote is a class; make a node of"),
    "a function in a graph": (Sample().__rshift__, {"other": print}, "@ttc.node makes a node of"),
    "a function for a verifier": (
        Verify,
        {"verifier": print},
        r"is no verifier; Constraint\(...\) makes one of a function",
    ),
    "a fake that says nothing": (FakeEngine, {"script": []}, "says one reply at least"),
    "a fake that says numbers": (FakeEngine, {"script": [1]}, "says texts, .* not 1"),
}


@pytest.mark.parametrize(("make", "given", "told"), VALUES.values(), ids=VALUES)
def test_a_value_tells_what_it_should_be(make: Any, given: dict[str, Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        make(**given)


def test_a_ladder_of_temperatures_in_a_list_is_told_as_a_tuple() -> None:
    graph = Sample(n=2, temperature=[0.2, 0.6]) >> Vote()  # type: ignore[arg-type]

    with pytest.raises(ttc.GraphError, match=r"a ladder of temperatures is a tuple, \(0.2, 0.6\)"):
        graph.validate()


def test_a_node_takes_candidates_and_a_scope() -> None:
    async def alone(candidates: Stream[Candidate]) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            yield candidate

    with pytest.raises(TypeError, match=r"takes \(candidates, scope\), and alone takes \(cand"):
        node(alone)  # type: ignore[arg-type]


def test_a_node_that_gives_no_candidates_is_named() -> None:
    """And not the one after it, which cannot read them."""

    @node
    async def texts(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            yield candidate.text  # type: ignore[misc]

    with pytest.raises(NodeError, match=r"1.texts: TypeError: it gave 'The .*a node gives cand"):
        ttc.solve("What?", Sample(n=2) >> texts >> Vote(), model=SAYS)


@pytest.mark.parametrize("content", ["my notes", "my notes\nin two lines"])
def test_a_file_of_something_else_is_no_journal(tmp_path: Path, content: str) -> None:
    """And stays as it is, to the last byte."""
    notes = tmp_path / "notes.txt"
    notes.write_text(content)

    with pytest.raises(RecordError, match=r"notes.txt"):
        ttc.solve("What?", VOTE, model=SAYS, journal=notes)

    assert notes.read_text() == content


def test_a_graph_is_saved_where_there_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ttc.GraphError, match=r"g.json cannot be written: No such file"):
        VOTE.save(tmp_path / "no folder" / "g.json")


def test_a_worst_case_is_told_of_a_question() -> None:
    graph: Node = VOTE

    assert graph.worst_case("What?", SAYS) == graph.worst_case(Problem.ask("What?"), SAYS)
    assert Budget(tokens=graph.worst_case("What?", SAYS).tokens)
