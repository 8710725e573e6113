"""Constraints: what is refused before an engine is asked, and how they travel."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttc
from ttc.constraints import Choice, Constraint, Pattern, Schema, constraint_of, constraint_values
from ttc.errors import EngineError, GraphError, NodeError
from ttc.graph import Port
from ttc.journal.trace import fingerprint
from ttc.ports import Request
from ttc.schemas import expanded_size
from ttc.strategies import Sample, Vote
from ttc.testing import FakeEngine
from ttc.text_form import parse, write
from ttc.types import Branch, Problem, Sampling, Tail

CONSTRAINTS: list[Constraint] = [
    Choice("yes", "no"),
    Pattern("[0-9]+"),
    Schema({"type": "integer"}),
]
NODE = {"type": "object", "properties": {"next": {"$ref": "#"}}}


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("uniqueItems", True),
        ("not", {"type": "null"}),
        ("if", {}),
        ("contains", {}),
        ("nullable", True),
        ("dependentRequired", {}),
        ("x-guidance", {"lenient": True}),
        ("unevaluatedProperties", False),
    ],
)
def test_a_keyword_that_is_not_enforced_is_refused_by_name(keyword: str, value: object) -> None:
    """SO-02: at any depth, and with its place."""
    schema = {"type": "object", "properties": {"a": {"items": {keyword: value}}}}
    with pytest.raises(ValueError, match=rf"^#/properties/a/items: {keyword} cannot be enforced"):
        Schema(schema)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "no JSON"),
        ("[1]", "an object, true or false"),
        ('{"const": NaN}', "at most 2"),
        ({"const": [2**60]}, "at most 2"),
        ({"minLength": 3, "maxLength": 2}, "minLength is more than maxLength"),
        ({"minItems": -1}, "whole number"),
        ({"minLength": 10**6}, "at most 10000"),
        ({"items": [{}]}, "an object, true or false"),
        ({"properties": 3}, "an object of schemas"),
        ({"required": "a"}, "a list of names"),
        ({"minProperties": 2, "required": ["a"]}, "required properties only"),
        ({"$ref": "https://example.com"}, "leads out of the schema"),
        ({"$ref": "#/$defs/a"}, "leads nowhere"),
        ({"$ref": "#"}, "no finite text"),
        ({**NODE, "required": ["next"]}, "no finite text"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "no finite text"),
        ({"pattern": "(a{100}){200}"}, "repeats 20000 characters"),
        ({"description": "x" * 70_000}, "at most 64000 characters"),
    ],
)
def test_a_schema_that_nothing_can_hold_to_is_refused(schema: Any, why: str) -> None:
    """SO-02: contradictions, what leads nowhere, and what is too large."""
    with pytest.raises(ValueError, match=why):
        Schema(schema)


def test_a_deep_schema_is_refused() -> None:
    """Before anything recurses into it."""
    schema: dict[str, Any] = {}
    for _ in range(60):
        schema = {"items": schema}
    with pytest.raises(ValueError, match="at most 50 deep"):
        Schema(schema)
    with pytest.raises(ValueError, match=r"no JSON|64000"):
        Schema('{"items":' * 5_000 + "{}" + "}" * 5_000)


def test_a_recursive_schema_with_a_way_out_is_taken() -> None:
    """A list that may end, and a tree of choices."""
    Schema(NODE)
    Schema(
        {"$defs": {"t": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}}, "$ref": "#/$defs/t"}
    )
    Schema({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "any"})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Choice(),
        lambda: Choice("a", ""),
        lambda: Choice("a", "a"),
        lambda: Choice(*map(str, range(2_000))),
        lambda: Pattern(""),
        lambda: Pattern("a" * 5_000),
        lambda: Pattern("((a{100}){100}){100}"),
        lambda: Pattern("a{1,99999}"),
    ],
)
def test_choices_and_patterns_are_bounded(make: Any) -> None:
    """So that no compiler is asked for what it cannot do."""
    with pytest.raises(ValueError, match=r"choice|pattern"):
        make()


@given(
    st.recursive(
        st.sampled_from("abc."), lambda s: st.tuples(s, s) | st.tuples(s, st.integers(1, 9))
    )
)
@settings(max_examples=60)
def test_a_pattern_s_size_is_that_of_its_letters_written_out(tree: Any) -> None:
    """Sequences add and repetitions multiply."""

    def size(part: Any) -> int:
        match part:
            case str():
                return 1
            case (inner, int(times)):
                return size(inner) * times
        return size(part[0]) + size(part[1])

    def written(part: Any) -> str:
        match part:
            case str():
                return part
            case (inner, int(times)):
                return f"(?:{written(inner)}){{{times}}}".replace("?:", "")
        return written(part[0]) + written(part[1])

    assert expanded_size(written(tree)) == size(tree)


def test_classes_and_escapes_count_as_one_letter() -> None:
    r"""Also where they hold brackets and braces: `[{4}]` repeats nothing, nor does `\x{41}`."""
    assert expanded_size(r"[{4}]\x{41}\p{Greek}[]a]\{9\}") == 7
    assert expanded_size(r"(ab){2,5}c{3,}") == 13
    assert expanded_size("a{" + "9" * 5_000 + "}") > 10_000


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_constraint_survives_json_and_the_text_form(constraint: Any) -> None:
    """As does a sampling that holds it, and a strategy."""
    bias = ((3, -100.0), (7, 2.5))
    sampling = Sampling(constraint=constraint, presence_penalty=0.5, logit_bias=bias)
    graph = Sample(n=2, constraint=constraint, repetition_penalty=1.1, logit_bias=bias) >> Vote()

    assert constraint_of(json.loads(json.dumps(constraint_values(constraint)))) == constraint
    assert Sampling.of(json.loads(json.dumps(sampling.values))) == sampling
    assert parse(write(graph)) == graph


def test_values_that_describe_no_constraint_are_refused() -> None:
    """Two at once, and one that is unknown."""
    assert constraint_of(None) is None
    for values in ({"choice": ["a"], "pattern": "b"}, {"lark": "start: x"}, {"pattern": 3}):
        with pytest.raises(ValueError, match="is no constraint"):
            constraint_of(values)
    with pytest.raises(TypeError, match="constraint='yes' is none"):
        Sampling(constraint="yes")  # type: ignore[arg-type]


def test_an_engine_without_grammars_is_refused_before_anything_is_spent() -> None:
    """By the graph, and by each call that a node makes on its own account."""
    engine = FakeEngine("yes")
    with pytest.raises(GraphError, match="needs grammar, which the engine fake lacks"):
        ttc.solve("Is it?", Sample(constraint=Choice("yes", "no")) >> Vote(), model=engine)

    @ttc.node(takes=Port("open", "many"))
    async def own(candidates: Any, scope: Any) -> Any:
        async for candidate in candidates:
            sampling = Sampling(constraint=Choice("yes", "no"))
            branch = await scope.generate(
                candidate.branch, index=0, max_tokens=5, sampling=sampling
            )
            yield scope.finish(candidate, branch)

    with pytest.raises(NodeError, match=r"fake holds to no constraint.*Choice"):
        ttc.solve("Is it?", own >> Vote(), model=engine)
    assert engine.calls == 0


def test_a_request_to_a_fake_engine_is_refused_too() -> None:
    """Whoever asks it himself."""
    engine = FakeEngine("yes")
    request = Request(
        branch=engine.root(Problem.ask("Is it?"), "policy"),
        max_tokens=3,
        sampling=Sampling(constraint=Pattern("y")),
        seed=0,
    )
    with pytest.raises(ValueError, match="says what it is told to"):
        engine.submit(request)


def test_until_and_tail_have_no_place_beside_a_constraint() -> None:
    """A constraint says where a text ends."""
    for options in ({"until": ("x",)}, {"tail": Tail(cue="So")}):
        graph = Sample(constraint=Choice("a"), **options) >> Vote()
        with pytest.raises(GraphError, match="says where a text ends"):
            graph.validate()


def test_constraints_tell_requests_apart() -> None:
    """In the fingerprint of a call. So does a bias."""
    branch = Branch(text="a", token_ids=(1,))
    plain = fingerprint(branch, sampling=Sampling())
    prints = {fingerprint(branch, sampling=Sampling(constraint=c)) for c in CONSTRAINTS}
    prints |= {fingerprint(branch, sampling=Sampling(logit_bias=((7, b),))) for b in (1.0, 2.0)}

    assert len(prints | {plain}) == 6


def test_the_simulator_and_pools_refuse_what_they_cannot_do() -> None:
    """Penalties and constraints, by name."""
    from ttc.engine.simulator import SimulatedProblem, Simulator

    simulator = Simulator([SimulatedProblem(id="p", success=0.5)])
    root = simulator.root(Problem(id="p", prompt="?"), "policy")
    for sampling, error in (
        (Sampling(presence_penalty=1.0), EngineError),
        (Sampling(logit_bias=((1, 2.0),)), EngineError),
        (Sampling(constraint=Choice("a")), ValueError),
    ):
        with pytest.raises(error, match="writes by its laws"):
            simulator.submit(Request(branch=root, max_tokens=3, sampling=sampling, seed=0))
