"""`ttc solve`: one question, by a strategy, within a budget."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from ttc.cli.budgets import parse_budget, shortage
from ttc.cli.engines import DEFAULT_MODEL, MODEL_HELP, engine_of
from ttc.cli.many import read_problems, show_outcomes, solve_problems
from ttc.cli.outcomes import as_json, failure, show_outcome
from ttc.cli.steering import steerable
from ttc.cli.terminal import Fault, counted, is_live, one_line, say, status
from ttc.registry import room
from ttc.solve import solve as solve_problem
from ttc.text_form import parse
from ttc.types import AnswerFormat, Event, Problem

__all__ = ["Watch", "solve"]

_STRATEGY = "self_consistency(n=8, max_tokens=256)"
_BUDGET = "tokens=4000,seconds=60"  # holds the worst case of _STRATEGY, with a long question
_FORMATS = get_args(AnswerFormat)
_ANSWER_WIDTH = 40


def solve(  # noqa: PLR0913 - one for each option
    question: Annotated[
        str | None, typer.Argument(help="What to solve, unless --problems.", show_default=False)
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="The strategy in its text form.", metavar="SPEC")
    ] = _STRATEGY,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = DEFAULT_MODEL,
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
) -> None:
    """Solve one question, or those of a file."""
    limits = parse_budget(budget)
    graph = parse(strategy)
    if problems is not None:
        if question is not None:
            raise Fault("give a question or --problems, not both")
        asked = read_problems(problems, _format(answer_format))
        with engine_of(model) as engine:
            outcomes = solve_problems(
                asked, graph, limits, allocator=allocator, model=engine, seed=seed
            )
        show_outcomes(outcomes, is_json=json)
        return
    if allocator is not None:
        raise Fault("--allocator shares a budget among the questions of --problems; name a file")
    if question is None:
        raise Fault("give a question, or a file of them by --problems; see `ttc solve --help`")
    problem = _problem(question, answer_format)
    if seed is None:
        seed = secrets.randbits(32)  # few enough bits for every reader of JSON
    name = f"solve-{os.getpid()}"
    with (
        engine_of(model) as engine,
        steerable(name) as control,
        watching(limits.tokens) as watch,
    ):
        outcome = solve_problem(
            problem,
            graph,
            model=engine,
            budget=limits,
            seed=seed,
            watch=watch,
            control=control,
        )
        fault = shortage(outcome) or failure(outcome)
    if json:
        say(as_json(outcome))
    elif fault is None:
        show_outcome(outcome)
    if fault is not None:
        raise Fault(fault)


def _format(answer_format: str) -> AnswerFormat:
    if answer_format not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise Fault(f"--answer-format: {answer_format!r} is none of {known}")
    return cast("AnswerFormat", answer_format)


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
