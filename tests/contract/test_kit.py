"""The conformance kit: it passes what is right, and catches defects that were seen in the field.

Each defect is a small strategy of its own, by its number in the list of what went wrong elsewhere.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from ttc import Candidate, EngineError, Node, node
from ttc.errors import BudgetExceeded, TTCError
from ttc.graph import Cost, Flow, Port
from ttc.ports import Request, Scope, Stream, Verifier
from ttc.strategies import Best, Sample, Vote
from ttc.streams import iterate
from ttc.testing import NotConforming, check_strategy
from ttc.testing.conformance import CHECK_NAMES
from ttc.types import UNFILTERED

Candidates = AsyncGenerator[Candidate, None]
Make = Callable[[int, Verifier], Node]
OPEN, ONE = Port("open", "many"), Port("finished", "one")


def failed(make: Make, *only: str) -> tuple[str, ...]:
    """The checks that a strategy fails, of those that are named."""
    with pytest.raises(NotConforming) as caught:
        check_strategy(make, only=only or CHECK_NAMES, problems=100)
    print(caught.value)  # noqa: T201 - which check caught it, and by what
    return caught.value.report.failed


async def drawn(candidates: Stream[Candidate], scope: Scope, n: int) -> list[Candidate]:
    """N samples, one after the other; a failed one is left out."""
    found = []
    async for candidate in candidates:
        for index in range(n):
            try:
                branch = await scope.generate(candidate.branch, index=index, max_tokens=512)
            except (EngineError, BudgetExceeded):
                continue
            found.append(scope.finish(candidate, branch))
    return found


@dataclass(frozen=True)
class Sampler(Node):
    """Draws n samples; the defects are in what it does beside that."""

    takes: ClassVar[Port] = OPEN
    roles: ClassVar[frozenset[str]] = frozenset({"policy"})
    n: int

    def flow(self, given: Flow) -> Flow:
        return Flow(kind="finished", count=None)

    def bound(self, given: Flow) -> Cost:
        return Cost(tokens=512 * self.n, calls=self.n)

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        for candidate in await drawn(candidates, scope, self.n):
            yield candidate


class Padded(Sampler):
    """7: copies of what is there fill up what is missing."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        found = await drawn(candidates, scope, max(1, self.n // 2))
        for place in range(self.n if found else 0):
            yield found[place % len(found)]


class Aliased(Sampler):
    """22: particles are one list under several names."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        particles: list[list[Candidate]] = [[]] * self.n
        for place, candidate in enumerate(await drawn(candidates, scope, self.n)):
            particles[place].append(candidate)
        for particle in particles:
            if particle:
                yield particle[-1]


class SameDraw(Sampler):
    """38: every sample asks for the same draw."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        given = [candidate async for candidate in candidates]
        for _ in range(self.n):
            async for candidate in scope.run(Sample(), iterate(*given), name="again"):
                yield candidate


class Gathered(Sampler):
    """32: one failed call fails all."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        async for candidate in candidates:
            calls = [
                scope.spawn(scope.generate(candidate.branch, index=index, max_tokens=512))
                for index in range(self.n)
            ]
            try:
                branches = [await call for call in calls]
            except EngineError:
                return
            for branch in branches:
                yield scope.finish(candidate, branch)


class Lossy(Sampler):
    """24: a limit is met after results were paid for, and they are lost."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        async for candidate in candidates:
            found = []
            for index in range(self.n):
                try:
                    found.append(
                        await scope.generate(candidate.branch, index=index, max_tokens=512)
                    )
                except EngineError:
                    continue
            for branch in found:
                yield scope.finish(candidate, branch)


class Quitting(Sampler):
    """17: what is unknown is taken for a reason to stop."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        async for candidate in candidates:
            for index in range(self.n):
                try:
                    branch = await scope.generate(candidate.branch, index=index, max_tokens=512)
                except TTCError:
                    continue
                finished = scope.finish(candidate, branch)
                yield finished
                if finished.answer is None:
                    return


class Hesitant(Sampler):
    """16: "no" is found in "know", and taken for doubt."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        for candidate in await drawn(candidates, scope, self.n):
            if "no" in candidate.text.lower():
                candidate = replace(candidate, answer=None, key=None)
            yield candidate


class Deep(Sampler):
    """26: its cap counts the last step alone, and not those before it."""

    def bound(self, given: Flow) -> Cost:
        return Cost(tokens=64, calls=4)

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        async for candidate in candidates:
            branch = candidate.branch
            for index in range(4):
                try:
                    branch = await scope.generate(branch, index=index, max_tokens=64)
                except TTCError:
                    break
            if branch is not candidate.branch:
                yield scope.finish(candidate, branch)


class Amplified(Sampler):
    """30: it makes more calls than it says that it may."""

    def bound(self, given: Flow) -> Cost:
        return Cost(tokens=512 * self.n, calls=1)


class Unbudgeted(Sampler):
    """28: the budget is declared, and calls are made around it."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        engine = ENGINES[-1]
        async for candidate in candidates:
            for index in range(self.n):
                request = Request(
                    branch=candidate.branch, max_tokens=512, sampling=UNFILTERED, seed=index
                )
                future = engine.submit(request).future
                try:
                    yield scope.finish(candidate, await asyncio.wrap_future(future))
                except EngineError:
                    continue


class FreeDrafts(Sampler):
    """27: drafts that are rejected are free."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        async for candidate in candidates:
            engine = ENGINES[-1]
            request = Request(branch=candidate.branch, max_tokens=8, sampling=UNFILTERED, seed=1)
            engine.submit(request)
            for finished in await drawn(iterate(candidate), scope, self.n):  # type: ignore[arg-type]
                yield finished


ENGINES: list[Any] = []
"""The engines that were made, the latest one last."""


@dataclass(frozen=True)
class Counted(Sampler):
    """33: a counter is shared by all runs of an object."""

    made: list[int] = field(default_factory=list, compare=False, repr=False)

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        async for candidate in candidates:
            for _ in range(self.n):
                self.made.append(1)
                try:
                    branch = await scope.generate(
                        candidate.branch, index=len(self.made), max_tokens=512
                    )
                except TTCError:
                    continue
                yield scope.finish(candidate, branch)


SETTINGS = {"n": 0}


class Leaking(Sampler):
    """29: what one run is told is kept for the next one."""

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        SETTINGS["n"] = SETTINGS["n"] % 5 + 1
        for candidate in await drawn(candidates, scope, min(self.n, SETTINGS["n"])):
            yield candidate


@dataclass(frozen=True)
class Selector(Node):
    """Chooses; the defects are in how."""

    gives: ClassVar[Port] = ONE
    selects: ClassVar[bool] = True

    def pick(self, candidates: list[Candidate], scope: Scope) -> Candidate | None:
        return next((c for c in candidates if c.key is not None), None)

    async def run(self, candidates: Stream[Candidate], scope: Scope) -> Candidates:
        chosen = self.pick([candidate async for candidate in candidates], scope)
        if chosen is not None:
            yield chosen


def _value(candidate: Candidate) -> float:
    return next((s.value for s in candidate.scores.values() if s.value is not None), -1.0)


class CountingCopies(Selector):
    """7: copies of a trace vote as well as the trace."""

    def pick(self, candidates: list[Candidate], scope: Scope) -> Candidate | None:
        answered = [candidate for candidate in candidates if candidate.key is not None]
        votes = [candidate.key for candidate in answered]
        return max(answered, key=lambda c: votes.count(c.key), default=None)


class Unseeded(Selector):
    """9, 40: ties are broken by the global generator."""

    def pick(self, candidates: list[Candidate], scope: Scope) -> Candidate | None:
        answered = [candidate for candidate in candidates if candidate.key is not None]
        return random.choice(answered) if answered else None


class LastScore(Selector):
    """10: the last score counts, whatever was to be aggregated."""

    def pick(self, candidates: list[Candidate], scope: Scope) -> Candidate | None:
        answered = [candidate for candidate in candidates if candidate.key is not None]
        return answered[-1] if answered else None


class Unweighted(Selector):
    """21: what is kept from a sweep before comes without its weight."""

    def pick(self, candidates: list[Candidate], scope: Scope) -> Candidate | None:
        answered = [candidate for candidate in candidates if candidate.key is not None]
        kept = [replace(candidate, scores={}) for candidate in answered[: len(answered) // 2]]
        return max([*answered[len(kept) :], *kept], key=_value, default=None)


class Silent(Selector):
    """4: no answer is counted as an answer, and may win."""

    def pick(self, candidates: list[Candidate], scope: Scope) -> Candidate | None:
        answers = [candidate.answer for candidate in candidates]
        return max(candidates, key=lambda c: answers.count(c.answer), default=None)


class Unscored(Selector):
    """19: a score that cannot be read is the end of a candidate."""

    def pick(self, candidates: list[Candidate], scope: Scope) -> Candidate | None:
        known = [c for c in candidates if c.key is not None and _value(c) > 0]
        return max(known, key=_value, default=None)


def by_arrival(n: int, verifier: Verifier) -> Node:
    """14: who comes first is counted first."""
    return Sample(n=n, order="arrival") >> Selector()


def worse_with_more(n: int, verifier: Verifier) -> Node:
    """More samples are too many for it."""
    return Sample(n=n) >> verifier >> Worst()


class Worst(Selector):
    """It takes the best of a few, and is lost among more."""

    def pick(self, candidates: list[Candidate], scope: Scope) -> Candidate | None:
        answered = [candidate for candidate in candidates if candidate.key is not None]
        return max(answered, key=_value, default=None) if len(candidates) <= 4 else None


class Mute(Selector):
    """It takes nobody, however much there is: so no budget makes it worse."""

    def pick(self, candidates: list[Candidate], scope: Scope) -> Candidate | None:
        return None


def sampled(sampler: type[Sampler]) -> Make:
    return lambda n, verifier: sampler(n) >> Vote()


def selected(selector: type[Selector]) -> Make:
    return lambda n, verifier: Sample(n=n) >> verifier >> selector()


DEFECTS: dict[str, tuple[Make, str]] = {
    "4": (selected(Silent), "empty_replies"),
    "7": (sampled(Padded), "duplicates"),
    "7, in a vote": (selected(CountingCopies), "duplicates"),
    "9": (selected(Unseeded), "randomness"),
    "10": (selected(LastScore), "belief"),
    "14": (by_arrival, "arrival"),
    "16": (sampled(Hesitant), "one_sample"),
    "17": (sampled(Quitting), "empty_replies"),
    "19": (selected(Unscored), "no_signal"),
    "21": (selected(Unweighted), "belief"),
    "22": (sampled(Aliased), "duplicates"),
    "24": (sampled(Lossy), "best_so_far"),
    "26": (sampled(Deep), "worst_case"),
    "27": (sampled(FreeDrafts), "usage"),
    "28": (sampled(Unbudgeted), "usage"),
    "29": (sampled(Leaking), "value"),
    "30": (sampled(Amplified), "worst_case"),
    "32": (sampled(Gathered), "failures"),
    "33": (sampled(Counted), "shared"),
    "38": (sampled(SameDraw), "duplicates"),
    "more is worse": (worse_with_more, "more_budget"),
    "never right": (selected(Mute), "more_budget"),
}


@pytest.mark.parametrize("number", DEFECTS)
def test_a_defect_is_caught(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the check that is there for it."""
    from ttc.testing.watched import CheckedEngine

    plain = CheckedEngine.__init__

    def init(engine: Any, *args: Any, **options: Any) -> None:
        plain(engine, *args, **options)
        ENGINES[:] = [engine]

    monkeypatch.setattr(CheckedEngine, "__init__", init)
    make, check = DEFECTS[number]

    assert failed(make, check) == (check,)


def test_the_defects_have_no_other_fault() -> None:
    """What they are made of conforms."""
    check_strategy(sampled(Sampler), problems=40)
    check_strategy(selected(Selector), exempt={"belief": "it takes the first"}, problems=40)


@node(takes=OPEN)
async def mine(candidates: Stream[Candidate], scope: Scope) -> Candidates:
    """A third party's strategy."""
    async for candidate in candidates:
        yield scope.finish(
            candidate, await scope.generate(candidate.branch, index=0, max_tokens=64)
        )


def test_a_third_party_checks_its_strategy_in_a_line() -> None:
    """And reads what came of it."""
    report = check_strategy(
        lambda n, verifier: mine >> verifier >> Vote(),
        only=["usage", "one_sample", "belief"],
        exempt={"belief": "a plain vote reads no scores"},
    )

    assert [str(line).split()[:2] for line in report.checked] == [
        ["passed", "usage"],
        ["passed", "one_sample"],
        ["exempt", "belief"],
    ]
    assert str(report).endswith("a plain vote reads no scores")


def test_what_is_no_check_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(ValueError, match="'budgets' is no check; there is usage, value"):
        check_strategy(lambda n, v: Sample(n=n) >> v >> Best(), only=["budgets"])
