"""A step's tables: laid out on the host, and brought to the device in one piece.

A captured step needs its tables in the same places every time. So they can be laid out with room to
spare, in sizes that are powers of two: padding rows write to no page and are read by nobody, and
padding items have no members.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ttc.engine.local.cuda.work import TILES, Work
from ttc.engine.local.plan import PAGE, Plan

__all__ = ["Sizes", "Step", "lay_out", "needed_sizes", "padded_sizes", "views"]

_ALIGNED = 4  # numbers; tables begin at multiples of 16 bytes
Numbers = npt.NDArray[np.int32]


class Sizes(NamedTuple):
    """How much room a step's tables have."""

    rows: int
    table: int
    states: int
    items: tuple[int, ...]
    """Of each tile."""
    members: tuple[int, ...]


class Step(NamedTuple):
    """A step's tables on a device, int32."""

    token_ids: torch.Tensor
    """(R,)"""
    positions: torch.Tensor
    """(R,)"""
    writes: torch.Tensor
    """(R,) the page that a row's key and value go to; -1 of padding."""
    tables: torch.Tensor
    """(R,) where a row's pages begin in `table`."""
    begins: torch.Tensor
    """(R + 1,) where a row's states begin, and end."""
    opens: torch.Tensor
    """(states,) whether a state begins a segment."""
    table: torch.Tensor
    """Pages, of one sequence after another."""
    items: tuple[torch.Tensor, ...]
    """For each tile (items, 6); see `kernels.attention.fold`."""
    members: tuple[torch.Tensor, ...]
    """For each tile (members, 3)."""
    length: int
    """Positions of the longest sequence."""


def needed_sizes(plan: Plan, work: Work) -> Sizes:
    """The room that a step needs, of each table at least 1."""
    return Sizes(
        rows=plan.num_rows,
        table=plan.pages.size,
        states=max(1, len(work.opens)),
        items=tuple(max(1, len(items)) for items in work.items),
        members=tuple(max(1, len(members)) for members in work.members),
    )


def padded_sizes(sizes: Sizes) -> Sizes:
    """The same or more, of few different sizes."""

    def power(size: int) -> int:
        return 1 << (size - 1).bit_length()

    return Sizes(
        rows=power(sizes.rows) if sizes.rows < 16 else -(-sizes.rows // 16) * 16,
        table=power(sizes.table),
        states=power(sizes.states),
        items=tuple(map(power, sizes.items)),
        members=tuple(map(power, sizes.members)),
    )


def lay_out(
    token_ids: torch.Tensor, plan: Plan, work: Work, sizes: Sizes, *, pin: bool = False
) -> torch.Tensor:
    """All tables of a step one after another, on the host, in the order of `views`."""
    rows, order = plan.num_rows, plan.readers["row"]
    positions, tables = plan.readers["position"], plan.readers["table"]
    flat = plan.pages.reshape(-1)
    begins = np.full(sizes.rows + 1, len(work.opens), np.int32)
    begins[: rows + 1] = work.begins
    filled: list[tuple[Numbers, int, int]] = [
        (token_ids.numpy().astype(np.int32), sizes.rows, 0),
        (_by_row(positions, order), sizes.rows, 0),
        (_by_row(flat[tables + positions // PAGE], order), sizes.rows, -1),
        (_by_row(tables, order), sizes.rows, 0),
        (begins, sizes.rows + 1, 0),
        (work.opens, sizes.states, 0),
        (flat, sizes.table, 0),
    ]
    for tile in range(len(TILES)):
        filled.append((work.items[tile].reshape(-1), 6 * sizes.items[tile], 0))
        filled.append((work.members[tile].reshape(-1), 3 * sizes.members[tile], 0))
    whole = torch.empty(_total(sizes), dtype=torch.int32, pin_memory=pin)
    numbers, at = whole.numpy(), 0
    for values, size, padding in filled:
        numbers[at : at + len(values)] = values
        numbers[at + len(values) : at + size] = padding
        at += -(-size // _ALIGNED) * _ALIGNED
    return whole


def views(whole: torch.Tensor, sizes: Sizes, length: int) -> Step:
    """The tables that lie in one piece of memory."""
    found, at = [], 0
    for size in _sizes(sizes):
        found.append(whole[at : at + size])
        at += -(-size // _ALIGNED) * _ALIGNED
    token_ids, positions, writes, tables, begins, opens, table, *tiles = found
    return Step(
        token_ids,
        positions,
        writes,
        tables,
        begins,
        opens,
        table,
        items=tuple(items.view(-1, 6) for items in tiles[::2]),
        members=tuple(members.view(-1, 3) for members in tiles[1::2]),
        length=length,
    )


def _sizes(sizes: Sizes) -> list[int]:
    rows = sizes.rows
    tiles = zip(sizes.items, sizes.members, strict=True)
    each = [size for items, members in tiles for size in (6 * items, 3 * members)]
    return [rows, rows, rows, rows, rows + 1, sizes.states, sizes.table, *each]


def _total(sizes: Sizes) -> int:
    return sum(-(-size // _ALIGNED) * _ALIGNED for size in _sizes(sizes))


def _by_row(values: npt.NDArray[np.int32], order: npt.NDArray[np.int32]) -> Numbers:
    """What readers say, in the order of the rows."""
    found = np.empty(len(order), np.int32)
    found[order] = values
    return found
