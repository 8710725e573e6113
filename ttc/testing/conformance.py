"""The conformance kit: what every strategy must do, ours and everybody else's.

    report = check_strategy(lambda n, verifier: Sample(n=n) >> verifier >> Best())
    print(report)

A strategy is given as a function of about how many samples it draws and of the verifier that it
asks; one that asks none passes it over. Every check has a name and a promise, and runs the strategy
on fakes that count everything. What a strategy does not promise can be exempt, by the check's name
and with a reason, which the report prints.

Cost: some 200 small runs, and three on each of `problems` simulated problems.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ttc.errors import TTCError
from ttc.graph import Node
from ttc.ports import Verifier
from ttc.testing.checks import CHECKS, Case
from ttc.testing.growth import check_growth

__all__ = [
    "CHECK_NAMES",
    "Checked",
    "NotConforming",
    "Report",
    "asked_for",
    "check_strategy",
    "conforming",
    "failed_check",
]

CHECK_NAMES = (*CHECKS, "more_budget")
"""What is checked, in order."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What came of one check."""

    name: str
    promise: str
    verdict: Literal["passed", "failed", "exempt"]
    note: str = ""
    """What was wrong; why it is exempt; what of the promise does not apply."""

    def __str__(self) -> str:
        note = f": {self.note}" if self.note else ""
        return f"{self.verdict:<7} {self.name} ({self.promise}){note}"


@dataclass(frozen=True)
class Report:
    """What came of all checks of a strategy."""

    checked: tuple[Checked, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of those that failed."""
        return tuple(one.name for one in self.checked if one.verdict == "failed")

    def __str__(self) -> str:
        return "\n".join(map(str, self.checked))


class NotConforming(AssertionError):
    """A strategy that failed checks; its message is the report."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"failed: {', '.join(report.failed)}\n{report}")
        self.report = report


def check_strategy(
    make: Callable[[int, Verifier], Node],
    *,
    exempt: Mapping[str, str] | None = None,
    only: Collection[str] = CHECK_NAMES,
    problems: int = 200,
) -> Report:
    """Checks a strategy.

    Args:
        make: a strategy of about n samples, which asks a verifier where it asks one.
        exempt: why checks do not apply, by their names.
        only: the checks to run, by their names.
        problems: on how many simulated problems more budget is tried; 4,000 for a release.

    Returns:
        The report, of a strategy that fails no check.

    Raises:
        NotConforming: it fails some; all checks have run.
        ValueError: there is no such check.
    """
    excused, case = exempt or {}, Case(make)
    asked = asked_for(CHECK_NAMES, only, excused)
    return conforming(_checked(case, name, excused.get(name), problems) for name in asked)


def asked_for(
    known: Collection[str], only: Collection[str], exempt: Collection[str]
) -> tuple[str, ...]:
    """The checks to run, in the order in which they are known.

    Raises:
        ValueError: there is no such check.
    """
    unknown = sorted({*exempt, *only} - set(known))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no check; there is {', '.join(known)}")
    return tuple(name for name in known if name in only)


def conforming(checked: Iterable[Checked]) -> Report:
    """The report of checks of which none failed.

    Raises:
        NotConforming: some did.
    """
    report = Report(tuple(checked))
    if report.failed:
        raise NotConforming(report)
    return report


def failed_check(name: str, promise: str, fault: Exception) -> Checked:
    """A check that a fault ended."""
    wrong = " ".join(str(fault).split()) or type(fault).__name__
    return Checked(name=name, promise=promise, verdict="failed", note=wrong[:400])


def _checked(case: Case, name: str, excuse: str | None, problems: int) -> Checked:
    check = CHECKS.get(name)
    promise = (check or check_growth).__doc__ or ""
    promise = promise.strip().splitlines()[0].rstrip(".")
    if excuse is not None:
        return Checked(name=name, promise=promise, verdict="exempt", note=excuse)
    try:
        note = check_growth(case.make, problems) if check is None else check(case)
    except (AssertionError, TTCError) as fault:
        return failed_check(name, promise, fault)
    return Checked(name=name, promise=promise, verdict="passed", note=note or "")
