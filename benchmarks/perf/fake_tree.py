"""A fake model for tree searches of any framework: child k of a node is the same for all of them.

It imports nothing but the standard library, so that it runs beside packages in other environments.
A node has a score between 0 and 1, near its parent's, and is a solution from 0.95 on.
"""

from __future__ import annotations

from collections import Counter
from random import Random

__all__ = ["FakeTree", "Key"]

Key = tuple[int, ...]
"""A node: which child of which child of the root it is."""
SOLVED = 0.95


class FakeTree:
    """Scores of nodes, drawn when asked for, and how many it took to the first solution."""

    def __init__(self, seed: int) -> None:
        """A tree of its own for each seed."""
        self._seed = seed
        self._scores: dict[Key, float] = {}
        self._children: Counter[Key] = Counter()
        self.num_drawn = 0
        self.solved_after: int | None = None
        """Nodes drawn up to the first solution; `None` before there is one."""

    def score(self, key: Key) -> float:
        """The score of a node that was drawn; the root's is unknown and counts as the middle."""
        return self._scores[key] if key else 0.4

    def child(self, key: Key) -> Key:
        """Draws the next child of a node."""
        new = (*key, self._children[key])
        self._children[key] += 1
        random = Random(f"{self._seed}/{'/'.join(map(str, new))}")
        score = min(1.0, max(0.0, self.score(key) + random.gauss(-0.02, 0.12)))
        self._scores[new] = score
        self.num_drawn += 1
        if self.solved_after is None and score >= SOLVED:
            self.solved_after = self.num_drawn
        return new
