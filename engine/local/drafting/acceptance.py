"""By what rule drafted tokens become a call's own: `coupled` or `maximal`.

`coupled`: the call's token is drawn as ever, by the noise of its seed and position, and a draft has
come true if it is that token. Results do not depend on drafts, whoever made them. A draft model
that draws by the same noise is right about as often as its distribution overlaps with the model's.

`maximal`: a token x that was drawn from q is kept with probability min(1, p(x) / q(x)), p being
what the call draws from after bias, penalties, constraint, temperature and filters; else the token
is drawn from (p - q)+, scaled. It has the distribution p, and is x as often as any rule can make
it. Every position is decided so, tried in a block or not, by noise of seed and position: so what
comes depends on the drafter, but not on when or beside what a call runs. Greedy calls need no rule.

*Source:* maximal: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1 and appendix A.1; Chen et
al. 2023, arXiv 2302.01318. Coupled: Daliri et al. 2024, arXiv 2408.07978. *Differs:* the rule also
decides the token after the last accepted one. *Cost:* of `maximal` some passes over the vocabulary
for each row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from ttc.engine.local.drafting.draft import Proposal
from ttc.engine.local.model import Model
from ttc.engine.local.sample import Draw, Drawn, distributions, uniform

__all__ = ["decide", "kept_or_redrawn"]

_ACCEPT, _REDRAW = 1, 2
"""Which noise: the token's own is another."""


def decide(
    model: Model, logits: torch.Tensor, draws: Sequence[Draw], proposals: Sequence[Proposal | None]
) -> Drawn:
    """Draws a token for each row, those with a proposal by the rejection rule."""
    drawn = model.draw(logits, draws)
    rows = [
        row
        for row, (draw, proposal) in enumerate(zip(draws, proposals, strict=True))
        if proposal is not None and draw.sampling.temperature and row not in drawn.faults
    ]
    if not rows:
        return drawn
    asked = [draws[row] for row in rows]
    offered = [proposal for row in rows if (proposal := proposals[row]) is not None]
    tokens = kept_or_redrawn(distributions(logits[rows].cpu(), asked), offered, asked)
    found = model.logprobs(logits[rows], [(token,) for token in tokens])
    for row, token, known in zip(rows, tokens, found, strict=True):
        assert known is not None  # else the row has a fault
        drawn.token_ids[row], drawn.logprobs[row] = token, known[token]
    return drawn


def kept_or_redrawn(
    p: torch.Tensor, proposals: Sequence[Proposal], draws: Sequence[Draw]
) -> list[int]:
    """For each row the proposed token, or another one.

    Args:
        p: (n, vocab) float64, what is to be drawn from.
        proposals: the tokens, and what they were drawn from.
        draws: whose noise decides; their sampling made distributions of the proposals' logits.
    """
    tokens = torch.tensor([proposal.token for proposal in proposals])[:, None]
    chances = torch.tensor([uniform(draw, _ACCEPT) for draw in draws], dtype=torch.float64)
    again = torch.tensor([uniform(draw, _REDRAW) for draw in draws], dtype=torch.float64)
    q = torch.zeros_like(p).scatter_(1, tokens, 1.0)
    drawn = [row for row, proposal in enumerate(proposals) if proposal.logits is not None]
    if drawn:
        logits = [x for row in drawn if (x := proposals[row].logits) is not None]
        q[drawn] = _proposed_from(torch.stack(logits), [draws[row] for row in drawn], p.shape[1])
    kept = chances * q.gather(1, tokens)[:, 0] < p.gather(1, tokens)[:, 0]
    rest = (p - q).clamp_(min=0.0).cumsum_(1)
    others = torch.searchsorted(rest, (again * rest[:, -1])[:, None], right=True)
    return torch.where(kept[:, None], tokens, others)[:, 0].tolist()


def _proposed_from(logits: torch.Tensor, draws: Sequence[Draw], vocab: int) -> torch.Tensor:
    """(n, vocab) float64: what a draft model draws from where calls draw so.

    Bias, penalties and constraints are left out: the model itself keeps to them.
    """
    free = [draw._replace(seen=None, allowed=None, bias=None) for draw in draws]
    found = distributions(logits, free)
    return F.pad(found, (0, vocab - found.shape[1]))
