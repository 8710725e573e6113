"""ProcessRewardModel: a learned score of every step of a solution, and what they come to.

Source: Lightman et al. 2023 (arXiv 2305.20050). The forms are those of published models:
Math-Shepherd (Wang et al. 2023, arXiv 2312.08935), whose language model says " +" or " -" after the
tag that ends a step; Qwen2.5-Math-PRM (Zhang et al. 2025, arXiv 2501.07301), whose head has two
outputs at a control token after each step; Skywork-o1-Open-PRM, whose value head has one at the
line break after each step.
Differs: every step is encoded by itself, so that the tokens of a trace never depend on what
follows; a step's end is the token that was put there, and no text of a candidate becomes one.
Cost: one call of the reward model's role for each candidate, and no output token. The problem is
prompt tokens once, each step once, however often a trace is scored while it grows: the engine keeps
what it has read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from ttc.errors import EngineError, VerifierError
from ttc.flow import Cost, Flow
from ttc.lengths import plus, times
from ttc.ports import Scope
from ttc.prompts import question, solution, together
from ttc.types import Branch, Candidate, Message, Problem, Score
from ttc.verifiers.orm import conversation, sigmoid, softmax

__all__ = ["ProcessRewardModel"]

Form = Literal["math_shepherd", "qwen", "skywork"]


class _Shape(NamedTuple):
    """How a form writes a trace."""

    delimiter: str
    """What lies between two steps of a candidate's text."""
    separator: str
    """What ends a step in the reward model's."""
    is_token: bool
    """Whether the separator is the name of one token, which may be a control token."""


_SHAPES: Mapping[Form, _Shape] = {
    "math_shepherd": _Shape("\n", " \u043a\u0438", is_token=False),
    "qwen": _Shape("\n\n", "<extra_0>", is_token=True),
    "skywork": _Shape("\n", "\n", is_token=False),
}
_AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda steps: steps[-1],
    "min": min,
    "product": math.prod,
    "mean": lambda steps: math.fsum(steps) / len(steps),
}


@dataclass(frozen=True, kw_only=True)
class ProcessRewardModel:
    """The steps' probabilities of being right, aggregated; each is in the evidence.

    A trace of which any step has no score is unscored.
    """

    remote: ClassVar[bool] = True
    needs: ClassVar[Literal["each", "all"]] = "each"
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    form: Form
    """How the model reads a trace, and what its output means."""
    aggregate: Literal["last", "min", "product", "mean"]
    """From the steps' scores to the trace's. Published models differ, so there is no default."""
    delimiter: str | None = None
    """What lies between two steps of a candidate's text; by default that of the form."""
    separator: str | None = None
    """What ends a step in the text that the model reads; by default that of the form."""
    system: str | None = None
    """A system message before the problem, where the form has messages."""
    role: str = "reward"
    name: str = "process_reward_model"

    def __post_init__(self) -> None:
        if self.form not in _SHAPES:
            raise ValueError(f"form is one of {', '.join(_SHAPES)}, not {self.form!r}")
        if self.aggregate not in _AGGREGATES:
            raise ValueError(
                f"aggregate is one of {', '.join(_AGGREGATES)}, not {self.aggregate!r}"
            )
        if self.delimiter == "" or self.separator == "":
            raise ValueError("delimiter and separator are texts, or None for those of the form")
        if self.system is not None and self.form != "qwen":
            raise ValueError(f"the form {self.form} has no messages, so leave system= out")

    @property
    def requires(self) -> frozenset[str]:
        """Rewards; of a language model in Math-Shepherd's form, log probabilities."""
        return frozenset({"score" if self.form == "math_shepherd" else "reward"})

    @property
    def roles(self) -> frozenset[str]:
        """The role of the reward model."""
        return frozenset({self.role})

    def bound(self, given: Flow) -> Cost:
        """Each candidate, read once after the problem, with an end after each step."""
        shape, text = _SHAPES[self.form], given.text
        most = None if text is None else 1 + text // len(self.delimiter or shape.delimiter)
        ends = times(most, 1 + len((self.separator or shape.separator).encode()))
        prompt = given.lengths.prompt(self.role, text, ends, len((self.system or "").encode()))
        signs = times(most, 2) if self.form == "math_shepherd" else 0
        return Cost(tokens=plus(prompt, signs), calls=1) * given.count

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate."""
        return tuple(await together(scope, (self._score(problem, c, scope) for c in candidates)))

    async def _score(self, problem: Problem, candidate: Candidate, scope: Scope) -> Score:
        delimiter = self.delimiter or _SHAPES[self.form].delimiter
        steps = [step for step in solution(candidate).split(delimiter) if step.strip()]
        if not steps:
            return Score(value=None, evidence={"error": "the candidate has no step"})
        try:
            ends = self._ends(scope, self._root(problem, scope), steps)
            values = await self._values(scope, ends)
        except EngineError as error:
            return Score(value=None, evidence={"error": f"{type(error).__name__}: {error}"})
        if len(values) != len(steps) or not all(map(math.isfinite, values)):
            reason = f"{len(steps)} steps, and scores {values}"
            return Score(value=None, evidence={"error": reason})
        value = _AGGREGATES[self.aggregate](values)
        return Score(value=value, evidence={"steps": tuple(values), "aggregate": self.aggregate})

    def _root(self, problem: Problem, scope: Scope) -> Branch:
        if self.form != "qwen":
            end = "\n" if self.form == "skywork" else ""
            return scope.prompt(Problem(prompt=question(problem) + end), self.role)
        opened = conversation(problem, "", is_open=True)
        if self.system is not None:
            told = Message(role="system", content=self.system)
            rest = [message for message in opened.messages if message.role != "system"]
            opened = Problem(messages=(told, *rest), continue_last=True)
        return scope.prompt(opened, self.role)

    def _ends(self, scope: Scope, root: Branch, steps: Sequence[str]) -> list[Branch]:
        """For each step the branch that ends with its separator."""
        shape = _SHAPES[self.form]
        separator = self.separator or shape.separator
        ends, branch = [], root
        for place, step in enumerate(steps):
            if self.form == "math_shepherd":
                step = (" " if place == 0 else "\n") + step
            branch = scope.append(branch, step)
            branch = scope.append(branch, separator, as_token=shape.is_token)
            ends.append(branch)
        return ends

    async def _values(self, scope: Scope, ends: Sequence[Branch]) -> list[float]:
        """The steps' probabilities of being right."""
        if self.form == "math_shepherd":
            return await _signs(scope, ends)
        rewards = await scope.reward(ends[-1], [end.num_tokens - 1 for end in ends])
        outputs = 2 if self.form == "qwen" else 1
        values = []
        for reward in rewards:
            if len(reward) != outputs:
                raise VerifierError(
                    f"the form {self.form} has {outputs} outputs at a step, and the model has "
                    f"{', '.join(map(repr, reward))}; choose another form"
                )
            logits = list(reward.values())
            values.append(softmax(logits)[1] if outputs == 2 else sigmoid(logits[0]))
        return values


async def _signs(scope: Scope, ends: Sequence[Branch]) -> list[float]:
    """The probability of a plus, as against a minus, after each step."""
    asked = [scope.append(end, sign) for end in ends for sign in (" +", " -")]
    if any(len(branch.token_ids or ()) != 1 for branch in asked):
        raise VerifierError(
            "' +' and ' -' are not one token each of the model, as Math-Shepherd's form needs; "
            "choose another form"
        )
    totals = [logprobs.total for logprobs in await scope.score(ends[-1], asked)]
    pairs = zip(totals[::2], totals[1::2], strict=True)
    return [softmax(pair)[0] for pair in pairs]
