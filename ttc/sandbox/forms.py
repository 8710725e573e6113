"""The forms in which tests come, and what each has the processes of a run do."""

from __future__ import annotations

from dataclasses import dataclass

from ttc.sandbox.compare import Layout

__all__ = ["Asserts", "CheckFunction", "GeneratedTests", "InProcess", "StandardIO", "Tests"]


@dataclass(frozen=True, kw_only=True)
class CheckFunction:
    """Code that defines `check(candidate)`, as HumanEval has it."""

    code: str
    entry_point: str
    prompt: str = ""
    """Code whose imports and helpers the test may use; the judge runs it, so it must be trusted."""


@dataclass(frozen=True, kw_only=True)
class Asserts:
    """Statements that use the candidate's names, as MBPP has them."""

    asserts: tuple[str, ...]
    setup: str = ""
    """Code that runs before them, in the judge."""


@dataclass(frozen=True, kw_only=True)
class StandardIO:
    """Texts for standard input, and the output that each should give. The output stays outside."""

    cases: tuple[tuple[str, str], ...]
    """Pairs of input and expected output; each is a run of its own."""
    tolerance: float = 1e-6
    """How far floats may differ, absolutely or relatively. Integers are exact."""
    layout: Layout = "lines"
    ignore_case: bool = False


@dataclass(frozen=True, kw_only=True)
class GeneratedTests:
    """Tests that a model wrote; each has a result of its own.

    Those of the form `assert f(literals) == literal` are never run: their values are read out and
    compared. All others run as code, each in a judge of its own.
    """

    tests: tuple[str, ...]
    entry_point: str


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """Tests that must share the candidate's interpreter. A candidate can forge their verdict."""

    tests: tuple[str, ...]


Tests = CheckFunction | Asserts | StandardIO | GeneratedTests | InProcess
