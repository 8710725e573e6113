"""The tool `calculator`: what an expression comes to, by the symbolic pool.

The text is read by our own parser, which knows numbers, operators and a list of functions, and
never by sympy's; what computes is a jailed process that is killed at its limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ttc.ports import Scope
from ttc.tools.port import Arguments, Effect

__all__ = ["Calculator"]

_LONGEST = 500


@dataclass(frozen=True, kw_only=True)
class Calculator:
    """Tells the value of an expression, exactly and in decimals."""

    seconds: float = 30.0
    """How long a call may take; the first one of a process starts the pool."""

    name: ClassVar[str] = "calculator"
    description: ClassVar[str] = "Computes an expression, such as (3 + 4) * 12 / 5 or sqrt(2)^3."
    parameters: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
        "additionalProperties": False,
    }
    effect: ClassVar[Effect] = "pure"
    version: ClassVar[str] = "1"
    """Of how it computes and tells."""
    max_bytes: ClassVar[int] = 1_024
    is_trusted: ClassVar[bool] = True
    """It says nothing but numbers."""

    def check(self, arguments: Arguments) -> None:
        """Wants one text, which is not long.

        Raises:
            ValueError: it is none.
        """
        given = arguments.get("expression")
        if set(arguments) != {"expression"} or not isinstance(given, str):
            raise ValueError('it takes one text: {"expression": "2 * 3"}')
        if len(given) > _LONGEST:
            raise ValueError(f"an expression has at most {_LONGEST} characters, not {len(given)}")

    async def __call__(
        self, arguments: Arguments, earlier: Sequence[Arguments], scope: Scope
    ) -> str:
        """Computes it.

        Raises:
            ValueError: it is no expression, or has no value.
            TimeoutError: it takes too long.
        """
        from ttc.sandbox.symbolic import shared_pool  # what computes is loaded when it is needed

        text = arguments["expression"].replace("**", "^").strip().rstrip("=").strip()
        found = await shared_pool().evaluate(text)
        if found.was_cut:
            raise TimeoutError("it takes too long to compute")
        if found.exact is None or found.decimals is None:
            raise ValueError(f"{arguments['expression']!r} has no value that is a number")
        decimals = _plain(found.decimals)
        return decimals if found.exact == decimals else f"{decimals} (exactly {found.exact})"


def _plain(decimals: str) -> str:
    """Without zeros that say nothing."""
    return decimals.rstrip("0").rstrip(".") if "." in decimals and "e" not in decimals else decimals
