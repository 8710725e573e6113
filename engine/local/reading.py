"""Given tokens as the engine reads them: what is wanted of which row, and what is known of it.

A row is a token at its position. Of a language model's row the log probabilities of tokens that may
follow are wanted, or the hidden state; of a reward model's row the rewards. What one call has found
out is kept in the tree of pages, so the next one that goes on from there computes no row again.
Hidden states are too large to be kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from concurrent.futures import Future
from typing import Generic, TypeVar

from ttc.engine.local.call import Call, Owner
from ttc.engine.local.facts import Want, next_tokens
from ttc.engine.local.page import Facts
from ttc.engine.local.path import segment_tokens
from ttc.engine.local.tree import Match, RadixTree
from ttc.errors import EngineError
from ttc.types import Branch, NextTokens, Usage

__all__ = ["Answer", "Read", "Reading", "next_plan", "reward_plan", "suffix_plan"]

Wants = dict[int, Want]
"""By row what is wanted of it."""
Place = tuple[int, int, int]
"""Where a value is found: which path, its row, and what is wanted there."""
T = TypeVar("T")
Answer = Callable[[Seq["Reading"]], tuple[T, ...]]


class Reading(Call):
    """One path of given tokens.

    Args:
        tokens: the path; at least one.
        wants: what is wanted of its rows.
        on_end: is told once: of an error, or of `None` when everything has been found.
        hidden: whether hidden states are wanted, which no page keeps: they are too large.
        owner: whose share of the engine it takes.
    """

    def __init__(
        self,
        tokens: list[int],
        wants: Wants,
        on_end: Callable[[Exception | None], None],
        *,
        hidden: bool = False,
        owner: Owner = "",
    ) -> None:
        super().__init__(tokens, len(tokens), owner=owner)
        self.wants = wants
        self.found: dict[int, Facts] = {}
        """By row what is known of it."""
        self.hidden = hidden
        self._on_end = on_end
        self._num_draws = 0

    @property
    def num_draws(self) -> int:
        """Rows that it has taken the model's head for. Guarded."""
        return self._num_draws

    @num_draws.setter
    def num_draws(self, number: int) -> None:
        self._num_draws = number

    @property
    def num_output(self) -> int:
        """It generates nothing."""
        return 0

    @property
    def num_reusable(self) -> int:
        """How many of its first tokens another call could compute for it."""
        return min((row for row in self.wants if row not in self.found), default=len(self.tokens))

    def match(self, tree: RadixTree) -> Match:
        """Its prefix that is computed, up to the first row of which something is not known."""
        if not self.hidden:
            for row, facts in tree.facts(self.tokens, self.wants.keys(), self.salt).items():
                if self.wants[row].is_met(facts):
                    self.found[row] = facts
        return tree.match(self.tokens[: self.num_reusable + 1], self.salt)

    @property
    def is_found(self) -> bool:
        """Whether everything that is wanted is known."""
        return len(self.found) == len(self.wants)

    def rows(self, count: int, *, every: bool) -> list[int]:
        """Of its next `count` rows every one, or those of which something is wanted."""
        end = self.computed + count
        return [row for row in range(self.computed, end) if every or row in self.wants]

    def note(self, row: int, facts: Facts) -> None:
        """Takes what was found out of a row."""
        if row in self.wants:
            self.found[row] = facts

    def finish(self) -> None:
        """Tells that everything has been found."""
        self._on_end(None)

    def fail(self, error: EngineError) -> None:
        """Ends it with an error."""
        self._on_end(error)


class Read(Generic[T]):
    """A call that reads: all of its paths, and one result. See `ttc.ports.Reading`.

    Args:
        paths: tokens and what is wanted of them.
        answer: makes the results of its paths, once everything is found.
        num_given: all tokens that the caller gave, also those that are not computed.
        lock: guards `cancelled` of its paths.
        hidden: whether hidden states are wanted.
        owner: whose share of the engine it takes.
    """

    def __init__(
        self,
        paths: Iterable[tuple[list[int], Wants]],
        answer: Answer[T],
        num_given: int,
        lock: threading.Lock,
        *,
        hidden: bool = False,
        owner: Owner = "",
    ) -> None:
        self.future: Future[tuple[T, ...]] = Future()
        """The results; or an `EngineError`."""
        self.readings = [
            Reading(tokens, wants, self._ended, hidden=hidden, owner=owner)
            for tokens, wants in paths
        ]
        self._answer, self._num_given, self._lock = answer, num_given, lock
        self._missing = len(self.readings)
        self._claim = threading.Lock()
        self._claimed = False
        self.future.add_done_callback(self._follow)

    @property
    def usage(self) -> Usage:
        """The physical lines of the call."""
        with self._lock:
            computed = sum(reading.reached - reading.cached for reading in self.readings)
            return Usage(
                input_tokens=self._num_given,
                cached_input_tokens=max(0, self._num_given - computed),
                recomputed_tokens=sum(reading.recomputed for reading in self.readings),
                flops=sum(reading.flops for reading in self.readings),
                kv_byte_seconds=sum(reading.kv_byte_seconds for reading in self.readings),
            )

    def cancel(self) -> int:
        """Ends the call before the next step. It generates nothing."""
        self._cancel_paths()
        self.future.cancel()
        return 0

    def _cancel_paths(self) -> None:
        with self._lock:
            for reading in self.readings:
                reading.cancel(time.monotonic())

    def _follow(self, future: Future[tuple[T, ...]]) -> None:
        if future.cancelled():
            self._cancel_paths()
            self._take_claim()

    def _ended(self, error: Exception | None) -> None:
        self._missing -= 1
        if error is not None:
            if self._take_claim():
                self.future.set_exception(error)
            self._cancel_paths()
        elif self._missing == 0 and self._take_claim():
            self.future.set_result(self._answer(self.readings))

    def _take_claim(self) -> bool:
        """Whether the future may be given its result now: once, and not after a cancellation."""
        with self._claim:
            if self._claimed:
                return False
            self._claimed = True
            return self.future.set_running_or_notify_cancel()


def suffix_plan(
    suffixes: Seq[Branch],
) -> tuple[list[tuple[list[int], Wants]], Answer[tuple[float, ...]]]:
    """What to read, so that each row that branches share is read once.

    A branch's last segment is the suffix. Its first token follows the last row before it, and its
    own last token is not computed.

    Returns:
        The paths, and what makes of them for each suffix the log probabilities of its tokens.
    """
    tree = _Tree()
    wanted: dict[int, dict[int, None]] = {}
    walks: list[list[int]] = []  # for each suffix the nodes that its tokens follow
    for suffix in suffixes:
        node, walk = tree.end_of(suffix.parent), []
        for token in suffix.token_ids or ():
            walk.append(node)
            wanted.setdefault(node, {})[token] = None
            node = tree.child(node, token)
        walks.append(walk)
    paths: list[tuple[list[int], Wants]] = []
    home: dict[int, int] = {}  # by node: its path
    for last in sorted({walk[-1]: None for walk in walks}, key=lambda node: -tree.depth[node]):
        if last not in home:  # else what comes before it has a home, too
            tokens, nodes = tree.path(last)
            rows = {row: node for row, node in enumerate(nodes) if node in wanted}
            own = {row: node for row, node in rows.items() if node not in home}
            home |= dict.fromkeys(own.values(), len(paths))
            wants = {row: Want(keys=tuple(wanted[node])) for row, node in own.items()}
            paths.append((tokens, wants))
    places = [
        [
            (home[node], tree.depth[node] - 1, token)
            for node, token in zip(walk, suffix.token_ids or (), strict=True)
        ]
        for walk, suffix in zip(walks, suffixes, strict=True)
    ]
    return paths, _values_at(places)


class _Tree:
    """Branches by their tokens, from the first one on. Node 0 is before all of them."""

    def __init__(self) -> None:
        self.depth = [0]
        self._up: list[tuple[int, int]] = [(0, 0)]  # the node before, and the token between
        self._children: dict[tuple[int, int], int] = {}
        self._ends: dict[Branch, int] = {}

    def child(self, node: int, token: int) -> int:
        """The node after a token."""
        found = self._children.get((node, token))
        if found is None:
            found = self._children[node, token] = len(self.depth)
            self.depth.append(self.depth[node] + 1)
            self._up.append((node, token))
        return found

    def end_of(self, branch: Branch | None) -> int:
        """The node where a branch ends."""
        node = 0
        for segment in branch.lineage() if branch is not None else ():
            if segment not in self._ends:
                for token in segment_tokens(segment):
                    node = self.child(node, token)
                self._ends[segment] = node
            node = self._ends[segment]
        return node

    def path(self, node: int) -> tuple[list[int], list[int]]:
        """The tokens up to a node, and the node after each of them."""
        tokens, nodes = [], []
        while node:
            nodes.append(node)
            node, token = self._up[node]
            tokens.append(token)
        return tokens[::-1], nodes[::-1]


def reward_plan(
    tokens: list[int], rows: Seq[int], num_labels: int
) -> tuple[list[tuple[list[int], Wants]], Answer[tuple[float, ...]]]:
    """What to read for the rewards of some rows of one path."""
    labels = tuple(range(num_labels))
    path = tokens[: max(rows) + 1]
    places = [[(0, row, label) for label in labels] for row in rows]
    return [(path, dict.fromkeys(rows, Want(keys=labels)))], _values_at(places)


def next_plan(
    tokens: list[int], at: Seq[int], top: int
) -> tuple[list[tuple[list[int], Wants]], Answer[NextTokens]]:
    """What to read for the most probable tokens after the first n of one path, for each n."""

    def answer(readings: Seq[Reading]) -> tuple[NextTokens, ...]:
        return tuple(next_tokens(readings[0].found[count - 1], top) for count in at)

    return [(tokens[: max(at)], {count - 1: Want(top=top) for count in at})], answer


def _values_at(places: Seq[Seq[Place]]) -> Answer[tuple[float, ...]]:
    """What makes for each result the values at its places."""

    def answer(readings: Seq[Reading]) -> tuple[tuple[float, ...], ...]:
        return tuple(
            tuple(readings[path].found[row][key] for path, row, key in each) for each in places
        )

    return answer
