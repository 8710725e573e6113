"""solve: one problem, or many, by a strategy, within a budget.

`solve` runs on one process-wide event loop in a thread of its own, so it works in scripts, in
notebooks, in threads and inside running loops. `asolve` runs in the caller's loop.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ttc.budget import LOGICAL, MEASURED, RESERVED, Account, shares
from ttc.clock import StandingClock, SystemClock
from ttc.control import Control
from ttc.demands import demands_of
from ttc.equivalence import prepare
from ttc.errors import BudgetExceeded, EngineError, GraphError, NodeError, RecordError, TTCError
from ttc.graph import Flow, Node, compile_graph
from ttc.journal import Journal
from ttc.loop import on_the_loop
from ttc.outcome import outcome_of
from ttc.ports import Clock, Engine
from ttc.prices import Price, Prices, check_limits
from ttc.run import Run
from ttc.scope import NodeScope
from ttc.streams import iterate
from ttc.types import Budget, Candidate, Event, Outcome, Problem

if TYPE_CHECKING:
    from ttc.allocate import Allocator, Bidder, Market, Terms
    from ttc.journal.disk import DiskJournal
    from ttc.sandbox.zygote import SandboxChoice

__all__ = ["asolve", "asolve_many", "replay", "solve", "solve_many"]

Model = str | Engine
Watch = Callable[[Event], None]


def solve(  # noqa: PLR0913 - all keywords but two, each of its own
    problem: str | Problem,
    strategy: Node | str,
    *,
    model: Model | None = None,
    models: Mapping[str, Model] | None = None,
    budget: Budget | None = None,
    seed: int | None = None,
    clock: Clock | None = None,
    prices: Prices | None = None,
    watch: Watch | None = None,
    control: Control | None = None,
    sandbox: SandboxChoice = "auto",
    journal: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Solves one problem and returns what the strategy came to.

    Args:
        problem: a question, which becomes a user message, or a `Problem`.
        strategy: a graph, or its text form.
        model: the model of the role `policy`: a name, a path to a file, or an engine.
        models: the models of further roles.
        budget: what this problem may spend; nothing is limited by default.
        seed: the run's seed; drawn at random where it is `None`, and told by the outcome.
        clock: what seconds are measured by; the machine's by default.
        prices: what tokens cost; those of the user's `prices.toml` by default.
        watch: is told what happens, from the run's own thread.
        control: changes the run while it runs.
        sandbox: how safely programs of the model are run: `auto` in the best jail that holds here,
            `full` in a full one or not at all, `none` without a jail, as you; see `SECURITY.md`.
        journal: a file in which the run is kept. If it is there, the run in it goes on: what it
            holds is not asked again.

    Raises:
        GraphError: the strategy cannot run; nothing was spent.
        PriceError: a limit needs a price that nobody has told; nothing was spent.
        JournalMismatch: the journal is of another run.
        RecordError: the journal is damaged or in use, or cannot be written.
        EngineError: a model cannot be had, or the prompt does not fit its context.
        NodeError: a bug in a node; it holds the outcome until then.
    """
    arguments = _Arguments(model, models, seed, clock, prices, watch, control, sandbox, journal)
    return on_the_loop(_solve_one(problem, strategy, arguments, budget))


async def asolve(  # noqa: PLR0913 - all keywords but two, each of its own
    problem: str | Problem,
    strategy: Node | str,
    *,
    model: Model | None = None,
    models: Mapping[str, Model] | None = None,
    budget: Budget | None = None,
    seed: int | None = None,
    clock: Clock | None = None,
    prices: Prices | None = None,
    watch: Watch | None = None,
    control: Control | None = None,
    sandbox: SandboxChoice = "auto",
    journal: str | os.PathLike[str] | None = None,
) -> Outcome:
    """As `solve`, in the caller's event loop. Cancelling it cancels and settles the run."""
    arguments = _Arguments(model, models, seed, clock, prices, watch, control, sandbox, journal)
    return await _solve_one(problem, strategy, arguments, budget)


def solve_many(  # noqa: PLR0913 - all keywords but two, each of its own
    problems: Sequence[str | Problem],
    strategy: Node | str,
    *,
    model: Model | None = None,
    models: Mapping[str, Model] | None = None,
    budget: Budget | None = None,
    per_problem: Budget | None = None,
    allocator: Allocator | str | None = None,
    concurrency: int = 64,
    seed: int | None = None,
    clock: Clock | None = None,
    prices: Prices | None = None,
    watch: Watch | None = None,
    control: Control | None = None,
    sandbox: SandboxChoice = "auto",
) -> list[Outcome]:
    """Solves many problems with one strategy, and returns their outcomes in order.

    Args:
        problems: questions or `Problem`s.
        strategy: a graph, or its text form.
        model: the model of the role `policy`.
        models: the models of further roles.
        budget: what the whole run may spend. Without an allocator its logical part is divided
            equally among the problems, so that no outcome depends on the others.
        per_problem: what one problem may spend at most.
        allocator: how the run's tokens and calls are given away among the problems: an
            `ttc.allocate.Allocator`, or its name, as `greedy_gain`. It needs a budget of tokens.
        concurrency: problems in flight at once, or with an allocator calls; it changes no outcome.
        seed: the run's seed. Without an allocator a problem's outcome is the same alone and among
            others.
        clock: what seconds are measured by.
        prices: what tokens cost.
        watch: is told what happens.
        control: changes the run while it runs, or one of its problems.
        sandbox: how safely programs of the model are run.

    A bug in a node ends the run of its problem only, whose outcome then holds the error.
    """
    arguments = _Arguments(model, models, seed, clock, prices, watch, control, sandbox)
    return on_the_loop(
        _solve_all(
            problems, strategy, arguments, _Limits(budget, per_problem, allocator, concurrency)
        )
    )


async def asolve_many(  # noqa: PLR0913 - all keywords but two, each of its own
    problems: Sequence[str | Problem],
    strategy: Node | str,
    *,
    model: Model | None = None,
    models: Mapping[str, Model] | None = None,
    budget: Budget | None = None,
    per_problem: Budget | None = None,
    allocator: Allocator | str | None = None,
    concurrency: int = 64,
    seed: int | None = None,
    clock: Clock | None = None,
    prices: Prices | None = None,
    watch: Watch | None = None,
    control: Control | None = None,
    sandbox: SandboxChoice = "auto",
) -> list[Outcome]:
    """As `solve_many`, in the caller's event loop."""
    arguments = _Arguments(model, models, seed, clock, prices, watch, control, sandbox)
    return await _solve_all(
        problems, strategy, arguments, _Limits(budget, per_problem, allocator, concurrency)
    )


class _Arguments:
    """What `solve` and its siblings share, resolved once."""

    def __init__(  # noqa: PLR0913 - each of its own
        self,
        model: Model | None,
        models: Mapping[str, Model] | None,
        seed: int | None,
        clock: Clock | None,
        prices: Prices | None,
        watch: Watch | None,
        control: Control | None,
        sandbox: SandboxChoice,
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        bound = dict(models or {})
        if model is not None:
            if "policy" in bound:
                raise ValueError("model= and models['policy'] name the same role; pass one of them")
            bound["policy"] = model
        self.models = bound
        self.given_seed = seed
        self.seed = secrets.randbits(63) if seed is None else seed
        self.journal = None if journal is None else Path(journal)
        self.clock = clock or SystemClock()
        self.prices = Prices.of_the_user() if prices is None else prices
        self.watch, self.sandbox = watch, sandbox
        self.control = control or Control()

    def prepare(self, strategy: Node | str, *budgets: Budget) -> tuple[Node, dict[str, Engine]]:
        """The strategy, checked against its engines; engines are loaded only if it can run."""
        from ttc.registry import load_engine

        if isinstance(strategy, str):
            from ttc.text_form import parse

            strategy = parse(strategy)
        strategy.validate()
        engines = {role: load_engine(model) for role, model in self.models.items()}
        strategy.validate(engines)
        if "policy" not in engines:
            raise GraphError(["every strategy begins with the prompt of the policy; pass model="])
        for budget in budgets:
            check_limits(budget, engines, self.prices_of(engines))
        return compile_graph(strategy), engines

    def prices_of(self, engines: Mapping[str, Engine]) -> dict[str, Price]:
        """Today's price of each role's model, as far as it is known."""
        today = datetime.now(UTC).date()
        found = {role: self.prices.of(engine.name, on=today) for role, engine in engines.items()}
        return {role: price for role, price in found.items() if price is not None}


class _Limits:
    """The budgets of a run over many problems, and how they are given away."""

    def __init__(
        self,
        run: Budget | None,
        per_problem: Budget | None,
        allocator: Allocator | str | None,
        concurrency: int,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is at least 1, not {concurrency}")
        self.run, self.per_problem = run or Budget(), per_problem or Budget()
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
        from ttc.allocate import Terms

        return Terms(
            tokens=self.run.tokens or 0,
            calls=self.run.calls,
            num_problems=count,
            per_problem=self.per_problem.tokens,
        )


def _allocator(named: Allocator | str | None) -> Allocator | None:
    if not isinstance(named, str):
        return named
    from ttc.registry import load_allocator

    return cast("Allocator", load_allocator(named))


async def _solve_one(
    problem: str | Problem, strategy: Node | str, arguments: _Arguments, budget: Budget | None
) -> Outcome:
    limit = budget or Budget()
    graph, engines = arguments.prepare(strategy, limit)
    asked, prices = _problem(problem), arguments.prices_of(engines)
    journal = None
    if arguments.journal is not None:
        from ttc.journal.runs import facts_of, open_run  # a journal on disk is seldom asked for

        text = strategy if isinstance(strategy, str) else None
        facts = facts_of(asked, graph, text, arguments.given_seed, limit, engines, prices)
        journal = open_run(arguments.journal, facts, arguments.clock)
    outcome = await _run_one(asked, graph, engines, arguments, limit, journal)
    if outcome.error is not None:
        raise outcome.error
    return outcome


async def _run_one(
    problem: Problem,
    graph: Node,
    engines: Mapping[str, Engine],
    arguments: _Arguments,
    budget: Budget,
    journal: DiskJournal | None,
) -> Outcome:
    """A run of one problem; its journal is brought to the disk whatever comes of it."""
    if journal is not None:
        arguments.seed, arguments.prices = journal.seed, journal.prices
    prices, now = arguments.prices_of(engines), arguments.clock.now()
    arguments.control.begin([budget], engines, prices, now=now)
    if journal is None:
        return await _run(0, problem, graph, engines, arguments)
    try:
        outcome = await _run(0, problem, graph, engines, arguments, journal)
        journal.check()
        if outcome.error is None:
            journal.finish(outcome)
    finally:
        await asyncio.to_thread(journal.close)
    return outcome


def replay(run: str | os.PathLike[str], strategy: Node | str | None = None) -> Outcome:
    """The outcome of a run that has ended, out of its journal: no model is loaded or asked.

    The strategy works again, on the answers that the journal holds, and what it comes to is
    compared with what was kept. Verifiers that ask no model are not asked either.

    Args:
        run: the name of a run in the folder of runs, or the path of a journal.
        strategy: the strategy of the run, where it was built in Python; a text is in the journal.

    Raises:
        JournalMismatch: it is the journal of something else, or comes to something else.
        RecordError: there is none, it is damaged, or its run has not ended.
    """
    from ttc.journal.disk import DiskJournal, read
    from ttc.journal.engines import RecordedEngine
    from ttc.journal.runs import facts_of, path_of
    from ttc.journal.values import problem_of

    path = path_of(run)
    kept = read(path, path.name)
    if kept.end is None:
        raise RecordError(f"{path.name} has not ended; go on with it first")
    strategy = strategy or kept.run["text"]
    if strategy is None:
        raise RecordError(f"the strategy of {path.name} was built in Python; pass it as strategy=")
    kept.elapsed = kept.end["usage"]["seconds"]
    engines = {role: RecordedEngine(values) for role, values in kept.run["engines"].items()}
    arguments = _Arguments(
        None, engines, kept.run["seed"], StandingClock(), Prices(), None, None, "auto"
    )
    problem, budget = problem_of(kept.run["problem"]), Budget(**kept.run["budget"])
    graph, bound = arguments.prepare(strategy)
    facts = facts_of(problem, graph, None, arguments.seed, budget, bound, {})
    journal = DiskJournal(kept, facts, arguments.clock, None)
    outcome = on_the_loop(_run_one(problem, graph, bound, arguments, budget, journal))
    if outcome.error is not None:
        raise outcome.error
    return outcome


async def _solve_all(
    problems: Sequence[str | Problem],
    strategy: Node | str,
    arguments: _Arguments,
    limits: _Limits,
) -> list[Outcome]:
    graph, engines = arguments.prepare(strategy, limits.run, limits.per_problem)

    def begin(market: Market | None = None) -> None:
        arguments.control.begin(
            limits.of_each(len(problems)),
            engines,
            arguments.prices_of(engines),
            now=arguments.clock.now(),
            shared=limits.shared,
            cap=limits.per_problem,
            market=market,
        )

    async def one(place: int, bidder: Bidder | None = None) -> Outcome:
        asked = _problem(problems[place])
        return await _run(place, asked, graph, engines, arguments, bidder=bidder)

    if limits.allocator is not None:
        from ttc.allocate import Allocation, run_market

        ids = [problem.id if isinstance(problem, Problem) else "" for problem in problems]
        allocation = Allocation(limits.allocator, limits.terms(len(problems)), ids)
        return await run_market(allocation, graph, one, begin=begin, most=limits.concurrency)
    begin()
    outcomes: dict[int, Outcome] = {}
    queue = iter(range(len(problems)))

    async def work() -> None:
        for place in queue:  # shared: each problem is taken by one worker, in order
            outcomes[place] = await one(place)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(limits.concurrency, len(problems))):
            group.create_task(work())
    return [outcomes[place] for place in range(len(problems))]


def _problem(problem: str | Problem) -> Problem:
    return Problem.ask(problem) if isinstance(problem, str) else problem


async def _run(
    place: int,
    problem: Problem,
    graph: Node,
    engines: Mapping[str, Engine],
    arguments: _Arguments,
    journal: Journal | None = None,
    bidder: Bidder | None = None,
) -> Outcome:
    control, now = arguments.control, arguments.clock.now()
    budget = control.budget_of(place, now)
    account = Account(budget)
    run = Run(
        problem,
        engines,
        account,
        seed=arguments.seed,
        clock=arguments.clock,
        watch=arguments.watch,
        journal=journal,
    )
    run.demands = demands_of(graph)
    prepare(graph)
    run.bidder = bidder
    if bidder is not None and not bidder.is_direct:
        run.timing["the allocator saw offers and results as they came"] = None
    run.sandbox = arguments.sandbox
    control.attach(place, run)
    try:
        return await _run_attached(run, graph, budget)
    finally:
        control.detach(place)


async def _run_attached(run: Run, graph: Node, budget: Budget) -> Outcome:
    scope = NodeScope(run, run.account, "")
    if budget.seconds is not None:
        run.expire_at(run.journal.deadline(run.started, budget.seconds, run.clock.now()))
    try:
        run.check_deadline()
        root = Candidate(branch=scope.root())
    except BudgetExceeded as refusal:
        scope.refused(refusal)
        return await _ended(run, None)
    except (EngineError, RecordError) as error:
        return await _ended(run, error)
    stream = scope.open(graph, iterate(root), Flow())
    run.on_overdue = stream.close
    chosen: list[Candidate] = []
    bug: NodeError | RecordError | None = None
    try:
        async for candidate in stream:  # one by one: what came before a bug is kept
            chosen.append(candidate)  # noqa: PERF401
    except (NodeError, RecordError) as error:
        bug = error
    except BaseException:
        run.journal.suspend()
        raise
    finally:
        stream.close()
        await run.join()
    outcome = outcome_of(run, chosen, bug)
    if isinstance(bug, NodeError):
        bug.outcome = outcome
    return outcome


async def _ended(run: Run, error: TTCError | None) -> Outcome:
    """The outcome of a run that ended before its first node."""
    await run.join()
    return outcome_of(run, [], error)
