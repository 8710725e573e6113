"""What a step computes on: its pieces, laid out one row after another."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from ttc.engine.local.call import Call
from ttc.engine.local.drafting.block import proposals_of
from ttc.engine.local.drafting.draft import Proposal
from ttc.engine.local.page import Path
from ttc.engine.local.plan import Plan, Span
from ttc.engine.local.reading import Reading
from ttc.engine.local.sample import Draw
from ttc.engine.local.schedule import Piece, Work
from ttc.engine.local.sequence import Sequence

__all__ = ["Inputs", "arrange"]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a step computes on."""

    plan: Plan
    token_ids: list[int]
    draws: list[Draw]
    wanted: list[int]
    """The rows whose outputs are wanted: those that are drawn from, and then those read from."""
    reads: list[tuple[Reading, int]]
    """Who reads a row, and the row in its path."""
    hidden: list[tuple[Reading, int]]
    """The same, of hidden states."""
    hidden_rows: list[int]
    proposed: Seq[Proposal | None]
    """What was proposed for each draw, where that decides."""


@dataclass
class _Rows:
    """The rows of a step so far."""

    spans: list[Span] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)
    """Which rows are drawn from."""


def arrange(work: Work, sides: Mapping[Call, Seq[Path]]) -> Inputs:
    """The inputs of a step.

    Args:
        work: what it computes.
        sides: by call the paths of its side chains.
    """
    rows = _Rows()
    reads: list[tuple[Reading, int]] = []
    read_rows: list[int] = []
    hidden: list[tuple[Reading, int]] = []
    hidden_rows: list[int] = []
    for piece in work.pieces:
        call, first = piece.sequence, len(rows.token_ids) - piece.sequence.path.length
        _add(rows, piece)
        if piece.sides and piece.drawer is not None:
            _add_sides(rows, piece.drawer, piece.sides, sides[call])
        elif piece.rows and isinstance(call, Reading):
            (hidden if call.hidden else reads).extend((call, row) for row in piece.rows)
            (hidden_rows if call.hidden else read_rows).extend(first + row for row in piece.rows)
    return Inputs(
        plan=Plan(rows.spans),
        token_ids=rows.token_ids,
        draws=rows.draws,
        wanted=rows.drawn + read_rows,
        reads=reads,
        hidden=hidden,
        hidden_rows=hidden_rows,
        proposed=proposals_of(work) if work.proposals else (),
    )


def _add(rows: _Rows, piece: Piece) -> None:
    """The rows on a call's own path."""
    call, count, drawer, drafts = piece.sequence, piece.length, piece.drawer, piece.drafts
    start, token_ids = call.path.length, rows.token_ids
    rows.spans.append(Span(call.path.table, start, count))
    if count == 1:
        token_ids.append(call.tokens[start])
    else:
        token_ids += call.tokens[start : start + count]
    if drawer is not None and drafts:
        rows.drawn += range(len(token_ids) - 1, len(token_ids) + len(drafts))
        token_ids += drafts
        rows.draws += drawer.draws(drafts)
    elif drawer is not None:
        rows.drawn.append(len(token_ids) - 1)
        rows.draws.append(drawer.draw)


def _add_sides(rows: _Rows, drawer: Sequence, sides: Seq[Seq[int]], paths: Seq[Path]) -> None:
    """The rows of side chains: of each the call's last token again, and then its own."""
    for tokens, path in zip(sides, paths, strict=True):
        rows.spans.append(Span(path.table, path.length, 1 + len(tokens)))
        rows.token_ids.append(drawer.tokens[-1])
        rows.drawn += range(len(rows.token_ids), len(rows.token_ids) + len(tokens))
        rows.token_ids += tokens
        rows.draws += drawer.draws(tokens)[1:]
