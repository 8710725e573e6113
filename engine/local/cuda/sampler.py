"""Drawing tokens and reading log probabilities where the logits lie, and one transfer to the host.

Log probabilities that are drawn and those that are read of the same logits are equal to the bit.
Bias and penalties are PyTorch's: they touch a handful of logits. The greatest logits are PyTorch's,
too: choosing numbers rounds none.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from ttc.engine.local.cuda.ops import Draws, Measures, Ops
from ttc.engine.local.sample import NONE_ALLOWED, NOT_FINITE, Draw, Drawn, row_key

__all__ = ["DeviceSampler"]

_MASK = (1 << 64) - 1
_WORD = (1 << 32) - 1
_FAR = float(np.finfo(np.float32).max)
Floats = npt.NDArray[np.float32]


class DeviceSampler:
    """Draws and reads.

    Args:
        ops: what computes.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """Draws one token for each row; see `ttc.engine.local.sample.draw_tokens`."""
        logits = logits.contiguous()
        measures = self._ops.measure(logits)
        how = _on_device(draws, logits.shape[1], logits.device)
        adjusted = _penalised(_biased(logits, draws), draws)
        tokens, found = self._ops.draw(logits, adjusted, measures.peaks, how)
        most = max(draw.sampling.logprobs for draw in draws)
        columns = [tokens.view(torch.float32), found, *measures]
        if most:
            columns += logits.topk(min(most, logits.shape[1])).values.T
        table = torch.stack([column.contiguous() for column in columns]).cpu().numpy()
        ids = table[0].view(np.int32).tolist()
        return _drawn(ids, table[1], Measures(*table[2:7]), table[7:], draws)

    def logprobs(
        self, logits: torch.Tensor, wanted: Sequence[Sequence[int]]
    ) -> list[dict[int, float] | None]:
        """For each row the natural log probabilities of some tokens; `None` if it is not finite."""
        logits = logits.contiguous()
        peaks, masses, *_ = torch.stack(list(self._ops.measure(logits))).cpu().numpy()
        rows = [row for row, tokens in enumerate(wanted) for _ in tokens]
        ids = [token for tokens in wanted for token in tokens]
        at = torch.tensor([rows, ids], dtype=torch.int64).to(logits.device)
        values = logits[at[0], at[1]].cpu().numpy()
        found = _logprobs(values, peaks[rows], masses[rows])
        each: list[dict[int, float] | None] = [None if np.isnan(peak) else {} for peak in peaks]
        for row, token, value in zip(rows, ids, found.tolist(), strict=True):
            known = each[row]
            if known is not None:
                known[token] = value
        return each


def _logprobs(values: Floats, peaks: Floats, masses: Floats) -> npt.NDArray[np.float64]:
    """Log probabilities of logits; the one expression of them."""
    with np.errstate(all="ignore"):  # rows of no numbers are told apart by their peak
        return (values - peaks).astype(np.float64) - np.log(masses.astype(np.float64))


def _drawn(
    ids: list[int],
    found: Floats,
    measures: Measures,
    top: Floats,
    draws: Sequence[Draw],
) -> Drawn:
    """What the host makes of a row's numbers."""
    peaks, masses, *others = (np.asarray(each) for each in measures)
    moments, distances, counts = (each.astype(np.float64) for each in others)
    faults = {
        row: NOT_FINITE if np.isnan(peaks[row]) else NONE_ALLOWED
        for row, token in enumerate(ids)
        if token < 0 or np.isnan(peaks[row])
    }
    with np.errstate(all="ignore"):
        normalisers = np.log(masses.astype(np.float64))
        entropies = np.maximum(normalisers - moments / masses, 0.0)
        certainties = np.maximum(normalisers - distances / counts - np.log(counts), 0.0)
        tops = _logprobs(top, peaks, masses)
    return Drawn(
        [max(token, 0) for token in ids],
        _logprobs(found, peaks, masses).tolist(),
        [float(e) if d.sampling.entropy else None for e, d in zip(entropies, draws, strict=True)],
        [float(c) if d.sampling.entropy else None for c, d in zip(certainties, draws, strict=True)],
        [_top(tops[:, row], draw.sampling.logprobs) for row, draw in enumerate(draws)],
        faults,
    )


def _top(values: npt.NDArray[np.float64], count: int) -> array[float] | None:
    if not count:
        return None
    return array("f", [value for value in values[:count].tolist() if value > -math.inf])


def _on_device(draws: Sequence[Draw], vocab: int, device: torch.device) -> Draws:
    """How rows are drawn, brought to the device in one piece for each table."""
    numbers = np.empty((len(draws), 3), np.float32)
    counts = np.zeros((len(draws), 2), np.int32)
    keys = np.empty((len(draws), 2), np.uint32)
    masks: list[npt.NDArray[np.uint32]] = []
    special, words = [], 0
    for row, draw in enumerate(draws):
        sampling, key = draw.sampling, row_key(draw) & _MASK
        temperature = sampling.temperature
        numbers[row] = (
            1 / max(temperature, 1e-30) if temperature else 0.0,
            1.0 if sampling.top_p is None else sampling.top_p,
            -math.log(sampling.min_p) if sampling.min_p else _FAR,
        )
        counts[row] = min(sampling.top_k or 0, vocab), -1
        keys[row] = key & _WORD, key >> 32
        if draw.allowed is not None:
            counts[row, 1] = words
            masks.append(draw.allowed)
            words += len(draw.allowed)
        filters = (sampling.top_k, sampling.min_p, draw.seen, draw.allowed, draw.bias)
        if any(each is not None for each in filters) or numbers[row, 1] < 1:
            special.append(row)
    return Draws(
        numbers=torch.from_numpy(numbers).to(device),
        counts=torch.from_numpy(counts).to(device),
        keys=torch.from_numpy(keys.view(np.int32)).to(device),
        special=torch.tensor(special, dtype=torch.int32).to(device),
        allowed=torch.from_numpy(np.concatenate(masks).view(np.int32)).to(device)
        if masks
        else None,
    )


def _biased(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Logits with what is added to them; the same tensor where nothing is."""
    found = [(row, bias) for row, draw in enumerate(draws) if (bias := draw.bias) is not None]
    if not found:
        return logits
    rows = np.repeat([row for row, _ in found], [len(bias.ids) for _, bias in found])
    ids = np.concatenate([bias.ids for _, bias in found]).astype(np.int64)
    at = torch.from_numpy(np.stack([rows, ids])).to(logits.device)
    values = torch.from_numpy(np.concatenate([bias.values for _, bias in found]))
    adjusted = logits.clone()
    adjusted[at[0], at[1]] += values.to(logits.device)
    return adjusted


def _penalised(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Logits less their penalties; the same tensor where there are none."""
    rows: list[int] = []
    ids: list[npt.NDArray[np.int64]] = []
    terms: list[Floats] = []
    for row, draw in enumerate(draws):
        if draw.seen is None or not len(draw.seen.ids):
            continue
        sampling, seen = draw.sampling, draw.seen.counts.astype(np.float32)
        taken = seen * np.float32(sampling.frequency_penalty or 0.0)
        taken += (seen > 0) * np.float32(sampling.presence_penalty or 0.0)
        factors = np.full_like(taken, sampling.repetition_penalty or 1.0)
        rows += [row] * len(seen)
        ids.append(draw.seen.ids.astype(np.int64))
        terms.append(np.stack([factors, taken]))
    if not rows:
        return logits
    row_at = torch.tensor(rows, device=logits.device)
    at = torch.from_numpy(np.concatenate(ids)).to(logits.device)
    factor, taken_at = torch.from_numpy(np.concatenate(terms, axis=1)).to(logits.device)
    adjusted = logits.clone()
    own = adjusted[row_at, at]
    adjusted[row_at, at] = torch.where(own > 0, own / factor, own * factor) - taken_at
    return adjusted
