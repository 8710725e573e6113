"""Text checks: what can be said of a text, or of an answer, by reading it.

A check reads the candidate's text or answer as it is kept, to the letter. It scores 1 or 0; a check
that cannot be made is unknown. A candidate without what is read is unknown, too: an empty text
passes nothing, not even a check that asks for nothing.

Source: verifiable instructions, as in IFEval, Zhou et al. 2023, arXiv 2311.07911.
Cost: no engine calls, one verifier call for each candidate.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ttc.answers import answer_key
from ttc.errors import GraphError
from ttc.ports import Scope
from ttc.registry import lookup, names
from ttc.types import Candidate, Problem, Score
from ttc.verifiers.confidence import unknown
from ttc.verifiers.patterns import TooMuchWork, compiled, fits

__all__ = ["Constraint", "Exact", "Length", "Regex", "TextCheck", "passage"]

Of = Literal["text", "answer"]
Verdict = bool | float | None
Check = Callable[[str], Verdict | Awaitable[Verdict]]


@dataclass(frozen=True)
class TextCheck(ABC):
    """A verifier that reads one text at a time."""

    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    needs: ClassVar[Literal["each", "all"]] = "each"
    requires: ClassVar[frozenset[str]] = frozenset()
    roles: ClassVar[frozenset[str]] = frozenset()

    of: Of = field(default="text", kw_only=True)
    """What is read: the candidate's whole text, or its answer."""
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.of not in ("text", "answer"):
            raise ValueError(f"of is text or answer, not {self.of!r}")

    @abstractmethod
    async def check(self, text: str) -> bool | float | str | None:
        """Whether a text passes, or how far; `None` or a reason where that is unknown."""

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate; the problem plays no part."""
        return tuple([await self._score(candidate) for candidate in candidates])

    async def _score(self, candidate: Candidate) -> Score:
        text = passage(candidate, self.of)
        if text is None:
            return unknown(f"it has no {self.of}")
        verdict = await self.check(text)
        if verdict is None or isinstance(verdict, str):
            return unknown(verdict or "the check does not say")
        return Score.of(float(verdict))


def passage(candidate: Candidate, of: Of) -> str | None:
    """What a check reads of a candidate, to the letter; `None` where there is nothing."""
    if candidate.status in ("failed", "cancelled"):
        return None
    text = candidate.text if of == "text" else candidate.answer
    return text if text is not None and text.strip() else None


@dataclass(frozen=True, init=False)
class Exact(TextCheck):
    """Whether an answer is one of those that are allowed: by value, or to the letter.

    It is for answers that must have a form, as `exact("yes", "no")`. What is right is no verifier's
    affair: a reference answer is seen by graders alone.
    """

    allowed: tuple[str, ...] = ()
    """Of these."""
    to_the_letter: bool = field(default=False, kw_only=True)
    """Compare texts, and not values: by value, 0.5 is 1/2."""

    def __init__(
        self,
        *allowed: str,
        of: Of = "answer",
        to_the_letter: bool = False,
        name: str = "exact",
    ) -> None:
        """Texts that are allowed, at least one."""
        for key, value in (
            ("allowed", allowed),
            ("of", of),
            ("to_the_letter", to_the_letter),
            ("name", name),
        ):
            object.__setattr__(self, key, value)
        self.__post_init__()
        if not allowed or not all(str(text).strip() for text in allowed):
            raise ValueError(f"at least one text is allowed, and none is empty; not {allowed}")

    async def check(self, text: str) -> bool:
        """Whether it is one of them."""
        if self.to_the_letter:
            return text in self.allowed
        key = answer_key(text)
        return key is not None and any(key == answer_key(other) for other in self.allowed)


@dataclass(frozen=True)
class Regex(TextCheck):
    """Whether a regular expression matches, in the language of RE2.

    A text that is too long for its pattern is unknown: neither a hostile pattern nor a hostile text
    holds anything up.
    """

    pattern: str
    whole: bool = field(default=False, kw_only=True)
    """Match the whole of it, not a part."""
    name: str = field(default="regex", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        compiled(self.pattern)  # says what is wrong with it, if anything is

    async def check(self, text: str) -> bool | str:
        """Whether it matches."""
        try:
            return fits(compiled(self.pattern), text, whole=self.whole)
        except TooMuchWork as error:
            return str(error)
        except UnicodeEncodeError:
            return "it holds half a surrogate pair"


@dataclass(frozen=True)
class Length(TextCheck):
    """Whether a text has as many words, characters or lines as it should."""

    remote: ClassVar[bool] = True

    unit: Literal["words", "characters", "lines"] = "words"
    at_least: int | None = field(default=None, kw_only=True)
    at_most: int | None = field(default=None, kw_only=True)
    name: str = field(default="length", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit not in ("words", "characters", "lines"):
            raise ValueError(f"unit is words, characters or lines, not {self.unit!r}")
        low, high = self.at_least, self.at_most
        if (low is None and high is None) or (low or 0) > (high if high is not None else low or 0):
            raise ValueError(
                f"at_least ({low}) and at_most ({high}) leave no bound, or nothing between them"
            )

    async def check(self, text: str) -> bool:
        """Whether its length lies within the bounds."""
        count = len(text)
        if self.unit != "characters":
            count = len(text.split() if self.unit == "words" else text.splitlines())
        above = self.at_least is None or count >= self.at_least
        return above and (self.at_most is None or count <= self.at_most)


@dataclass(frozen=True)
class Constraint(TextCheck):
    """A program of the user's over a text: a function, or the name of a registered one.

    It gives true or false, a number from 0 to 1, or `None` where it cannot tell; it may be
    asynchronous. One that raises, or gives another number, leaves the score unknown. It runs in the
    event loop and is trusted: it may read what a model wrote, and must not run it.

    Functions are registered by the entry point `ttc.checks`, and only those have a text form.
    """

    function: Check | str
    name: str = field(default="constraint", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.function, str):
            if self.function not in names("checks"):
                known = ", ".join(names("checks")) or "none"
                raise GraphError([f"no check is called {self.function!r}; there is {known}"])
        elif not callable(self.function):
            raise ValueError(f"a constraint is a function or a name, not {self.function!r}")

    async def check(self, text: str) -> bool | float | None:
        """What the function says."""
        function: Any = self.function
        if isinstance(function, str):
            function = lookup("checks", function)
        verdict = function(text)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        return None if verdict is None else float(verdict)
