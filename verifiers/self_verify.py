"""SelfVerify: how probable a model finds the answer "Yes" to whether a candidate is correct.

Source: Zhang et al. 2024 (arXiv 2408.15240), "Generative Verifiers": the direct verifier's score is
p(Yes | problem, solution, instruction), section 3.1; with chains of thought it is the mean of that
over sampled verification rationales, section 3.3.
Differs: the probability is normalised over Yes and No in their usual spellings, of which the paper
takes one; the share of both in the whole distribution is evidence.
Cost: without chains one call and no output token for each candidate. With them, for each chain a
call of at most `max_tokens` output tokens, and one that scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from ttc.errors import EngineError, VerifierError
from ttc.graph import Cost, Flow, is_count
from ttc.lengths import plus
from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, prompt, question, solution, together
from ttc.types import Branch, Candidate, Problem, Sampling, Score

__all__ = ["SelfVerify"]

QUESTION = "Is the answer of the solution correct (Yes/No)?"
YES = ("Yes", "yes", " Yes", " yes")
NO = ("No", "no", " No", " no")


@dataclass(frozen=True, kw_only=True)
class SelfVerify:
    """The probability of Yes, as against No, by the next token's distribution."""

    remote: ClassVar[bool] = True
    needs: ClassVar[Literal["each", "all"]] = "each"
    requires: ClassVar[frozenset[str]] = frozenset({"score"})
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    chains: int = 0
    """Rationales that are drawn before the question, and over which its answers are averaged."""
    temperature: float = 0.7
    """Of the rationales."""
    max_tokens: int = 512
    """The most output tokens of one rationale; one that is cut is asked all the same."""
    role: str = "policy"
    """Who is asked: by default the model that wrote the candidate."""
    name: str = "self_verify"

    def __post_init__(self) -> None:
        if not is_count(self.chains) and self.chains != 0:
            raise ValueError(f"chains is a whole number of at least 0, not {self.chains!r}")
        if not is_count(self.max_tokens):
            raise ValueError(f"max_tokens is a whole number of at least 1, not {self.max_tokens!r}")
        if self.chains > 1 and self.temperature == 0:
            raise ValueError(
                f"{self.chains} chains at temperature 0 are one; set a temperature, or chains=1"
            )
        Sampling(temperature=self.temperature)

    @property
    def roles(self) -> frozenset[str]:
        """The role that is asked."""
        return frozenset({self.role})

    def bound(self, given: Flow) -> Cost:
        """A question for each chain, behind what that has written."""
        forms = len(YES) + len(NO)
        if not self.chains:
            prompt = given.lengths.prompt(self.role, given.text)
            return Cost(tokens=plus(prompt, forms), calls=1) * given.count
        written = given.lengths.call(self.role, self.max_tokens, given.text)
        asked = len(_asking().encode()) + forms
        return Cost(tokens=plus(written, asked), calls=2) * self.chains * given.count

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate.

        All rationales are drawn before the first question is put, so that questions are put in
        launch order, whichever rationale ends first.
        """
        each = max(1, self.chains)
        starts = [root for c in candidates for root in [self._root(problem, c, scope)] * each]
        if self.chains:
            chains = (self._chain(root, scope, index) for index, root in enumerate(starts))
            starts = await together(scope, chains)
        answers = await together(scope, (_asked(start, scope) for start in starts))
        return tuple(
            _score(answers[first : first + each]) for first in range(0, len(answers), each)
        )

    def _root(self, problem: Problem, candidate: Candidate, scope: Scope) -> Branch | EngineError:
        """The prompt for one candidate, or why there is none."""
        asked, text = question(problem), solution(candidate)
        task = (
            "Verify the solution step by step. Do not repeat it, and give no verdict yet."
            if self.chains
            else f"{QUESTION} Answer with one word."
        )
        try:
            return prompt(
                scope,
                self.role,
                f"You verify a solution to a problem. {PREAMBLE}",
                fenced("problem", asked),
                fenced("solution", text, asked),
                task,
            )
        except EngineError as error:
            return error

    async def _chain(
        self, root: Branch | EngineError, scope: Scope, index: int
    ) -> Branch | EngineError:
        """A rationale with the question after it."""
        if isinstance(root, EngineError):
            return root
        try:
            chain = await scope.generate(
                root,
                index=index,
                max_tokens=self.max_tokens,
                sampling=Sampling(temperature=self.temperature),
            )
        except EngineError as error:
            return error
        return scope.append(chain, _asking())


def _asking() -> str:
    """What is appended to a rationale."""
    return f"\n\n{QUESTION} Answer:"


class _Answer(NamedTuple):
    """What was answered."""

    yes: float
    """The probability of Yes, as against No."""
    mass: float
    """That of both together."""


async def _asked(branch: Branch | EngineError, scope: Scope) -> _Answer | EngineError:
    """The answer to a question that ends a branch."""
    if isinstance(branch, EngineError):
        return branch
    try:
        sides = [_forms(branch, scope, forms) for forms in (YES, NO)]
        scored = await scope.score(branch, [form for side in sides for form in side])
    except EngineError as error:
        return error
    totals = [logprobs.total for logprobs in scored]
    yes, no = (_mass(part) for part in (totals[: len(sides[0])], totals[len(sides[0]) :]))
    if not 0 < yes + no < math.inf:
        return EngineError(f"the model gives Yes and No together the probability {yes + no}")
    return _Answer(yes / (yes + no), yes + no)


def _score(answers: Sequence[_Answer | EngineError]) -> Score:
    """The mean of the answers that there are."""
    known = [answer for answer in answers if isinstance(answer, _Answer)]
    faults = tuple(
        f"{type(answer).__name__}: {answer}"
        for answer in answers
        if isinstance(answer, EngineError)
    )
    return Score(
        value=math.fsum(answer.yes for answer in known) / len(known) if known else None,
        evidence={
            "probabilities": tuple(answer.yes for answer in known),
            "mass": tuple(answer.mass for answer in known),
            **({"unknown": faults} if faults else {}),
        },
    )


def _forms(branch: Branch, scope: Scope, forms: Sequence[str]) -> list[str]:
    """The spellings that are one token of the model, each token once."""
    single: dict[tuple[int, ...], str] = {}
    for form in forms:
        ids = scope.append(branch, form).token_ids or ()
        if len(ids) == 1:
            single.setdefault(ids, form)
    if not single:
        raise VerifierError(f"none of {', '.join(map(repr, forms))} is one token of the model")
    return list(single.values())


def _mass(logprobs: Sequence[float]) -> float:
    return math.fsum(math.exp(value) for value in logprobs)
