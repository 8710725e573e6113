"""RoundTrip: whether what was made of a problem leads back to it.

Source: round-trip correctness, Allamanis et al. 2024, arXiv 2402.08699.
Cost: no engine calls, one verifier call for each candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ttc.answers import answer_key
from ttc.ports import Scope
from ttc.types import Candidate, Problem, Score
from ttc.verifiers.confidence import unknown
from ttc.verifiers.text import Of, passage

__all__ = ["RoundTrip", "question_of"]


def question_of(problem: Problem) -> str:
    """What was asked: the raw prompt, or the last message of the user."""
    if problem.prompt is not None:
        return problem.prompt
    asked = [message.content for message in problem.messages if message.role == "user"]
    return asked[-1] if asked else problem.messages[-1].content


@dataclass(frozen=True)
class RoundTrip:
    """Whether the inverse of an answer is what was given: 1 or 0.

    As for a solved equation, whose solution is put back into it, or a text that was encoded. An
    inverse that raises leaves the score unknown, and so does one that gives `None`.
    """

    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    needs: ClassVar[Literal["each", "all"]] = "each"
    requires: ClassVar[frozenset[str]] = frozenset()
    roles: ClassVar[frozenset[str]] = frozenset()

    inverse: Callable[[str], str | None]
    """From an answer, or a text, back to what was given."""
    given: Callable[[Problem], str] = field(default=question_of, kw_only=True)
    """What was given, out of the problem; the question by default."""
    of: Of = field(default="answer", kw_only=True)
    """What is inverted."""
    name: str = field(default="round_trip", kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.inverse):
            raise TypeError(f"inverse is a function, not {self.inverse!r}")

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate."""
        wanted = self.given(problem)
        return tuple(self._score(candidate, wanted) for candidate in candidates)

    def _score(self, candidate: Candidate, wanted: str) -> Score:
        text = passage(candidate, self.of)
        if text is None:
            return unknown(f"it has no {self.of}")
        try:
            back = self.inverse(text)
        except Exception as error:  # noqa: BLE001 - a user's function, over what a model wrote
            return unknown(f"the inverse failed: {type(error).__name__}: {error}")
        if back is None:
            return unknown("it has no inverse")
        key = answer_key(back)
        same = back == wanted or (key is not None and key == answer_key(wanted))
        return Score(value=float(same), evidence={"back": back})
