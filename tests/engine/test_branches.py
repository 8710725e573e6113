"""Branches: forked and cut back at any token, running or not, and what comes next after them."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

import ttc
from tests.engine.test_cancel import Gate
from ttc.engine.local import LocalEngine
from ttc.engine.local.path import path_tokens
from ttc.errors import ContextOverflow, EngineError
from ttc.function_node import node
from ttc.graph import Port
from ttc.ports import Request
from ttc.types import Branch, Budget, NextTokens, Problem, Sampling

Ask = Callable[..., Request]
MEASURED: dict[str, Any] = {"entropy": True, "logprobs": 4}


def generated(engine: LocalEngine, request: Request) -> Branch:
    """What a call gives."""
    return engine.submit(request).future.result(timeout=120)


def test_a_branch_cut_back_is_what_a_shorter_call_gives(engine: LocalEngine, ask: Ask) -> None:
    """At every token: ids, everything measured, and text, whole characters or not."""
    whole = generated(engine, ask("the sea", 24, seed=3, **MEASURED))
    for count in range(1, 24):
        cut = engine.cut(whole, 7 + count)
        short = generated(engine, ask("the sea", count, seed=3, **MEASURED))
        assert (cut.token_ids, cut.text) == (short.token_ids, short.text)
        assert (cut.logprobs, cut.entropies) == (short.logprobs, short.entropies)
        assert cut.self_certainties == short.self_certainties
        assert cut.top_logprobs == short.top_logprobs
        assert cut.finish_reason == short.finish_reason == "length"
        assert cut.parent is whole.parent


def test_a_character_that_is_cut_in_two_is_one_replacement(engine: LocalEngine) -> None:
    """In the tiny vocabulary a byte is a token."""
    text = engine.append(Branch(text="", token_ids=(1,)), "aé€")

    assert [engine.cut(text, 1 + n).text for n in range(1, 7)] == [
        "a",
        "a\ufffd",
        "aé",
        "aé\ufffd",
        "aé\ufffd",
        "aé€",
    ]


def test_a_cut_at_the_end_of_a_segment_is_the_segment(engine: LocalEngine, ask: Ask) -> None:
    """Nothing is made anew; and nobody is cut to nothing, or to more than there is."""
    first = generated(engine, ask("x" * 10, 5))
    second = generated(engine, ask(first, 5))

    assert engine.cut(second, 20) is second
    assert engine.cut(second, 15) is first
    assert engine.cut(second, 10) is first.parent
    for wrong in (0, 21):
        with pytest.raises(ValueError, match="a branch of 20 tokens is cut back to 1 to 20"):
            engine.cut(second, wrong)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33])
def test_greedy_decoding_from_any_token_goes_on_as_if_it_had_never_stopped(
    engine: LocalEngine, ask: Ask, length: int
) -> None:
    """To the bit, around the borders of pages."""
    whole = generated(engine, ask("once upon a time", 48, temperature=0))
    rest = generated(engine, ask(engine.cut(whole, 16 + length), 48 - length, temperature=0))

    assert rest.token_ids == (whole.token_ids or ())[length:]
    assert rest.logprobs == (whole.logprobs or ())[length:]


def test_a_running_call_is_forked_at_any_token_it_has(
    engine: LocalEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go on; a token that it does not have by now is refused."""
    gate = Gate(engine, monkeypatch)
    call = engine.submit(ask("the sea", 30, seed=1, **MEASURED))
    gate.open(20)
    for _ in range(21):
        gate.enter()
    fork = call.fork(12)
    with pytest.raises(ValueError, match="20 tokens by now"):
        call.fork(21)
    gate.open(10_000)
    rest = engine.submit(ask(fork, 18, seed=1, **MEASURED)).future.result(timeout=60)
    whole = call.future.result(timeout=60)

    assert fork.token_ids == (whole.token_ids or ())[:12]
    assert fork.logprobs == (whole.logprobs or ())[:12]
    assert fork.text == engine.cut(whole, 7 + 12).text
    assert rest.token_ids == (whole.token_ids or ())[12:]
    assert call.fork(30) is whole


def test_forks_take_no_page(engine: LocalEngine, ask: Ask) -> None:
    """Only running calls hold memory."""
    whole = generated(engine, ask("the sea", 40))
    free = engine._batch.tree.num_free
    forks = [engine.cut(whole, 1 + i % whole.num_tokens) for i in range(1000)]

    assert len(forks) == 1000
    assert engine._batch.tree.num_free == free


def test_next_tokens_are_the_most_probable_ones(engine: LocalEngine, ask: Ask) -> None:
    """With the bits of a score, and what generation measures."""
    branch = Branch(text="", token_ids=tuple(range(40)))
    (found,) = engine.next_tokens(branch, 20).future.result()
    asked = [Branch(parent=branch, text="", token_ids=(token,)) for token in range(261)]
    scores = [value for (value,) in engine.score(branch, asked).future.result()]
    step = generated(engine, ask(branch, 1, temperature=0, entropy=True))

    best = sorted(range(261), key=lambda token: (-scores[token], token))[:20]
    assert list(found.token_ids) == best
    assert list(found.logprobs) == [scores[token] for token in best]
    assert step.token_ids == found.token_ids[:1]
    assert step.logprobs == found.logprobs[:1]
    assert (step.entropies, step.self_certainties) == ((found.entropy,), (found.self_certainty,))


def test_next_tokens_are_read_at_many_places_at_once_and_for_nothing_again(
    engine: LocalEngine,
) -> None:
    """Fewer of them are known, too; more have to be computed."""
    branch = Branch(text="", token_ids=tuple(range(60)))
    found = engine.next_tokens(branch, 5, at=(1, 17, 60)).future.result()
    computed = engine.counters.prompt_tokens
    again = engine.next_tokens(branch, 3, at=(60, 17)).future.result()
    parts = [Branch(text="", token_ids=tuple(range(n))) for n in (1, 17, 60)]
    alone = tuple(engine.next_tokens(part, 5).future.result()[0] for part in parts)

    assert found == alone
    assert again == tuple(
        NextTokens(n.token_ids[:3], n.logprobs[:3], n.entropy, n.self_certainty)
        for n in (found[2], found[1])
    )
    assert (computed, engine.counters.prompt_tokens) == (60, 60)


def test_a_counterfactual_is_a_cut_and_another_token(engine: LocalEngine, ask: Ask) -> None:
    """What comes next if token 11 were another one: only that one is computed."""
    whole = generated(engine, ask("the sea", 30, temperature=0))
    computed = engine.counters.prompt_tokens
    other = Branch(parent=engine.cut(whole, 7 + 10), text="", token_ids=(65,))
    (found,) = engine.next_tokens(other, 3).future.result()

    assert engine.counters.prompt_tokens == computed + 1
    assert generated(engine, ask(other, 1, temperature=0)).token_ids == found.token_ids[:1]


def test_senseless_questions_about_next_tokens_are_refused(engine: LocalEngine) -> None:
    """By what is wrong with them."""
    branch = Branch(text="", token_ids=(1, 2))
    with pytest.raises(ValueError, match="top lies in 1 to 20, not 21"):
        engine.next_tokens(branch, 21)
    with pytest.raises(ValueError, match=r"at holds some of 1 to 2, not \[3\]"):
        engine.next_tokens(branch, 1, at=[3])
    with pytest.raises(EngineError, match="empty"):
        engine.next_tokens(Branch(text="", token_ids=()), 1)


def test_a_branch_is_scored_for_nothing_after_its_memory_was_taken(
    load: Callable[..., LocalEngine], ask: Ask
) -> None:
    """Facts outlive keys and values; a step would have computed something."""
    engine = load(kv_bytes=12 * LocalEngineSize.page)
    branch = generated(engine, ask("a" * 40, 30))
    generated(engine, ask("b" * 180, 10, until=(), temperature=0))
    assert engine._batch.tree.match([*b"a" * 17]).length == 0  # nothing is in memory
    steps = engine.counters.steps
    (values,) = engine.score(branch.parent or branch, [branch]).future.result()

    assert values == branch.logprobs
    assert engine.counters.steps == steps


class LocalEngineSize:
    """Sizes of the tiny engine."""

    page = 2 * 2 * 2 * 8 * 16 * 4
    """Bytes of a page: keys and values, layers, heads, head size, positions, float32."""


@pytest.mark.parametrize("lengths", [(15, 16, 17, 32, 33), (33, 32, 17, 16, 15)])
def test_a_hit_changes_no_log_probability_of_a_prompt(
    engine: LocalEngine, load: Callable[..., LocalEngine], lengths: tuple[int, ...]
) -> None:
    """KV-01: around whole pages, twice, in both orders; the first token has no value."""
    alone = {n: prompt_logprobs(load(), n) for n in lengths}
    for _ in range(2):
        for n in lengths:
            assert prompt_logprobs(engine, n) == alone[n]
            assert len(alone[n]) == n - 1


def prompt_logprobs(engine: LocalEngine, length: int) -> tuple[float, ...]:
    """Of all tokens but the first."""
    first = Branch(text="", token_ids=(7,))
    rest = Branch(parent=first, text="", token_ids=tuple(i * 5 % 250 for i in range(1, length)))
    (values,) = engine.score(first, [rest]).future.result()
    assert all(math.isfinite(value) for value in values)
    return values


def test_cancelling_samples_gives_all_their_pages_back(
    engine: LocalEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KV-03: four samples, stopped after three steps, twice; one call goes on untouched."""
    alone = generated(engine, ask("other", 9, temperature=0))
    gate = Gate(engine, monkeypatch)
    calls = [engine.submit(ask("x" * 70, 400, seed=seed)) for seed in range(4)]
    other = engine.submit(ask("other", 9, temperature=0))
    gate.open(3)
    for _ in range(4):
        gate.enter()
    counts = [call.cancel() for call in calls]
    assert [call.cancel() for call in calls] == counts
    gate.open(10_000)

    assert other.future.result(timeout=60).token_ids == alone.token_ids
    assert engine.kv_bytes_used == 0
    assert engine._batch.tree.paths == set()


@pytest.mark.parametrize(("length", "generates"), [(120, None), (64, None), (63, 1), (60, 4)])
def test_a_prompt_at_the_limit_of_the_context_is_refused_or_served(
    load: Callable[..., LocalEngine], ask: Ask, length: int, generates: int | None
) -> None:
    """KV-06: never cut off at its head."""
    engine = load(kv_bytes=4 * LocalEngineSize.page)
    assert engine.context == 64
    if generates is None:
        with pytest.raises(ContextOverflow, match=rf"{length} tokens.* 64"):
            engine.submit(ask([1] * length, 10))
    else:
        branch = generated(engine, ask([1] * length, 10, temperature=0))
        assert (len(branch.token_ids or ()), branch.finish_reason) == (generates, "length")


def test_a_prompt_is_read_without_generating(load: Callable[..., LocalEngine]) -> None:
    """KV-06: 60 tokens of a context of 64 have 59 log probabilities, of all but the first."""
    engine = load(kv_bytes=4 * LocalEngineSize.page)
    first = Branch(text="", token_ids=(1,))
    rest = Branch(parent=first, text="", token_ids=(1,) * 59)
    (values,) = engine.score(first, [rest]).future.result(timeout=60)

    assert len(values) == 59
    assert engine.counters.output_tokens == 0


def test_log_probabilities_along_a_path_are_those_of_the_sequence(
    engine: LocalEngine, ask: Ask
) -> None:
    """Over forks and cuts, to the bit, and so is their sum."""
    root = ask("abcd").branch
    branch = generated(engine, ask(root, 12, seed=1))
    for seed in (2, 3):
        cut = engine.cut(branch, branch.num_tokens - 4)
        branch = generated(engine, ask(cut, 9, seed=seed, temperature=1.5))
    branch = engine.cut(branch, branch.num_tokens - 1)  # an end token is no part of what follows
    told = [p for segment in branch.lineage() for p in segment.logprobs or ()]
    ids = tuple(path_tokens(branch)[root.num_tokens :])
    whole = Branch(parent=root, text="", token_ids=ids)
    (values,) = engine.score(root, [whole]).future.result(timeout=60)

    assert tuple(told) == values
    assert len(told) == len(ids) > 8
    assert sum(told) == sum(values)


def test_a_scope_cuts_asks_what_comes_next_and_says_what_calls_are_worth(
    engine: LocalEngine,
) -> None:
    """A node needs no engine; prompt tokens are charged once."""
    seen: list[Any] = []

    @node(takes=Port("open", "many"), gives=Port("finished", "one"))
    async def ask_twice(candidates: Any, scope: Any) -> Any:
        async for candidate in candidates:
            scope.prioritise(0, 2.0)
            branch = await scope.generate(candidate.branch, index=0, max_tokens=8)
            cut = scope.cut(branch, branch.num_tokens - 3)
            seen.extend(await scope.next_tokens(cut, 4))
            yield scope.finish(candidate, branch)

    problem = Problem(prompt="the sea", id="x")
    outcome = ttc.solve(problem, ask_twice, model=engine, budget=Budget(tokens=100))

    assert len(seen[0].token_ids) == len(seen[0].logprobs) == 4
    assert outcome.usage.tokens == 5 + 8  # "the" is one token
    assert outcome.usage.calls == 2


def test_priorities_that_are_no_numbers_are_refused(engine: LocalEngine, ask: Ask) -> None:
    """A call that runs has another one at once."""
    call = engine.submit(ask("x", 200))
    call.prioritise(3.0)
    assert call._sequence.priority == 3.0
    with pytest.raises(ValueError, match="not NaN"):
        call.prioritise(math.nan)
    call.cancel()


def test_many_threads_may_cut_and_fork_while_the_engine_runs(engine: LocalEngine, ask: Ask) -> None:
    """What they get is always the beginning of what comes out."""

    async def forks() -> list[Branch]:
        call = engine.submit(ask("the sea", 60, seed=2))
        taken: list[Branch] = []
        while not call.future.done():
            try:
                taken.append(await asyncio.to_thread(call.fork, random.Random(5).randint(1, 50)))
            except ValueError:
                await asyncio.sleep(0)
        return [*taken, call.future.result()]

    *taken, whole = asyncio.run(forks())
    for fork in taken:
        count = len(fork.token_ids or ())
        assert fork.token_ids == (whole.token_ids or ())[:count]
        assert fork.logprobs == (whole.logprobs or ())[:count]


def test_sampling_keeps_its_noise_wherever_a_branch_was_cut(engine: LocalEngine, ask: Ask) -> None:
    """Noise is a function of seed, position and token: the same seed draws the same rest."""
    whole = generated(engine, ask("once", 40, seed=9))
    rest = generated(engine, ask(engine.cut(whole, 4 + 21), 19, seed=9))

    assert rest.token_ids == (whole.token_ids or ())[21:]
    assert Sampling().temperature == 1.0
