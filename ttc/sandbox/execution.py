"""What a run came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Execution", "Proof", "Verdict"]

Verdict = Literal[
    "passed",  # every test held
    "failed",  # a test did not hold, the program raised, ended early, or sent what it should not
    "timeout",  # wall or processor time ran out
    "memory",  # memory ran out
    "output_limit",  # it wrote more than it may
    "invalid_tests",  # they say nothing: there are none, or they never called the program
    "finished",  # there were no tests to run, and the program ended with status 0
    "error",  # the machine's fault, not the program's: it never ran
]
Proof = Literal["separate", "output", "in_process"]
"""What a verdict rests on: a judge in a process of its own; output, compared outside; or the word
of the process that ran the program, which the program can forge."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One run of one program, in all its processes."""

    verdict: Verdict
    proof: Proof
    level: Literal["full", "restricted", "none"]
    """How the run was confined."""
    layers: tuple[str, ...]
    """The layers of the jail that held, found by trying."""
    reason: str = ""
    """Why it did not pass, for people: it may hold text of the program's making."""
    calls: int = 0
    """Calls that the program answered, or outputs that were compared."""
    results: tuple[bool, ...] = ()
    """For each test whether it held, where the form gives each a result of its own."""
    output: str = ""
    """What the program wrote to standard output, up to the limit."""
    errors: str = ""
    """What it wrote to standard error, up to the limit."""
    truncated: bool = False
    """Whether it wrote more than that."""
    cpu_seconds: float = 0.0
    """Processor time of all its processes, as a run's usage has it in `sandbox_seconds`."""
    call_seconds: float | None = None
    """What its answers took, as the judge measured it. `None` where no judge did."""
    peak_bytes: int = 0
    """The largest memory of one of its processes, with the interpreter."""

    @property
    def passed(self) -> bool:
        """Whether every test held."""
        return self.verdict == "passed"
