"""Paraphrase: the question in other words, since the wording of one decides more than it should.

Source: Zhou et al. 2024, arXiv 2404.11500, self-consistency over paraphrases.
Cost: for each open candidate n calls of at most `max_tokens`, and their prompts; each distinct
token of a paraphrase once more, as a prompt.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import ClassVar

from ttc.errors import TTCError
from ttc.graph import Cost, Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.prompts import PREAMBLE, fenced
from ttc.strategies.calls import Ask, Calls, resting_on
from ttc.strategies.refinement import count_faults, sampling_faults
from ttc.types import Branch, Candidate, Problem, Sampling
from ttc.verdicts import said

__all__ = ["Paraphrase"]


@dataclass(frozen=True, kw_only=True)
class Paraphrase(Node):
    """For each open candidate itself and n open ones that ask the question in other words.

    A paraphrase that fails, or is cut, is left out.
    """

    remote: ClassVar[bool] = True
    never_answers: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("open", "many")

    n: int = 3
    """Paraphrases, beside the question as it is."""
    temperature: float = 0.8
    max_tokens: int = 512
    """The most output tokens of a paraphrase."""
    writer: str = "policy"
    """The role that paraphrases."""
    role: str = "policy"
    """The role that is asked the paraphrases afterwards."""

    @property
    def roles(self) -> frozenset[str]:
        """Both."""
        return frozenset({self.writer, self.role})

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range."""
        faults = count_faults(n=self.n, max_tokens=self.max_tokens)
        return faults + sampling_faults(self.temperature)

    def flow(self, given: Flow) -> Flow:
        """N + 1 for each one given."""
        count = None if given.count is None else given.count * (self.n + 1)
        return Flow(kind="open", count=count, roles=frozenset({self.role}))

    def longest(self, given: Flow) -> int | None:
        """Nothing is written after a question yet."""
        return 0

    def bound(self, given: Flow) -> Cost:
        """N calls each, and a prompt with what each writes."""
        written = given.lengths.written(self.writer, self.max_tokens)
        prompt = Cost(tokens=given.lengths.prompt(self.role, written))
        asked = Cost(tokens=given.lengths.call(self.writer, self.max_tokens), calls=1)
        return (prompt + asked) * given.count * self.n

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Writes all paraphrases, and yields the question as it is, then each of them."""
        calls = Calls(scope)
        paragraphs = (
            f"You write a question in other words. {PREAMBLE}",
            fenced("question", _asked(scope.problem)),
            "Write the question in other words, so that its answer is the same. Keep every number, "
            "name and condition, and how the answer is to be given. Write the question alone.",
        )
        sampling = Sampling(temperature=self.temperature)
        ask = Ask(of=paragraphs, role=self.writer, max_tokens=self.max_tokens, sampling=sampling)
        given = [candidate async for candidate in candidates]
        found = await calls.generate([ask] * (self.n * len(given)))
        for place, candidate in enumerate(given):
            yield replace(candidate, branch=scope.root(self.role))
            for branch in found[place * self.n : (place + 1) * self.n]:
                text = _whole(branch)
                if text and isinstance(branch, Branch):
                    root = scope.prompt(_asking(scope.problem, text), self.role)
                    new = replace(candidate, branch=root)
                    yield resting_on(new, calls=[branch.call] if branch.call else [])
        calls.end()


def _whole(found: Branch | TTCError) -> str:
    """A paraphrase that came to its end."""
    if isinstance(found, TTCError) or found.finish_reason != "stop":
        return ""
    return (said(found) or "").strip()


def _asked(problem: Problem) -> str:
    """The question itself: the last message of the user, or the raw prompt."""
    return problem.prompt if problem.prompt is not None else problem.messages[_at(problem)].content


def _asking(problem: Problem, text: str) -> Problem:
    """The problem with its question in other words."""
    if problem.prompt is not None:
        return replace(problem, prompt=text)
    messages, at = list(problem.messages), _at(problem)
    messages[at] = replace(messages[at], content=text)
    return replace(problem, messages=tuple(messages))


def _at(problem: Problem) -> int:
    return max((n for n, m in enumerate(problem.messages) if m.role == "user"), default=0)
