"""Speculation under `coupled` acceptance: the very same results, whoever drafts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.cancelling import cancelled_at
from tests.engine.guessers import Guess, Guesser, everything, knowing, random_tokens
from ttc.constraints import Pattern
from ttc.engine.local import LocalEngine
from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.drafting.ngram import NgramDrafter
from ttc.engine.local.drafting.options import Drafting
from ttc.engine.local.path import path_tokens
from ttc.engine.local.plan import PAGE
from ttc.errors import EngineError
from ttc.ports import Request
from ttc.types import Branch, Chunk

Load = Callable[..., LocalEngine]
Ask = Callable[..., Request]

PROMPTS = ["a", "the sum", "abcabcabcabc", "y" * 63, "z" * 64]
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "plain": {"temperature": 1.0},
    "filtered": {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    "penalised": {
        "temperature": 0.8,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.4,
        "presence_penalty": 0.3,
        "logit_bias": ((97, 3.0), (101, -100.0)),
    },
    "penalised greedy": {"temperature": 0, "repetition_penalty": 1.3, "frequency_penalty": 0.2},
    "measured": {"temperature": 1.0, "logprobs": 3, "entropy": True},
    "constrained": {"temperature": 1.0, "constraint": Pattern("(ab|c[0-9]+x){6,}")},
}


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every drafted token is tried, whatever it costs."""
    monkeypatch.setattr(DraftBudget, "floor", 0.0, raising=False)
    monkeypatch.setattr(DraftBudget, "choose", everything)


def guessing(guess: Guess) -> Drafting:
    """What drafts by a function."""
    return Drafting(name="guesser", make=lambda: Guesser(guess))


def all_of(branch: Branch) -> tuple[object, ...]:
    """Everything that a call results in."""
    names = (
        "token_ids",
        "text",
        "logprobs",
        "entropies",
        "self_certainties",
        "top_logprobs",
        "finish_reason",
        "stop_reason",
    )
    return tuple(getattr(branch, name) for name in names)


def check_all_is_known(engine: LocalEngine, request: Request) -> None:
    """Scoring what was generated computes nothing and gives its log probabilities back."""
    branch = engine.submit(request).future.result(30)
    before = engine.counters.flops
    (scores,) = engine.score(request.branch, [branch]).future.result(30)

    assert scores == branch.logprobs
    assert engine.counters.flops == before


def results(engine: LocalEngine, requests: list[Request]) -> list[tuple[object, ...]]:
    """What calls that run together result in."""
    futures = [engine.submit(request).future for request in requests]
    return [all_of(future.result(60)) for future in futures]


def texts_of(requests: list[Request], found: list[tuple[object, ...]]) -> dict[int, Any]:
    """By seed what was written."""
    return {request.seed: each[0] for request, each in zip(requests, found, strict=True)}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_change_no_bit(load: Load, ask: Ask, kind: str) -> None:
    """By one who knows everything, half of it, or nothing; by look-up; in the tree."""
    if kind == "constrained":
        pytest.importorskip("llguidance", reason="constraints need the extra `local`")
    requests = [ask(p, 24, seed=i, **KINDS[kind]) for i, p in enumerate(PROMPTS)]
    plain = results(load(), requests)
    texts = texts_of(requests, plain)
    knows = [guessing(knowing(texts, wrong)) for wrong in (0.0, 0.3)]
    looks = [
        Drafting(name="guesser", make=lambda: NgramDrafter("own")),
        Drafting(name="guesser", make=lambda: NgramDrafter("tree")),
    ]

    for drafting in (*knows, guessing(random_tokens()), *looks):
        engine = load(drafting=drafting)
        assert results(engine, requests) == plain
        counters = engine.counters
        assert counters.output_tokens == sum(len(text) for text in texts.values())
        assert 0 <= counters.rejected_draft_tokens <= counters.draft_tokens
        assert counters.draft_tokens or drafting not in knows


@pytest.mark.usefixtures("eager")
def test_what_is_known_beforehand_takes_an_eighth_of_the_steps(load: Load, ask: Ask) -> None:
    request = ask("so it goes", 90, seed=3)
    text = results(load(), [request])[0][0]
    engine = load(drafting=guessing(knowing({3: text})))  # type: ignore[dict-item]

    assert results(engine, [request])[0][0] == text
    assert engine.counters.steps == 1 + 10  # nine tokens in each after the prompt's
    assert engine.counters.rejected_draft_tokens == 0


def block_of(load: Load, ask: Ask, **more: Any) -> tuple[LocalEngine, Request, Branch]:
    """An engine that knows what a call will write, the call, and what it writes without drafts."""
    request = ask("a block", 30, seed=7, logprobs=2, entropy=True, **more)
    whole = load().submit(request).future.result(30)
    assert whole.token_ids is not None
    return load(drafting=guessing(knowing({7: whole.token_ids}))), request, whole


@pytest.mark.usefixtures("eager")
def test_a_stop_inside_a_block_ends_the_call_there(load: Load, ask: Ask) -> None:
    """ST-02: text, tokens, log probabilities and counts all end with the stop string's token."""
    engine, request, whole = block_of(load, ask)
    request = replace(request, until=("NE",))
    plain = load().submit(request).future.result(30)
    call = engine.submit(request)
    branch = call.future.result(30)

    assert all_of(branch) == all_of(plain)
    assert branch.stop_reason == "NE"
    assert engine.counters.output_tokens == len(branch.token_ids or ()) < 30
    assert engine.counters.rejected_draft_tokens == (call.usage.rejected_draft_tokens or 0) > 0
    assert engine._batch.tree.match([*path_tokens(whole), 0]).length == branch.num_tokens - 1


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("most", range(1, 12))
def test_a_cap_inside_a_block_is_kept(load: Load, ask: Ask, most: int) -> None:
    """No token beyond it is ever computed."""
    engine, request, whole = block_of(load, ask)
    branch = engine.submit(replace(request, max_tokens=most)).future.result(30)

    assert branch.token_ids == (whole.token_ids or ())[:most]
    assert engine.counters.output_tokens == most
    assert engine.counters.rejected_draft_tokens == 0


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("after", [1, 2, 5, 9, 12])
def test_a_call_that_is_cancelled_inside_a_block_ends_there(
    load: Load, ask: Ask, after: int
) -> None:
    """As without drafts: nothing more is kept or counted, and later tokens were tried in vain."""
    engine, request, _ = block_of(load, ask)

    call, _ = cancelled_at(engine, request, after, lambda: results(engine, [ask("another", 1)]))

    assert engine.counters.output_tokens == after + 1
    assert engine.counters.rejected_draft_tokens == call.usage.rejected_draft_tokens
    assert call.usage.flops == engine.costs.flops(start=0, count=6 + after, draws=after)


@pytest.mark.usefixtures("eager")
def test_a_callback_that_fails_inside_a_block_is_told_nothing_more(load: Load, ask: Ask) -> None:
    engine, request, _ = block_of(load, ask)
    told = list[int]()

    def on_chunk(chunk: Chunk) -> None:
        told.extend(chunk.token_ids or ())
        if len(told) == 4:
            raise RuntimeError("enough")

    with pytest.raises(EngineError, match="enough"):
        engine.submit(request, on_chunk).future.result(30)
    results(engine, [ask("another", 1)])
    assert len(told) == 4


@pytest.mark.usefixtures("eager")
def test_no_sibling_waits_for_another(load: Load, ask: Ask) -> None:
    """One whose drafts come true ends while one whose drafts do not has a ninth of its tokens."""
    requests = [ask("ragged", 90, seed=seed) for seed in (1, 2)]
    plain = results(load(), requests)
    known = {1: plain[0][0], 2: (0,) * 90}
    engine = load(drafting=guessing(knowing(known)))  # type: ignore[arg-type]
    steps = list[int]()
    calls = [engine.submit(request) for request in requests]
    calls[0].future.add_done_callback(lambda _: steps.append(engine.counters.steps))

    assert [all_of(call.future.result(30)) for call in calls] == plain
    assert steps[0] <= 13 < engine.counters.steps


@pytest.mark.usefixtures("eager")
def test_rejected_drafts_are_booked_by_call_and_by_engine(load: Load, ask: Ask) -> None:
    """Field defect 27: what the calls are told adds up, in no other line."""
    requests = [ask("booked", 20 + i, seed=i) for i in range(6)]
    plain_engine = load()
    plain = [plain_engine.submit(request) for request in requests]
    texts = {r.seed: c.future.result(30).token_ids for r, c in zip(requests, plain, strict=True)}
    engine = load(drafting=guessing(knowing(texts, wrong=0.3)))  # type: ignore[arg-type]
    calls = [engine.submit(request) for request in requests]
    for call in calls:
        call.future.result(30)
    counters, usages = engine.counters, [call.usage for call in calls]

    assert sum(u.rejected_draft_tokens or 0 for u in usages) == counters.rejected_draft_tokens > 0
    assert sum(u.draft_tokens or 0 for u in usages) == counters.draft_tokens
    assert sum(u.flops or 0 for u in usages) == plain_engine.counters.flops < counters.flops
    assert counters.output_tokens == plain_engine.counters.output_tokens
    assert counters.kv_byte_seconds == pytest.approx(sum(u.kv_byte_seconds or 0 for u in usages))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("num_pages", [9, 14])
def test_drafts_and_preemption_change_no_bit(load: Load, ask: Ask, num_pages: int) -> None:
    """Where memory is so short that calls give way, and that drafts find no pages."""
    requests = [ask(f"memory is short {i}", 60, seed=i, temperature=0.9) for i in range(6)]
    plain = results(load(), requests)
    texts = texts_of(requests, plain)
    page = load()._batch.page_bytes
    engine = load(kv_bytes=num_pages * page, drafting=guessing(knowing(texts, wrong=0.2)))
    for call in [engine.submit(ask("x", 40, seed=0)) for _ in range(8)]:
        call.future.cancel()

    assert results(engine, requests) == plain
    assert engine.counters.draft_tokens > 0


@pytest.mark.usefixtures("eager")
def test_forks_and_hits_change_no_bit(load: Load, ask: Ask) -> None:
    """Branches that go on from a call's middle, and the same call again, out of the cache."""
    engine, request, whole = block_of(load, ask)
    first = engine.submit(request).future.result(30)
    again = engine.submit(request).future.result(30)
    cut = engine.cut(first, first.num_tokens - 17)
    asked = ask(cut, 20, seed=7)
    forked = engine.submit(asked).future.result(30)

    assert all_of(first) == all_of(again) == all_of(whole)
    assert forked.token_ids == load().submit(asked).future.result(30).token_ids


@pytest.mark.usefixtures("eager")
def test_pages_of_rejected_drafts_are_given_back(
    load: Load, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each step a call holds the pages of its tokens and no others."""
    engine = load(drafting=guessing(random_tokens()))
    batch, held = engine._batch, list[bool]()
    step = batch.step

    def watched() -> None:
        step()
        held.extend(len(path.pages) == -(-path.length // PAGE) for path in batch.tree.paths)

    monkeypatch.setattr(batch, "step", watched)
    engine.submit(ask("p" * 15, 60, seed=1)).future.result(30)
    assert len(held) > 50
    assert all(held)
    assert engine.counters.rejected_draft_tokens > 100
    assert batch.tree.num_used == 0


@pytest.mark.usefixtures("eager")
def test_what_is_known_of_a_row_is_of_accepted_tokens(load: Load, ask: Ask) -> None:
    engine, request, _ = block_of(load, ask)
    check_all_is_known(engine, request)
