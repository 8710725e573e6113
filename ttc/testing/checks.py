"""The checks of the conformance kit, but for the one on simulated problems.

Each is a function of a case: it returns what of its promise does not apply, or nothing, and raises
an `AssertionError` that says what was wrong. Every run that any of them makes is settled and
counted as well: see `ttc.testing.watched.solved`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ttc.answers import extract_answer
from ttc.control import Control
from ttc.errors import EngineError, VerifierError
from ttc.graph import Chain, Flow, Node, compile_graph
from ttc.manual_clock import ManualClock
from ttc.ports import Request, Scope, Stream, Verifier
from ttc.solve import asolve
from ttc.testing.fakes import FakeEngine, Script, ScriptedVerifier
from ttc.testing.watched import (
    QUESTION,
    Ledgers,
    Solved,
    check_no_task_is_left,
    seen,
    solved,
    talker,
    uneven,
)
from ttc.types import Budget, Candidate, Outcome, Problem, Score

__all__ = ["CHECKS", "Case"]

_RESOURCES = ("tokens", "calls", "verifier_calls")
_ONE, _TWO = "The answer is 1.", "The answer is 2."
_SAYINGS = (
    _ONE,
    "I know now, as noted in another place. The answer is 1.",
    "At first 2 seems right. No: the answer is 1.",
    "So\n2 is wrong, and\nThe answer is 1.",
)


@dataclass(frozen=True)
class Case:
    """A strategy that is checked."""

    make: Callable[[int, Verifier], Node]

    def graph(self, n: int, verifier: Verifier | None = None) -> Node:
        """It, with a verifier that knows two of the three answers."""
        return self.make(n, verifier or ScriptedVerifier({"1": 0.25, "2": 0.5}))

    def run(self, n: int, script: Script = talker(), **options: Any) -> Solved:  # noqa: B008
        """A run of it, with its usual verifier; settled and counted."""
        return solved(self.graph(n), script, **options)


def _claim(holds: object, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _usage(case: Case) -> str | None:
    """Everything is charged: the ledger, the trace and the engine's own counts agree."""
    for number, script in enumerate((talker(), talker(0.3), "no end " * 600, _ONE)):
        case.run(6, script, pace=uneven(number), seed=number)
    return None


def _value(case: Case) -> str | None:
    """It is a value: made alike it is equal, and a run leaves no trace on it."""
    graph = case.graph(3)
    before = repr(graph).split("seen")[0]
    first, second = (solved(graph, talker(0.1), seed=3).outcome for _ in range(2))

    _claim(graph == case.graph(3), "two that are made alike are not equal after a run")
    _claim(repr(graph).split("seen")[0] == before, "a run changed it")
    _claim(seen(first) == seen(second), "its second run differs from its first")
    return None


def _shared(case: Case) -> str | None:
    """Two runs at once on one object do not touch each other."""
    graph, clock = case.graph(5), ManualClock()

    async def both() -> Sequence[Outcome]:
        engines = [
            FakeEngine(talker(0.1), clock=clock, seconds_per_token=uneven(s)) for s in (1, 2)
        ]
        runs = [
            asolve(QUESTION, graph, model=engine, clock=clock, seed=seed)
            for seed, engine in enumerate(engines)
        ]
        return await asyncio.gather(*runs)

    for seed, outcome in enumerate(clock.run(both())):
        alone = case.run(5, talker(0.1), seed=seed).outcome
        _claim(seen(outcome) == seen(alone), "beside another run it comes to something else")
    return None


def _one_sample(case: Case) -> str | None:
    """With n = 1 it is plain sampling."""
    for said in _SAYINGS:
        answer = case.run(1, said).outcome.answer
        _claim(answer == "1", f"all that was said is {said!r}, and its answer is {answer!r}")
    several, graph = 0, case.graph(1, ScriptedVerifier(lambda _: 0.5))
    for seed in range(20):
        run = solved(graph, script := talker(), seed=seed)
        assert callable(script)
        if run.engine.calls != 1:
            several = run.engine.calls
            continue
        said = str(script(run.engine.requests[0]))
        plain, told = extract_answer(said), run.outcome.answer
        _claim(told == plain, f"its only call said {said!r}, and its answer is {told!r}")
    return f"one sample makes {several} calls, so draws are not compared" if several else None


class _Broken(ScriptedVerifier):
    """A verifier that fails."""

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        raise VerifierError("it broke")


def _no_signal(case: Case) -> str | None:
    """Without a signal of the verifier it still works."""
    silent = {"unknown": ScriptedVerifier({}), "broken": _Broken({})}
    for what, verifier in silent.items():
        outcome = solved(case.graph(3, verifier), "The answer is 7.").outcome
        works = outcome.answer == "7" or outcome.stopped_by == "no_finite_score"
        _claim(works, f"all scores are {what}, and it gives {outcome.answer!r}")
    for level in (0.0, 0.5, 1.0):
        verifier = ScriptedVerifier(lambda _, level=level: level)  # type: ignore[misc]
        for n in (1, 4):
            answer = solved(case.graph(n, verifier), "The answer is 7.").outcome.answer
            _claim(answer == "7", f"all scores are {level}, and it gives {answer!r}")
    return None


def _limits(case: Case) -> str | None:
    """No limit is overrun, however tight."""
    budgets = [Budget(tokens=tokens) for tokens in (0, 9, 20, 60, 150, 400)]
    budgets += [Budget(calls=calls) for calls in (0, 1, 2, 5)]
    budgets += [Budget(verifier_calls=1), Budget(tokens=90, calls=3, verifier_calls=2)]
    for salt, budget in enumerate(budgets):
        usage = case.run(6, talker(0.2), budget=budget, pace=uneven(salt)).outcome.usage
        for resource in _RESOURCES:
            limit, spent = getattr(budget, resource), getattr(usage, resource)
            _claim(limit is None or spent <= limit, f"{spent} {resource} were spent of {limit}")
    return None


def _worst_case(case: Case) -> str | None:
    """Its worst case, known before it runs, bounds what it spends."""
    unbounded = set[str]()
    for n, script in ((4, "no end " * 600), (4, talker()), (2, "a step\n\n" * 300)):
        graph = case.graph(n)
        run = solved(graph, script)
        bound = graph.worst_case(run.outcome.problem, run.engine)
        for resource in _RESOURCES:
            most, spent = getattr(bound, resource), getattr(run.outcome.usage, resource)
            _claim(most is None or spent <= most, f"{spent} {resource}, and at most {most} said")
            unbounded |= {resource} if most is None else set()
    return f"nothing bounds its {', '.join(sorted(unbounded))}" if unbounded else None


def _best_so_far(case: Case) -> str | None:
    """A limit that ends it leaves the best that there is."""
    whole = case.run(6, _ONE).outcome.usage
    budgets = [Budget(tokens=whole.tokens * part // 4) for part in (1, 2, 3)]
    budgets += [Budget(calls=calls) for calls in range(1, whole.calls)]
    for budget in budgets:
        run = case.run(6, _ONE, budget=budget)
        answer = run.outcome.answer
        _claim(answer == "1" or not _answered(run), f"{budget} left {answer!r} of whole answers")
    return None


def _answered(run: Solved) -> int:
    """How many calls answered the question itself, in full."""
    length = len(_ONE.split())
    return sum(
        request.branch.text == run.engine.root(run.outcome.problem, "policy").text
        and request.max_tokens >= length
        for request in run.engine.requests
    )


def _failures(case: Case) -> str | None:
    """A call that fails does not fail the rest."""
    broken = EngineError("it broke")
    for failing in (0.5, 1.0):
        outcome = case.run(6, talker(failing)).outcome
        _claim(failing < 1 or outcome.answer is None, "all failed, and there is an answer")
    whole = case.run(6, _ONE).engine.calls
    for place in range(min(whole, 8) if whole > 1 else 0):
        replies: list[str | EngineError] = [_ONE] * (place + 1 + 4 * whole)
        replies[place] = broken
        answer = case.run(6, replies, in_order=True).outcome.answer
        _claim(answer == "1", f"call {place} of {whole} failed, and it gives {answer!r}")
    alone: list[str | EngineError] = [broken, broken, _TWO, *[broken] * (4 * whole)]
    run = case.run(4, alone, in_order=True)
    if run.engine.calls < 3:
        return "a call of it has no siblings" if whole == 1 else "it ends at a failed call"
    _claim(run.outcome.answer == "2", f"one call did not fail, and it gives {run.outcome.answer!r}")
    return None


def _empty_replies(case: Case) -> str | None:
    """A reply without an answer counts for nothing, and is no reason to stop."""
    for reply in ("", "   ", "I cannot say."):
        outcome = case.run(3, reply).outcome
        told = (outcome.answer, outcome.stopped_by)
        _claim(told == (None, "no_valid_answer"), f"{reply!r} everywhere gives {told}")
    whole = case.run(5, _ONE).engine.calls
    if whole == 1:
        return "one call is all that it makes"
    for first in (["", "I cannot say.", ""], ["I cannot say."], ["  "]):
        replies = [*first, *[_ONE] * (6 * whole)]
        answer = case.run(5, replies, in_order=True).outcome.answer
        _claim(answer == "1", f"all but the first {len(first)} answer 1, and it gives {answer!r}")
    return None


def _cancelled(case: Case) -> str | None:
    """Cancelled at any step it leaves nothing behind, and gives the best that there is."""
    for steps in range(0, 60, 7):
        _cancel(case.graph(5), steps)
    whole = case.run(5, _ONE, pace=0.1)
    if whole.engine.calls == 1:
        return "one call is all that it makes"
    for share in (0.3, 0.6, 0.9):
        clock, control = ManualClock(), Control()
        clock.call_later(whole.clock.now() * share, control.cancel)
        run = case.run(5, _ONE, pace=_staggered, clock=clock, control=control)
        held = [c for c in run.outcome.candidates if c.status == "finished"]
        answers = {c.answer for c in held if c.scores or not whole.outcome.usage.verifier_calls}
        kept = run.outcome.answer == "1" or "1" not in answers
        _claim(kept, f"cancelled after {share:.0%}, it gives {run.outcome.answer!r} of {answers}")
    return None


def _staggered(request: Request) -> float:
    return 0.05 + 0.1 * (request.seed % 2)


def _cancel(graph: Node, steps: int) -> None:
    """Cancels a run after some steps of its loop."""
    clock, ledgers = ManualClock(), Ledgers()
    engine = FakeEngine(talker(), clock=clock, seconds_per_token=uneven(2))

    async def run() -> None:
        task = asyncio.ensure_future(asolve(QUESTION, graph, model=engine, clock=clock))
        for _ in range(steps):
            await asyncio.sleep(0)
            clock.jump()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        check_no_task_is_left()

    with ledgers:
        clock.run(run())
    ledgers.check_settled()
    _claim(engine.active == 0, f"cancelled after {steps} steps, {engine.active} calls still run")


def _deadline(case: Case) -> str | None:
    """A deadline gives what there is, by then."""
    for seconds in (0.0, 0.1, 0.5, 2.0):
        run = case.run(4, talker(), pace=uneven(5), budget=Budget(seconds=seconds))
        late = run.clock.now() - seconds
        _claim(late <= 0.5, f"a deadline of {seconds} s was missed by {late:.2f} s")
    return None


def _timing(case: Case) -> str | None:
    """Under a seed, no latency and no concurrency changes anything, in tight budgets too."""
    budgets = (None, Budget(tokens=150), Budget(tokens=900), Budget(calls=5))
    for budget in budgets:
        runs = [
            case.run(
                8, talker(0.1), seed=4, pace=uneven(salt), concurrency=slots, budget=budget
            ).outcome
            for salt, slots in ((1, 1), (2, 4), (3, 16))
        ]
        for outcome in runs:
            _claim(seen(outcome) == seen(runs[0]), f"budget={budget}: speed changes the outcome")
            by = outcome.timing_dependent
            _claim(not by, f"budget={budget}: the outcome depends on {', '.join(by)}")
    return None


def _arrival(case: Case) -> str | None:
    """What arrives first counts no more than what arrives last."""
    script = talker(0.0, "112")
    assert callable(script)

    def paced(fast: str) -> Callable[[Request], float]:
        return lambda request: 0.01 if fast in str(script(request)) else 1.0

    for seed in range(4):
        runs = [
            case.run(7, script, seed=seed, pace=pace).outcome
            for pace in (0.1, paced("is 1"), paced("is 2"), paced("give up"))
        ]
        for outcome in runs:
            _claim(seen(outcome) == seen(runs[0]), f"seed {seed}: the order of arrival counts")
    return None


def _randomness(case: Case) -> str | None:
    """It neither reads nor moves the random numbers of others."""
    before, runs = random.getstate(), []
    try:
        for seed in (1, 2):
            random.seed(seed)
            state = random.getstate()
            runs.append(case.run(6, talker(0.1), seed=7).outcome)
            _claim(random.getstate() == state, "a run draws from the global generator")
    finally:
        random.setstate(before)
    _claim(seen(runs[0]) == seen(runs[1]), "it depends on the global generator")
    return None


@dataclass(frozen=True, kw_only=True)
class _Copies(Node):
    """Gives each candidate several times, as padding and resampling do; notes what it is given."""

    times: int
    most: int = 5
    """What `times` is at most, so that what reads it expects the same either way."""
    given: list[Candidate] = field(default_factory=list, compare=False, repr=False)

    def flow(self, given: Flow) -> Flow:
        """More of the same."""
        return replace(given, count=None if given.count is None else given.count * self.most)

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """The copies of an answer come after one another; the first answer has the most."""
        first: object = None
        async for candidate in candidates:
            self.given.append(candidate)
            first = candidate.key if first is None else first
            for _ in range(self.times if candidate.key == first else 1):
                yield candidate


def _duplicates(case: Case) -> str | None:
    """A trace that comes again counts once, and no two calls are the same draw."""
    for seed in range(4):
        run = case.run(6, talker(), seed=seed)
        drawn = Counter(
            (request.seed, request.branch.num_tokens, request.branch.output)
            for request in run.engine.requests
            if request.sampling.temperature > 0
        )
        again = [draw for draw, count in drawn.items() if count > 1]
        _claim(not again, f"{len(again)} draws are asked for more than once")
    parts = compile_graph(case.graph(6)).parts
    if len(parts) < 2 or not parts[-1].selects:
        return "its candidates are chosen among inside it, where copies cannot be slipped in"
    for seed in range(4):
        outcomes = []
        for copies in (_Copies(times=1), _Copies(times=5)):
            graph = Chain((*parts[:-1], copies, parts[-1]))
            outcomes.append(solved(graph, talker(), seed=seed).outcome)
            held = Counter(c.branch.call for c in copies.given if c.branch.call)
            twice = [call for call, count in held.items() if count > 1]
            _claim(not twice, f"the trace of {', '.join(twice)} is given more than once")
        told = [(one.answer, one.confidence) for one in outcomes]
        _claim(told[0] == told[1], f"copies of a trace change {told[0]} to {told[1]}")
    return None


def _belief(case: Case) -> str | None:
    """A right answer that a perfect verifier has seen is given."""
    asked = False
    for seed in range(10):
        scores: Mapping[str | None, float] = {"1": 0.0, "2": 1.0, "3": 0.0}
        verifier = ScriptedVerifier(scores)
        answer = solved(case.graph(6, verifier), talker(), seed=seed).outcome.answer
        asked |= bool(verifier.seen)
        right = any(c.answer == "2" and c.status == "finished" for c in verifier.seen)
        _claim(not right or answer == "2", f"seed {seed}: 2 is right, seen, and {answer!r} given")
    return None if asked else "it asks no verifier"


CHECKS: Mapping[str, Callable[[Case], str | None]] = {
    check.__name__.lstrip("_"): check
    for check in (
        _usage,
        _value,
        _shared,
        _one_sample,
        _no_signal,
        _limits,
        _worst_case,
        _best_so_far,
        _failures,
        _empty_replies,
        _cancelled,
        _deadline,
        _timing,
        _arrival,
        _randomness,
        _duplicates,
        _belief,
    )
}
"""Every check by its name, in the order in which they run."""
