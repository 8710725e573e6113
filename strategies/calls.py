"""Calls: what a node asks in stages, so that its grants and seeds never depend on speed.

All calls of a stage are launched at once, in a fixed order, and the next stage begins when all have
ended. What a call came to is a value, a fault too: a failed or a refused one leaves its siblings
alone. The first refusal is kept, to be raised once the node has given what it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from ttc.errors import BudgetExceeded, EngineError, TTCError
from ttc.ports import Scope, Verifier
from ttc.prompts import prompt
from ttc.types import Branch, Candidate, Sampling, Score, Tail
from ttc.verdicts import Reader, Verdict, verdict_of

__all__ = ["Ask", "Calls", "ended", "resting_on", "start_of"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One call that is to be made."""

    of: Branch | tuple[str, ...]
    """The branch to extend, or the paragraphs of a prompt of one's own."""
    role: str = "policy"
    """Who is asked, where it is a prompt."""
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    at_least: int | None = None
    until: tuple[str | int, ...] = ()
    tail: Tail | None = None


class Calls:
    """The calls of one node in one run."""

    def __init__(self, scope: Scope) -> None:
        self.refusal: BudgetExceeded | None = None
        """The first refusal, in launch order."""
        self._scope, self._made = scope, 0

    async def generate(self, asks: Iterable[Ask]) -> list[Branch | TTCError]:
        """Makes calls at once; what each came to, in order."""
        work = [partial(self._generate, ask, self._made + n) for n, ask in enumerate(asks)]
        self._made += len(work)
        return await self.settled(work)

    async def judge(self, asks: Iterable[tuple[Ask, Reader]]) -> list[tuple[Verdict, str | None]]:
        """Asks judges; what each decided, and by which call. Who failed decided nothing."""
        given = list(asks)
        found = await self.generate(ask for ask, _ in given)
        return [
            (Verdict(None, f"{type(said).__name__}: {said}"), None)
            if isinstance(said, TTCError)
            else (verdict_of(said, read), said.call)
            for said, (_, read) in zip(found, given, strict=True)
        ]

    async def score(self, verifier: Verifier, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with a verifier's score; as they are where it was refused or needless."""
        wanted = [c.key is not None and verifier.name not in c.scores for c in candidates]
        asked = [c for c, is_wanted in zip(candidates, wanted, strict=True) if is_wanted]
        each = verifier.needs == "each" and not verifier.roles
        groups = [[candidate] for candidate in asked] if each else [asked] if asked else []
        work = [partial(self._scope.verify, verifier, group) for group in groups]
        results = await self.settled(work)
        scores: list[Score | None] = []
        for group, found in zip(groups, results, strict=True):
            scores += [None] * len(group) if isinstance(found, TTCError) else found
        following = iter(scores)
        return [
            _scored(c, next(following) if is_wanted else None)
            for c, is_wanted in zip(candidates, wanted, strict=True)
        ]

    async def settled(self, work: Iterable[Callable[[], Awaitable[T]]]) -> list[T | TTCError]:
        """Runs all at once, launched in order, and keeps the first refusal."""
        handles = [self._scope.spawn(_caught(one)) for one in work]
        results = [await handle for handle in handles]
        refused = [found for found in results if isinstance(found, BudgetExceeded)]
        self.refusal = self.refusal or next(iter(refused), None)
        return results

    def end(self) -> None:
        """Tells of a refusal, once everything has been given.

        Raises:
            BudgetExceeded: a limit refused one of the calls.
        """
        if self.refusal is not None:
            raise self.refusal

    async def _generate(self, ask: Ask, index: int) -> Branch:
        root = ask.of if isinstance(ask.of, Branch) else prompt(self._scope, ask.role, *ask.of)
        return await self._scope.generate(
            root,
            index=index,
            max_tokens=ask.max_tokens,
            sampling=ask.sampling,
            at_least=ask.at_least,
            until=ask.until,
            tail=ask.tail,
        )


def start_of(candidate: Candidate, scope: Scope, role: str) -> Branch:
    """What is extended: the candidate's branch, or the role's own prompt in its place.

    Raises:
        ValueError: the branch holds another role's tokens.
    """
    if candidate.branch.role == role:
        return candidate.branch
    if candidate.branch.parent is None:
        return scope.root(role)
    raise ValueError(f"the role {role!r} cannot go on with tokens of {candidate.branch.role!r}")


def ended(scope: Scope, candidate: Candidate, found: Branch | TTCError) -> Candidate | None:
    """The candidate that a call makes of another; `None` where it was refused."""
    if isinstance(found, Branch):
        return scope.finish(candidate, found)
    if not isinstance(found, EngineError):
        return None
    start = candidate.branch
    branch = Branch(
        parent=start, role=start.role, text="", token_ids=(), finish_reason="error", call=found.call
    )
    failed = scope.finish(candidate, branch)  # its usage
    return replace(failed, answer=None, key=None, status="failed", error=str(found))


def resting_on(candidate: Candidate, *others: Candidate, calls: Iterable[str] = ()) -> Candidate:
    """The candidate, which would not be there without others, or without some calls."""
    behind = frozenset(calls).union(*(other.lineage for other in others))
    return replace(candidate, chosen_among=candidate.chosen_among | behind)


def _scored(candidate: Candidate, score: Score | None) -> Candidate:
    if score is None:
        return candidate
    return replace(candidate, scores={**candidate.scores, score.verifier: score})


async def _caught(work: Callable[[], Awaitable[T]]) -> T | TTCError:
    try:
        return await work()
    except (BudgetExceeded, EngineError) as fault:
        return fault
