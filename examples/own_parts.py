"""A node and a verifier of one's own, in one graph with the built-in ones.

A node is an async generator `(candidates, scope)`. A verifier is an object with a name, a range and
a few facts about what it needs; it is called with the problem and the candidates.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal

import ttc
from ttc.ports import Scope, Stream
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine


@ttc.node
async def distinct(
    candidates: Stream[ttc.Candidate], scope: Scope
) -> AsyncGenerator[ttc.Candidate, None]:
    """Lets the first candidate of each answer pass, so that no answer is checked twice."""
    seen = set()
    async for candidate in candidates:
        if candidate.key not in seen:
            seen.add(candidate.key)
            yield candidate


@dataclass(frozen=True)
class CastingOutNines:
    """Checks a product by the remainders of its factors by nine.

    A right answer always passes, and a wrong one seldom does.
    """

    name: str = "casting_out_nines"
    range: tuple[float, float] | None = (0.0, 1.0)
    needs: Literal["each", "all"] = "each"
    requires: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()

    async def __call__(
        self, problem: ttc.Problem, candidates: Sequence[ttc.Candidate], scope: Scope
    ) -> list[ttc.Score]:
        """1 where the remainders agree, 0 where they do not, unknown without a whole number."""
        left, right = map(int, re.findall(r"\d+", problem.messages[0].content))
        return [self._score(candidate.answer or "", left * right % 9) for candidate in candidates]

    def _score(self, answer: str, remainder: int) -> ttc.Score:
        if not answer.isdecimal():
            return ttc.Score(value=None)
        return ttc.Score(value=float(int(answer) % 9 == remainder))


def main() -> None:
    """Most samples are wrong here, so a vote would be; the check finds the right one."""
    model = FakeEngine(["I get 401.", "It is 381.", "17 * 23 = 391.", "I get 401."])
    strategy = Sample(n=8, max_tokens=16) >> distinct >> CastingOutNines() >> Best()

    outcome = ttc.solve("What is 17 * 23?", strategy, model=model, seed=1)

    for candidate in outcome.candidates:
        print(f"{candidate.answer}: {candidate.scores['casting_out_nines'].value}")
    print(f"answer: {outcome.answer}")
    print(f"{outcome.usage.calls} calls, {outcome.usage.verifier_calls} checks")


if __name__ == "__main__":
    main()
