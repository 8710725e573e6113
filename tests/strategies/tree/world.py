"""A world to search in: a fake model that thinks in steps, and a verifier of its steps."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.core.lab import Solved, solved
from ttc import Budget, Candidate, EngineError, Node
from ttc.ports import Request
from ttc.strategies import (
    AStar,
    BeamSearch,
    BestFirst,
    DiverseVerifierTreeSearch,
    ParticleFiltering,
    Rebase,
    TreeOfThoughts,
    Vote,
)
from ttc.testing import ScriptedVerifier

LETTERS = "abcdefghijklmnop"


def thinker(steps: int = 3, failing: float = 0.0, letters: str = LETTERS) -> Any:
    """Writes so many steps of one letter each, and then an answer; a function of the seed."""

    def reply(request: Request) -> str | EngineError:
        random = Random(request.seed)
        if random.random() < failing:
            return EngineError("it broke", output_tokens=1)
        depth = sum(segment.parent is not None for segment in request.branch.lineage())
        if depth >= steps:
            return f"The answer is {random.choice('123')}."
        padding = "so " * random.randrange(4)
        return f"{padding}{random.choice(letters)}{depth}.\n\n"

    return reply


def worth(candidate: Candidate) -> float | None:
    """A score of a text, known to all who read it."""
    return Random(candidate.text).random()


def check(script: Callable[[Candidate], float | None] = worth) -> ScriptedVerifier:
    """A verifier that goes by a function of the candidate."""
    return ScriptedVerifier(script, name="check")


SEARCHES: dict[str, Callable[..., Node]] = {
    "beam": lambda v, **o: BeamSearch(v, num_beams=3, beam_width=3, **o),
    "granular": lambda v, **o: BeamSearch(v, num_beams=2, beam_width=4, granularity=2, **o),
    "lookahead": lambda v, **o: BeamSearch(v, num_beams=2, beam_width=2, lookahead_steps=1, **o),
    "dvts": lambda v, **o: DiverseVerifierTreeSearch(v, num_beams=3, beam_width=3, **o),
    "rebase": lambda v, **o: Rebase(v, width=8, **o),
    "particles": lambda v, **o: ParticleFiltering(v, num_particles=8, **o),
    "best_first": lambda v, **o: BestFirst(v, width=3, num_answers=3, num_expanding=3, **o),
    "astar": lambda v, **o: AStar(v, width=3, num_answers=2, **o),
    "thoughts": lambda v, **o: TreeOfThoughts(v, width=3, breadth=2, **o),
    "deep_thoughts": lambda v, **o: TreeOfThoughts(v, search="depth_first", num_answers=2, **o),
}
"""Every search, at a size that ends soon."""


def searched(
    name: str, script: Any = None, *, verifier: ScriptedVerifier | None = None, **options: Any
) -> Solved:
    """One search with a vote behind it; `window`, `order` and `steps` go to the search."""
    of_search = {k: options.pop(k) for k in ("window", "order", "steps") if k in options}
    graph = SEARCHES[name](verifier or check(), **of_search) >> Vote()
    return solved(graph, script or thinker(), **options)


__all__ = ["LETTERS", "SEARCHES", "Budget", "check", "searched", "thinker", "worth"]
