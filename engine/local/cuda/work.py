"""Which rows attention reads together: items of work for `kernels.attention.fold`, out of a plan.

A plan's readers are sorted by their pages, so those that share a chunk lie together. From each
segment's beginning on, rows that share chunks are one group as long as they share them; where they
part, groups go on by themselves until the segment ends. A group is cut into tiles of queries. What
a group folds from the segment's beginning leaves one state for each row, and any later group one
for each row and chunk: see the kernel for why.

All of it is in numpy, over all readers at once: a step's Python must not grow with its branches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ttc.engine.local.attention import CHUNK
from ttc.engine.local.plan import PAGE, Plan

__all__ = ["SEGMENT", "TILES", "Work", "plan_work"]

SEGMENT = 512
"""Positions whose chunks are folded one after another. It decides bits."""
TILES = (16, 32)
"""Queries that an item has room for: one row's own, and those of many. More would not fit into a
program's registers with heads of 128."""

_PER_SEGMENT = SEGMENT // CHUNK
_MANY = 1 << 30
Numbers = npt.NDArray[np.int32]


class Work(NamedTuple):
    """The items of a step."""

    items: tuple[Numbers, ...]
    """For each of `TILES` (items, 6): first member, how many, where their pages begin in the plan's
    table, first chunk, how many chunks, and whether they are folded into one state."""
    members: tuple[Numbers, ...]
    """For each of `TILES` (members, 3): row, position, and where its states go."""
    begins: Numbers
    """(rows + 1,) where each row's states begin; they lie in the order of their positions."""
    opens: Numbers
    """(states,) whether a state is the first of a segment."""


class _Level(NamedTuple):
    """Groups that begin at chunks of their own; entries are readers in a segment."""

    reader: npt.NDArray[np.int64]
    chunk: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    """Chunks of the entry's group."""
    group: npt.NDArray[np.int64]
    firsts: npt.NDArray[np.int64]
    """(groups,) the first entry of each."""
    folds: bool


def plan_work(plan: Plan, group: int, tiles: tuple[int, ...] = TILES) -> Work:
    """The items of a plan's step, for `group` query heads to each key head.

    Args:
        plan: the step.
        group: how many queries a row has for a key head.
        tiles: which of `TILES` may be used.
    """
    levels = _levels(plan)
    reader = np.concatenate([level.reader for level in levels])
    chunk = np.concatenate([level.chunk for level in levels])
    states = np.concatenate([np.ones_like(v.length) if v.folds else v.length for v in levels])
    rows = plan.readers["row"].astype(np.int64)
    order = np.lexsort((chunk, rows[reader]))
    slots = np.empty_like(states)
    slots[order] = np.cumsum(states[order]) - states[order]
    opens = np.zeros(int(states.sum()), np.int32)
    opens[slots[: len(levels[0].reader)]] = 1
    per_row = np.bincount(rows[reader], weights=states, minlength=plan.num_rows)
    begins = np.concatenate([[0], np.cumsum(per_row)]).astype(np.int32)
    items: list[list[Numbers]] = [[] for _ in TILES]
    members: list[list[Numbers]] = [[] for _ in TILES]
    counts, at = [0] * len(TILES), 0
    for level in levels:
        own = slots[at : at + len(level.reader)]
        at += len(level.reader)
        for tile, mask in _by_tile(level, group, tiles):
            made = _items(plan, level, mask, max(1, TILES[tile] // group), counts[tile])
            items[tile].append(made)
            members[tile].append(_members(plan, level.reader[mask], own[mask]))
            counts[tile] += len(members[tile][-1])
    return Work(
        tuple(np.concatenate(each) if each else np.empty((0, 6), np.int32) for each in items),
        tuple(np.concatenate(each) if each else np.empty((0, 3), np.int32) for each in members),
        begins,
        opens,
    )


def _levels(plan: Plan) -> list[_Level]:
    readers = plan.readers
    last = readers["position"].astype(np.int64) // CHUNK
    common = readers["shared"].astype(np.int64) * PAGE // CHUNK  # whole chunks shared with before
    segments = last // _PER_SEGMENT + 1
    reader = np.repeat(np.arange(len(readers)), segments)
    segment = np.arange(len(reader)) - np.repeat(np.cumsum(segments) - segments, segments)
    by_segment = np.argsort(segment, kind="stable")
    reader, segment = reader[by_segment], segment[by_segment]
    chunk, group = segment * _PER_SEGMENT, segment
    ends = np.minimum(last[reader], chunk + _PER_SEGMENT - 1) + 1
    levels: list[_Level] = []
    while len(reader):
        joined = np.zeros(len(reader), bool)
        joined[1:] = (
            (group[1:] == group[:-1])
            & (reader[1:] == reader[:-1] + 1)
            & (common[reader[1:]] > chunk[1:])
        )
        firsts = np.flatnonzero(~joined)
        shared = np.minimum.reduceat(np.where(joined, common[reader] - chunk, _MANY), firsts)
        longest = np.maximum.reduceat(ends - chunk, firsts)
        group = np.cumsum(~joined) - 1
        length = np.minimum(shared, longest)[group]
        levels.append(_Level(reader, chunk, length, group, firsts, not levels))
        goes_on = chunk + length < ends
        reader, chunk, group = reader[goes_on], (chunk + length)[goes_on], group[goes_on]
        ends = ends[goes_on]
    return levels


def _by_tile(
    level: _Level, group: int, tiles: tuple[int, ...]
) -> list[tuple[int, npt.NDArray[np.bool_]]]:
    """Which entries go to which tile: the smallest that holds their group, else the largest."""
    if len(tiles) == 1:
        return [(TILES.index(tiles[0]), np.ones(len(level.reader), bool))]
    sizes = np.diff(np.append(level.firsts, len(level.reader)))[level.group] * group
    is_wide = sizes > tiles[0]
    choices = ((TILES.index(tiles[0]), ~is_wide), (TILES.index(tiles[1]), is_wide))
    return [(tile, mask) for tile, mask in choices if mask.any()]


def _items(
    plan: Plan, level: _Level, mask: npt.NDArray[np.bool_], rows_each: int, offset: int
) -> Numbers:
    place = (np.arange(len(level.reader)) - level.firsts[level.group])[mask]  # in the group
    begins = np.flatnonzero(place % rows_each == 0)
    entry = np.flatnonzero(mask)[begins]
    made = np.empty((len(begins), 6), np.int32)
    made[:, 0] = begins + offset
    made[:, 1] = np.diff(np.append(begins, len(place)))
    made[:, 2] = plan.readers["table"][level.reader[entry]]
    made[:, 3], made[:, 4], made[:, 5] = level.chunk[entry], level.length[entry], level.folds
    return made


def _members(plan: Plan, reader: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> Numbers:
    made = np.empty((len(reader), 3), np.int32)
    made[:, 0], made[:, 1] = plan.readers["row"][reader], plan.readers["position"][reader]
    made[:, 2] = slots
    return made
