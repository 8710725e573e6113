"""Side chains: other tokens that may come, tried in the same step, under `coupled` acceptance."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.engine.cancelling import cancelled_at
from tests.engine.fake_model import FakeModel, token
from tests.engine.guessers import Guess, Guesser, everything, knowing, random_tokens
from tests.engine.test_speculation import (
    KINDS,
    PROMPTS,
    all_of,
    check_all_is_known,
    results,
    texts_of,
)
from ttc.engine.local import LocalEngine
from ttc.engine.local.batch import Batch
from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.drafting.options import Drafting
from ttc.engine.local.drafting.speculation import Speculation
from ttc.engine.local.page import Page, Path
from ttc.engine.local.path import path_tokens
from ttc.engine.local.plan import PAGE
from ttc.engine.local.sequence import Sequence as EngineSequence
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.local.tree import RadixTree
from ttc.errors import EngineError
from ttc.ports import Request
from ttc.types import Branch, Sampling

Load = Callable[..., LocalEngine]
Ask = Callable[..., Request]


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every drafted token is tried, whatever it costs."""
    monkeypatch.setattr(DraftBudget, "choose", everything)


def guessing(guess: Guess, *others: Guess) -> Drafting:
    """What drafts by functions: a call's own chain, and others."""
    return Drafting(name="guesser", make=lambda: Guesser(guess, *others))


def never(texts: dict[int, Any]) -> Guess:
    """What a call will write, each token another one."""

    def guess(call: EngineSequence, most: int) -> list[int]:
        start = call.num_output
        return [(known + 1) % 256 for known in texts[call.request.seed][start : start + most]]

    return guess


def halves(texts: dict[int, Any]) -> Drafting:
    """Two that know half of what comes, and one that knows nothing."""
    first, second = knowing(texts, 0.5), knowing(texts, 0.5, seed=3)
    return guessing(lambda c, n: first(c, n), lambda c, n: second(c, n)[:3], random_tokens())


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths that calls went on along side chains with."""
    found, exchange = list[Path](), Path.exchange

    def noted(path: Path, other: Path) -> None:
        exchange(path, other)
        found.append(other)

    monkeypatch.setattr(Path, "exchange", noted)
    return found


@pytest.mark.parametrize("kind", ["greedy", "filtered", "penalised", "measured", "constrained"])
def test_side_chains_change_no_bit(load: Load, ask: Ask, kind: str, kept: list[Path]) -> None:
    """Whichever chain comes true, or none."""
    if kind == "constrained":
        pytest.importorskip("llguidance", reason="constraints need the extra `local`")
    requests = [ask(p, 40, seed=i, **KINDS[kind]) for i, p in enumerate(PROMPTS)]
    plain = results(load(), requests)
    texts = texts_of(requests, plain)
    engine = load(drafting=halves(texts))

    assert results(engine, requests) == plain
    assert engine.counters.output_tokens == sum(len(text) for text in texts.values())
    assert 0 < engine.counters.rejected_draft_tokens < engine.counters.draft_tokens
    if kind != "constrained":  # there a wrong guess is mostly not legal, and others stand in for it
        assert len(kept) > 3


def aside(load: Load, ask: Ask) -> tuple[LocalEngine, Request, Branch]:
    """An engine whose side chains know what a call will write, the call, and what it writes."""
    endless = tuple((token, -100.0) for token in range(258, 261))
    request = ask("at the side", 60, seed=7, logprobs=2, entropy=True, logit_bias=endless)
    whole = load().submit(request).future.result(30)
    assert whole.token_ids is not None
    texts: dict[int, Any] = {7: whole.token_ids}
    return load(drafting=guessing(never(texts), knowing(texts))), request, whole


def test_a_side_chain_that_came_true_is_kept(load: Load, ask: Ask) -> None:
    """Nine tokens in each step; its first row, and all of the call's own chain, were in vain."""
    engine, request, whole = aside(load, ask)
    call = engine.submit(request)
    assert all_of(call.future.result(30)) == all_of(whole)

    counters, usage = engine.counters, call.usage
    assert counters.steps == 1 + 7  # 7 x 9 tokens at most, after the prompt's
    assert counters.draft_tokens == usage.draft_tokens
    assert counters.rejected_draft_tokens == usage.rejected_draft_tokens
    accepted = counters.draft_tokens - counters.rejected_draft_tokens
    assert accepted == 60 - 8
    assert counters.rejected_draft_tokens == accepted + 7
    assert usage.flops == engine.costs.flops(start=0, count=11 + 59, draws=60)
    computed = 11 + 7 + counters.draft_tokens
    assert sum(step.rows for step in engine.meter.recent) == computed


@pytest.mark.parametrize("most", [2, 10])
def test_a_cap_inside_a_side_chain_is_kept(load: Load, ask: Ask, most: int) -> None:
    engine, request, whole = aside(load, ask)
    branch = engine.submit(replace(request, max_tokens=most)).future.result(30)

    assert branch.token_ids == (whole.token_ids or ())[:most]
    assert engine.counters.output_tokens == most


def test_a_stop_inside_a_side_chain_ends_the_call_there(load: Load, ask: Ask) -> None:
    """ST-02, and nothing that came after the stop is ever found."""
    engine, request, whole = aside(load, ask)
    stop = next(a + b for a, b in pairwise(whole.text[4:]) if (a + b).isascii())
    request = replace(request, until=(stop,))
    plain = load().submit(request).future.result(30)
    branch = engine.submit(request).future.result(30)

    assert all_of(branch) == all_of(plain)
    assert branch.stop_reason == stop
    assert engine.counters.output_tokens == len(branch.token_ids or ()) < 60
    assert engine._batch.tree.match([*path_tokens(whole), 0]).length == branch.num_tokens - 1


@pytest.mark.parametrize("after", [1, 5])
def test_a_call_that_is_cancelled_inside_a_side_chain_ends_there(
    load: Load, ask: Ask, after: int
) -> None:
    engine, request, _ = aside(load, ask)

    call, _ = cancelled_at(engine, request, after, lambda: None)

    results(engine, [ask("another", 1, seed=7)])
    assert engine.counters.output_tokens == after + 1
    assert engine.counters.rejected_draft_tokens == call.usage.rejected_draft_tokens
    assert call.usage.flops == engine.costs.flops(start=0, count=10 + after, draws=after)
    assert engine._batch.tree.num_used == 0


def test_what_is_known_of_a_kept_side_chain_is_known_of_the_call(load: Load, ask: Ask) -> None:
    engine, request, _ = aside(load, ask)
    check_all_is_known(engine, request)


def chains_of(tree: RadixTree) -> Iterator[tuple[int, ...]]:
    """The tokens of every path from a root of a tree to a leaf."""
    stack: list[tuple[Page, tuple[int, ...]]] = [(root, ()) for root in tree._roots.values()]
    while stack:
        page, before = stack.pop()
        below = [*page.children, *page.growing]
        stack += [(child, before + tuple(child.tokens)) for child in below]
        if not below:
            yield before


@pytest.mark.parametrize("num_pages", [12, 200])
def test_nothing_but_what_came_is_ever_found(load: Load, ask: Ask, num_pages: int) -> None:
    """Whether memory is short, so that calls give way and side chains find no pages, or not."""
    requests = [ask(f"memory is short {i}", 60, seed=i, temperature=0.9) for i in range(4)]
    plain = results(load(), requests)
    page = load()._batch.page_bytes
    engine = load(kv_bytes=num_pages * page, drafting=halves(texts_of(requests, plain)))

    assert results(engine, requests) == plain
    whole = [(*path_tokens(r.branch), *found[0]) for r, found in zip(requests, plain, strict=True)]  # type: ignore[misc]
    tree = engine._batch.tree
    for chain in chains_of(tree):
        assert any(text[: len(chain)] == chain for text in whole)
    assert tree.num_used == 0
    assert engine.counters.draft_tokens > 0
    assert engine.counters.kv_byte_seconds > 0


def test_pages_of_side_chains_are_given_back_after_each_step(
    load: Load, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a page is full, and where a chain goes on to another one."""
    request = ask("p" * 15, 70, seed=1)
    text = results(load(), [request])[0][0]
    engine = load(drafting=halves({1: text}))
    batch, held = engine._batch, list[bool]()
    step = batch.step

    def watched() -> None:
        step()
        assert len(batch.tree.paths) <= 1
        held.extend(len(path.pages) == -(-path.length // PAGE) for path in batch.tree.paths)
        assert batch.tree.num_used == sum(len(path.pages) for path in batch.tree.paths)

    monkeypatch.setattr(batch, "step", watched)
    assert results(engine, [request])[0][0] == text
    assert len(held) > 10
    assert all(held)


def test_a_step_that_fails_gives_side_chains_back(
    load: Load, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls end with the error, and the next one finds the engine whole."""
    engine, request, whole = aside(load, ask)
    batch = engine._batch
    forward = batch.model.forward

    def failing(token_ids: torch.Tensor, plan: Any, *more: Any) -> torch.Tensor:
        if len(plan.spans) > 1:
            monkeypatch.undo()
            raise RuntimeError("a fault")
        return forward(token_ids, plan, *more)

    monkeypatch.setattr(batch.model, "forward", failing)
    with pytest.raises(EngineError, match="a fault"):
        engine.submit(request).future.result(30)
    assert batch.tree.num_used == 0
    assert all_of(engine.submit(request).future.result(30)) == all_of(whole)


@pytest.mark.parametrize("seed", range(2))
def test_calls_that_come_and_go_are_whole(tokens: TextTokens, seed: int, kept: list[Path]) -> None:
    """Dozens of calls with chains that are right at random, in little memory, some cancelled."""
    rng = random.Random(seed)

    def guess(call: EngineSequence, most: int) -> list[int]:
        right = [token(call.request.seed, len(call.tokens) + n) for n in range(most)]
        return [t if rng.random() < 0.6 else rng.randrange(250) for t in right[: rng.randint(1, 8)]]

    batch = Batch(
        FakeModel(),
        num_pages=16,
        max_sequences=5,
        lock=threading.Lock(),
        speculate=partial(Speculation, Guesser(guess, guess, guess), "coupled"),
    )
    calls = list[EngineSequence]()
    for number in range(40):
        prompt = tuple(rng.choices(range(3), k=rng.randint(1, 40)))
        branch, most = Branch(text="", token_ids=prompt), rng.randint(1, 60)
        request = Request(branch=branch, max_tokens=most, sampling=Sampling(), seed=number)
        calls.append(EngineSequence(request, list(prompt), most, tokens, None))
    batch.schedule.add(calls)
    while not batch.schedule.is_idle:
        batch.step()
        batch.tree.check()
        rng.choice(calls).prioritise(rng.random())
        if rng.random() < 0.1:
            rng.choice(calls).cancel(0.0)

    for call in calls:
        start = call.prompt_length
        came = [token(call.request.seed, position) for position in range(start, len(call.tokens))]
        assert call.tokens[start:] == came
        assert call.cancelled or len(came) == call.limit
    assert batch.counters.preemptions > 0
    assert len(kept) > 10
    assert batch.tree.num_used == 0
