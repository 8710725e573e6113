"""Votes on what an agent does next: on intents, before anything is done, so that it is done once.

First the samples decide whether a tool is called at all, by a majority: more than half. Then equal
calls, or equal answers, are counted. Ties go to the earlier sample.

Source: self-consistency, Wang et al. 2022 (arXiv 2203.11171), with calls in the place of answers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ttc.tool_calls import BadCall, Call, canonical

__all__ = ["VoteBy", "Voter", "elect", "is_majority", "key_of"]

VoteBy = Literal["call", "name", "name_then_call"]
"""What makes two turns with calls equal: names and arguments, names alone, or first the names and
then, among those, the whole calls."""


@dataclass(frozen=True, kw_only=True)
class Voter:
    """One sample of a turn."""

    calls: tuple[Call, ...] = ()
    """What it wants to call."""
    answer: Hashable = None
    """The key of its answer, where it calls nothing and has one."""


def is_majority(count: int, n: int) -> bool:
    """Whether so many of n are more than half.

    Raises:
        ValueError: of no samples nothing is a majority.
    """
    if n < 1:
        raise ValueError(f"a majority needs at least one sample, not {n}")
    return 2 * count > n


def key_of(
    calls: Sequence[Call], *, ignoring: Collection[str] = (), names_only: bool = False
) -> tuple[str, ...]:
    """What equal turns share. Calls of one turn are made side by side: their order is nothing."""
    return tuple(sorted(_key(call, ignoring, names_only) for call in calls))


def elect(voters: Sequence[Voter], *, by: VoteBy = "call", ignoring: Collection[str] = ()) -> int:
    """The place of the sample that stands for all.

    Raises:
        ValueError: there is none.
    """
    callers = [place for place, voter in enumerate(voters) if voter.calls]
    if not is_majority(len(callers), len(voters)):
        silent = [place for place, voter in enumerate(voters) if not voter.calls]
        decided = [place for place in silent if voters[place].answer is not None]
        return _most({place: voters[place].answer for place in decided or silent})
    if by != "call":
        names = {p: key_of(voters[p].calls, names_only=True) for p in callers}
        first = _most(names)
        if by == "name":
            return first
        callers = [place for place in callers if names[place] == names[first]]
    return _most({place: key_of(voters[place].calls, ignoring=ignoring) for place in callers})


def _most(keys: Mapping[int, Hashable]) -> int:
    """The first place of the key that most have; of equals, of the one that came first."""
    counts: dict[Hashable, int] = {}
    for key in keys.values():
        counts[key] = counts.get(key, 0) + 1
    return max(keys, key=lambda place: (counts[keys[place]], -place))


def _key(call: Call, ignoring: Collection[str], names_only: bool) -> str:
    if names_only:
        return call.name or ""
    return f"?{call.text}" if isinstance(call, BadCall) else canonical(call, ignoring=ignoring)
