"""A step's rows of one sequence that tokens are drawn from: the next one, one for each draft."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import NamedTuple

from ttc.engine.local.drafting.draft import Proposal
from ttc.engine.local.schedule import Piece, Work
from ttc.engine.local.sequence import Sequence

__all__ = ["Block", "blocks_of", "proposals_of"]


class Block(NamedTuple):
    """What is left of a sequence's rows in a step."""

    sequence: Sequence
    row: int
    """The next one that was drawn from, among all of the step."""
    drafts: Seq[int]
    """The tokens that the rows after it were computed for."""

    @property
    def next(self) -> Block:
        """What is left once the next draft has come true."""
        return Block(self.sequence, self.row + 1, self.drafts[1:])


def blocks_of(pieces: Iterable[Piece]) -> list[Block]:
    """A block for each piece that is drawn from."""
    blocks, row = [], 0
    for piece in pieces:
        if piece.drawer is not None:
            blocks.append(Block(piece.drawer, row, piece.drafts))
            row += 1 + len(piece.drafts)
    return blocks


def proposals_of(work: Work) -> list[Proposal | None]:
    """For every row that is drawn from what was proposed to follow it, if anything was."""
    found: list[Proposal | None] = []
    for block in blocks_of(work.pieces):
        proposed = work.proposals.get(block.sequence, ())[: 1 + len(block.drafts)]
        found += [*proposed, *[None] * (1 + len(block.drafts) - len(proposed))]
    return found
