"""Drawing tokens and reading log probabilities by the kernels; see `sample.c`.

Log probabilities that are drawn and those that are read of the same logits are equal to the bit.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from ttc.engine.local.native.library import DRAW, Kernels
from ttc.engine.local.sample import NONE_ALLOWED, NOT_FINITE, Draw, Drawn, row_key

__all__ = ["NativeSampler"]

_MASK = (1 << 64) - 1


class NativeSampler:
    """Draws and reads.

    Args:
        kernels: the compiled kernels.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """Draws one token for each row; see `ttc.engine.local.sample.draw_tokens`."""
        logits = logits.contiguous()
        asked = np.array([_asked(draw, logits.shape[1]) for draw in draws], DRAW)
        found, top = self._kernels.sample(logits, asked)
        faults = {
            row: NOT_FINITE if np.isnan(found["peak"][row]) else NONE_ALLOWED
            for row in np.flatnonzero(found["token"] < 0).tolist()
        }
        measured = [draw.sampling.entropy for draw in draws]
        normalisers = found["peak"].astype(np.float64) + found["normaliser"]
        return Drawn(
            found["token"].tolist(),
            found["logprob"].tolist(),
            _where(measured, found["entropy"].tolist()),
            _where(measured, found["certainty"].tolist()),
            [
                _greatest(row[:count] - normaliser) if count else None
                for row, count, normaliser in zip(
                    top, asked["num_top"].tolist(), normalisers, strict=True
                )
            ],
            faults,
        )

    def logprobs(
        self, logits: torch.Tensor, wanted: Sequence[Sequence[int]]
    ) -> list[dict[int, float] | None]:
        """For each row the natural log probabilities of some tokens; `None` if it is not finite."""
        logits = logits.contiguous()
        found = self._kernels.measure(logits)
        values = logits.numpy()
        return [
            None
            if np.isnan(one["peak"])
            else {
                token: float(np.float64(row[token] - one["peak"]) - one["normaliser"])
                for token in tokens
            }
            for row, one, tokens in zip(values, found, wanted, strict=True)
        ]


def _asked(draw: Draw, vocab: int) -> tuple[float, ...]:
    """The fields of `DRAW`; the draw keeps what they point to."""
    sampling, seen, allowed, bias = draw.sampling, draw.seen, draw.allowed, draw.bias
    return (
        row_key(draw) & _MASK,
        0 if seen is None else seen.ids.ctypes.data,
        0 if seen is None else seen.counts.ctypes.data,
        0 if bias is None else bias.ids.ctypes.data,
        0 if bias is None else bias.values.ctypes.data,
        0 if allowed is None else allowed.ctypes.data,
        sampling.temperature,
        1.0 if sampling.top_p is None else sampling.top_p,
        sampling.min_p or 0.0,
        sampling.repetition_penalty or 1.0,
        sampling.presence_penalty or 0.0,
        sampling.frequency_penalty or 0.0,
        min(sampling.top_k or 0, vocab),
        min(sampling.logprobs, vocab),
        0 if seen is None else len(seen.ids),
        0 if bias is None else len(bias.ids),
        sampling.entropy,
    )


def _greatest(logprobs: npt.NDArray[np.float64]) -> array[float]:
    return array("f", logprobs[np.isfinite(logprobs)])


def _where(asked: Sequence[bool], values: Sequence[float]) -> list[float | None]:
    return [value if wanted else None for wanted, value in zip(asked, values, strict=True)]
