"""The limits of a run over many problems: what each may spend, and what they share."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ttc.allocate import Allocator, Terms
from ttc.arguments import budget_of
from ttc.graph import is_count
from ttc.registry import load_allocator, names
from ttc.resources import LOGICAL, MEASURED, RESERVED, shares
from ttc.types import Budget

__all__ = ["Limits"]


class Limits:
    """The budgets of a run over many problems, and how they are given away."""

    def __init__(
        self,
        run: Budget | None,
        per_problem: Budget | None,
        allocator: Allocator | str | None,
        concurrency: int,
    ) -> None:
        if not is_count(concurrency):
            raise ValueError(f"concurrency is a whole number of at least 1, not {concurrency!r}")
        self.run = budget_of("budget", run)
        self.per_problem = budget_of("per_problem", per_problem)
        self.allocator = _allocator(allocator)
        self.concurrency = concurrency
        if self.allocator is not None and self.run.tokens is None:
            raise ValueError("an allocator gives tokens away; pass budget=Budget(tokens=...)")

    @property
    def shared(self) -> dict[str, float | None]:
        """The limits that hold for all problems together, undivided."""
        given_away = ("tokens", "calls") if self.allocator is not None else ()
        return {name: getattr(self.run, name) for name in ("seconds", *given_away)}

    def of_each(self, count: int) -> list[Budget]:
        """Each problem's part of what the run may spend, but for what is shared, capped."""
        budgets = [self.per_problem] * count
        for resource in (*RESERVED, *MEASURED):
            total, cap = getattr(self.run, resource), getattr(self.per_problem, resource)
            if total is None or not count:
                continue
            if resource in self.shared:
                continue
            is_whole = resource in LOGICAL
            parts = shares(total, [1] * count) if is_whole else [total / count] * count
            capped = [part if cap is None else min(part, cap) for part in parts]
            budgets = [
                replace(budget, **{resource: part})
                for budget, part in zip(budgets, capped, strict=True)
            ]
        return budgets

    def terms(self, count: int) -> Terms:
        """What an allocator gives away."""
        return Terms(
            tokens=self.run.tokens or 0,
            calls=self.run.calls,
            num_problems=count,
            per_problem=self.per_problem.tokens,
        )


def _allocator(given: object) -> Allocator | None:
    """An allocator, or the one of a name.

    Raises:
        TypeError: it is neither.
        ValueError: nobody has registered the name.
    """
    if given is None or isinstance(given, Allocator):
        return given
    if isinstance(given, str):
        return cast("Allocator", load_allocator(given))
    known = ", ".join(names("allocators"))
    raise TypeError(
        f"allocator={given!r} is neither a ttc.allocate.Allocator nor one of {known}; an allocator "
        "class is made by calling it"
    )
