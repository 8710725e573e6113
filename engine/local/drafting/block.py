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
    rows: Seq[int]
    """Where they are among all of the step that were drawn from: the next one, and one for each
    draft."""
    drafts: Seq[int]
    """The tokens that the rows after the next one were computed for."""

    @property
    def row(self) -> int:
        """The next one."""
        return self.rows[0]

    @property
    def next(self) -> Block:
        """What is left once the next draft has come true."""
        return Block(self.sequence, self.rows[1:], self.drafts[1:])


def blocks_of(pieces: Iterable[Piece]) -> list[Block]:
    """A block for each piece that is drawn from; the rows of its side chains follow it."""
    blocks, row = [], 0
    for piece in pieces:
        if piece.drawer is not None:
            rows = range(row, row + 1 + len(piece.drafts))
            blocks.append(Block(piece.drawer, rows, piece.drafts))
            row = rows.stop + sum(map(len, piece.sides))
    return blocks


def proposals_of(work: Work) -> list[Proposal | None]:
    """For every row that is drawn from what was proposed to follow it, if anything was."""
    found: list[Proposal | None] = []
    for block in blocks_of(work.pieces):
        proposed = work.proposals.get(block.sequence, ())[: len(block.rows)]
        found += [*proposed, *[None] * (len(block.rows) - len(proposed))]
    return found
