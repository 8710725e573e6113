"""OutcomeRewardModel: a learned score of a whole solution.

Source: Cobbe et al. 2021 (arXiv 2110.14168), section 4, the verifier of solutions; the models are
those of transformers' `*ForSequenceClassification` and of Qwen2.5-Math-RM (arXiv 2409.12122).
Cost: one call of the reward model's role for each candidate, and no output token; the problem is
prompt tokens once, each candidate's text once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ttc.errors import EngineError, VerifierError
from ttc.flow import Cost, Flow
from ttc.ports import Scope
from ttc.prompts import solution, together
from ttc.types import Candidate, Message, Problem, Score

__all__ = ["OutcomeRewardModel", "conversation", "sigmoid", "softmax"]


@dataclass(frozen=True, kw_only=True)
class OutcomeRewardModel:
    """The reward of the last token of the whole conversation, by the model's chat template."""

    remote: ClassVar[bool] = True
    needs: ClassVar[Literal["each", "all"]] = "each"
    requires: ClassVar[frozenset[str]] = frozenset({"reward"})

    label: str | None = None
    """Which output is the score, where the model has several."""
    transform: Literal["none", "sigmoid", "softmax"] = "none"
    """`none` is the raw output, which has no bounds; the others make a probability of it: of the
    output alone, or against the model's other outputs."""
    role: str = "reward"
    name: str = "outcome_reward_model"

    def __post_init__(self) -> None:
        if self.transform not in ("none", "sigmoid", "softmax"):
            raise ValueError(
                f"transform is one of none, sigmoid and softmax, not {self.transform!r}"
            )
        if self.transform == "softmax" and self.label is None:
            raise ValueError("softmax weighs several outputs; name the label= that is the score")

    @property
    def range(self) -> tuple[float, float] | None:
        """(0, 1) for a probability."""
        return None if self.transform == "none" else (0.0, 1.0)

    @property
    def roles(self) -> frozenset[str]:
        """The role of the reward model."""
        return frozenset({self.role})

    def bound(self, given: Flow) -> Cost:
        """Each candidate, read once after the problem."""
        return Cost(tokens=given.lengths.prompt(self.role, given.text), calls=1) * given.count

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate."""
        return tuple(await together(scope, (self._score(problem, c, scope) for c in candidates)))

    async def _score(self, problem: Problem, candidate: Candidate, scope: Scope) -> Score:
        try:
            branch = scope.prompt(conversation(problem, solution(candidate)), self.role)
            (rewards,) = await scope.reward(branch, [branch.num_tokens - 1])
        except EngineError as error:
            reason = f"{type(error).__name__}: {error}"
            return Score(value=None, range=self.range, evidence={"error": reason})
        label = self.label
        if label is None and len(rewards) == 1:
            (label,) = rewards
        if label is None or label not in rewards:
            raise VerifierError(
                f"the reward model's outputs are {', '.join(map(repr, rewards))}; name one of them "
                f"by label=, not {self.label!r}"
            )
        value = rewards[label]
        if self.transform == "sigmoid":
            value = sigmoid(value)
        elif self.transform == "softmax":
            value = softmax(list(rewards.values()))[list(rewards).index(label)]
        score = Score.of(value, range=self.range)
        return score if score.value is None else _with_rewards(score, dict(rewards))


def _with_rewards(score: Score, rewards: dict[str, float]) -> Score:
    return Score(value=score.value, range=score.range, evidence={"rewards": rewards})


def conversation(problem: Problem, answer: str, *, is_open: bool = False) -> Problem:
    """A problem and what the assistant answers, as a reward model reads it.

    Args:
        problem: the problem.
        answer: what the assistant says.
        is_open: whether the assistant goes on, so that the text ends with the answer.
    """
    said = Message(role="assistant", content=answer)
    if problem.prompt is not None:
        asked: tuple[Message, ...] = (Message(role="user", content=problem.prompt),)
    elif problem.continue_last:
        *before, last = problem.messages
        asked, said = tuple(before), Message(role="assistant", content=last.content + answer)
    else:
        asked = problem.messages
    return Problem(messages=(*asked, said), continue_last=is_open)


def sigmoid(value: float) -> float:
    """The probability of a log-odds. NaN stays NaN."""
    if value < 0:
        odds = math.exp(value)
        return odds / (1.0 + odds)
    return 1.0 / (1.0 + math.exp(-value))


def softmax(values: Sequence[float]) -> list[float]:
    """Probabilities of logits."""
    peak = max(values)
    weights = [math.exp(value - peak) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
