"""Given text is scored as generation scores its own, and no row of it is computed twice."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.engine.local import LocalEngine
from ttc.engine.local.reading import Read, Reading, suffix_plan
from ttc.engine.local.source import ModelSource
from ttc.errors import ContextOverflow, EngineError
from ttc.ports import Request
from ttc.types import Branch

Ask = Callable[..., Request]


def given_text(*segments: tuple[int, ...]) -> Branch:
    """A branch of given tokens, one segment for each part."""
    branch: Branch | None = None
    for ids in segments:
        branch = Branch(parent=branch, text="", token_ids=ids)
    assert branch is not None
    return branch


def score(
    engine: LocalEngine, prefix: tuple[int, ...], *suffixes: tuple[int, ...]
) -> tuple[tuple[float, ...], ...]:
    """What an engine says of suffixes."""
    branch = given_text(prefix)
    given = [Branch(parent=branch, text="", token_ids=ids) for ids in suffixes]
    return engine.score(branch, given).future.result()


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.7, "top_k": 9}, {}])
def test_scoring_gives_the_bits_that_generation_reported(
    load: Callable[..., LocalEngine], ask: Ask, sampling: dict[str, float]
) -> None:
    """On another engine, which knows nothing of the first; before filters and temperature."""
    prompt = list(range(20, 150))
    generated = load().submit(ask(prompt, 90, seed=5, **sampling)).future.result()
    assert generated.token_ids is not None

    (scored,) = score(load(), tuple(prompt), generated.token_ids)
    assert scored == generated.logprobs


def test_a_score_is_its_callers_or_its_trees(engine: LocalEngine) -> None:
    """So is every other reading."""
    first, last = given_text((1, 2)), given_text((1, 2), (3, 4)).parent
    assert last is not None
    suffix = Branch(parent=last, text="", token_ids=(5,))
    reads: list[Read[Any]] = [
        engine.score(last, [suffix], owner="mine"),
        engine.next_tokens(first, 1, owner="mine"),
        engine.hidden(first, [0]),
        engine.score(last, [suffix]),
    ]
    owners = [reading.owner for read in reads for reading in read.readings]

    assert owners == ["mine", "mine", first, last]


def test_suffixes_share_their_prefix_and_one_another(engine: LocalEngine) -> None:
    """Each distinct row is computed once, and the last token of a suffix not at all."""
    prefix = tuple(range(100))
    suffixes = ((7,), (8,), (7, 1, 2), (7, 1, 3), (9, 1), (7,))
    values = score(engine, prefix, *suffixes)
    computed = engine.counters.prompt_tokens

    assert computed == 100 + len({(7,), (7, 1), (9,)})
    assert [len(v) for v in values] == [1, 1, 3, 3, 2, 1]
    assert values[0] == values[5] == values[2][:1]
    assert [v for s in suffixes for v in score_alone(engine, prefix, s)] == [
        v for found in values for v in found
    ]
    assert engine.counters.prompt_tokens == computed  # and a second time nothing is


def score_alone(
    engine: LocalEngine, prefix: tuple[int, ...], suffix: tuple[int, ...]
) -> tuple[float, ...]:
    """One suffix by itself."""
    (values,) = score(engine, prefix, suffix)
    return values


def test_suffixes_may_leave_a_branch_anywhere(engine: LocalEngine) -> None:
    """The branch is read once, as far as somebody leaves it."""
    parts = [tuple(range(start, start + 50)) for start in (0, 50, 100)]
    trunk = given_text(*parts)
    ends = list(trunk.lineage())
    asked = [Branch(parent=end, text="", token_ids=(t,)) for end in ends for t in (7, 8)]
    values = engine.score(trunk, asked).future.result()
    computed = engine.counters.prompt_tokens

    assert computed == 150
    alone = [score_alone(engine, tuple(range(end)), (t,)) for end in (50, 100, 150) for t in (7, 8)]
    assert list(values) == alone


def test_what_was_generated_is_scored_without_computing(engine: LocalEngine, ask: Ask) -> None:
    """Its log probabilities are known already, to the last token."""
    branch = engine.submit(ask(list(range(70)), 20)).future.result()
    before = engine.counters.prompt_tokens
    (values,) = score(engine, tuple(range(70)), branch.token_ids or ())

    assert values == branch.logprobs
    assert engine.counters.prompt_tokens == before


def test_a_score_that_is_known_leaves_nothing_in_the_engine(engine: LocalEngine, ask: Ask) -> None:
    """It is answered without a step, and its owner has no share of the engine any more."""
    branch = engine.submit(ask("hello", 6)).future.result()
    for _ in range(3):
        engine.score(branch.parent or branch, [branch]).future.result()
    engine.submit(ask("bye", 1)).future.result()  # the engine is past the last score
    schedule = engine._batch.schedule

    assert not schedule._present
    assert schedule._turns.num_owners == 0


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_a_plan_reads_every_row_once(suffixes: list[list[int]]) -> None:
    """And finds each suffix's tokens, one after another, on a path that holds the suffix."""
    root = given_text((9, 9))
    paths, answer = suffix_plan(
        [Branch(parent=root, text="", token_ids=tuple(ids)) for ids in suffixes]
    )
    rows = {tuple(tokens[: row + 1]) for tokens, wants in paths for row in wants}
    expected = {(9, 9, *s[:end]) for s in suffixes for end in range(len(s))}
    readings = [Reading(tokens, wants, lambda error: None) for tokens, wants in paths]
    for reading in readings:
        for row, want in reading.wants.items():
            prefix = tuple(reading.tokens[: row + 1])
            reading.note(row, {key: float(hash((*prefix, key))) for key in want.keys})

    assert rows == expected
    assert sum(len(wants) for _, wants in paths) == len(expected)
    assert answer(readings) == tuple(
        tuple(float(hash((9, 9, *s[: end + 1]))) for end in range(len(s))) for s in suffixes
    )


def test_scores_do_not_depend_on_company(load: Callable[..., LocalEngine], ask: Ask) -> None:
    """Scored among generating calls and other scores, and alone."""
    engine = load()
    texts = [tuple(range(i, i + 80)) for i in range(6)]
    noise = [engine.submit(ask(list(range(i, i + 40)), 30, seed=i)) for i in range(5)]
    branches = [given_text(text) for text in texts]
    calls = [
        engine.score(b, [Branch(parent=b, text="", token_ids=(5, 6, 7 + i))])
        for i, b in enumerate(branches)
    ]
    together = [call.future.result() for call in calls]
    for call in noise:
        call.future.result()
    other = load()
    alone = [score(other, text, (5, 6, 7 + i)) for i, text in enumerate(texts)]

    assert together == alone


def test_tokens_that_are_never_drawn_have_no_probability(tiny: ModelSource) -> None:
    """As when a token is drawn: they have no part in the sum, either."""
    vocabulary = copy.copy(tiny.tokens)
    vocabulary.unsampled_ids = frozenset(range(100, 200))
    with LocalEngine(replace(tiny, tokens=vocabulary), name="tiny") as engine:
        values = score(engine, (1, 2, 3), *((token,) for token in range(261)))

    assert all(values[token] == (-math.inf,) for token in range(100, 200))
    assert math.fsum(math.exp(value) for (value,) in values) == pytest.approx(1, abs=1e-6)


def test_a_cancelled_score_frees_its_memory(engine: LocalEngine) -> None:
    """And its future is cancelled."""
    read = engine.score(given_text(tuple(range(200))), [given_text(tuple(range(200)), (1,))])
    assert read.cancel() == 0
    score(engine, (1, 2, 3), (4,))

    assert read.future.cancelled()
    assert engine.kv_bytes_used == 0


def test_what_cannot_be_scored_is_refused(engine: LocalEngine) -> None:
    """Nothing after nothing, unknown tokens, and what the context does not hold."""
    branch = given_text((1, 2))
    with pytest.raises(ValueError, match="at least one token each"):
        engine.score(branch, [])
    with pytest.raises(ValueError, match="holds the token 999"):
        engine.score(branch, [Branch(parent=branch, text="", token_ids=(999,))])
    with pytest.raises(ContextOverflow, match="512"):
        engine.score(branch, [Branch(parent=branch, text="", token_ids=(1,) * 600)])
    with pytest.raises(EngineError, match="no reward model"):
        engine.reward(branch, [0])
    with pytest.raises(EngineError, match="empty"):
        engine.score(given_text(()), [Branch(parent=given_text(()), text="", token_ids=(1,))])
