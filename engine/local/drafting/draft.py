"""What a drafter is: it guesses the next tokens of calls, and never decides one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from ttc.engine.local.call import Call
from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.sequence import Sequence

__all__ = ["Draft", "Drafter", "Proposal", "Trial", "Wish"]


class Proposal(NamedTuple):
    """A drafted token, and the distribution that it was drawn from."""

    token: int
    logits: torch.Tensor | None
    """(vocab,) before temperature and filters, which are the call's own; `None` where the token was
    certain, as a look-up is."""


class Wish(NamedTuple):
    """What is wanted of a drafter for one call."""

    call: Sequence
    most: int
    """Tokens, at most; at least 1."""
    likely: float
    """How much more of this call's drafts come true than usual: a factor."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The tokens that are thought to come next."""

    tokens: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    """What each was guessed from; tokens of one kind come true equally often."""
    logits: list[torch.Tensor] = field(default_factory=list)
    """What each was drawn from, where it was drawn."""
    other: Draft | None = None
    """What is thought to come if the first token does not: it begins with another one, whose kind
    tells how often such a token is right where those before it are not. Only under `coupled`."""

    @property
    def chains(self) -> Iterator[Draft]:
        """It, and what may come instead."""
        each: Draft | None = self
        while each is not None:
            yield each
            each = each.other

    def proposals(self, count: int) -> list[Proposal]:
        """The first tokens, as the rejection rule sees them."""
        if not self.logits:
            return [Proposal(token, None) for token in self.tokens[:count]]
        return list(map(Proposal, self.tokens[:count], self.logits[:count]))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a step tries of drafts."""

    rows: Mapping[Call, Seq[int]] = field(default_factory=dict)
    """By call the drafted tokens that are computed."""
    sides: Mapping[Call, Seq[Seq[int]]] = field(default_factory=dict)
    """By call what is computed besides, as other tokens may come in their place."""
    proposals: Mapping[Sequence, Seq[Proposal]] = field(default_factory=dict)
    """By call what was proposed to follow each of its rows, where that decides."""
    seconds: float = 0.0
    """What drafting has taken."""


class Drafter(Protocol):
    """Guesses the next tokens of calls. It belongs to the engine's thread.

    Under `maximal` a guess is a function of the call's tokens, its sampling and its seed.
    """

    @property
    def name(self) -> str:
        """What it guesses by; where a result depends on it, the result names it."""

    @property
    def priors(self) -> Seq[float]:
        """For every kind of guess the chance that is thought of it beforehand."""

    @property
    def page_bytes(self) -> int:
        """Memory that it takes for each page of the model's keys and values."""

    def reserve(self, num_pages: int) -> None:
        """The model has so many pages."""

    def draft(self, wishes: Seq[Wish], budget: DraftBudget) -> list[Draft]:
        """A draft for each wish; empty where there is none."""

    def forget(self, calls: Iterable[Sequence]) -> None:
        """Calls have left the batch; they may come again."""
