"""MathEqual: grades an answer by whether it says the same as the reference.

What keys, expansion and bounds leave open is decided by computer algebra in a jailed process, under
a time limit. Known limits: see `ttc.answers`; a reference that is a text grades nobody unless texts
are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ttc.answers import Answer, Rules, answer_key, parse_answer
from ttc.benchmarks.tasks import Reference
from ttc.sandbox.symbolic import Check, shared_pool
from ttc.types import AnswerFormat, Candidate, Score

__all__ = ["MathEqual"]


@dataclass(frozen=True, kw_only=True)
class MathEqual:
    """Right is the answer that equals the reference: 1, 0, or unknown.

    An empty answer is never right. A reference that cannot be read grades nobody.
    """

    kind: Literal["auto", "point", "interval"] = "auto"
    """What `(2, 5)` is; see `ttc.answers.Rules`."""
    tolerance: float = 0.0
    """How far, relatively, a decimal may lie from the reference. It never applies to integers."""
    optional_units: bool = False
    """Whether a unit or the percent sign may be missing on one side."""
    text: bool = False
    """Whether a reference may be a text. Otherwise one that is no mathematics grades nobody."""
    format: AnswerFormat = "auto"
    """The format by which answers were extracted."""
    by: Literal["symbolic", "math_verify"] = "symbolic"
    """Who decides: ttc with sympy, or math-verify, as a second opinion and by its rules alone."""

    def __call__(self, reference: Reference, candidate: Candidate) -> Score:
        """1 or 0, or unknown where the reference grades nobody or the check was undecided."""
        right = parse_answer(reference.answer, self.format)
        if right is None or (right.kind == "text" and not self.text):
            return self._score(None, "ungradable reference", reference.answer)
        if candidate.answer is None or answer_key(candidate.answer, self.format) is None:
            return self._score(0.0, "no answer", "")
        check = Check(
            left=candidate.answer, right=reference.answer, format=self.format, rules=self.rules
        )
        checked = shared_pool(self.by).check(check, is_patient=True)
        if checked.verdict is None:
            return self._score(None, "undecided", "by a limit" if checked.was_cut else "by algebra")
        given = parse_answer(candidate.answer, self.format)
        reason = "equal" if checked.verdict else "different"
        return self._score(float(checked.verdict), reason, _kinds(given, right))

    @cached_property
    def rules(self) -> Rules:
        """What counts as equal."""
        return Rules(kind=self.kind, tolerance=self.tolerance, optional_units=self.optional_units)

    def _score(self, value: float | None, reason: str, detail: str) -> Score:
        return Score(value=value, verifier="math_equal", evidence={reason: detail})


def _kinds(given: Answer | None, right: Answer) -> str:
    return f"{given.kind if given else 'nothing'} and {right.kind}"
