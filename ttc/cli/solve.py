"""`ttc solve`: one question, by a strategy, within a budget."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast, get_args

import typer

from ttc.again import replay
from ttc.cli.budgets import parse_budget, shortage
from ttc.cli.engines import (
    DEFAULT_MODEL,
    MODEL_HELP,
    AcceptanceOption,
    ArithmeticOption,
    SpeculateOption,
    engine_of,
)
from ttc.cli.many import read_problems, show_outcomes, solve_problems
from ttc.cli.outcomes import as_json, failure, show_outcome
from ttc.cli.steering import steerable
from ttc.cli.strategies import STRATEGY_HELP, strategy_text
from ttc.cli.terminal import Fault, counted, is_live, say, status
from ttc.journal.runs import info, new_run, path_of
from ttc.journal.values import problem_of
from ttc.registry import is_pool, room
from ttc.safe_text import one_line
from ttc.sandbox.zygote import SandboxChoice
from ttc.solve import solve as solve_problem
from ttc.text_form import parse
from ttc.types import AnswerFormat, Budget, Event, Outcome, Problem

__all__ = ["Watch", "solve"]

_STRATEGY = "self_consistency(n=8, max_tokens=256)"
_BUDGET = "tokens=4000,seconds=60"  # holds the worst case of _STRATEGY, with a long question
_FORMATS = get_args(AnswerFormat)
_SANDBOXES = get_args(SandboxChoice)
_ANSWER_WIDTH = 40
_ALONE = ("question", "resume", "keep")
"""What goes with one question."""
_ALSO_RESUMED = ("resume", "json", "model", "arithmetic", "speculate", "acceptance", "sandbox")
"""What may be given for a run that is gone on with."""


def solve(  # noqa: PLR0913 - every option of the command
    context: typer.Context,
    question: Annotated[
        str | None, typer.Argument(help="What to solve, unless --problems.", show_default=False)
    ] = None,
    strategy: Annotated[str, typer.Option(help=STRATEGY_HELP, metavar="SPEC")] = _STRATEGY,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = DEFAULT_MODEL,
    arithmetic: ArithmeticOption = None,
    speculate: SpeculateOption = None,
    acceptance: AcceptanceOption = None,
    budget: Annotated[
        str,
        typer.Option(help="Limits of tokens, calls, seconds and others.", metavar="LIMITS"),
    ] = _BUDGET,
    seed: Annotated[int | None, typer.Option(help="Repeats a run.", show_default="random")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    answer_format: Annotated[
        str, typer.Option(help="How an answer is read out of a text.", metavar="|".join(_FORMATS))
    ] = "auto",
    problems: Annotated[
        Path | None, typer.Option(help="A file of questions, one on each line, or JSON lines.")
    ] = None,
    allocator: Annotated[
        str | None,
        typer.Option(help="What gives the budget away among --problems.", metavar="NAME"),
    ] = None,
    sandbox: Annotated[
        str,
        typer.Option(
            help="How safely programs that models write are run; none runs them as you.",
            metavar="|".join(_SANDBOXES),
        ),
    ] = "auto",
    resume: Annotated[
        str | None,
        typer.Option(help="Go on with a run that was killed.", metavar="RUN", show_default=False),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Keep the run on disk; see `ttc runs`.")
    ] = True,
) -> None:
    """Solve one question or those of a file, or go on with a run."""
    strategy = strategy_text(strategy)
    jail = cast("SandboxChoice", _among(_SANDBOXES, sandbox, "--sandbox"))
    chosen = _Model(model, arithmetic, speculate, acceptance)
    if problems is not None:
        _leave_out(context, "--problems takes its questions from the file", _ALONE)
        graph, limits = parse(strategy), parse_budget(budget)
        asked = read_problems(problems, _format(answer_format))
        with engine_of(*chosen) as engine:
            outcomes = solve_problems(
                asked, graph, limits, allocator=allocator, model=engine, seed=seed, sandbox=jail
            )
        show_outcomes(outcomes, is_json=json)
        return
    if allocator is not None:
        raise Fault("--allocator shares a budget among the questions of --problems; name a file")
    if resume is not None:
        outcome = _resumed(context, path_of(resume), chosen, jail)
    else:
        if question is None:
            raise Fault(
                "there is no question, no file of --problems and no run to --resume; see "
                "`ttc solve --help`"
            )
        problem, limits = _problem(question, answer_format), parse_budget(budget)
        if seed is None:
            seed = secrets.randbits(32)  # few enough bits for every reader of JSON
        kept = _kept(context, keep, model)
        outcome = _Begin(problem, strategy, limits, seed, kept, jail).on(chosen)
    fault = shortage(outcome) or failure(outcome)
    if json:
        say(as_json(outcome))
    elif fault is None:
        show_outcome(outcome)
    if fault is not None:
        raise Fault(fault)


def _kept(context: typer.Context, keep: bool, model: str) -> Path | None:
    """Where the run is kept; `None` for one on a pool, which repeats by itself."""
    if is_pool(model):
        if keep and _is_given(context, "keep"):
            raise Fault("a run on a pool repeats by itself and is not kept; leave out --keep")
        return None
    return new_run() if keep else None


class _Model(NamedTuple):
    """What answers."""

    name: str
    arithmetic: str | None
    speculate: str | None
    acceptance: str | None


class _Begin(NamedTuple):
    """What is to be run."""

    problem: Problem
    strategy: str
    budget: Budget
    seed: int
    journal: Path | None
    sandbox: SandboxChoice

    def on(self, model: _Model) -> Outcome:
        """What it comes to on a model."""
        parse(self.strategy)  # a fault in it is told before a model is loaded
        name = f"solve-{os.getpid()}" if self.journal is None else self.journal.stem
        with (
            engine_of(*model) as engine,
            steerable(name) as control,
            watching(self.budget.tokens) as watch,
        ):
            return solve_problem(
                self.problem,
                self.strategy,
                model=engine,
                budget=self.budget,
                seed=self.seed,
                watch=watch,
                control=control,
                sandbox=self.sandbox,
                journal=self.journal,
            )


def _resumed(context: typer.Context, path: Path, model: _Model, sandbox: SandboxChoice) -> Outcome:
    """The outcome of a run that is gone on with; of one that has ended, without its model."""
    others = [name for name in context.params if name not in _ALSO_RESUMED]
    _leave_out(context, "--resume takes all from the run", others)
    found = info(path)
    if found.kept is None:
        raise Fault(found.fault or "")
    begun = found.kept.run
    if not begun:
        raise Fault(f"{found.name} was killed before it began; remove it, and ask again")
    if begun["text"] is None or list(begun["engines"]) != ["policy"]:
        raise Fault(f"{found.name} was begun in Python; go on with it there, by journal=")
    if found.state == "finished":
        return replay(path)
    if not _is_given(context, "model"):
        model = model._replace(name=begun["engines"]["policy"]["name"])
    problem, budget = problem_of(begun["problem"]), Budget(**begun["budget"])
    return _Begin(problem, begun["text"], budget, begun["seed"], path, sandbox).on(model)


def _leave_out(context: typer.Context, reason: str, names: Iterable[str]) -> None:
    """Refuses options that were given and would be ignored."""
    given = [name for name in names if _is_given(context, name)]
    if given:
        options = ", ".join(n if n == "question" else f"--{n.replace('_', '-')}" for n in given)
        raise Fault(f"{reason}; leave out {options}")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _format(answer_format: str) -> AnswerFormat:
    return cast("AnswerFormat", _among(_FORMATS, answer_format, "--answer-format"))


def _among(known: Sequence[str], given: str, option: str) -> str:
    if given not in known:
        raise Fault(f"{option}: {given!r} is none of {', '.join(known)}")
    return given


def _problem(question: str, answer_format: str) -> Problem:
    form = _format(answer_format)
    if not question.strip():
        raise Fault("the question is empty")
    try:
        question.encode()
    except UnicodeEncodeError:
        raise Fault("the question is no valid text in this terminal's encoding") from None
    return Problem.ask(question, answer_format=form)


@contextmanager
def watching(limit: int | None) -> Iterator[Callable[[Event], None] | None]:
    """Shows how a run goes on, where somebody can see it; gives what the run tells.

    Args:
        limit: the limit of tokens.
    """
    if not is_live():
        yield None
        return
    with status("reading the question") as update:
        yield Watch(update, limit)


class Watch:
    """Turns the events of a run into a line: samples, tokens, and the leading answer."""

    def __init__(self, update: Callable[[str], None], limit: int | None) -> None:
        """A watch.

        Args:
            update: shows a line.
            limit: the limit of tokens.
        """
        self._update = update
        self._limit = "" if limit is None else f" of {limit:,}"
        self._tally: Any = room("strategies").Tally()

    def __call__(self, event: Event) -> None:
        """Shows what has become of the run."""
        if event.candidate is not None:
            self._tally.add(event.candidate)
        line = counted(self._tally.num_samples, "sample")
        line += f", {event.usage.tokens:,}{self._limit} tokens"
        ranking = self._tally.ranking()
        if ranking:
            leader, votes = ranking[0]
            line += f", leading: {one_line(leader.answer or '', _ANSWER_WIDTH)} ({votes:g})"
        self._update(line)
