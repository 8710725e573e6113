"""What breaks in one row of a step ends the call of that row, and nothing else."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.engine.conftest import TINY, tiny_weights
from ttc.engine.local import LocalEngine
from ttc.engine.local.model import Llama
from ttc.engine.local.source import ModelSource
from ttc.errors import EngineError, MemoryExhausted
from ttc.ports import Request
from ttc.types import Branch

Ask = Callable[..., Request]
POISON = 66


class _Poisoned(Llama):
    """Its logits after one token are no numbers."""

    def __init__(self, value: float) -> None:
        super().__init__(TINY, tiny_weights(), torch.float32)
        self._value = value

    def forward(self, token_ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        logits = super().forward(token_ids, *rest)
        wanted = rest[-1]
        logits[token_ids[wanted] == POISON, 100] = self._value
        return logits


@pytest.fixture(params=[math.nan, math.inf])
def poisoned(tiny: ModelSource, request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    """An engine whose model breaks after the token 66."""
    source = replace(tiny, build=lambda: _Poisoned(request.param))
    with LocalEngine(source, name="tiny") as engine:
        yield engine


def test_logits_that_are_no_numbers_end_their_own_call_alone(
    poisoned: LocalEngine, engine: LocalEngine, ask: Ask
) -> None:
    """The others give what they give on a sound model, and nothing is held afterwards."""
    sound = [ask([1, 2, i], 9, seed=i, temperature=0) for i in range(4)]
    calls = [poisoned.submit(request) for request in (*sound, ask([1, 2, POISON], 9))]
    with pytest.raises(EngineError, match="logits are not finite") as caught:
        calls[-1].future.result()

    assert caught.value.output_tokens == 0
    for call, request in zip(calls, sound, strict=False):
        other = engine.submit(request).future.result()
        if POISON not in (other.token_ids or ()):
            assert call.future.result().token_ids == other.token_ids
    assert poisoned.kv_bytes_used == 0


def test_a_broken_row_ends_the_score_that_reads_it_alone(poisoned: LocalEngine) -> None:
    """A score beside it that does not read the row is given."""
    branch = Branch(text="", token_ids=(1, 2, POISON))
    sound = Branch(text="", token_ids=(1, 2, POISON, 3))
    broken = poisoned.score(branch, [Branch(parent=branch, text="", token_ids=(5,))])
    whole = poisoned.score(sound, [Branch(parent=sound, text="", token_ids=(5,))])
    with pytest.raises(EngineError, match="logits are not finite"):
        broken.future.result()

    assert len(whole.future.result()[0]) == 1
    assert poisoned.kv_bytes_used == 0


def test_what_a_broken_call_computed_is_never_found(poisoned: LocalEngine, ask: Ask) -> None:
    """Neither its prompt nor what it had generated; what it had found is."""
    poisoned.submit(ask([1] * 20, 1)).future.result()
    broken = poisoned.submit(ask([*[1] * 20, *[2] * 40, POISON], 9))
    with pytest.raises(EngineError, match="logits are not finite"):
        broken.future.result()

    assert poisoned._batch.tree.match([*[1] * 20, *[2] * 40]).length <= 20
    assert poisoned.kv_bytes_used == 0


def test_a_step_that_fails_before_its_copies_harms_no_call_that_had_no_part_in_it(
    engine: LocalEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joined on a copied page that step; it computes its prompt again, and the same bits."""
    prompts = [[*range(30), 7], [*range(30), 8]]
    alone = [engine.submit(ask(p, 9, temperature=0)).future.result() for p in prompts]
    batch, fail = engine._batch, [True]
    copy, choose = batch._pool.copy, batch.schedule.choose

    def broken(pairs: Any) -> None:
        if fail and pairs:
            fail.clear()
            raise RuntimeError("no copies today")
        copy(pairs)

    def first_alone(seats: Any) -> Any:
        work = choose(seats)
        if fail:
            del work.pieces[1:]
        return work

    forward, is_held, go = batch.model.forward, threading.Event(), threading.Event()

    def hold(*inputs: Any) -> torch.Tensor:  # so that both calls join in one step
        is_held.set()
        assert go.wait(60)
        return forward(*inputs)

    with monkeypatch.context() as patch:
        patch.setattr(batch.model, "forward", hold)
        engine.submit(ask("z", 1))
        assert is_held.wait(60)
    calls = [engine.submit(ask(p, 9, temperature=0)) for p in prompts]
    monkeypatch.setattr(batch._pool, "copy", broken)
    monkeypatch.setattr(batch.schedule, "choose", first_alone)
    go.set()
    with pytest.raises(EngineError, match="no copies today"):
        calls[0].future.result(timeout=60)
    spared = calls[1].future.result(timeout=60)

    assert (spared.token_ids, spared.logprobs) == (alone[1].token_ids, alone[1].logprobs)
    assert engine.counters.preemptions == 1
    assert engine.kv_bytes_used == 0


def test_a_fault_of_the_scheduler_ends_all_calls_and_the_engine_goes_on(
    engine: LocalEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it left of the pages is forgotten."""
    alone = engine.submit(ask("x", 9, temperature=0)).future.result()
    with monkeypatch.context() as patch:
        patch.setattr(engine._batch.schedule, "choose", lambda seats: 1 / 0)
        call = engine.submit(ask("x", 9))
        with pytest.raises(EngineError, match="scheduler failed: ZeroDivisionError"):
            call.future.result(timeout=60)
    again = engine.submit(ask("x", 9, temperature=0)).future.result(timeout=60)

    assert (again.token_ids, again.logprobs) == (alone.token_ids, alone.logprobs)
    assert engine.kv_bytes_used == 0
    assert engine._batch.tree.num_remembered == 0


def test_when_the_engines_thread_dies_every_call_is_told_and_no_more_is_taken(
    engine: LocalEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever."""
    schedule = engine._batch.schedule
    choose = schedule.choose

    def die(seats: Any) -> Any:
        if len(schedule.running) == 2:
            raise SystemExit("a crash")
        return choose(seats)

    monkeypatch.setattr(schedule, "choose", die)
    for call in [engine.submit(ask(text, 400)) for text in "xy"]:
        with pytest.raises(EngineError, match="thread has ended: SystemExit"):
            call.future.result(timeout=60)
    with pytest.raises(EngineError, match="load it again"):
        engine.submit(ask("z", 1))
    assert engine.kv_bytes_used == 0


def test_a_call_for_which_there_is_no_memory_ends_alone(
    engine: LocalEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error that says that it may be sent again; nothing of it is held."""
    choose, starving = engine._batch.schedule.choose, [True]

    def starved(seats: Any) -> Any:
        work = choose(seats)
        if starving and work.pieces:
            starving.clear()
            work.starved = work.pieces.pop().sequence
        return work

    monkeypatch.setattr(engine._batch.schedule, "choose", starved)
    with pytest.raises(MemoryExhausted, match="kv_bytes") as caught:
        engine.submit(ask("x", 9)).future.result(timeout=60)

    assert caught.value.retryable
    assert len(engine.submit(ask("x", 9)).future.result(timeout=60).token_ids or ()) == 9
    assert engine.kv_bytes_used == 0
