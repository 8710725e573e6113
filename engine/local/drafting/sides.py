"""Side chains: what else may come, tried in the same step, and kept if it is what comes.

The chains that a step tries of one call part at its next token: they are a tree whose trunk is the
call's own path. A side chain has a path of its own, which shares the call's full pages and copies
the one that it goes on in; it begins with the call's last token once more, as that one's keys and
values must lie in its pages too. So to attention it is a call like any other, with the same bits.
Once it is known which token comes, the call goes on along the chain that begins with it, and the
pages of all others are given back: nothing that was computed in them is ever found.

*Source:* trees of drafts in one pass: Miao et al. 2024, arXiv 2305.09781. *Differs:* chains part at
their first token alone, and no kernel knows of trees. *Cost:* a row and a copied page for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq

from ttc.engine.local.call import Call
from ttc.engine.local.drafting.block import Block
from ttc.engine.local.page import Match, Path
from ttc.engine.local.plan import PAGE
from ttc.engine.local.schedule import Piece
from ttc.engine.local.tree import RadixTree

__all__ = ["Sides", "give_back", "keep_what_came", "part"]

Sides = Mapping[Call, Seq[Path]]
"""By call the paths of its side chains."""


def part(tree: RadixTree, pieces: Iterable[Piece]) -> Sides:
    """Paths for the side chains of a step, with the pages that they write to."""
    return {
        piece.sequence: [_part(tree, piece.sequence.path, len(side)) for side in piece.sides]
        for piece in pieces
        if piece.sides
    }


def _part(tree: RadixTree, path: Path, count: int) -> Path:
    """A path that goes on from where another one is, by that one's next token and more."""
    full, copied = divmod(path.length, PAGE)
    own = tree.join(
        Match(
            shared=tuple(path.pages[:full]),
            source=path.pages[full] if copied else None,
            copied=copied,
            length=path.length,
            salt=path.salt,
        )
    )
    tree.grow(own, path.length + 1 + count)
    return own


def keep_what_came(
    tree: RadixTree, pieces: Iterable[Piece], blocks: Seq[Block], came: Seq[int], sides: Sides
) -> list[Block]:
    """Lets each call go on by the chain that begins with what came; gives the others back.

    Args:
        tree: of the paths.
        pieces: what was computed.
        blocks: of the calls' own paths.
        came: what was drawn of each row.
        sides: the paths of the side chains.
    """
    drawing = [piece for piece in pieces if piece.drawer is not None]
    kept = [_kept(block, piece, came, sides) for block, piece in zip(blocks, drawing, strict=True)]
    give_back(tree, sides)
    return kept


def _kept(block: Block, piece: Piece, came: Seq[int], sides: Sides) -> Block:
    """What goes on: the block of a call's own path, or that of the side chain in its place."""
    next_token, end = came[block.row], block.rows[-1] + 1
    if not piece.sides or piece.drafts[0] == next_token:
        return block
    call, paths = block.sequence, sides[block.sequence]
    for tokens, path in zip(piece.sides, paths, strict=True):
        rows = range(end, end + len(tokens))
        if tokens[0] == next_token:
            path.exchange(call.path)
            return Block(call, (block.row, *rows), tokens)
        end = rows.stop
    return block


def give_back(tree: RadixTree, sides: Sides) -> None:
    """Takes the pages of side chains away."""
    for paths in sides.values():
        for path in paths:
            tree.cut_back(path)
            tree.discard(path)
