"""Round trips: whether what was made of a problem leads back to it.

By a function that inverts it, `RoundTrip`, or by a model that is asked back, `AskBack`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ttc.answers import answer_key, extract_answer
from ttc.errors import EngineError
from ttc.flow import Cost, Flow
from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, prompt, question, together
from ttc.types import Candidate, Problem, Sampling, Score
from ttc.verifiers.confidence import unknown
from ttc.verifiers.text import Of, passage

__all__ = ["AskBack", "RoundTrip"]


@dataclass(frozen=True)
class RoundTrip:
    """Whether the inverse of an answer is what was given: 1 or 0.

    As for a solved equation, whose solution is put back into it, or a text that was encoded. An
    inverse that raises leaves the score unknown, and so does one that gives `None`.

    Source: round-trip correctness, Allamanis et al. 2024, arXiv 2402.08699.
    Cost: no engine calls, one verifier call for each candidate.
    """

    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    needs: ClassVar[Literal["each", "all"]] = "each"
    requires: ClassVar[frozenset[str]] = frozenset()
    roles: ClassVar[frozenset[str]] = frozenset()

    inverse: Callable[[str], str | None]
    """From an answer, or a text, back to what was given."""
    given: Callable[[Problem], str] = field(default=question, kw_only=True)
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


_NUMBER = re.compile(r"(?<![\w.,/-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w/]|[.,]\d)")


@dataclass(frozen=True, kw_only=True)
class AskBack:
    """Hides a number of the question, tells the answer, and asks a model for the number.

    The score is the share of hidden numbers that come back, among those for which it gave one. An
    answer for which it gave none is unknown, and so is every answer to a question without numbers.
    Each distinct answer is asked about once.

    Source: FOBAR, Jiang et al. 2023, arXiv 2308.07758; self-verification, Weng et al. 2022,
    arXiv 2212.09561.
    Cost: for each distinct answer, a call of at most `max_tokens` for each hidden number; one
    verifier call for each candidate.
    """

    remote: ClassVar[bool] = True
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    needs: ClassVar[Literal["each", "all"]] = "all"
    requires: ClassVar[frozenset[str]] = frozenset()

    role: str = "policy"
    """The model that is asked."""
    numbers: int = 3
    """How many numbers of the question are hidden, one at a time, from the first on."""
    max_tokens: int = 256
    name: str = "ask_back"

    def __post_init__(self) -> None:
        if self.numbers < 1 or self.max_tokens < 1:
            raise ValueError(
                f"numbers ({self.numbers}) and max_tokens ({self.max_tokens}) are at least 1"
            )

    @property
    def roles(self) -> frozenset[str]:
        """The role that is asked."""
        return frozenset({self.role})

    def bound(self, given: Flow) -> Cost:
        """A question for each number and answer; no answer is longer than its text."""
        asked = given.lengths.call(self.role, self.max_tokens, given.text)
        return Cost(tokens=asked, calls=1) * self.numbers * given.count

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate."""
        hidden = list(_hidden(question(problem), self.numbers))
        answers: dict[Hashable, str] = {}
        for candidate in candidates:
            if candidate.key is not None and passage(candidate, "answer") is not None:
                answers.setdefault(candidate.key, candidate.answer or "")
        work = [
            self._matches(scope, index, answer, masked)
            for index, (answer, masked) in enumerate(
                (answer, masked) for answer in answers.values() for masked in hidden
            )
        ]
        told = iter(await together(scope, work))
        scores = {key: _share([next(told) for _ in hidden]) for key in answers}
        return tuple(scores.get(c.key, unknown("it has no answer")) for c in candidates)

    async def _matches(
        self, scope: Scope, index: int, answer: str, masked: tuple[str, str]
    ) -> bool | None:
        """Whether a hidden number comes back; `None` where none does."""
        text, number = masked
        root = prompt(
            scope,
            self.role,
            PREAMBLE,
            fenced("QUESTION", text, answer),
            fenced("ANSWER", answer, text),
            "The question hides a number behind the letter X, and its answer is as above. Work out "
            "the value of X, and end with a line of the form: The answer is <X>.",
        )
        try:
            branch = await scope.generate(
                root, index=index, max_tokens=self.max_tokens, sampling=Sampling(temperature=0)
            )
        except EngineError:
            return None
        found = extract_answer(branch.output, "number", finish_reason=branch.finish_reason)
        return None if found is None else answer_key(found) == answer_key(number)


def _hidden(text: str, most: int) -> Iterator[tuple[str, str]]:
    """The text with one number hidden, and the number, for each of its first numbers."""
    for found, _ in zip(_NUMBER.finditer(text), range(most), strict=False):
        yield f"{text[: found.start()]}X{text[found.end() :]}", found[0]


def _share(told: Sequence[bool | None]) -> Score:
    known = [match for match in told if match is not None]
    if not known:
        return unknown("no hidden number was told" if told else "the question has no number")
    return Score(value=sum(known) / len(known), evidence={"told": len(known), "asked": len(told)})
