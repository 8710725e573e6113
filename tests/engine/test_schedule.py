"""What runs in a step: priorities, turns, memory, giving way. A fake model computes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.fake_model import Bench, output, wanted
from ttc.engine.local import LocalEngine
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.local.worker import LocalGeneration
from ttc.ports import Request


@pytest.fixture
def bench(tokens: TextTokens) -> Callable[..., Bench]:
    """Makes batches that are stepped by hand."""
    return lambda **settings: Bench(tokens, **settings)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_memory_is_never_exceeded_and_every_call_ends_as_if_alone(
    tokens: TextTokens, data: st.DataObject
) -> None:
    """Whatever comes, in whatever order, with whatever priorities: no step is empty meanwhile."""
    bench = Bench(tokens, num_pages=12, max_sequences=3)
    for _ in range(data.draw(st.integers(1, 8))):
        limit = data.draw(st.integers(1, 60))
        prompt = data.draw(st.sampled_from([range(5), range(40), range(20, 70), [3] * 90]))
        owner = data.draw(st.sampled_from("ab"))
        bench.submit(prompt, limit, owner=owner, priority=data.draw(st.sampled_from([0, 0, 1])))
        for _ in range(data.draw(st.integers(0, 15))):
            if bench.schedule.is_idle:
                break
            bench.step()
            assert bench.batch.kv_bytes_used <= 12 * bench.batch.page_bytes
    bench.finish()

    assert [output(call) for call in bench.calls] == [wanted(call) for call in bench.calls]
    assert bench.batch.tree.num_used == 0


def test_a_call_gives_way_at_most_once_to_its_equals(bench: Callable[..., Bench]) -> None:
    """And then has its memory for certain, so there is no going round in circles."""
    b = bench(num_pages=20, max_sequences=8)
    for seed in range(10):  # lengths of a twentieth of what is allowed become the rule
        b.submit([seed], 200).limit = 10
    b.finish()
    calls = [b.submit([50 + seed], 200) for seed in range(8)]  # and these use everything
    b.finish()

    assert b.batch.counters.preemptions > 0
    assert max(call.times_preempted for call in calls) == 1
    assert [output(call) for call in calls] == [wanted(call) for call in calls]


def test_memory_is_not_left_empty_for_lengths_that_nobody_reaches(
    bench: Callable[..., Bench],
) -> None:
    """Calls join by what such calls really used, once that is known."""
    b = bench(num_pages=20, max_sequences=8)
    for seed in range(8):
        b.submit([seed], 200).limit = 10
    b.step(2)
    at_first = len(b.schedule.running)
    b.finish()
    for seed in range(8):
        b.submit([50 + seed], 200).limit = 10
    b.step(2)

    assert (at_first, len(b.schedule.running)) == (1, 8)


def test_a_priority_acts_at_the_next_step(bench: Callable[..., Bench]) -> None:
    """Of one that waits as of one that runs, though all places were taken."""
    b = bench(max_sequences=2)
    first, second, third = (b.submit([seed], 30, owner="one") for seed in range(3))
    b.step(3)
    assert [b.in_step(call) for call in (first, second, third)] == [True, True, False]
    third.prioritise(1.0)
    b.step()
    assert b.in_step(third)
    assert b.in_step(first) != b.in_step(second)
    second.prioritise(2.0)
    b.step()
    assert [b.in_step(call) for call in (first, second, third)] == [False, True, True]


def test_who_is_worth_more_takes_the_memory_of_who_is_worth_less(
    bench: Callable[..., Bench],
) -> None:
    """At once; the other one goes on afterwards, with the same tokens."""
    b = bench(num_pages=8)
    low = b.submit([1] * 20, 80)
    b.step(5)
    high = b.submit([2] * 20, 80, priority=1.0)
    b.step()
    assert b.in_step(high)
    assert not b.in_step(low)
    b.finish()

    assert (output(low), output(high)) == (wanted(low), wanted(high))
    assert (low.times_preempted, high.times_preempted) == (1, 0)


def test_what_is_computed_again_has_a_line_of_its_own(bench: Callable[..., Bench]) -> None:
    """And is in no other count: neither of the call, nor of the engine's prompt tokens."""
    b = bench(num_pages=8)
    low = b.submit([1] * 20, 80)
    b.step(5)
    b.submit([2] * 20, 108, priority=1.0)
    b.finish()
    alone = bench()
    same = alone.submit([1] * 20, 80)
    alone.finish()

    assert low.usage.recomputed_tokens == b.batch.counters.recomputed_tokens == 24
    assert low.usage.flops == same.usage.flops
    assert low.usage.input_tokens == same.usage.input_tokens
    assert b.batch.counters.prompt_tokens == 40
    assert b.batch.counters.output_tokens == 80 + 108


def test_every_live_call_has_its_turn(bench: Callable[..., Bench]) -> None:
    """Of 3 n calls of equal priority each computes within so many steps, in any three."""
    b = bench(num_pages=200, max_sequences=4)
    calls = [b.submit([seed], 60, owner=str(seed)) for seed in range(6)]
    b.step(6)
    running = [call for call in calls if call in b.schedule.running]
    gaps = []
    for _ in range(30):
        b.step()
        gaps.append(max(b.schedule.step - call.turn for call in running))

    assert len(running) > 4, "more live calls than places"
    assert max(gaps) <= 2


def test_a_big_run_cannot_starve_a_small_one(bench: Callable[..., Bench]) -> None:
    """A small one that comes late ends in about the time that half the engine needs for it."""
    b = bench(num_pages=400, max_sequences=8)
    for seed in range(40):
        b.submit([seed], 60, owner="big")
    b.step(20)
    ended: list[int] = []
    for seed in range(4):
        b.submit([200 + seed], 20, owner="small", on_end=lambda: ended.append(b.schedule.step))
    b.finish()

    assert max(ended) - 20 <= 2 * 20 + 2


def test_an_owner_below_its_share_takes_memory_of_one_above(bench: Callable[..., Bench]) -> None:
    """So a run that fills the memory with long calls does not keep another out."""
    b = bench(num_pages=24, max_sequences=8)
    big = [b.submit([seed], 127, owner="big") for seed in range(9)]
    b.step(3)
    assert len(b.schedule.running) == 3
    small = b.submit([100], 60, owner="small")
    b.step()
    assert b.in_step(small)
    b.finish()

    assert [output(call) for call in [*big, small]] == [wanted(call) for call in [*big, small]]
    assert max(call.times_preempted for call in big) == 1


def test_prompts_go_with_decoding_in_pieces(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many tokens as the cost curve allows beside the calls that decode."""
    b = bench(num_pages=100)
    short = b.submit([1], 40)
    b.step(2)
    monkeypatch.setattr(b.batch.curve, "most_rows", lambda *_, **__: 48)
    long = b.submit([2] * 200, 5)
    b.step()

    assert b.in_step(short)
    assert long.computed == 48
    assert sorted(span.count for span in b.model.steps[-1]) == [1, 48]


def test_siblings_are_neighbours_in_a_step(bench: Callable[..., Bench]) -> None:
    """Calls of two prompts that came in turns compute in depth-first order of the tree."""
    b = bench(num_pages=100, max_sequences=8)
    for _ in range(4):
        b.submit([1] * 64, 30)
        b.submit([2] * 64, 30)
    b.step(8)
    firsts = [span.pages[0] for span in b.model.steps[-1]]

    assert len(firsts) == 8
    assert firsts == sorted(firsts)
    assert len(set(firsts)) == 2


def test_a_large_call_is_not_passed_for_ever(bench: Callable[..., Bench]) -> None:
    """Small ones of other owners that come later wait behind it."""
    b = bench(num_pages=12, max_sequences=4)
    for seed in range(3):
        b.submit([seed], 60, owner="small")
    b.step()
    large = b.submit([9], 190, owner="large")
    for seed in range(40):
        b.submit([20 + seed], 60, owner="small")
    b.step(130)

    assert large.computed > 0


def test_a_call_that_gave_way_has_the_same_bits(
    load: Callable[..., LocalEngine],
    ask: Callable[..., Request],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a real, if tiny, model: tokens and log probabilities to the bit."""
    requests = [
        replace(ask([65 + i] * 40, 40, seed=i, temperature=0.8), priority=float(i))
        for i in range(4)
    ]
    spacious = load(kv_bytes=1 << 20)
    calm = [spacious.submit(request).future.result() for request in requests]
    tight = load(kv_bytes=8 * spacious._batch.page_bytes)
    rest, later = iter(requests[1:]), list[LocalGeneration]()
    forward = tight._batch.model.forward

    def submit_more(*inputs: Any) -> torch.Tensor:  # each comes while the one before runs
        if tight.counters.steps % 3 == 2 and (request := next(rest, None)):
            later.append(tight.submit(request))
        return forward(*inputs)

    monkeypatch.setattr(tight._batch.model, "forward", submit_more)
    first = tight.submit(requests[0]).future.result()
    hurried = [first, *(call.future.result() for call in later)]

    assert tight.counters.preemptions > 0
    assert [b.token_ids for b in hurried] == [b.token_ids for b in calm]
    assert [b.logprobs for b in hurried] == [b.logprobs for b in calm]


def test_a_call_that_gives_way_in_its_turn_leaves_it_to_another(
    load: Callable[..., LocalEngine], ask: Callable[..., Request]
) -> None:
    """With one seat, and many that joined as calls before them were short: none fails."""
    ends = ((258, 100.0),)
    endless = tuple((token, -100.0) for token in range(258, 261))
    engine = load(kv_bytes=20 * load()._batch.page_bytes, max_sequences=1)
    for call in [engine.submit(ask(f"short {i}", 200, logit_bias=ends)) for i in range(40)]:
        call.future.result(60)

    calls = [engine.submit(ask(f"long {i}", 100, seed=i, logit_bias=endless)) for i in range(8)]
    assert [len(call.future.result(60).token_ids or ()) for call in calls] == [100] * 8
    assert engine.counters.preemptions > 0
