"""Callbacks run beside the engine's thread: none holds anybody else up, and each in its order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from ttc.engine.local import LocalEngine, telling
from ttc.engine.local.telling import Teller
from ttc.errors import StreamStalled
from ttc.ports import Request
from ttc.types import Chunk

Ask = Callable[..., Request]
WAIT_S = 30  # long enough for every machine; nothing here waits so long


class Client:
    """Reads chunks; where it is held, only once it is let go."""

    def __init__(self, *, held: bool = False, fails: bool = False) -> None:
        self.texts: list[str] = []
        self.go, self.is_told = threading.Event(), threading.Event()
        self.is_over, self._fails = False, fails
        if not held:
            self.go.set()

    def tell(self, chunk: Chunk) -> None:
        """Takes a chunk."""
        self.is_told.set()
        assert self.go.wait(WAIT_S)
        if self._fails:
            raise KeyError("mine")
        self.texts.append(chunk.text)


@pytest.fixture
def faults() -> list[tuple[Client, str]]:
    """Whose callback raised what."""
    return []


@pytest.fixture
def teller(faults: list[tuple[Client, str]]) -> Iterator[Teller[Client]]:
    """Closed in the end."""
    made: Teller[Client] = Teller(lambda client, error: faults.append((client, repr(error))))
    yield made
    made.close()


def chunks(client: Client, *texts: str) -> list[tuple[Client, Chunk]]:
    """What is to be told to a client."""
    return [(client, Chunk(text=text, token_ids=())) for text in texts]


def join_tellers() -> None:
    """Waits for threads whose callbacks have returned by now."""
    for thread in threading.enumerate():
        if thread.name == "ttc-teller":
            thread.join(WAIT_S)


def test_each_is_told_in_order(teller: Teller[Client]) -> None:
    """Whoever is told beside it."""
    clients = [Client() for _ in range(5)]
    texts = [str(i) for i in range(50)]
    for text in texts:
        assert teller.tell([entry for client in clients for entry in chunks(client, text)]) == []
    teller.close()

    assert [client.texts for client in clients] == [texts] * 5


def test_a_callback_that_does_not_return_keeps_nobody_waiting(teller: Teller[Client]) -> None:
    """Not even two of them; when they return, they are told the rest."""
    held = [Client(held=True), Client(held=True)]
    for client in held:
        teller.tell(chunks(client, "a", "b"))
    free = Client()
    teller.tell(chunks(free, "c"))

    assert free.is_told.wait(WAIT_S)
    for client in held:
        assert client.is_told.wait(WAIT_S)
        client.go.set()
    teller.close()
    join_tellers()
    assert [client.texts for client in held] == [["a", "b"], ["a", "b"]]


def test_threads_end_with_what_they_had_to_tell(teller: Teller[Client]) -> None:
    """However many callbacks had been stuck."""
    held = [Client(held=True) for _ in range(4)]
    for client in held:
        teller.tell(chunks(client, "a"))
        assert client.is_told.wait(WAIT_S)
    for client in held:
        client.go.set()
    teller.close()
    join_tellers()

    assert not any(thread.name == "ttc-teller" for thread in threading.enumerate())


def test_whoever_leaves_too_much_unread_is_named(
    teller: Teller[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """257 chunks, beside the one in its hands, which it has had for too long."""
    monkeypatch.setattr(telling, "_PATIENCE_S", 0.0)
    held = Client(held=True)
    teller.tell(chunks(held, "first"))
    assert held.is_told.wait(WAIT_S)
    stalled = [teller.tell(chunks(held, "more")) for _ in range(257)]
    held.is_over = True
    held.go.set()
    teller.close()

    assert stalled == [[]] * 256 + [[held]]
    assert held.texts == ["first"]


def test_a_callback_that_raises_is_told_of_and_the_others_go_on(
    teller: Teller[Client], faults: list[tuple[Client, str]]
) -> None:
    """Whatever it raises."""
    bad, good = Client(fails=True), Client()
    teller.tell([*chunks(bad, "a"), *chunks(good, "b")])
    teller.close()

    assert faults == [(bad, "KeyError('mine')")]
    assert good.texts == ["b"]


def test_a_client_that_stops_reading_ends_its_own_call_alone(
    engine: LocalEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine goes on meanwhile; the pages of the call are given back."""
    monkeypatch.setattr(telling, "_MOST_UNREAD", 8)
    monkeypatch.setattr(telling, "_PATIENCE_S", 0.0)
    go, is_told = threading.Event(), threading.Event()

    def stop(chunk: Chunk) -> None:
        is_told.set()
        assert go.wait(WAIT_S)

    alone = engine.submit(ask("y", 30, seed=3)).future.result(WAIT_S)
    stalled = engine.submit(ask("x", 40), stop)
    assert is_told.wait(WAIT_S)
    other = engine.submit(ask("y", 30, seed=3))
    with pytest.raises(StreamStalled, match="stopped reading; let on_chunk hand chunks on") as left:
        stalled.future.result(WAIT_S)

    assert left.value.output_tokens > 8
    assert other.future.result(WAIT_S).token_ids == alone.token_ids
    assert engine.kv_bytes_used == 0
    go.set()


def test_a_result_comes_after_the_last_chunk(engine: LocalEngine, ask: Ask) -> None:
    """And the engine computes for others meanwhile."""
    go, seen = threading.Event(), list[Chunk]()

    def hold(chunk: Chunk) -> None:
        assert go.wait(WAIT_S)
        seen.append(chunk)

    call = engine.submit(ask("x", 2), hold)
    engine.submit(ask("y", 9)).future.result(WAIT_S)

    assert not call.future.done()
    go.set()
    assert call.future.result(WAIT_S) is seen[-1].branch


def test_a_callback_that_never_waits_is_told_within_the_step(engine: LocalEngine, ask: Ask) -> None:
    """On the engine's own thread, so that no other one has to be woken for it."""
    told_on: list[str] = []

    class Quick:
        never_waits = True

        def __call__(self, chunk: Chunk) -> None:
            told_on.append(threading.current_thread().name)

    engine.submit(ask("x", 5), Quick()).future.result(WAIT_S)

    assert told_on == ["ttc-engine"] * 5
