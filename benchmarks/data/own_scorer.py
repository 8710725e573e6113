"""OwnScorer: grades an answer by the scorer that its problem's generator brings along.

Such scorers find several answers right, and many of them evaluate what a model wrote. So each
answer meets its scorer in the jail, in a process that holds nothing else and ends with it: it might
forge its own grade, as in any scorer that evaluates answers, and reaches no other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ttc.benchmarks.tasks import Reference
from ttc.loop import on_the_loop
from ttc.sandbox.limits import Limits
from ttc.sandbox.sandbox import shared
from ttc.sandbox.zygote import SandboxChoice
from ttc.types import Candidate, Score

__all__ = ["OwnScorer"]


@dataclass(frozen=True, kw_only=True)
class OwnScorer:
    """Right is the answer that the generator's scorer gives all points: 1, 0, or unknown.

    Unknown is a problem that does not come out again as it was asked, and a scorer that reached a
    limit. An empty answer is never right.

    Source: `score_answer` of Reasoning Gym, Stojanovski et al. 2025, arXiv 2505.24760.
    Differs: part of the points is wrong; the evidence tells how many there were.
    """

    limits: Limits = field(
        default_factory=lambda: Limits(seconds=30, cpu_seconds=30, memory_bytes=1 << 30)
    )
    """What one scoring may use, with the generation of its problem."""
    sandbox: SandboxChoice = "auto"

    def __call__(self, reference: Reference, candidate: Candidate) -> Score:
        """1 or 0, or unknown. It waits for the run, so nothing on ttc's event loop may call it.

        Raises:
            SandboxError: no such jail holds here.
        """
        if reference.origin is None:
            return self._score(None, {"ungradable reference": "no origin"})
        answer = candidate.answer
        if answer is None or not answer.strip():
            return self._score(0.0, {"no answer": ""})
        message = {**asdict(reference.origin), "answer": answer}
        told = on_the_loop(self._asked(message))
        if told is None:
            return self._score(None, {"undecided": "by a limit, or it ended its process"})
        points = told["score"]
        value = None if points is None else float(points >= 1.0)
        return self._score(value, {"points": points, "reason": told["reason"]})

    async def _asked(self, message: dict[str, Any]) -> dict[str, Any] | None:
        jail = shared(self.sandbox, "reasoning_gym")
        return await jail.ask(message, limits=self.limits)

    def _score(self, value: float | None, evidence: dict[str, Any]) -> Score:
        return Score(value=value, verifier="own_scorer", evidence=evidence)
