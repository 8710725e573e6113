"""RolloutValue: what comes of a prefix, by finishing it several times.

Source: Wang et al. 2023 (arXiv 2312.08935), section 3.3, equation 4: the share of completions of a
step that reach the right answer. With no reference at hand a verifier scores them, or their
agreement does: the share of the most frequent answer, as in Wang et al. 2022 (arXiv 2203.11171).
Cost: m calls of the policy for each candidate, at most `max_tokens` output tokens each, and what
the verifier costs for m candidates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ttc.errors import EngineError
from ttc.flow import Cost, Flow, verifier_cost
from ttc.graph import is_count
from ttc.lengths import times
from ttc.ports import Scope, Verifier
from ttc.prompts import together
from ttc.types import Candidate, Problem, Sampling, Score

__all__ = ["RolloutValue"]


@dataclass(frozen=True, kw_only=True)
class RolloutValue:
    """The mean score of m rollouts of a candidate's branch.

    A rollout without an answer has the lowest score that there is, since it leads nowhere; one that
    the engine could not finish, or the verifier not score, does not count. A finished candidate has
    the verifier's score of itself; by agreement it is unscored, as nothing is left to draw.
    """

    remote: ClassVar[bool] = True
    needs: ClassVar[Literal["each", "all"]] = "each"

    m: int = 4
    """Rollouts of each candidate."""
    verifier: Verifier | None = None
    """What scores a rollout; it needs bounds. `None` is agreement."""
    temperature: float = 1.0
    max_tokens: int = 512
    """The most output tokens of one rollout."""
    role: str = "policy"
    """The role whose tokens the candidates are."""
    name: str = "rollout_value"

    def __post_init__(self) -> None:
        for name, value in (("m", self.m), ("max_tokens", self.max_tokens)):
            if not is_count(value):
                raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
        if self.m > 1 and self.temperature == 0:
            raise ValueError(f"{self.m} rollouts at temperature 0 are one; set a temperature")
        Sampling(temperature=self.temperature)
        if self.verifier is None and self.m < 2:
            raise ValueError("one rollout agrees with itself; set m=2 or more, or a verifier")
        if self.verifier is not None and not isinstance(self.verifier, Verifier):
            raise TypeError(f"{self.verifier!r} is no verifier")
        if self.verifier is not None and self.verifier.range is None:
            raise ValueError(
                f"a mean needs scores with bounds, and those of {self.verifier.name} have none; "
                "choose a transform of it that has"
            )

    @property
    def range(self) -> tuple[float, float] | None:
        """That of the verifier; a share's by agreement."""
        return (0.0, 1.0) if self.verifier is None else self.verifier.range

    @property
    def roles(self) -> frozenset[str]:
        """The role that is rolled out, and those of the verifier."""
        return frozenset({self.role}) | (self.verifier.roles if self.verifier else frozenset())

    @property
    def requires(self) -> frozenset[str]:
        """Forks of its own role, and what the verifier needs of its roles."""
        own = {f"{self.role}:fork"}
        if self.verifier is None:
            return frozenset(own)
        inner = self.verifier
        named = {
            need if ":" in need else f"{role}:{need}"
            for need in inner.requires
            for role in inner.roles or {"policy"}
        }
        return frozenset(own | named)

    def bound(self, given: Flow) -> Cost:
        """Every rollout, and the verifier's score of each."""
        count = times(given.count, self.m)
        drawn = Cost(tokens=self.max_tokens, calls=1) * count
        if self.verifier is None:
            return drawn
        text = given.grown(self.role, self.max_tokens)
        return drawn + verifier_cost(self.verifier, replace(given, count=count, text=text))

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate.

        All rollouts end before the first is scored, so that they are scored in launch order.
        """
        open_ones = [c for c in candidates if c.status == "open"]
        drawn = await together(
            scope,
            (
                self._rollout(candidate, scope, place * self.m + n)
                for place, candidate in enumerate(open_ones)
                for n in range(self.m)
            ),
        )
        groups = iter([drawn[first : first + self.m] for first in range(0, len(drawn), self.m)])
        reached = [next(groups) if c.status == "open" else [c] for c in candidates]
        if self.verifier is None:
            return tuple(map(self._agreement, reached))
        verifier = self.verifier
        return tuple(
            await together(scope, (self._scored(verifier, found, scope) for found in reached))
        )

    async def _scored(
        self, verifier: Verifier, drawn: Sequence[Candidate | EngineError], scope: Scope
    ) -> Score:
        """The mean of the verifier's scores."""
        rollouts = [rollout for rollout in drawn if isinstance(rollout, Candidate)]
        answered = [rollout for rollout in rollouts if rollout.key is not None]
        scores = await scope.verify(verifier, answered) if answered else ()
        low = (self.range or (0.0, 1.0))[0]
        values = [score.value for score in scores if score.value is not None]
        values += [low] * (len(rollouts) - len(answered))
        return Score(
            value=math.fsum(values) / len(values) if values else None,
            range=self.range,
            evidence={"scores": tuple(values), **_faults(drawn)},
        )

    async def _rollout(
        self, candidate: Candidate, scope: Scope, index: int
    ) -> Candidate | EngineError:
        try:
            branch = await scope.generate(
                candidate.branch,
                index=index,
                max_tokens=self.max_tokens,
                sampling=Sampling(temperature=self.temperature),
            )
        except EngineError as error:
            return error
        return scope.finish(candidate, branch)

    @staticmethod
    def _agreement(drawn: Sequence[Candidate | EngineError]) -> Score:
        """The share of the most frequent answer among all rollouts; fewer than two say nothing."""
        rollouts = [rollout for rollout in drawn if isinstance(rollout, Candidate)]
        votes = Counter(rollout.key for rollout in rollouts if rollout.key is not None)
        share = max(votes.values(), default=0) / max(1, len(rollouts))
        return Score(
            value=share if len(rollouts) > 1 else None,
            evidence={"votes": tuple(votes.values()), "of": len(rollouts), **_faults(drawn)},
        )


def _faults(drawn: Sequence[Candidate | EngineError]) -> dict[str, tuple[str, ...]]:
    """Why rollouts failed, where any did."""
    faults = tuple(str(fault) for fault in drawn if isinstance(fault, EngineError))
    return {"unknown": faults} if faults else {}
