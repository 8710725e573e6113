"""The memory that a step computes in. It is kept: fresh memory costs more than what it is for."""

from __future__ import annotations

import torch

from ttc.engine.local.config import ModelConfig
from ttc.engine.local.native.library import (
    GROUP,
    PART,
    SEGMENT,
    RowsStruct,
    StateStruct,
    StepStruct,
)
from ttc.engine.local.plan import Plan

__all__ = ["Room"]

_KEPT = 1 << 24  # logits up to which their memory is kept


class Room:
    """The memory of one model's steps, and the structure that points to it."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._rows = self._states = 0
        self._kept: dict[str, torch.Tensor] = {}
        self._logits = torch.empty(0, config.vocab)
        self.step = StepStruct()

    def fit(self, plan: Plan) -> None:
        """Makes room for a step, and lets the structure say what it reads."""
        segments = -(-plan.length // SEGMENT)
        if plan.num_rows > self._rows:
            self._fit_rows(plan.num_rows)
        if plan.num_rows * segments > self._states:
            self._fit_states(plan.num_rows * segments)
        step = self.step
        step.readers, step.pages = plan.readers.ctypes.data, plan.pages.ctypes.data
        step.num_rows, step.num_segments = plan.num_rows, segments

    def residual(self, rows: int) -> torch.Tensor:
        """The embeddings, and after a step its result, (rows, hidden)."""
        return self._kept["residual"][:rows]

    def logits(self, rows: int) -> torch.Tensor:
        """(rows, vocab); the memory of the step before, unless that would be kept for too long."""
        if rows * self._config.vocab > _KEPT:
            logits = torch.empty(rows, self._config.vocab)
        else:
            if rows > len(self._logits):
                self._logits = torch.empty(rows, self._config.vocab)
            logits = self._logits[:rows]
        self.step.logits, self.step.num_wanted = logits.data_ptr(), rows
        return logits

    def _fit_rows(self, rows: int) -> None:
        config, step = self._config, self.step
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        widest = max(config.hidden, queries, config.feed_forward)
        groups = -(-widest // GROUP)
        self._rows = rows
        step.residual = self._keep("residual", rows, config.hidden)
        step.qkv = self._keep("qkv", rows, queries + 2 * keys)
        step.attended = self._keep("attended", rows, queries)
        step.gate_up = self._keep("gate_up", rows, 2 * config.feed_forward)
        step.scratch = self._keep("scratch", rows, widest)
        step.codes = RowsStruct(
            self._keep("codes", rows, groups * GROUP, dtype=torch.int8),
            self._keep("scales", rows, groups),
            self._keep("sums", rows, groups * GROUP // PART, dtype=torch.int32),
            0,
        )

    def _fit_states(self, count: int) -> None:
        heads = self._config.num_heads
        self._states = count
        self.step.states = StateStruct(
            self._keep("values", count, heads, self._config.head_dim),
            self._keep("peaks", count, heads),
            self._keep("masses", count, heads),
        )
        self.step.items = self._keep("items", count, 3, dtype=torch.int32)

    def _keep(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> int:
        self._kept.pop(name, None)  # first give the old one back
        self._kept[name] = torch.empty(shape, dtype=dtype)
        return self._kept[name].data_ptr()
