"""Builds what computes, on the engine's thread: a model, its memory, and what drafts for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypedDict

import torch

from ttc.engine.local.batch import Batch
from ttc.engine.local.drafting.options import Drafting
from ttc.engine.local.drafting.speculation import Speculation
from ttc.engine.local.kv import KVPool
from ttc.engine.local.source import ModelSource

__all__ = ["Sizes", "batch_builder"]

_KNOWN_PART = 16
_KNOWN_BYTES = 1 << 20


class Sizes(TypedDict, total=False):
    """How much of the machine an engine takes; see `LocalEngine`."""

    threads: int | None
    kv_bytes: int
    max_sequences: int


def batch_builder(
    source: ModelSource,
    *,
    threads: int,
    kv_bytes: int,
    max_sequences: int,
    drafting: Drafting | None,
) -> Callable[[threading.Lock], Batch]:
    """What makes the batch; see `LocalEngine`.

    Raises:
        ValueError: a number is too small.
    """
    if min(threads, max_sequences) < 1:
        counts = f"threads ({threads}) and max_sequences ({max_sequences})"
        raise ValueError(f"{counts} are at least 1")

    def build(lock: threading.Lock) -> Batch:
        torch.set_num_threads(threads)
        model = source.build()
        drafter = drafting.make() if drafting is not None else None
        page_bytes = KVPool.page_bytes(model.costs) + (drafter.page_bytes if drafter else 0)
        if kv_bytes < page_bytes:
            raise ValueError(f"kv_bytes is at least 1 page, {page_bytes} bytes, not {kv_bytes}")
        num_pages = kv_bytes // page_bytes
        speculate = None
        if drafting is not None and drafter is not None:
            drafter.reserve(num_pages)
            speculate = partial(Speculation, drafter, drafting.acceptance)
        return Batch(
            model,
            num_pages=num_pages,
            max_sequences=max_sequences,
            lock=lock,
            unsampled=source.tokens.unsampled_ids,
            known_bytes=max(kv_bytes // _KNOWN_PART, _KNOWN_BYTES),
            speculate=speculate,
        )

    return build
