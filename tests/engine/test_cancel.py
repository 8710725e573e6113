"""Cancelling, and faults: what leaves the batch, what is counted, and that nothing else suffers."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, wait

import pytest
import torch

from ttc.engine.local import LocalEngine
from ttc.engine.local.worker import LocalGeneration
from ttc.errors import EngineError
from ttc.ports import Request
from ttc.types import Chunk


class Gate:
    """Lets an engine's steps pass one by one."""

    def __init__(self, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._allowed, self._entered = threading.Semaphore(0), threading.Semaphore(0)
        self.rows: list[int] = []
        forward = engine._batch.model.forward

        def gated(token_ids: torch.Tensor, *args: object) -> torch.Tensor:
            self.rows.append(len(token_ids))
            self._entered.release()
            assert self._allowed.acquire(timeout=30)
            return forward(token_ids, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(engine._batch.model, "forward", gated)

    def enter(self) -> None:
        """Waits until a step computes."""
        assert self._entered.acquire(timeout=30)

    def open(self, steps: int = 1) -> None:
        """Lets steps end."""
        self._allowed.release(steps)


@pytest.fixture
def gate(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate on the engine's steps, opened for good at the end."""
    gate = Gate(engine, monkeypatch)
    yield gate
    gate.open(100_000)


def test_cancelling_counts_the_token_of_the_step_in_flight(
    engine: LocalEngine, gate: Gate, ask: Callable[..., Request]
) -> None:
    """Two tokens done and one being computed are three, and no more follow."""
    call = engine.submit(ask("x", 100))
    gate.open(2)
    for _ in range(3):
        gate.enter()
    counted = call.cancel()
    gate.open(5)
    other = engine.submit(ask("y", 2)).future.result(timeout=30)

    assert counted == 3
    assert call.cancel() == 3
    assert engine.counters.output_tokens == 3 + len(other.token_ids or ())


def test_a_cancelled_call_leaves_before_the_next_step(
    engine: LocalEngine, gate: Gate, ask: Callable[..., Request]
) -> None:
    """The next step has a row less, and its siblings end as if nothing had been."""
    calls = [engine.submit(ask("siblings", 4, seed=seed)) for seed in range(3)]
    while True:
        gate.enter()
        if gate.rows[-1] == 3:
            break
        gate.open()
    calls[1].cancel()
    gate.open()
    gate.enter()
    rows = gate.rows[-1]
    gate.open(100)
    kept = [calls[i].future.result(timeout=30) for i in (0, 2)]
    again = [engine.submit(ask("siblings", 4, seed=seed)).future.result(30) for seed in (0, 2)]

    assert rows == 2
    assert [b.token_ids for b in kept] == [b.token_ids for b in again]
    assert [b.logprobs for b in kept] == [b.logprobs for b in again]


def test_a_cancelled_call_frees_its_memory(
    engine: LocalEngine, gate: Gate, ask: Callable[..., Request]
) -> None:
    """Before the next step computes."""
    call = engine.submit(ask("x" * 200, 100))
    other = engine.submit(ask("y", 100))
    gate.enter()
    used = engine.kv_bytes_used
    call.cancel()
    gate.open()
    gate.enter()

    assert used > engine.kv_bytes_used > 0
    assert engine.num_live == 1
    other.cancel()


def test_a_call_that_waits_is_cancelled_for_nothing(
    load: Callable[..., LocalEngine], ask: Callable[..., Request]
) -> None:
    """It has computed no token, and the next one comes on."""
    engine = load(max_sequences=1)
    running = engine.submit(ask("x", 200))
    waiting = engine.submit(ask("y", 5))
    last = engine.submit(ask("z", 5))

    assert waiting.cancel() == 0
    running.cancel()
    assert len(last.future.result(timeout=30).token_ids or ()) == 5
    assert wait([waiting.future, running.future], timeout=30).not_done == set()
    with pytest.raises(CancelledError):
        waiting.future.result(timeout=30)


def test_cancelling_a_call_that_has_ended_changes_nothing(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """Its result stays, and its tokens are told."""
    call = engine.submit(ask("x", 7))
    branch = call.future.result()

    assert call.cancel() == 7
    assert call.future.result() is branch


def test_cancelling_the_future_cancels_the_call(
    engine: LocalEngine, gate: Gate, ask: Callable[..., Request]
) -> None:
    """As asyncio does when who waits for it is cancelled."""
    call = engine.submit(ask("x", 100))
    gate.enter()
    call.future.cancel()
    gate.open(10)
    engine.submit(ask("y", 1)).future.result(timeout=30)

    assert engine.counters.output_tokens == 2
    assert engine.num_live == 0


@pytest.mark.parametrize("kind", ["whole", "streamed", "queued"])
def test_whose_caller_is_gone_computes_no_more(
    load: Callable[..., LocalEngine],
    ask: Callable[..., Request],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """KV-04: at step 5 of 400, or while it waits; what it had come to by then is known."""
    engine = load(max_sequences=1)
    gate, chunks = Gate(engine, monkeypatch), list[Chunk]()

    async def main() -> LocalGeneration:
        first = engine.submit(ask("x", 400), chunks.append if kind == "streamed" else None)
        gate.open(5)
        for _ in range(6):
            gate.enter()
        call = engine.submit(ask("y", 400)) if kind == "queued" else first
        caller = asyncio.create_task(asyncio.wait_for(asyncio.wrap_future(call.future), 60))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        await asyncio.sleep(0)
        if call is not first:
            first.cancel()
        return call

    gone = asyncio.run(main())
    gate.open(100)
    engine.submit(ask("z", 1)).future.result(timeout=30)

    assert gone.cancel() == (0 if kind == "queued" else 6)
    assert gone.usage.input_tokens == 1
    assert len(gate.rows) == 7  # five steps, the one in flight, and that of the last call
    assert engine.kv_bytes_used == 0


def test_a_call_can_be_cancelled_from_its_own_chunks(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """It is charged what it had computed by then."""
    ended = threading.Event()

    def on_chunk(chunk: Chunk) -> None:
        chunks.append(chunk)
        if len(chunks) == 4:
            counts.append(calls.get(timeout=30).cancel())
            ended.set()

    chunks: list[Chunk] = []
    counts: list[int] = []
    calls: queue.Queue[LocalGeneration] = queue.Queue()
    calls.put(engine.submit(ask("x", 100), on_chunk))
    assert ended.wait(30)

    assert counts[0] >= len(chunks) == 4


def test_a_step_that_fails_fails_its_calls_alone(
    engine: LocalEngine, ask: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They get an error with what they had computed; the engine goes on."""
    forward = engine._batch.model.forward
    steps: list[int] = []

    def faulty(*args: object) -> torch.Tensor:
        steps.append(1)
        if len(steps) == 3:
            raise RuntimeError("out of luck")
        return forward(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(engine._batch.model, "forward", faulty)
    broken = engine.submit(ask("x", 10))
    with pytest.raises(EngineError, match="out of luck") as caught:
        broken.future.result(timeout=30)
    whole = engine.submit(ask("x", 10)).future.result(timeout=30)

    assert caught.value.output_tokens == 2
    assert len(whole.token_ids or ()) == 10
    assert engine.num_live == 0
    engine._batch.tree.check()


def test_a_callback_that_raises_fails_its_own_call(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """And no other."""

    def bad(chunk: Chunk) -> None:
        raise KeyError("mine")

    other = engine.submit(ask("y", 20))
    with pytest.raises(EngineError, match="on_chunk failed: KeyError") as caught:
        engine.submit(ask("x", 20), bad).future.result(timeout=30)

    assert 1 <= caught.value.output_tokens <= 20
    assert len(other.future.result(timeout=30).token_ids or ()) == 20
