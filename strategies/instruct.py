"""Instruct: the same problem put in several ways, so that samples differ in more than their dice.

Source: diverse prompts, Li et al. 2022, arXiv 2206.02336 (DiVeRSe), section 3.1.
Differs: prompts differ in an instruction, and not in their examples.
Cost: no calls; each distinct prompt token once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ttc.errors import EngineError
from ttc.graph import Cost, Flow, Node, Port
from ttc.lengths import plus
from ttc.ports import Scope, Stream
from ttc.types import Branch, Candidate, Message, Problem

__all__ = ["Instruct", "instructed"]

Place = Literal["after", "before", "system"]


@dataclass(frozen=True, init=False)
class Instruct(Node):
    """For each open candidate one for each instruction, whose prompt is the problem with it."""

    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("open", "many")

    instructions: tuple[str, ...]
    """Texts; an empty one leaves the problem as it is."""
    place: Place
    """Where an instruction stands: `after` the last message, `before` it, or as a `system` message.
    In a raw prompt there is no system."""
    role: str

    def __init__(self, *instructions: str, place: Place = "after", role: str = "policy") -> None:
        """The instructions, in order."""
        for name, value in (("instructions", instructions), ("place", place), ("role", role)):
            object.__setattr__(self, name, value)

    @property
    def roles(self) -> frozenset[str]:
        """Whose prompts they are."""
        return frozenset({self.role})

    def faults(self, given: Flow) -> list[str]:
        """No instruction, one that is no text or comes twice, a place that is none."""
        texts: tuple[object, ...] = self.instructions
        faults = [f"an instruction is a text, not {t!r}" for t in texts if not isinstance(t, str)]
        if not texts:
            faults.append("it has no instructions; pass some texts")
        elif not faults and len(set(texts)) < len(texts):
            faults.append("an instruction is given twice; give sample(n=2) for two samples of each")
        if self.place not in ("after", "before", "system"):
            faults.append(f"place is after, before or system, not {self.place!r}")
        return faults

    def flow(self, given: Flow) -> Flow:
        """As many for each one given as there are instructions."""
        count = None if given.count is None else given.count * len(self.instructions)
        return Flow(kind="open", count=count, scores={}, roles=frozenset({self.role}))

    def longest(self, given: Flow) -> int | None:
        """Nothing is written after a prompt yet."""
        return 0

    def bound(self, given: Flow) -> Cost:
        """The prompts, which are paid by whoever extends them."""
        sizes = [len(text.encode()) for text in self.instructions]
        prompts = plus(*(given.lengths.prompt(self.role, size) for size in sizes))
        return Cost(tokens=prompts) * given.count

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Yields the problem in each form."""
        async for candidate in candidates:
            for text in self.instructions:
                try:
                    root = _root(scope, text, self)
                except EngineError as error:  # it does not fit, or has no form
                    scope.decide("left_out", end=False, instruction=text, error=str(error))
                else:
                    yield replace(candidate, branch=root)


def _root(scope: Scope, text: str, node: Instruct) -> Branch:
    if not text:
        return scope.root(node.role)
    return scope.prompt(instructed(scope.problem, text, node.place), node.role)


def instructed(problem: Problem, text: str, place: Place) -> Problem:
    """A problem with an instruction in it.

    Raises:
        ValueError: a raw prompt has no system message.
    """
    if problem.prompt is not None:
        if place == "system":
            raise ValueError("a raw prompt has no system message; let the place be before or after")
        parts = (text, problem.prompt) if place == "before" else (problem.prompt, text)
        return replace(problem, prompt="\n\n".join(parts))
    messages = list(problem.messages)
    if place == "system" and messages[0].role == "system":
        messages[0] = replace(messages[0], content=f"{messages[0].content}\n\n{text}")
    elif place == "system":
        messages.insert(0, Message(role="system", content=text))
    else:
        at = max((n for n, m in enumerate(messages) if m.role == "user"), default=len(messages) - 1)
        said = messages[at].content
        parts = (text, said) if place == "before" else (said, text)
        messages[at] = replace(messages[at], content="\n\n".join(parts))
    return replace(problem, messages=tuple(messages))
