"""The driver: what a policy sees when, and what happens to what it drops."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

import ttc
from tests.core.lab import solved, uneven
from tests.strategies.tree.world import check, thinker
from ttc import Budget, Candidate, Node
from ttc.engine.simulator import Hardware, Lengths, SimulatedProblem, Simulator
from ttc.graph import Port
from ttc.ports import Engine, Request, Scope, Stream
from ttc.strategies import BeamSearch, Best, BestFirst, FixedLength, MonteCarloTreeSearch, Vote
from ttc.strategies.tree import Expansion, Result, Tree, TreeSearch
from ttc.testing import FakeEngine, ManualClock
from ttc.verifiers import MeanLogprob


@dataclass(frozen=True)
class State:
    """A tree, and what the policy was asked and told, in order."""

    tree: Tree = field(default_factory=Tree.planted)
    log: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Wide:
    """Extends the root so often, and notes what it has seen."""

    num_asks: int
    drops: dict[int, int] = field(default_factory=dict)
    """What is dropped after the tell of each of these."""
    seen: list[tuple[str, int]] = field(default_factory=list)

    def init(self) -> State:
        return State()

    def ask(self, state: State, seed: int) -> tuple[State, Expansion | None]:
        if state.tree.num_asks == self.num_asks:
            return state, None
        tree, expansion = state.tree.expand(0)
        self.seen.append(("ask", expansion.id))
        return State(tree, (*state.log, ("ask", expansion.id))), expansion

    def tell(self, state: State, result: Result) -> State:
        self.seen.append((result.status, result.id))
        tree = state.tree.record(result)
        if result.id in self.drops:
            tree = tree.drop(self.drops[result.id])
        return State(tree, (*state.log, ("tell", result.id)))


@dataclass(frozen=True)
class Probing(TreeSearch):
    """A search by a policy that a test holds."""

    held: Wide = field(default_factory=lambda: Wide(1), kw_only=True)

    @property
    def most_expansions(self) -> int:
        return self.held.num_asks

    def policy(self, scope: Scope) -> Wide:
        return self.held


@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize("slots", [1, 4, None])
def test_an_ask_sees_exactly_the_tells_before_its_window(window: int, slots: int | None) -> None:
    """Ask i comes after the tells 0 … i - W, strictly one tell and then one ask."""
    policy = Wide(12)
    solved(Probing(check(), held=policy, window=window) >> Vote(), thinker(), pace=uneven(1),
           concurrency=slots)  # fmt: skip

    asked, told = 0, 0
    for kind, id in policy.seen:
        if kind == "ask":
            asked += 1
            assert told == max(0, asked - window)
        else:
            told += 1
            assert id == told
    assert (asked, told) == (12, 12)


def test_results_that_are_told_as_they_come_come_in_order_of_their_ends() -> None:
    policy = Wide(6)
    graph = Probing(check(), held=policy, window=6, order="arrival") >> Vote()
    run = solved(graph, "The answer is 1.", pace=lambda request: 1.0 - 0.1 * number(request))

    assert [id for kind, id in policy.seen if kind != "ask"] == [6, 5, 4, 3, 2, 1]
    assert run.outcome.timing_dependent == ("arrival order was asked for",)


def number(request: Request) -> int:
    """Of the ask that a request belongs to."""
    return int(request.call.rpartition("#")[2])


@dataclass(frozen=True)
class Watching(Wide):
    """Looks at an engine and at the ledger when it is told and when it is asked."""

    look: dict[str, object] = field(default_factory=dict)

    def ask(self, state: State, seed: int) -> tuple[State, Expansion | None]:
        self.look.setdefault("asks", []).append(self.look["count"]())  # type: ignore[attr-defined, operator]
        return super().ask(state, seed)

    def tell(self, state: State, result: Result) -> State:
        self.look.setdefault("tells", []).append(self.look["count"]())  # type: ignore[attr-defined, operator]
        return super().tell(state, result)


def test_what_is_dropped_is_back_before_the_next_decision() -> None:
    """Its slot in the engine and its reservation are free at the very next ask."""
    clock = ManualClock()
    engine = FakeEngine(
        "The answer is 1.", clock=clock, seconds_per_token=lambda r: 0.1 if number(r) == 1 else 9.0
    )
    policy = Watching(5, drops={1: 3})
    reserved: list[Scope] = []

    @dataclass(frozen=True)
    class Spying(Probing):
        def policy(self, scope: Scope) -> Wide:
            reserved.append(scope)
            return policy

    policy.look["count"] = lambda: (engine.active, reserved[0].remaining.tokens)
    graph = Spying(check(), held=policy, window=4, steps=FixedLength(10)) >> Vote()
    clock.run(_solve(graph, engine, clock, Budget(tokens=1000)))

    told, asked = policy.look["tells"][0], policy.look["asks"][4]  # type: ignore[index]
    assert told == (3, 1000 - 2 - 4 - 3 * 10)
    assert asked == (2, 1000 - 2 - 4 - 2 * 10)
    assert ("cancelled", 3) in policy.seen
    assert engine.active == 0


async def _solve(
    graph: Node, engine: Engine, clock: ManualClock, budget: Budget, seed: int = 0
) -> object:
    import ttc

    return await ttc.asolve(
        ttc.Problem(id="p", prompt="a question"), graph, model=engine, clock=clock, budget=budget,
        seed=seed,
    )  # fmt: skip


def test_what_is_dropped_gives_its_memory_back_before_the_next_decision() -> None:
    """The simulator's keys and values: what is pinned falls within the decision.

    With this seed the first of three steps is the shortest.
    """
    clock = ManualClock()
    law = SimulatedProblem(id="p", success=1.0, lengths=Lengths(median=60), prompt_tokens=7)
    engine = Simulator([law], hardware=Hardware(seconds_per_token=0.01), clock=clock)
    policy = Watching(4, drops={1: 3})
    policy.look["count"] = lambda: engine.memory.pinned
    graph = Probing(check(), held=policy, window=3, steps=FixedLength(100)) >> Vote()
    clock.run(_solve(graph, engine, clock, Budget(tokens=10_000), seed=1))

    told, asked = policy.look["tells"][0], policy.look["asks"][3]  # type: ignore[index]
    assert (told, asked) == (7 + 2 * 100, 7 + 100)


@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_dropped_child_counts_for_nothing_whether_it_had_ended_or_not(ends: str) -> None:
    """Only how much of it had been computed depends on timing, and that is labelled."""
    policy = Wide(4, drops={1: 3})
    pace = {1: 1.0, 3: 0.1 if ends == "before" else 9.0}
    graph = Probing(check(), held=policy, window=4) >> Vote()
    outcome = solved(
        graph, "The answer is 1.", pace=lambda request: pace.get(number(request), 2.0)
    ).outcome

    usage = outcome.usage
    assert usage.tokens - usage.tokens_cancelled == 8 + 3 * 4
    assert ("cancelled", 3) in policy.seen


def test_equal_steps_ask_the_verifier_once_and_are_one_child() -> None:
    """Told as a duplicate of the first, in launch order, whichever came first."""
    verifier = check()
    graph = Probing(verifier, held=Wide(5), window=5) >> Vote()
    outcome = solved(graph, "The answer is 1.", pace=uneven(2)).outcome

    assert (len(verifier.seen), len(outcome.candidates)) == (1, 1)
    assert outcome.usage.calls == 5


def test_equal_steps_are_one_trajectory_where_no_solution_was_found() -> None:
    """What is given in place of solutions holds none twice."""
    search = MonteCarloTreeSearch(check(), max_expansions=12, window=6)
    outcome = solved(search >> Vote(), "On and on.\n\n").outcome

    texts = [candidate.text for candidate in outcome.candidates]
    assert len(texts) == len(set(texts))


def test_a_verifier_is_asked_in_launch_order() -> None:
    """So that a limit on its calls refuses the same ones at any timing."""
    verifier = check()
    graph = Probing(verifier, held=Wide(6), window=6) >> Vote()
    solved(graph, lambda r: f"The answer is {number(r)}.", pace=lambda r: 1.0 / number(r))

    assert [c.answer for c in verifier.seen] == ["1", "2", "3", "4", "5", "6"]


def test_a_search_begins_at_every_open_candidate() -> None:
    """One after the other; no two of them share a seed."""

    @dataclass(frozen=True)
    class Twice(Node):
        takes = Port("open", "many")
        gives = Port("open", "many")

        async def run(
            self, candidates: Stream[Candidate], scope: Scope
        ) -> AsyncGenerator[Candidate, None]:
            async for candidate in candidates:
                yield candidate
                yield replace(candidate, branch=scope.append(candidate.branch, "Hint: 1."))

    run = solved(Twice() >> BeamSearch(check(), num_beams=2, beam_width=2) >> Vote(), thinker())

    seeds = [request.seed for request in run.engine.requests]
    assert len(seeds) == len(set(seeds))
    assert any("Hint" in c.branch.output for c in run.outcome.candidates)


def test_a_selector_that_has_seen_enough_ends_the_search() -> None:
    """What is in flight is cancelled and refunded."""
    from ttc.strategies import Best

    graph = Probing(check(lambda c: 0.9), held=Wide(20), window=4) >> Best(enough=0.5)
    run = solved(graph, lambda r: f"The answer is {number(r)}.", pace=lambda r: number(r) * 1.0)

    assert run.outcome.answer == "1"
    assert run.outcome.usage.calls <= 5


@pytest.mark.parametrize(
    "search",
    [partial(BeamSearch, num_beams=1, beam_width=1), partial(BestFirst, width=1)],
    ids=["beam search", "best first"],
)
def test_a_step_of_a_deep_search_takes_no_more_work_than_a_first_one(
    search: Callable[..., Node],
) -> None:
    """Twice as deep is twice the calls of functions; where each step walked its path, four times.

    What is left of that are loops over segments: one to join a text, one to add log probabilities.
    """

    def count_calls(depth: int) -> int:
        graph = search(MeanLogprob(), steps=FixedLength(4), max_steps=depth)
        engine, calls = FakeEngine("a b c d e f"), 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            asyncio.run(ttc.asolve("q", graph >> Best(), model=engine, seed=0))
        finally:
            sys.setprofile(None)
        assert engine.calls >= depth
        return calls

    count_calls(10)  # what is imported and cached once
    assert count_calls(160) < 2.3 * count_calls(80)
