"""Continuations: what a text is worth after another, wherever tokens would have joined."""

from __future__ import annotations

import math

import pytest

from ttc.engine.local import LocalEngine
from ttc.types import Branch, Problem


def _root(engine: LocalEngine, text: str) -> Branch:
    return engine.root(Problem(prompt=text), "policy")


@pytest.mark.parametrize(("context", "continuation"), [("th", "e"), ("t", "h"), ("x", " y")])
def test_a_continuation_has_tokens_where_both_would_be_one(
    engine: LocalEngine, context: str, continuation: str
) -> None:
    """BK-12: `th` and `e` would join to one token; they are encoded apart, so none is lost."""
    root = _root(engine, context)
    suffix = engine.append(root, continuation)
    (values,) = engine.score(root, [suffix]).future.result(timeout=60)

    assert len(values) == len(suffix.token_ids or ()) == len(continuation)
    assert all(value < 0 for value in values)


def test_the_continuations_of_a_closed_vocabulary_are_a_distribution(engine: LocalEngine) -> None:
    """BK-12: the probabilities of all next tokens add up to 1, those across the border included."""
    root = _root(engine, "th")
    each = [Branch(parent=root, text="", token_ids=(token,)) for token in range(261)]
    scores = engine.score(root, each).future.result(timeout=60)

    assert math.fsum(math.exp(value) for (value,) in scores) == pytest.approx(1, abs=1e-4)


def test_a_space_belongs_to_what_follows_it(engine: LocalEngine) -> None:
    """BK-12: a text that is appended keeps its first space, so the border is where it is put."""
    root = _root(engine, "x")
    apart = engine.append(root, " y")
    assert apart.output == " y"
    assert (apart.token_ids or ())[0] == ord(" ")
