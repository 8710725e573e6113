"""The text form: calls, `>>`, `|`, literals and keywords, and nothing that is ever evaluated."""

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc import GraphError, Node, Tail, confidence
from ttc.registry import names
from ttc.strategies import (
    Best,
    BestOfN,
    CannotBeOvertaken,
    Cascade,
    Exhausted,
    Greedy,
    Sample,
    SelfConsistency,
    Vote,
)
from ttc.text_form import MAX_CHARACTERS, MAX_NODES, parse
from ttc.verifiers import SequenceProbability


@pytest.mark.parametrize(
    ("text", "graph"),
    [
        ("greedy()", Greedy()),
        ("self_consistency(n=5, temperature=0.5)", SelfConsistency(n=5, temperature=0.5)),
        (" sample(n=4)\n >> vote() ", Sample(n=4) >> Vote()),
        ("sample(top_k=None, temperature=+1e-1) >> vote()", Sample(temperature=0.1) >> Vote()),
        (
            "(sample(n=2) | sample(n=3, until=('a', \"b\"))) >> vote()",
            (Sample(n=2) | Sample(n=3, until=("a", "b"))) >> Vote(),
        ),
        (
            "cascade(sample(n=4) >> vote(), sample(n=16) >> vote(), accept=confidence(0.9))",
            Cascade(Sample(n=4) >> Vote(), Sample(n=16) >> Vote(), accept=confidence(0.9)),
        ),
        (
            "sample(n=9) >> vote(stop=cannot_be_overtaken() | exhausted() & exhausted())",
            Sample(n=9) >> Vote(stop=CannotBeOvertaken() | (Exhausted() & Exhausted())),
        ),
        (
            "sample(tail=tail(cue=' So:', max_tokens=3)) >> vote()",
            Sample(tail=Tail(cue=" So:", max_tokens=3)) >> Vote(),
        ),
        (
            "sample() >> sequence_probability() >> best()",
            Sample() >> SequenceProbability() >> Best(),
        ),
        (
            "best_of_n(verifier=sequence_probability(), weighted=True)",
            BestOfN(verifier=SequenceProbability(), weighted=True),
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_text_is_the_graph_that_it_says(text: str, graph: Node) -> None:
    """The very same as the expression in Python."""
    assert parse(text) == graph


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "cannot be read"),
        ("sample(", "cannot be read"),
        ("sample(n=1, n=2) >> vote()", "a keyword is given twice"),
        ("\x00", "cannot be read"),
        ("vote", "it stands alone; call it: vote()"),
        ("vote(weighted=true)", "'true': write True"),
        ("best(by=null)", "'null': write None"),
        ("beam_serch()", "nothing is called 'beam_serch'; did you mean beam_search"),
        ("3", "is no strategy; a strategy is greedy"),
        ("confidence(0.5)", "is no strategy"),
        ("nope()", "nothing is called 'nope'; there is abstain, action, adaptive_b"),
        ("__import__('os')", "nothing is called '__import__'"),
        ("().__class__", "a strategy is made of calls"),
        ("greedy().run", "a strategy is made of calls"),
        ("greedy.run()", "it is no name of a node"),
        ("(lambda: greedy())()", "it is no name of a node"),
        ("lambda: greedy()", "a strategy is made of calls"),
        ("f'{greedy()}'", "a strategy is made of calls"),
        ("sample(until=f'{1}') >> vote()", r"f'\{1\}'.: a strategy is made of calls"),
        ("[greedy() for _ in (1,)]", "a strategy is made of calls"),
        ("{1: greedy()}", "a strategy is made of calls"),
        ("greedy() if 1 else greedy()", "a strategy is made of calls"),
        ("greedy(**{'max_tokens': 3})", r"\*\* is not a part of the form"),
        ("greedy(*(1,))", "a strategy is made of calls"),
        ("(x := greedy())", "a strategy is made of calls"),
        ("greedy() + greedy()", "a strategy is made of calls"),
        ("not greedy()", "a strategy is made of calls"),
        ("sample(n=-True) >> vote()", "a strategy is made of calls"),
        ("sample(n=1 | 2) >> vote()", "numbers are written out"),
        ("sample(n=2j) >> vote()", "a strategy is made of calls"),
        ("greedy() >> 3", "a graph is made of nodes and verifiers, not of 3"),
        ("exhausted() | greedy()", "unsupported operand"),
        (
            "sample(5) >> vote()",
            "takes nothing without a name, and is given 1; name its options, which are n, temp",
        ),
        ("sample(n='4') >> vote()", "n is a whole number of at least 1, not '4'"),
        ("sample(n=None) >> vote()", "n is a whole number of at least 1, not None"),
        ("vote(m=1)", "unexpected keyword argument 'm'; its options are .*weighted"),
        ("cascade(3, accept=confidence(0.5))", "a rung is a graph, not 3"),
        ("best_of_n(verifier=4)", "4 is no verifier"),
        ("confidence('a')", "a confidence lies in"),
        ("sample(tail=tail(cue=5)) >> vote()", "a tail's cue is a text"),
        ("sample(n=2) | vote()", "takes finished candidates and is given open"),
    ],
)
def test_everything_else_is_refused_with_a_reason(text: str, fault: str) -> None:
    """The text is data: nothing in it is ever evaluated."""
    with pytest.raises(GraphError, match=fault):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "sample(" * 60,
        "(" * 60 + ")" * 60,
        "-" * 60 + "1",
        "greedy() >> " * 150 + "vote()",
        "greedy()" + " & greedy()" * 199,
        "x" * (MAX_CHARACTERS + 1),
        "not " * 400 + "x",
        "lambda:" * 250 + "1",
        "a" + ".a" * 900,
        "1" + "**1" * 600,
        "a" + "[0]" * 600,
        "f" + "()" * 900,
        "1 if 1 else " * 150 + "1",
        "a" + "+a" * 900,
        "a<" * 900 + "a",
        "f'{" * 45 + "1" + "}'" * 45,
        "await " * 300 + "x",
        "vote(stop=" + "9" * 1900 + ")",
        "\\\n" * 900 + "greedy(",
    ],
    ids=lambda text: text[:12],
)
def test_size_and_depth_are_bounded(text: str) -> None:
    """Nothing that a stranger sends costs time, or the interpreter's stack."""
    started = time.process_time()
    with pytest.raises(GraphError):
        parse(text)
    assert time.process_time() - started < 1


def test_the_largest_graph_that_is_allowed_is_read() -> None:
    """The limits are limits and not guesses."""
    graph = "greedy()" + " | greedy()" * ((MAX_NODES - 5) // 2)
    text = f"({graph}) >> vote()"

    assert len(text) <= MAX_CHARACTERS
    assert isinstance(parse(text), Node)


PIECES = """
    ( ) () | & , = n= stop= verifier= accept= until= tail= cue= role= by= max_tokens= weighted= 1 0
    -1 0.5 1e999 None True 'a' '' [ ] { } * ** . __class__ : f'{1}' # \\ if for é lambda await
"""
WORDS = st.sampled_from([*names("nodes"), *names("verifiers"), " >> ", " ", "\n", *PIECES.split()])


@settings(max_examples=400, deadline=1000)
@given(st.lists(WORDS, max_size=25).map("".join) | st.text(max_size=60))
def test_any_text_is_a_graph_or_a_graph_error(text: str) -> None:
    """No text raises anything else, and none takes a second."""
    with suppress(GraphError):
        parse(text).validate()
