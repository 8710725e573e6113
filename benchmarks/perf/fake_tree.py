"""Fake models for tree searches of any framework: child k of a node is the same for all of them.

They import nothing but the standard library, so that they run beside packages in other
environments. Each kind of tree is hard for a search in its own way. A node has a quality between 0
and 1 that no search sees, and a score, which is what a verifier makes of it.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NamedTuple

__all__ = ["KINDS", "FakeTree", "Key", "Kind"]

Key = tuple[int, ...]
"""A node: which child of which child of the root it is."""


class Kind(NamedTuple):
    """How a tree is drawn, and what of it is a solution.

    The quality of a child is its parent's plus a normal step. Where `right` is told, it is whether
    the step and all before it are right instead, and its score is about 0.7 or 0.3.
    """

    start: float = 0.4
    """The quality of the root."""
    drift: float = -0.02
    spread: float = 0.12
    """Mean and deviation of a step."""
    first: float | None = None
    """The deviation of the first step, where that is another one."""
    noise: float = 0.0
    """The deviation of the verifier's error."""
    width: int | None = None
    """How many children of a node differ; those after them repeat them."""
    depth: int | None = None
    """The steps of a whole answer, which alone can be a solution; `None`: nothing ends one."""
    right: float | None = None
    """The chance that a step is right."""
    is_blind: bool = False
    """Whether only whole answers are scored: by the part of their steps before the first error."""
    solved: float = 0.95
    """The quality from which a node is a solution."""


KINDS: dict[str, Kind] = {
    "plain": Kind(),
    "noisy": Kind(noise=0.15),
    "broad": Kind(first=0.25, spread=0.07),
    "deep": Kind(drift=0.0, spread=0.07),
    "narrow": Kind(width=3),
    "ended": Kind(depth=6, solved=0.85),
    "ended_noisy": Kind(depth=6, solved=0.85, noise=0.15),
    "right": Kind(start=1.0, depth=8, right=0.7, noise=0.1),
    "right_noisy": Kind(start=1.0, depth=8, right=0.7, noise=0.3),
    "right_seldom": Kind(start=1.0, depth=5, right=0.4, noise=0.15),
    "blind": Kind(start=1.0, depth=5, right=0.5, noise=0.05, is_blind=True),
}
"""Trees that reward depth, breadth, doubt, and thrift with repetitions; with and without ends."""


class FakeTree:
    """Scores of nodes, drawn when asked for, and how many it took to the first solution."""

    def __init__(self, seed: int, kind: str = "plain") -> None:
        """A tree of its own for each seed."""
        self.kind = KINDS[kind]
        self._seed = seed if kind == "plain" else f"{kind}/{seed}"
        self._quality: dict[Key, float] = {(): self.kind.start}
        self._scores: dict[Key, float | None] = {}
        self._children: Counter[Key] = Counter()
        self.num_drawn = 0
        self.solved_after: int | None = None
        """Nodes drawn up to the first solution; `None` before there is one."""

    def score(self, key: Key) -> float | None:
        """The score of a node that was drawn; the root's is unknown and counts as the middle."""
        return self._scores[key] if key else 0.4

    def has_ended(self, key: Key) -> bool:
        """Whether a node is a whole answer."""
        return len(key) == self.kind.depth

    def child(self, key: Key) -> Key:
        """Draws the next child of a node; that of a whole answer is the answer itself."""
        self.num_drawn += 1
        if self.has_ended(key):
            return key
        count, width = self._children[key], self.kind.width
        self._children[key] += 1
        new = (*key, count if width is None else count % width)
        if new not in self._scores:
            self._draw(key, new)
        is_answer = self.kind.depth is None or self.has_ended(new)
        if self.solved_after is None and is_answer and self._quality[new] >= self.kind.solved:
            self.solved_after = self.num_drawn
        return new

    def _draw(self, key: Key, new: Key) -> None:
        kind, random = self.kind, Random(f"{self._seed}/{'/'.join(map(str, new))}")
        if kind.right is not None:
            quality = self._quality[key] * (random.random() < kind.right)
            level = 0.7 if quality else 0.3
        else:
            spread = kind.spread if key or kind.first is None else kind.first
            quality = level = _in_range(self._quality[key] + random.gauss(kind.drift, spread))
        self._quality[new] = quality
        if kind.is_blind:
            level = sum(self._quality[new[: n + 1]] for n in range(len(new))) / len(new)
        is_told = self.has_ended(new) or not kind.is_blind
        self._scores[new] = _in_range(level + random.gauss(0.0, kind.noise)) if is_told else None


def _in_range(value: float) -> float:
    return min(1.0, max(0.0, value))
