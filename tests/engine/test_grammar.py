"""Constraints on the embedded engine: what is drawn, where it ends, and how it goes on."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.constraints import Choice, Constraint, Pattern, Schema
from ttc.engine.local import LocalEngine
from ttc.engine.local.grammar import Grammar, Grammars
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import EngineError
from ttc.ports import Request
from ttc.types import Branch
from ttc.verifiers import JsonSchema

pytest.importorskip("llguidance", reason="constraints need the extra `local`")

Ask = Callable[..., Request]
ENDS = {258, 260}
"""The end tokens of the tiny vocabulary."""

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "minimum": 1, "maximum": 10},
        "y": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 5}},
    },
    "required": ["x", "y"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars(tokens: TextTokens) -> Grammars:
    """Those of the tiny vocabulary."""
    return Grammars(tokens)


def legal(grammar: Grammar) -> set[int]:
    """The tokens that may come next."""
    bits = np.unpackbits(grammar.allowed().view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def spin(grammar: Grammar, likes: list[int], most: int, seed: int = 0) -> list[int]:
    """What a model writes that takes the first of its likes that is legal, else any."""
    rng, written = random.Random(seed), list[int]()
    while len(written) < most:
        options = legal(grammar)
        token = next((like for like in likes if like in options), None)
        token = rng.choice(sorted(options)) if token is None else token
        written.append(token)
        if token in ENDS:
            break
        assert grammar.accept(token)
    return written


def text_of(tokens: TextTokens, written: list[int]) -> str:
    """The text of tokens, which has to be UTF-8."""
    return b"".join(map(tokens.bytes_of, written)).decode()


def test_the_end_is_legal_exactly_where_the_text_satisfies(grammars: Grammars) -> None:
    """After `a` a choice of `a` and `ab` may end or go on; after `ab` it can only end."""
    grammar = grammars.begin(Choice("a", "ab"))
    assert legal(grammar) == {ord("a")}
    grammar.accept(ord("a"))
    assert legal(grammar) == {ord("b")} | ENDS
    grammar.accept(ord("b"))

    assert legal(grammar) == ENDS


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=5, unique=True), st.data())
@settings(max_examples=60, deadline=None)
def test_a_choice_gives_its_options_and_nothing_else(
    grammars: Grammars, tokens: TextTokens, options: list[str], data: st.DataObject
) -> None:
    """Whatever letters they have; each of them is reached."""
    options = [option.encode(errors="replace").decode() for option in options]
    grammar_of = Choice(*dict.fromkeys(options))
    option = data.draw(st.sampled_from(options))
    grammar = grammars.begin(grammar_of, list(option.encode()))
    assert legal(grammar) >= ENDS

    written = spin(grammars.begin(grammar_of), [], 50, data.draw(st.integers(0, 99)))
    assert text_of(tokens, written) in options


PATTERNS = [
    r"[0-9]{1,4}(\.[0-9]{2})?",
    r"(yes|no|maybe) [a-f]{2,3}!?",
    r"[\x{3b1}-\x{3c9}]{1,4}@\d{1,3}\.(com|org)",
    r"[^a-z\n]{3}",
    r"(?i:the) end\n?",
    r"é{1,2}|\x{1F600}x?",
    r"a{2,5}b*?c{0,2}$",
]


@pytest.mark.parametrize("regex", PATTERNS)
@pytest.mark.parametrize("seed", range(5))
def test_what_a_pattern_gives_matches_it(
    grammars: Grammars, tokens: TextTokens, regex: str, seed: int
) -> None:
    """By Python's own matcher, which reads them alike but for how a letter's number is written."""
    written = spin(grammars.begin(Pattern(regex)), [], 400, seed)
    python = re.sub(r"\\x\{(\w+)\}", lambda found: chr(int(found[1], 16)), regex)

    assert written[-1] in ENDS
    assert re.fullmatch(python, text_of(tokens, written))


@pytest.mark.parametrize("favourite", ["0", " ", '"', "9", "\n", "\\", "1", "-"])
def test_a_bounded_schema_ends_whatever_the_model_prefers(
    grammars: Grammars, tokens: TextTokens, favourite: str
) -> None:
    """SO-02: each string, number and array has a bound, and so have white space and digits.

    x has 2 digits; y three strings of 5 letters of at most 4 bytes and their escapes; and white
    space of at most 17 bytes goes between any two of some 20 pieces.
    """
    written = spin(grammars.begin(Schema(PERSON)), [ord(favourite)], 1000)
    value = json.loads(text_of(tokens, written))

    assert written[-1] in ENDS
    assert len(written) < 450
    assert 1 <= value["x"] <= 10
    assert len(value["y"]) <= 3
    assert all(len(item) <= 5 for item in value["y"])


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize("favourite", ["0", "9", ".", "e"])
def test_digits_do_not_go_on_for_ever(
    grammars: Grammars, tokens: TextTokens, kind: str, favourite: str
) -> None:
    """SO-02: at most 20 in a row, and a float has three rows of them."""
    likes = [ord(favourite), ord("1"), ord("0"), ord("5")]
    written = spin(grammars.begin(Schema({"type": kind})), likes, 200)

    assert written[-1] in ENDS
    assert len(written) <= 67
    assert isinstance(json.loads(text_of(tokens, written)), int | float)


def test_digits_that_the_schema_itself_asks_for_are_written(
    grammars: Grammars, tokens: TextTokens
) -> None:
    """A number that can only be reached by more of them, and strings, which are no numbers."""
    number = {"type": "number", "minimum": 1e-25, "maximum": 2e-25}
    written = spin(grammars.begin(Schema(number)), [], 100)
    text = spin(grammars.begin(Schema({"type": "string", "maxLength": 50})), [ord("1")], 100)

    assert 1e-25 <= json.loads(text_of(tokens, written)) <= 2e-25
    assert json.loads(text_of(tokens, text)) == "1" * 50


def between(kind: str, low: str, high: str, least: int, span: int) -> dict[str, Any]:
    """A schema of a type with two bounds."""
    return {"type": kind, low: least, high: least + span}


LEAVES = st.one_of(
    st.builds(
        lambda low, span: between("integer", "minimum", "maximum", low, span),
        st.integers(-200, 200),
        st.integers(0, 300),
    ),
    st.builds(
        lambda low, span: between("number", "exclusiveMinimum", "maximum", low, span),
        st.integers(-20, 20),
        st.integers(1, 30),
    ),
    st.builds(
        lambda low, span: between("string", "minLength", "maxLength", low, span),
        st.integers(0, 3),
        st.integers(0, 4),
    ),
    st.just({"type": "string", "pattern": "^[a-c]{1,3}-?$"}),
    st.just({"type": "string", "format": "date"}),
    st.just({"type": "integer", "multipleOf": 3, "minimum": 0, "maximum": 99}),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"const": "é\n"}]),
    st.just({"enum": [1, "two", None, [True]]}),
)


def larger(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Arrays, objects and choices of schemas."""
    arrays = st.builds(
        lambda items, least, span: (
            {**between("array", "minItems", "maxItems", least, span)} | {"items": items}
        ),
        parts,
        st.integers(0, 2),
        st.integers(0, 2),
    )
    objects = st.builds(
        lambda properties, others: {
            "type": "object",
            "properties": properties,
            "required": sorted(properties),
            "additionalProperties": others,
            "maxProperties": 40,
        },
        st.dictionaries(st.sampled_from(["a", "b", 'c"', "d d"]), parts, max_size=3),
        st.sampled_from([False, {"type": "integer", "minimum": 0, "maximum": 9}]),
    )
    choices = st.builds(lambda one, other: {"anyOf": [one, other]}, parts, parts)
    return arrays | objects | choices


SCHEMAS = st.recursive(LEAVES, larger, max_leaves=6)
"""Schemas that no two keywords of contradict each other."""


@given(SCHEMAS, st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_what_a_schema_gives_is_valid_by_an_independent_check(
    grammars: Grammars, tokens: TextTokens, schema: dict[str, Any], seed: int
) -> None:
    """SO-02: the library jsonschema reads the text again."""
    written = spin(grammars.begin(Schema(schema)), [ord('"'), ord("}"), ord("]")], 3000, seed)

    assert written[-1] in ENDS
    assert asyncio.run(JsonSchema(schema).check(text_of(tokens, written))) is True


def test_a_key_is_not_written_a_second_time_in_other_letters(grammars: Grammars) -> None:
    """An escaped `a` would be an additional property by its letters and `a` by its meaning."""
    schema = Schema({"type": "object", "properties": {"a": {"type": "string"}}})
    grammars.begin(schema, list(b'{"a": "x", "b": 1'))
    with pytest.raises(ValueError, match="does not allow"):
        grammars.begin(schema, list(b'{"\\u0061": 1'))


@given(st.integers(0, 200), st.sampled_from(PATTERNS), st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_a_state_made_again_from_its_tokens_allows_the_same(
    grammars: Grammars, seed: int, regex: str, cut: int
) -> None:
    """Fork, cut back and go on: masks depend on the tokens alone."""
    constraint: Constraint = Pattern(regex) if seed % 2 else Schema(PERSON)
    grammar, masks = grammars.begin(constraint), list[set[int]]()
    rng, written = random.Random(seed), list[int]()
    while len(written) < 60:
        masks.append(legal(grammar))
        token = rng.choice(sorted(masks[-1]))
        if token in ENDS:
            break
        grammar.accept(token)
        written.append(token)
    cut = min(cut, len(masks) - 1)
    again = grammars.begin(constraint, written[:cut])

    assert legal(again) == masks[cut]
    for token, mask in zip(written[cut:], masks[cut + 1 :], strict=False):
        again.accept(token)
        assert legal(again) == mask


def test_control_tokens_are_never_written_as_text(tokens: TextTokens, grammars: Grammars) -> None:
    """Their names are spelt out in plain tokens."""
    name = "<|im_end|>"
    written = spin(grammars.begin(Choice(name)), [], 50)

    assert text_of(tokens, written) == name
    assert not set(written[:-1]) & set(tokens.control.values())


@pytest.mark.parametrize(
    ("constraint", "why"),
    [
        (Pattern("(?=a)b"), "look-ahead"),
        (Pattern("(a)\\1"), "backreferences are not supported"),
        (Pattern("[0-9"), "unclosed character class"),
        (Pattern("[^\\x00-\\x{10FFFF}]"), "no text satisfies it"),
        (Schema({"type": "integer", "minimum": 5, "maximum": 1}), "minimum .5. is greater"),
        (Schema({"type": "string", "format": "idn-email"}), "Unknown format: idn-email"),
        (Schema({"oneOf": [{"type": "integer"}, {"minimum": 0}]}), "oneOf"),
        (Schema({"type": "array", "items": {"type": "word"}}), "Invalid type: word"),
    ],
)
def test_what_cannot_be_held_to_is_refused_by_name(
    engine: LocalEngine, ask: Ask, constraint: Constraint, why: str
) -> None:
    """Before anything runs, with what is wrong with it."""
    with pytest.raises(ValueError, match=why):
        engine.check_constraint(constraint)
    with pytest.raises(ValueError, match=re.escape(type(constraint).__name__)):
        engine.submit(ask("abc", constraint=constraint))
    assert engine.counters.prompt_tokens == 0


def test_an_engine_draws_what_the_constraint_allows(engine: LocalEngine, ask: Ask) -> None:
    """The end token closes it, and log probabilities are those of the model alone."""
    constraint = Pattern("[0-9]{3} (cats|dogs)")
    calls = [engine.submit(ask("How many?", 20, seed=i, constraint=constraint)) for i in range(20)]
    branches = [call.future.result() for call in calls]
    (scored,) = engine.score(branches[0].parent or branches[0], branches[:1]).future.result()

    assert all(re.fullmatch(constraint.regex, branch.text) for branch in branches)
    assert len({branch.text for branch in branches}) > 5
    assert {branch.finish_reason for branch in branches} == {"stop"}
    assert scored == branches[0].logprobs


def test_what_is_cut_within_a_grammar_is_truncated(engine: LocalEngine, ask: Ask) -> None:
    """SO-01: it is no JSON, and nothing makes it one."""
    branch = engine.submit(ask("abc", 6, constraint=Schema(PERSON))).future.result()

    assert branch.finish_reason == "length"
    assert branch.text.startswith("{")
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(branch.text)


def test_a_branch_that_was_begun_under_a_constraint_goes_on_with_it(
    engine: LocalEngine, ask: Ask
) -> None:
    """In pieces of any length, forked and with text between, it becomes what it has to be."""
    constraint = Pattern("[a-d]{12}-[0-9]{4}")
    root = Branch(text="", token_ids=tuple(b"abc"))
    begun = engine.submit(ask(root, 5, constraint=constraint)).future.result()
    assert begun.constraint == constraint
    forks = [engine.submit(ask(begun, 3, seed=i, constraint=constraint)) for i in range(3)]
    ends = [
        engine.submit(ask(engine.append(fork.future.result(), "dd"), 50, constraint=constraint))
        for fork in forks
    ]

    for end in ends:
        assert re.fullmatch(constraint.regex, end.future.result().output)


def test_a_cut_branch_goes_on_from_where_it_was_cut(engine: LocalEngine, ask: Ask) -> None:
    """Its tokens say where the grammar stands."""
    constraint = Pattern("[ab]{4}[cd]{4}")
    whole = engine.submit(ask("xyz", 20, constraint=constraint)).future.result()
    kept = (whole.token_ids or ())[:6]
    cut = replace(whole, token_ids=kept, text=whole.text[:6], finish_reason="length")
    again = engine.submit(ask(cut, 20, seed=3, constraint=constraint)).future.result()

    assert re.fullmatch(constraint.regex, again.output)


def test_a_closed_text_is_followed_by_a_new_one(engine: LocalEngine, ask: Ask) -> None:
    """As it is under another constraint, or where none was."""
    constraint = Choice("yes", "no")
    first = engine.submit(ask("xyz", 9, constraint=constraint)).future.result()
    free = engine.submit(ask(first, 5)).future.result()
    for branch in (first, engine.append(first, " or "), free):
        more = engine.submit(ask(branch, 9, constraint=constraint)).future.result()
        assert more.text in constraint.options


def test_given_text_that_the_constraint_does_not_allow_is_refused(
    engine: LocalEngine, ask: Ask
) -> None:
    """The message tells it."""
    constraint = Pattern("[ab]{8}")
    begun = engine.submit(ask("xyz", 3, constraint=constraint)).future.result()
    with pytest.raises(ValueError, match=r"goes on from a text .* does not allow: .*z"):
        engine.submit(ask(engine.append(begun, "z"), 9, constraint=constraint))


def test_a_grammar_that_gives_up_ends_its_call_and_says_why(
    engine: LocalEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be drawn any more; llguidance knows the reason."""
    request = ask("abc", 6, constraint=Pattern("[ab]{8}"))
    engine.submit(request).future.result()  # compiles it
    monkeypatch.setattr(Grammar, "_is_dead", lambda _: True)
    monkeypatch.setattr(Grammar, "error", "it took too many steps")
    with pytest.raises(EngineError, match="can be drawn: it took too many steps"):
        engine.submit(request).future.result(60)


def test_who_stops_reading_has_an_error_whatever_the_grammar_does(
    engine: LocalEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine may be changing the grammar's state, which is one thread's alone."""

    def leave(_: object) -> None:
        raise ConnectionError

    def in_use(_: Grammar) -> str:
        raise RuntimeError("Already mutably borrowed")

    monkeypatch.setattr(Grammar, "error", property(in_use))
    call = engine.submit(ask("abc", 6, constraint=Pattern("[ab]{8}")), leave)
    with pytest.raises(EngineError, match="on_chunk failed"):
        call.future.result(60)


def test_constrained_rows_change_nothing_for_others(
    load: Callable[..., LocalEngine], ask: Ask
) -> None:
    """SM-06: alone and among rows with masks and penalties, all give the same bits."""
    requests = [
        ask("some text", 12, seed=1),
        ask("some text", 12, seed=1, constraint=Pattern("[a-z]{9}")),
        ask("other", 12, seed=2, temperature=0, repetition_penalty=1.4),
        ask("third one", 12, seed=3, presence_penalty=1.0, frequency_penalty=0.5, top_p=0.9),
    ]
    engine = load()
    together = [engine.submit(r) for r in requests]
    branches = [call.future.result() for call in together]
    for request, branch in zip(requests, branches, strict=True):
        alone = load().submit(request).future.result()
        assert (alone.token_ids, alone.logprobs) == (branch.token_ids, branch.logprobs)
    assert re.fullmatch("[a-z]{9}", branches[1].text)


def test_a_penalty_reads_what_earlier_calls_generated(engine: LocalEngine, ask: Ask) -> None:
    """A text drawn in one call is the one drawn in two, which share their seed."""
    settings: dict[str, Any] = {"temperature": 0, "frequency_penalty": 1.5, "presence_penalty": 1}
    whole = engine.submit(ask("hello there", 16, **settings)).future.result()
    half = engine.submit(ask("hello there", 8, **settings)).future.result()
    rest = engine.submit(ask(half, 8, **settings)).future.result()

    assert (half.token_ids or ()) + (rest.token_ids or ()) == whole.token_ids
    assert (
        whole.token_ids
        != engine.submit(ask("hello there", 16, temperature=0)).future.result().token_ids
    )
