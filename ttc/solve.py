"""solve: one problem, or many, by a strategy, within a budget.

`solve` runs on one process-wide event loop in a thread of its own, so it works in scripts, in
notebooks, in threads and inside running loops. `asolve` runs in the caller's loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttc.arguments import Arguments, Model, Watch, budget_of, problem_of, problems_of
from ttc.budget import Account
from ttc.control import Control
from ttc.errors import BudgetExceeded, EngineError, NodeError, RecordError, TTCError
from ttc.graph import Flow, Node
from ttc.journal import Journal
from ttc.limits import Limits
from ttc.loop import on_the_loop
from ttc.outcome import outcome_of
from ttc.ports import Clock, Engine
from ttc.prices import Prices
from ttc.run import Run
from ttc.scope import NodeScope
from ttc.streams import iterate
from ttc.types import Budget, Candidate, Outcome, Problem, Usage
from ttc.unscored import told_once

if TYPE_CHECKING:
    from ttc.allocate import Allocator, Bidder, Market
    from ttc.journal.disk import DiskJournal
    from ttc.journal.many import RunFolder
    from ttc.sandbox.zygote import SandboxChoice

__all__ = ["asolve", "asolve_many", "run_one", "solve", "solve_many"]


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
        TypeError: an argument is of another kind than it should be.
        GraphError: the strategy cannot run; nothing was spent.
        PriceError: a limit needs a price that nobody has told; nothing was spent.
        JournalMismatch: the journal is of another run.
        RecordError: the journal is damaged or in use, or cannot be written.
        EngineError: a model cannot be had, or the prompt does not fit its context.
        NodeError: a bug in a node; it holds the outcome until then.
    """
    arguments = Arguments(model, models, seed, clock, prices, watch, control, sandbox, journal)
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
    arguments = Arguments(model, models, seed, clock, prices, watch, control, sandbox, journal)
    return await _solve_one(problem, strategy, arguments, budget)


def solve_many(  # noqa: PLR0913 - all keywords but two, each of its own
    problems: Iterable[str | Problem],
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
    journal: str | os.PathLike[str] | None = None,
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
        journal: a folder in which the run is kept, each problem in a file of its own. If it is
            there, the run in it goes on: what it holds is not asked again.

    Raises:
        ValueError: an allocator is to be kept whose choices depend on timing with this strategy.

    A bug in a node ends the run of its problem only, whose outcome then holds the error.
    """
    arguments = Arguments(model, models, seed, clock, prices, watch, control, sandbox, journal)
    return on_the_loop(
        _solve_all(
            problems, strategy, arguments, Limits(budget, per_problem, allocator, concurrency)
        )
    )


async def asolve_many(  # noqa: PLR0913 - all keywords but two, each of its own
    problems: Iterable[str | Problem],
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
    journal: str | os.PathLike[str] | None = None,
) -> list[Outcome]:
    """As `solve_many`, in the caller's event loop."""
    arguments = Arguments(model, models, seed, clock, prices, watch, control, sandbox, journal)
    return await _solve_all(
        problems, strategy, arguments, Limits(budget, per_problem, allocator, concurrency)
    )


async def _solve_one(
    problem: str | Problem, strategy: Node | str, arguments: Arguments, budget: Budget | None
) -> Outcome:
    asked, limit = problem_of(problem), budget_of("budget", budget)
    graph, engines = arguments.prepare(strategy, limit)
    prices = arguments.prices_of(engines)
    journal = None
    if arguments.journal is not None:
        from ttc.journal.runs import facts_of, open_run  # a journal on disk is seldom asked for

        text = strategy if isinstance(strategy, str) else None
        facts = facts_of(asked, graph, text, arguments.given_seed, limit, engines, prices)
        journal = open_run(arguments.journal, facts, arguments.clock)
    outcome = await run_one(asked, graph, engines, arguments, limit, journal)
    if outcome.error is not None:
        raise outcome.error
    return outcome


async def run_one(
    problem: Problem,
    graph: Node,
    engines: Mapping[str, Engine],
    arguments: Arguments,
    budget: Budget,
    journal: DiskJournal | None,
) -> Outcome:
    """A run of one problem; its journal is brought to the disk whatever comes of it."""
    control, clock = arguments.control, arguments.clock
    if journal is not None:
        arguments.seed, arguments.prices = journal.seed, journal.prices
        if journal.by_hand is not None:
            journal.by_hand.repeat(control, clock)
    control.begin([budget], engines, arguments.prices_of(engines), now=clock.now())
    running = _run(0, problem, graph, engines, arguments, journal)
    with told_once():
        return await (running if journal is None else _kept(running, journal))


async def _kept(
    running: Coroutine[Any, Any, Outcome], journal: DiskJournal, *, is_alone: bool = True
) -> Outcome:
    """The outcome of a run, once its journal has it; of one of many, with what its journal lacks.

    Raises:
        RecordError: the run is alone, and its journal cannot be kept.
    """
    try:
        outcome = await running
        try:
            journal.check()
            if outcome.error is None:
                journal.finish(outcome)
        except RecordError as fault:
            if is_alone:
                raise
            outcome = replace(outcome, error=fault, stopped_by="error")
    finally:
        await asyncio.to_thread(journal.close)
    return outcome


async def _solve_all(
    given: Iterable[str | Problem],
    strategy: Node | str,
    arguments: Arguments,
    limits: Limits,
) -> list[Outcome]:
    problems = problems_of(given)
    graph, engines = arguments.prepare(strategy, limits.run, limits.per_problem)
    kept = None
    if arguments.journal is not None:
        text = strategy if isinstance(strategy, str) else None
        kept = _folder(problems, (graph, text), engines, arguments, limits)
    began = arguments.clock.now() - (0.0 if kept is None else kept.elapsed)

    def begin(market: Market | None = None) -> None:
        arguments.control.begin(
            limits.of_each(len(problems)),
            engines,
            arguments.prices_of(engines),
            now=began,
            shared=limits.shared,
            cap=limits.per_problem,
            market=market,
        )

    async def one(place: int, bidder: Bidder | None = None) -> Outcome:
        asked, clock = problems[place], arguments.clock
        if kept is None:
            return await _run(place, asked, graph, engines, arguments, bidder=bidder)
        journal = kept.open(place, began=clock.now() - began, clock=clock)
        running = _run(place, asked, graph, engines, arguments, journal, bidder)
        return await _kept(running, journal, is_alone=False)

    try:
        with told_once():
            return await _run_all(problems, graph, limits, one, begin)
    except BaseExceptionGroup as group:
        for fault in group.exceptions:
            if isinstance(fault, RecordError):  # a journal that cannot be opened, or closed
                raise fault from None
        raise


async def _run_all(
    problems: Sequence[Problem],
    graph: Node,
    limits: Limits,
    one: Callable[..., Coroutine[Any, Any, Outcome]],
    begin: Callable[..., None],
) -> list[Outcome]:
    """All outcomes, in order; an allocator shares the budget, or every problem has its part."""
    if limits.allocator is not None:
        from ttc.allocate import Allocation, run_market

        ids = [problem.id for problem in problems]
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


def _folder(
    problems: Sequence[Problem],
    strategy: tuple[Node, str | None],
    engines: Mapping[str, Engine],
    arguments: Arguments,
    limits: Limits,
) -> RunFolder:
    """The folder in which a run is kept, or goes on, with the run's seed and prices.

    Raises:
        ValueError: it would go on otherwise than it began, since timing decides in it.
        RecordError: it is of another run, or damaged.
    """
    from ttc.allocate import is_direct
    from ttc.journal.many import RunFolder, among
    from ttc.journal.runs import facts_of

    graph, text = strategy
    if limits.allocator is not None and not is_direct(graph):
        raise ValueError(
            "with this strategy timing decides what the allocator sees, so the run could not go on "
            "as it began; leave out journal=, or the allocator"
        )
    folder = RunFolder(arguments.journal or Path())
    if arguments.given_seed is None and folder.seed is not None:
        arguments.seed = folder.seed
    arguments.prices = arguments.prices if folder.prices is None else folder.prices
    prices, budgets = arguments.prices_of(engines), limits.of_each(len(problems))
    whole = among(len(problems), limits)

    def facts(place: int) -> dict[str, Any]:
        asked, seed = problems[place], arguments.seed
        own = facts_of(asked, graph, text, seed, budgets[place], engines, prices)
        return {**own, "among": whole}

    folder.begin(facts, len(problems))
    return folder


async def _run(
    place: int,
    problem: Problem,
    graph: Node,
    engines: Mapping[str, Engine],
    arguments: Arguments,
    journal: Journal | None = None,
    bidder: Bidder | None = None,
) -> Outcome:
    control, before = arguments.control, journal.elapsed if journal is not None else 0.0
    budget = control.budget_of(place, arguments.clock.now() - before)
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
    run.demands = arguments.demands_of(graph)
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
    if unused := run.journal.unused():
        run.book("lost", Usage(tokens_lost=unused))
    outcome = outcome_of(run, chosen, bug)
    if isinstance(bug, NodeError):
        bug.outcome = outcome
    scope.release()
    run.release()
    return outcome


async def _ended(run: Run, error: TTCError | None) -> Outcome:
    """The outcome of a run that ended before its first node."""
    await run.join()
    return outcome_of(run, [], error)
