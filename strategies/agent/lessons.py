"""Lessons: what a search's failed trajectories teach the turns that are asked for after them.

Which lessons a turn is told follows from numbers alone: those of the trajectories whose results the
search had seen when it asked for the turn, and had not when it asked for the turn's parent. So they
depend on no speed, and none is told twice on one path.

Source: the reflections of Zhou et al. 2023 (arXiv 2310.04406), section 4.2, and of Shinn et al.
2023 (arXiv 2303.11366).
Differs: a lesson is appended where a turn begins, as the model's own words, and stands in no
prompt: so all before it stays as it is, with its state. Verifiers are told none.
Cost: a call for each trajectory that fails, while a later turn can learn of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ttc.prompts import prompt, question
from ttc.strategies.agent.conversation import Conversation
from ttc.strategies.agent.trajectory import Trajectory
from ttc.strategies.calls import resting_on
from ttc.strategies.reflexion import judgement_of, reflection
from ttc.types import Branch, Candidate, Sampling, Score

__all__ = ["Lessons"]


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """The lessons of one search."""

    conversation: Conversation
    sampling: Sampling
    max_tokens: int
    memory: int
    """The most that one turn is told; the last ones. With 0 none is drawn."""
    enough: float
    """A score below which a trajectory has failed."""
    window: int
    """How many turns the search asks for before it sees the result of the first."""
    last: int
    """The number of its last turn."""
    _drawn: dict[int, Branch] = field(default_factory=dict, init=False)

    async def draw(self, candidate: Candidate, score: Score, number: int, index: int) -> None:
        """Reflects on a trajectory that has ended, if it failed and a later turn can learn of it.

        Args:
            candidate: the trajectory.
            score: what a verifier said of it.
            number: that of its last turn.
            index: the number of the call.

        Raises:
            BudgetExceeded: a limit refused it.
            EngineError: the engine failed.
        """
        has_failed = score.value is not None and score.value < self.enough
        if not self.memory or not has_failed or candidate.status == "open":
            return
        if number + self.window > self.last:
            return
        scope, asked = self.conversation.scope, question(self.conversation.scope.problem)
        told = reflection(asked, candidate.branch.output, judgement_of(score))
        self._drawn[number] = await scope.generate(
            prompt(scope, self.conversation.role, *told),
            index=index,
            max_tokens=self.max_tokens,
            sampling=self.sampling,
        )

    def told(self, trajectory: Trajectory, parent: int, number: int) -> Trajectory:
        """A trajectory as a turn goes on from it that knows what was learnt.

        Args:
            trajectory: what the turn goes on from.
            parent: the number of the turn with which that ends.
            number: that of the turn.
        """
        seen = range(parent - self.window + 1, number - self.window + 1)
        lessons = [self._drawn[n] for n in sorted(self._drawn) if n in seen][-self.memory :]
        texts = [text for lesson in lessons if (text := _words(lesson))]
        if not texts or trajectory.is_last:
            return trajectory
        candidate = resting_on(trajectory.candidate, calls=[b.call for b in lessons if b.call])
        branch = self.conversation.reminded(candidate.branch, texts)
        return replace(trajectory, candidate=replace(candidate, branch=branch))


def _words(lesson: Branch) -> str:
    return lesson.text.rpartition("</think>")[2].strip()
