"""A loop is woken once for all that has been posted to it, and takes it in order."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ttc.postbox import Posting, post


def counted_wakes(loop: asyncio.AbstractEventLoop) -> list[object]:
    """Every wake-up of a loop from now on."""
    woken, wake = list[object](), loop.call_soon_threadsafe

    def counted(callback: Callable[..., object], *args: Any, **more: Any) -> asyncio.Handle:
        woken.append(callback)
        return wake(callback, *args, **more)

    loop.call_soon_threadsafe = counted  # type: ignore[method-assign,assignment]
    return woken


def send(loop: asyncio.AbstractEventLoop, got: list[int]) -> None:
    for n in range(100):
        post(loop, got.append, n)


def test_a_loop_is_woken_once_for_many_letters() -> None:
    async def run() -> tuple[int, list[int]]:
        loop, got = asyncio.get_running_loop(), list[int]()
        woken = counted_wakes(loop)
        sender = threading.Thread(target=send, args=(loop, got))
        sender.start()
        sender.join()  # the loop does not turn meanwhile
        await asyncio.sleep(0)
        return len(woken), got

    assert asyncio.run(run()) == (1, list(range(100)))


def test_a_loop_is_not_woken_by_what_it_tells_itself() -> None:
    async def run() -> tuple[int, list[int]]:
        loop, got = asyncio.get_running_loop(), list[int]()
        woken = counted_wakes(loop)
        send(loop, got)
        await asyncio.sleep(0)
        return len(woken), got

    assert asyncio.run(run()) == (0, list(range(100)))


def test_what_is_posted_while_letters_are_read_comes_in_the_next_turn() -> None:
    async def run() -> list[str]:
        loop, got = asyncio.get_running_loop(), list[str]()

        def read(letter: str) -> None:
            got.append(letter)
            if letter == "first":
                post(loop, read, "third")

        post(loop, read, "first")
        post(loop, read, "second")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return got

    assert asyncio.run(run()) == ["first", "second", "third"]


def test_a_reader_that_fails_keeps_no_letter_from_the_others() -> None:
    async def run() -> tuple[list[str], list[str]]:
        loop, got, faults = asyncio.get_running_loop(), list[str](), list[str]()
        loop.set_exception_handler(lambda _, told: faults.append(repr(told["exception"])))

        def fail(_: str) -> None:
            raise KeyError("mine")

        post(loop, fail, "a")
        post(loop, got.append, "b")
        await asyncio.sleep(0)
        return got, faults

    assert asyncio.run(run()) == (["b"], ["KeyError('mine')"])


@pytest.mark.filterwarnings("error")
def test_a_letter_to_a_closed_loop_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    got: list[int] = []
    Posting(loop, got.append)(1)

    assert got == []
