"""Cancelling a call in the very step in which it gets one of its tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, TypeVar
from unittest.mock import patch

import pytest

from ttc.engine.local import LocalEngine
from ttc.engine.local.sequence import Sequence
from ttc.ports import Generation, Request

__all__ = ["cancelled_at"]

T = TypeVar("T")


def cancelled_at(
    engine: LocalEngine, request: Request, num_tokens: int, beside: Callable[[], T]
) -> tuple[Generation, T]:
    """A call that is cancelled as soon as it has so many tokens, and what ran beside it."""
    counted, ready, accept = list[int](), threading.Event(), Sequence.accept

    def cancelling(sequence: Sequence, *found: Any) -> Any:
        chunk = accept(sequence, *found)
        if sequence.request is request and sequence.num_output == num_tokens:
            ready.wait(30)
            counted.append(call.cancel())
        return chunk

    with patch.object(Sequence, "accept", cancelling):
        call = engine.submit(request)
        ready.set()
        others = beside()
        with pytest.raises(CancelledError):
            call.future.result(30)
    assert counted == [num_tokens]
    return call, others
