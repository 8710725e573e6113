"""Lookahead: scores a trajectory by where a few greedy steps lead it.

Source: Snell et al. 2024 (arXiv 2408.03314), section 5.2: the score of a step is that of the end
of a rollout of at most k steps at temperature 0.
Cost: at most k steps for each score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ttc.errors import EngineError
from ttc.flow import Cost, Flow, verifier_cost
from ttc.ports import Scope, Verifier
from ttc.strategies.tree.steps import StepRule, next_step
from ttc.types import Candidate, Problem, Sampling, Score

__all__ = ["Lookahead"]

_GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True, kw_only=True)
class Lookahead:
    """A verifier of what an open trajectory becomes; a finished one is scored as it is."""

    needs: ClassVar[Literal["each", "all"]] = "each"

    verifier: Verifier
    steps: StepRule
    count: int
    """The most steps ahead."""
    role: str

    @property
    def name(self) -> str:
        """The verifier's, whose scores they are."""
        return self.verifier.name

    @property
    def range(self) -> tuple[float, float] | None:
        """The verifier's."""
        return self.verifier.range

    @property
    def parts(self) -> tuple[Verifier, ...]:
        """It costs what the verifier costs, and the steps."""
        return (self.verifier,)

    @property
    def requires(self) -> frozenset[str]:
        """What the verifier needs."""
        return self.verifier.requires

    @property
    def roles(self) -> frozenset[str]:
        """Whose steps it draws, and whom the verifier asks."""
        return frozenset({self.role}) | self.verifier.roles

    def bound(self, given: Flow) -> Cost:
        """The steps, and what the verifier costs."""
        text = given.grown(self.role, self.count * self.steps.max_tokens)
        steps = Cost(tokens=self.steps.max_tokens, calls=1) * self.count * given.count
        return steps + verifier_cost(self.verifier, replace(given, text=text))

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """The verifier's scores of what the candidates become."""
        ahead = [
            await self._ahead(candidate, scope, place * self.count)
            for place, candidate in enumerate(candidates)
        ]
        return await scope.verify(self.verifier, ahead)

    async def _ahead(self, candidate: Candidate, scope: Scope, first: int) -> Candidate:
        """A candidate a few steps later; as far as it came, where the engine fails."""
        branch, index = candidate.branch, first
        while candidate.status == "open" and index < first + self.count:
            try:
                branch = await next_step(branch, self.steps, scope, index=index, sampling=_GREEDY)
            except EngineError:
                return candidate
            index += 1
            candidate = scope.finish(candidate, branch, is_open=branch.finish_reason is None)
        return candidate
