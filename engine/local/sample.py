"""Draws tokens from logits, with noise that is a function of (seed, position, token) alone.

The draw is Gumbel-max (Gumbel 1954; Maddison et al. 2014, arXiv 1411.0030) in two levels: the token
with the greatest log probability plus Gumbel noise has the wanted distribution, and the greatest of
a block is itself the block's log probability mass plus Gumbel noise. So a block of 64 tokens is
drawn first and then a token of that block: the distribution is the same, and noise is computed for
a thousand numbers of a row in place of fifty thousand. Noise comes from a counter-based hash
(splitmix64: Steele, Lea and Flood 2014), never from a generator with a state.

Rows are independent: what is drawn in one depends on no other.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from ttc.engine.local.penalties import Bias, SeenTokens
from ttc.types import Sampling

__all__ = [
    "NONE_ALLOWED",
    "NOT_FINITE",
    "Draw",
    "Drawn",
    "distributions",
    "draw_tokens",
    "log_normaliser",
    "row_key",
    "uniform",
]

NOT_FINITE = "the model's logits are not finite"
"""Why nothing can be drawn from a row, or read of it."""
NONE_ALLOWED = "no token that the constraint allows can be drawn"
"""Why nothing can be drawn from a row."""

_BLOCK = 64
_NUCLEUS = 1024  # most nuclei are smaller; a larger one costs its row a full sort
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1


class Draw(NamedTuple):
    """How one row's token is drawn."""

    sampling: Sampling
    seed: int
    position: int
    """Tokens that come before, in the whole sequence."""
    seen: SeenTokens | None = None
    """What the penalties of `sampling` look at; `None` where it has none."""
    allowed: npt.NDArray[np.uint32] | None = None
    """A bit for each token, the lowest first, 32 to a number; `None` allows all."""
    bias: Bias | None = None
    """What the `logit_bias` of `sampling` adds."""

    @property
    def is_adjusted(self) -> bool:
        """Whether the row that is drawn from differs from the model's own."""
        return any(each is not None for each in (self.seen, self.allowed, self.bias))


class Drawn(NamedTuple):
    """What was drawn, row by row; and what a row's sampling asks to know, before any filter."""

    token_ids: list[int]
    logprobs: list[float]
    """Natural log probabilities of the tokens, before temperature and filters."""
    entropies: list[float | None]
    """In nats; `None` where the row's sampling does not ask."""
    self_certainties: list[float | None]
    """`logsumexp(z) - mean(z) - ln V` of the row's V logits z, those of -inf left out."""
    top_logprobs: list[array[float] | None]
    """As many of the greatest log probabilities as the row asks for, the greatest first."""
    faults: dict[int, str]
    """Rows of which nothing could be drawn, and why. What else is told of them means nothing."""


def draw_tokens(logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
    """Draws one token for each row.

    A bias comes first, then penalties, then what is not allowed is left out; then temperature, and
    the filters in the order top_k, top_p (of what top_k left), min_p. Tokens that tie with the last
    one kept are kept. Greedy rows take the lowest id among equals.

    Args:
        logits: (rows, vocab), finite, or -inf where there is no token: in the same columns of all.
            A row that is not is a fault of this row alone.
        draws: one for each row.
    """
    peaks = logits.amax(-1)
    faults = dict.fromkeys((~peaks.isfinite()).nonzero()[:, 0].tolist(), NOT_FINITE)
    if faults:
        logits = logits.index_fill(0, torch.tensor(list(faults)), 0.0)
    shifted = _shifted_logits(logits)
    weights = shifted.exp()
    masses = _block_sums(weights)  # (rows, blocks)
    tokens = torch.zeros(len(draws), dtype=torch.int64)
    kinds = [_kind(draw) for draw in draws]
    greedy, plain, filtered = (
        [row for row, kind in enumerate(kinds) if kind == wanted]
        for wanted in ("greedy", "plain", "filtered")
    )
    drawn_from, base = logits, shifted
    if any(draw.is_adjusted for draw in draws):
        drawn_from = _adjusted(logits, draws)
        for row in (drawn_from.amax(-1) == -torch.inf).nonzero()[:, 0].tolist():
            faults.setdefault(row, NONE_ALLOWED)
            drawn_from[row] = 0.0
        base = _shifted_logits(drawn_from)
    if greedy:
        tokens[greedy] = drawn_from[greedy].argmax(-1)  # the first of equals, as documented
    if plain:
        tokens[plain] = _race(shifted, plain, masses[plain], [draws[row] for row in plain])
    if filtered:
        chosen = [draws[row] for row in filtered]
        scaled = _filtered(base[filtered], [draw.sampling for draw in chosen])
        tokens[filtered] = _race(scaled, range(len(chosen)), _block_sums(scaled.exp()), chosen)
    chosen_logits = shifted.gather(1, tokens[:, None])[:, 0]
    totals = masses.double().sum(-1).log()  # (rows,)
    logprobs = chosen_logits - totals
    measured = _measure(shifted, weights, totals, [draw.sampling for draw in draws])
    return Drawn(tokens.tolist(), logprobs.tolist(), *measured, faults)


def distributions(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """What rows are drawn from: (rows, vocab) float64, for temperatures above 0.

    Args:
        logits: (rows, vocab), finite, or -inf where there is no token.
        draws: one for each row.
    """
    adjusted = _adjusted(logits, draws) if any(draw.is_adjusted for draw in draws) else logits
    weights = _filtered(_shifted_logits(adjusted), [draw.sampling for draw in draws])
    return weights[:, : logits.shape[1]].double().softmax(-1)


def _adjusted(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Logits (rows, vocab) with bias less penalties, -inf where a token is not allowed."""
    adjusted = logits.clone()
    for row, draw in zip(adjusted, draws, strict=True):
        if draw.bias is not None:
            row[torch.from_numpy(draw.bias.ids)] += torch.from_numpy(draw.bias.values)
        if draw.seen is not None:
            sampling = draw.sampling
            ids, counts = map(torch.from_numpy, (draw.seen.ids, draw.seen.counts))
            own, factor = row[ids], sampling.repetition_penalty or 1.0
            taken = counts.float() * (sampling.frequency_penalty or 0.0)
            taken += (counts > 0) * (sampling.presence_penalty or 0.0)
            row[ids] = torch.where(own > 0, own / factor, own * factor) - taken
        if draw.allowed is not None:
            bits = torch.from_numpy(np.unpackbits(draw.allowed.view(np.uint8), bitorder="little"))
            row[bits[: len(row)] == 0] = -torch.inf
    return adjusted


def log_normaliser(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits less their row's peak, and the logarithm of the sum of their exponentials, float64.

    A token's log probability is the difference of the two, computed as `draw_tokens` does.
    """
    shifted = _shifted_logits(logits)
    return shifted, _block_sums(shifted.exp()).double().sum(-1).log()


def _shifted_logits(logits: torch.Tensor) -> torch.Tensor:
    """Logits less their row's peak, padded to whole blocks."""
    shifted = logits - logits.amax(-1, keepdim=True)
    if missing := -logits.shape[1] % _BLOCK:
        shifted = F.pad(shifted, (0, missing), value=-torch.inf)
    return shifted


def _measure(
    shifted: torch.Tensor,
    weights: torch.Tensor,
    totals: torch.Tensor,
    samplings: Sequence[Sampling],
) -> tuple[list[float | None], list[float | None], list[array[float] | None]]:
    """Entropies, self-certainties and top log probabilities of the rows that ask for them.

    It comes last, and may overwrite what it is given.

    Args:
        shifted: (rows, padded vocab) logits, -inf where there is no token.
        weights: (rows, padded vocab) their exponentials.
        totals: (rows,) the logarithms of the sums of their exponentials.
        samplings: one for each row.
    """
    entropies: list[float | None] = [None] * len(samplings)
    certainties: list[float | None] = [None] * len(samplings)
    tops: list[array[float] | None] = [None] * len(samplings)
    for k in {sampling.logprobs for sampling in samplings if sampling.logprobs}:
        rows = [row for row, sampling in enumerate(samplings) if sampling.logprobs == k]
        best = _rows(shifted, rows).topk(min(k, shifted.shape[1])).values.double()
        for row, values in zip(rows, (best - totals[rows, None]).tolist(), strict=True):
            tops[row] = array("f", [value for value in values if value > -math.inf])
    rows = [row for row, sampling in enumerate(samplings) if sampling.entropy]
    if rows:
        moments = _moments(_rows(shifted, rows), _rows(weights, rows), totals[rows])
        for row, entropy, certainty in zip(rows, *moments, strict=True):
            entropies[row], certainties[row] = entropy, certainty
    return entropies, certainties, tops


def _moments(
    shifted: torch.Tensor, weights: torch.Tensor, totals: torch.Tensor
) -> tuple[list[float], list[float]]:
    """Entropies and self-certainties of rows, which it overwrites: new memory would cost more.

    Sums go by blocks, so that rows stay independent.
    """
    count = shifted.shape[1] - int(shifted[0].isneginf().count_nonzero())
    real = shifted.nan_to_num_(neginf=0.0)  # so that 0 x exp(-inf) is 0
    weighted = _block_sums(weights.mul_(real)).double().sum(-1)
    mean = _block_sums(real).double().sum(-1) / count
    entropies = totals - weighted / totals.exp()
    certainties = totals - mean - math.log(count)
    return entropies.clamp_(min=0.0).tolist(), certainties.clamp_(min=0.0).tolist()


def _rows(logits: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """Some rows; all of them are not copied."""
    return logits if len(rows) == len(logits) else logits[rows]


def _kind(draw: Draw) -> Literal["greedy", "plain", "filtered"]:
    """Whether noise is needed, and whether the raw distribution itself is drawn from."""
    sampling = draw.sampling
    if sampling.temperature == 0:
        return "greedy"
    filters = (sampling.top_k, sampling.top_p, sampling.min_p)
    is_own = sampling.temperature == 1 and filters == (None,) * 3 and not draw.is_adjusted
    return "plain" if is_own else "filtered"


def _block_sums(values: torch.Tensor) -> torch.Tensor:
    """Sums over blocks of `_BLOCK` tokens. (rows, padded vocab) to (rows, blocks)."""
    return values.view(len(values), -1, _BLOCK).sum(-1)


def _race(
    weights: torch.Tensor, rows: Sequence[int], masses: torch.Tensor, draws: Sequence[Draw]
) -> torch.Tensor:
    """A token for each draw.

    Args:
        weights: (n, padded vocab) log weights.
        rows: which of its rows each draw is from.
        masses: (draws, blocks) the sums of those rows' weights.
        draws: the keys of the noise.
    """
    keys = torch.tensor([row_key(draw) for draw in draws])[:, None]  # (draws, 1)
    # Blocks count backwards from -1 and tokens forwards from 0, so that no noise is used twice.
    noise = _gumbel(keys, -1 - torch.arange(masses.shape[1]))
    blocks = (masses.double().log() + noise).argmax(-1)  # (draws,)
    ids = blocks[:, None] * _BLOCK + torch.arange(_BLOCK)  # (draws, _BLOCK)
    within = weights[torch.tensor(rows)[:, None], ids].double() + _gumbel(keys, ids)
    return ids.gather(1, within.argmax(-1, keepdim=True))[:, 0]


def _filtered(shifted: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    """Log weights after temperature, -inf where a filter drops a token. The largest is 0."""
    # Float32 holds no temperature below 1e-38, and from 1e-30 on only the largest logits survive.
    temperatures = torch.tensor([max(s.temperature, 1e-30) for s in samplings])
    scaled = shifted / temperatures[:, None]
    ranks = {row: s.top_k for row, s in enumerate(samplings) if s.top_k is not None}
    if ranks:
        index = torch.tensor(list(ranks))
        k = torch.tensor(list(ranks.values())).clamp(max=scaled.shape[1])
        best = scaled[index].topk(int(k.max())).values
        _keep(scaled, index, best.gather(1, k[:, None] - 1))
    shares = {
        row: s.top_p for row, s in enumerate(samplings) if s.top_p is not None and s.top_p < 1
    }
    if shares:
        index = torch.tensor(list(shares))
        share = torch.tensor(list(shares.values()), dtype=torch.float64)[:, None]
        _keep(scaled, index, _nucleus_floor(scaled[index], share))
    floors = {row: s.min_p for row, s in enumerate(samplings) if s.min_p}
    if floors:
        logs = torch.tensor([math.log(p) for p in floors.values()])[:, None]
        _keep(scaled, torch.tensor(list(floors)), logs)
    return scaled


def _keep(scaled: torch.Tensor, index: torch.Tensor, floor: torch.Tensor) -> None:
    """Drops tokens below a floor, (rows, 1), in the rows of an index."""
    kept = scaled[index]
    scaled[index] = kept.masked_fill_(kept < floor, -torch.inf)


def _nucleus_floor(scaled: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """The log weight, (rows, 1), of the token that takes the cumulative probability to `share`."""
    total = _block_sums(scaled.exp()).double().sum(-1, keepdim=True)
    best = scaled.topk(min(_NUCLEUS, scaled.shape[1])).values
    reached = best.double().exp().cumsum(-1) >= share * total
    floor = best.gather(1, reached.int().argmax(-1, keepdim=True))  # the first that reaches it
    for row in (~reached.any(-1)).nonzero()[:, 0].tolist():
        every = scaled[row].sort(descending=True).values
        cumulative = every.double().exp().cumsum(-1)
        floor[row] = every[int((cumulative >= share[row] * cumulative[-1]).int().argmax())]
    return floor


def row_key(draw: Draw) -> int:
    """A signed 64-bit key of (seed, position)."""
    key = _mix((_mix(draw.seed & _MASK) + draw.position * _GOLDEN) & _MASK)
    return key - (1 << 64) if key >> 63 else key


def uniform(draw: Draw, number: int) -> float:
    """A number inside (0, 1) by seed and position: noise beside that of the tokens.

    Args:
        draw: whose.
        number: which of several.
    """
    key = _mix((row_key(draw) ^ (number * _MIX[0])) & _MASK)
    return ((key >> 11) + 0.5) * 2.0**-53


def _mix(x: int) -> int:
    """The finaliser of splitmix64, on an unsigned number."""
    x = ((x ^ (x >> 30)) * _MIX[0]) & _MASK
    x = ((x ^ (x >> 27)) * _MIX[1]) & _MASK
    return x ^ (x >> 31)


def _gumbel(keys: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
    """Gumbel noise, float64, a function of key and counter; the same splitmix64 on tensors."""
    x = keys + counters * _signed(_GOLDEN)
    x = (x ^ _shifted(x, 30)) * _signed(_MIX[0])
    x = (x ^ _shifted(x, 27)) * _signed(_MIX[1])
    x = x ^ _shifted(x, 31)
    uniform = (_shifted(x, 11).double() + 0.5) * 2.0**-53  # inside (0, 1)
    return uniform.log_().neg_().log_().neg_()


def _shifted(x: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift to the right; torch's own copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
