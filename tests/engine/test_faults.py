"""What breaks in one row of a step ends the call of that row, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.engine.conftest import TINY, tiny_weights
from ttc.engine.local import LocalEngine
from ttc.engine.local.model import Llama
from ttc.engine.local.source import ModelSource
from ttc.errors import EngineError
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
