"""Log probabilities of given tokens, to the bit those that `sample` reports of drawn ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ttc.engine.local.sample import log_normaliser

__all__ = ["token_logprobs"]


def token_logprobs(
    logits: torch.Tensor, wanted: Sequence[Sequence[int]]
) -> list[dict[int, float] | None]:
    """For each row the natural log probabilities of some tokens; `None` if it is not finite.

    Args:
        logits: (rows, vocab), those of tokens that are never drawn at -inf.
        wanted: for each row its tokens.
    """
    shifted, normaliser = log_normaliser(logits)
    finite = logits.amax(-1).isfinite().tolist()
    found: list[dict[int, float] | None] = []
    for row, tokens in enumerate(wanted):
        if not finite[row]:
            found.append(None)
            continue
        values = shifted[row, torch.tensor(tokens)].double() - normaliser[row]
        found.append(dict(zip(tokens, values.tolist(), strict=True)))
    return found
