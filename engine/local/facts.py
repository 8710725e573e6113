"""What is wanted and found of a row: log probabilities, rewards, the most probable next tokens.

Log probabilities, entropies and self-certainties are to the bit those that generation reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ttc.engine.local.model import Model
from ttc.engine.local.page import CERTAINTY, ENTROPY, TOP, Facts
from ttc.engine.local.sample import Draw
from ttc.types import NextTokens, Sampling

__all__ = ["Want", "next_tokens", "row_facts"]

_MEASURED = Draw(sampling=Sampling(temperature=0, entropy=True), seed=0, position=0)


class Want(NamedTuple):
    """What is wanted of a row."""

    keys: tuple[int, ...] = ()
    """Tokens that may follow; of a reward model, labels."""
    top: int = 0
    """How many of the most probable next tokens, and what is measured of the distribution."""

    def is_met(self, facts: Facts) -> bool:
        """Whether everything is known."""
        if self.top > facts.get(TOP, 0):
            return False
        return all(key in facts for key in self.keys)


def row_facts(model: Model, logits: torch.Tensor, wants: Sequence[Want]) -> list[Facts | None]:
    """What is found of rows (n, vocab) of a language model; `None` of one that is not finite."""
    greatest = {row: _greatest(logits[row], want.top) for row, want in enumerate(wants) if want.top}
    asked = [(*want.keys, *greatest.get(row, ())) for row, want in enumerate(wants)]
    found: list[Facts | None] = list(model.logprobs(logits, asked))
    rows = [row for row in greatest if found[row] is not None]
    if rows:
        drawn = model.draw(logits[rows], [_MEASURED] * len(rows))
        for row, entropy, certainty in zip(
            rows, drawn.entropies, drawn.self_certainties, strict=True
        ):
            facts = found[row]
            assert facts is not None
            assert entropy is not None
            assert certainty is not None
            facts |= {ENTROPY: entropy, CERTAINTY: certainty, TOP: len(greatest[row])}
    return found


def _greatest(logits: torch.Tensor, count: int) -> list[int]:
    """The tokens with the greatest logits, the greatest first, of equals the lower one."""
    least = logits.topk(min(count, len(logits))).values[-1]
    tokens = (logits >= least).nonzero()[:, 0]
    order = logits[tokens].sort(descending=True, stable=True).indices
    return tokens[order][:count].tolist()


def next_tokens(facts: Facts, count: int) -> NextTokens:
    """The most probable next tokens, of a row where at least so many are known."""
    known = sorted((-value, token) for token, value in facts.items() if token >= 0)[:count]
    return NextTokens(
        token_ids=tuple(token for _, token in known),
        logprobs=tuple(-value for value, _ in known),
        entropy=facts[ENTROPY],
        self_certainty=facts[CERTAINTY],
    )
