"""`ttc eval`: strategies on tasks, at equal budgets, into a folder that any kill leaves whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from ttc.cli.budgets import parse_budget
from ttc.cli.engines import DEFAULT_MODEL, MODEL_HELP, default_model, engine_of
from ttc.cli.progress import bars
from ttc.cli.result_files import JsonFile, check_target, write_result
from ttc.cli.strategies import ARM_HELP, arm_text
from ttc.cli.terminal import Fault, counted, note, say, show, table
from ttc.config import settings
from ttc.registry import room
from ttc.safe_text import one_line
from ttc.sandbox.zygote import SandboxChoice
from ttc.types import Budget

__all__ = ["budgets_of", "check_pool", "eval_", "ready", "run_evaluation", "tell_study"]

_STRATEGIES = ["greedy: greedy()", "vote: sample(n='budget', temperature=0.8, ahead=8) >> vote()"]
_SANDBOXES = get_args(SandboxChoice)


def eval_(  # noqa: PLR0913 - every option of the command
    context: typer.Context,
    tasks: Annotated[
        list[str],
        typer.Argument(
            help="Names as gsm8k or gsm8k[300:700], rg:GENERATOR@LEVELS, files, SCHEMA:FILE.",
            show_default=False,
        ),
    ],
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", "-s", metavar="[NAME: ]SPEC", help=ARM_HELP),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMITS", help="Of one problem: tokens=1000,4000 is two budgets."),
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", help=MODEL_HELP, show_default=DEFAULT_MODEL)
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=MODEL", help="The model of another role.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A folder.", show_default="found again by its options"),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Problems of each task.")] = None,
    seed: Annotated[int, typer.Option(help="Seeds problems and runs.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each problem.")] = 1,
    pool: Annotated[
        Path | None, typer.Option(help="Recorded completions, in the place of a model.")
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(metavar="'A > B'", help="What gets a verdict, at most six for each task."),
    ] = None,
    data: Annotated[list[Path] | None, typer.Option(help="A folder of data sets.")] = None,
    shots: Annotated[int, typer.Option(min=0, help="Solved examples before each question.")] = 0,
    plain: Annotated[bool, typer.Option("--plain", help="Ask by a text, and not a chat.")] = False,
    instruction: Annotated[
        str | None, typer.Option(help="Said behind each question.", show_default="the task's own")
    ] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Take problems in an order of the seed's.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Problems in flight.")] = 64,
    shard: Annotated[str, typer.Option(metavar="I/N", help="A part of the problems.")] = "1/1",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the journals of problems.")] = False,
    sandbox: Annotated[
        str, typer.Option(help="How safely programs are run.", metavar="|".join(_SANDBOXES))
    ] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what it would take and could show.")
    ] = False,
    figures: Annotated[bool, typer.Option(help="Draw figures by matplotlib.")] = True,
    rate: Annotated[
        float | None,
        typer.Option(min=1e-3, help="Tokens a second, for --dry-run.", show_default="measured"),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Compare strategies on tasks at equal budgets; run again, it goes on where it was."""
    check_target(json)
    check_pool(pool, models)
    if sandbox not in _SANDBOXES:
        raise Fault(f"--sandbox: {sandbox!r} is none of {', '.join(_SANDBOXES)}")
    data_room, set_up = room("benchmarks.data"), room("benchmarks.harness.setup")
    asking = data_room.Asking(
        limit=limit,
        seed=seed,
        shuffle=shuffle,
        folders=tuple(data or ()),
        style="plain" if plain else "chat",
        instruction=instruction,
        shots=shots,
    )
    asked = set_up.Asked(
        tasks=tuple(tasks),
        strategies=tuple(ready(lambda: [arm_text(text) for text in strategy or _STRATEGIES])),
        budgets=tuple(one for text in budget or ["tokens=1000"] for one in budgets_of(text)),
        models=tuple(models or [default_model()]),
        roles=_roles(role or []),
        seed=seed,
        repeats=repeats,
        comparisons=None if compare is None else tuple(compare),
        asking=asking,
        pool=pool,
    )
    made = ready(lambda: set_up.set_up(asked))
    folder = output or settings().home.value / "evals" / f"{_name(tasks)}-{made.config.digest}"
    if dry_run:
        _tell_estimate(made, folder, rate)
        return
    run = room("benchmarks.harness.run")
    options = ready(
        lambda: run.Options(
            concurrency=concurrency,
            shard=run.Shard.of(shard),
            keep_journals=keep,
            sandbox=cast("SandboxChoice", sandbox),
            load=engine_of,
        )
    )
    _check_shard(made, options.shard, shard)
    run_evaluation(made, folder, options)
    study = _report(folder, figures)
    if json is not None:
        rows = room("benchmarks.report.summary").summary(study)
        write_result(json, rows, context.find_root().obj, made.config.seed)


def _check_shard(made: Any, shard: Any, told: str) -> None:
    """Refuses a shard of nothing."""
    most = max(task.num_problems for task in made.config.tasks)
    if shard.place >= most:
        there = "there is 1" if most == 1 else f"there are {most:,}"
        raise Fault(f"--shard: {told} holds none of the problems: {there}")


def check_pool(pool: Path | None, models: Sequence[str] | str | None) -> None:
    """That a pool alone is drawn from.

    Raises:
        Fault: a model is named as well.
    """
    if pool is not None and models:
        raise Fault("--model: --pool holds what a model has written; leave one of them out")


def budgets_of(text: str) -> list[Budget]:
    """The budgets that a text names: a limit with several values is several.

    Raises:
        Fault: one of them is none.
    """
    limits: list[tuple[str, list[str]]] = []
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if sign:
            limits.append((name, [value]))
        elif limits and name.isdecimal() and name != "0" and name.startswith("0"):
            raise Fault(
                f"--budget: {one_line(repr(text), 40)}: write 1000 as 1000, and not as 1,000"
            )
        elif limits:
            limits[-1][1].append(name)
        else:
            raise Fault(f"--budget: {one_line(repr(text), 40)} has no =; write tokens=1000,4000")
    names = [name for name, _ in limits]
    return [
        parse_budget(",".join(f"{name}={value}" for name, value in zip(names, chosen, strict=True)))
        for chosen in product(*(values for _, values in limits))
    ]


def ready(work: Callable[[], Any]) -> Any:
    """What some preparation gives; its faults are told in a line."""
    try:
        return work()
    except (ValueError, OSError) as error:
        raise Fault(str(error)) from None
    except ModuleNotFoundError as error:
        if (error.name or "ttc").split(".")[0] == "ttc":
            raise
        raise Fault(str(error)) from error


def _roles(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if any(not sign or not name or name == "policy" for name, sign, _ in pairs):
        raise Fault("--role: write judge=MODEL; that of the policy is --model")
    roles = {name: model for name, _, model in pairs}
    if len(roles) < len(pairs):
        names = [name for name, _, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Fault(f"--role: {twice} has two models; give one")
    return roles


def _name(tasks: list[str]) -> str:
    plain = "".join(c if c.isalnum() or c in "._" else "-" for c in Path(tasks[0]).name)
    return plain.strip("-") or "eval"


def run_evaluation(made: Any, folder: Path, options: Any) -> None:
    """Runs what is not done yet, with bars where somebody watches.

    Raises:
        Fault: every problem failed; the first fault is told.
    """
    run = room("benchmarks.harness.run")
    _tell_left_out(made)
    with bars(made.config, options.shard) as told:
        evaluation = run.Evaluation(
            made.config, made.tasks, folder, options=options, pool=made.pool, told=told
        )
        try:
            evaluation.run()
        except KeyboardInterrupt:
            note(f"interrupted; the same command goes on in {folder}")
            raise
    faults = room("benchmarks.harness.results").faults(folder)
    if faults.num and faults.num == faults.of:
        raise Fault(f"every problem failed: {faults.first}")
    if faults.num:
        note(
            f"{faults.num:,} of {faults.of:,} runs failed, and count as wrong; the same command "
            f"runs them again; the first: {faults.first}"
        )


def _tell_left_out(made: Any) -> None:
    for task, why in made.left_out.items():
        for told in why:
            note(f"{task}: {told}")


def _report(folder: Path, figures: bool) -> Any:
    study, written = room("benchmarks.report.write").write_report(folder, figures=figures)
    tell_study(study)
    say("")
    for left in written.left_out:
        note(f"not written: {left}")
    say(f"{folder / 'report.html'} and {counted(len(written.paths) - 1, 'file')} beside it")
    return study


def tell_study(study: Any) -> None:
    """Writes the tables of a study."""
    tables: Any = room("benchmarks.report.tables")
    for task, model, cells in study.groups():
        facts = study.task(task)
        say(f"{task}: {counted(facts.num_problems, 'problem')}, {model}")
        results = [tables.cell_row(cell) for cell in cells if not cell.oracle]
        bounds = [tables.cell_row(cell) for cell in cells if cell.oracle]
        show(table(tables.HEADINGS, results, right=tables.RIGHT))
        if bounds:
            say("upper bounds, which choose by the right answers, and are no results:")
            show(table(tables.HEADINGS, bounds, right=tables.RIGHT))
        for told in tables.used_up(cells):
            say(told)
        if facts.num_publicly_tested:
            say(f"{facts.num_publicly_tested} of its problems show tests of their own")
        _tell_sure(cells, tables)
        for found in study.selections:
            if (found.task, found.model) == (task, model):
                _tell_selection(found, tables)
        say("")
    if study.verdicts:
        show(table(*tables.verdict_table(study), right=tables.VERDICT_RIGHT))
        say("p by Holm's method; detectable at a power of 80 %, in points")
    else:
        say("no comparison was named beforehand, so nothing has a verdict")
    if study.num_missing:
        say(f"{counted(study.num_missing, 'result')} missing: what stands here will change")


def _tell_sure(cells: list[Any], tables: Any) -> None:
    rows = [tables.sure_row(cell) for cell in cells if cell.calibration is not None]
    if rows:
        say("")
        show(table(tables.SURE_HEADINGS, rows, right=",".join(tables.SURE_HEADINGS[1:])))


def _tell_selection(found: Any, tables: Any) -> None:
    say(f"\nchosen among k of {found.num_samples} samples, {found.source}:")
    right = ",".join(tables.SELECTION_HEADINGS[1:])
    results, bounds = (
        [tables.selection_row(point) for point in points]
        for points in (found.results, found.bounds)
    )
    if results:
        show(table(tables.SELECTION_HEADINGS, results, right=right))
    say("an upper bound, which chooses by the right answers, and is no result:")
    show(table(tables.SELECTION_HEADINGS, bounds, right=right))


def _tell_estimate(made: Any, folder: Path, rate: float | None) -> None:
    """What it would take, and could show; where it has begun, what is left of it."""
    _tell_left_out(made)
    cells, rates = _estimated(made, folder, rate)
    several = len(made.config.models) > 1
    rows, hours = [], 0.0
    for cell in cells:
        taken = cell.hours(rates[cell.model]) if cell.model in rates else None
        hours += taken or 0.0
        rows.append(
            (
                *((cell.model,) if several else ()),
                cell.task,
                cell.arm,
                cell.budget,
                f"{cell.runs:,}",
                "unbounded" if cell.most_tokens is None else f"{cell.most_tokens:,.0f}",
                "-" if taken is None else f"{taken:.2f}",
            )
        )
    headings = ("task", "strategy", "budget", "runs", "tokens at most", "hours at most")
    named = ("model", *headings) if several else headings
    show(table(named, rows, right=",".join(headings[3:])))
    known = [cell.most_tokens for cell in cells if cell.most_tokens is not None]
    told = " and ".join(dict.fromkeys(f"{value:,.0f}" for value in rates.values()))
    taking = f", {hours:.2f} hours at {told} tokens a second" if rates else ""
    say(f"\nat most {sum(known):,.0f} tokens{taking}")
    _tell_detectable(made)


def _tell_detectable(made: Any) -> None:
    """What differences it could show, and how many comparisons have the problems for a verdict."""
    estimate: Any = room("benchmarks.harness.estimate")
    least: int = room("benchmarks.metrics").MIN_PROBLEMS
    for name, task in made.tasks.items():
        found = [(estimate.detectable(len(task.items), share), share) for share in estimate.SHARES]
        shown = ", ".join(
            f"{'nothing' if points is None else f'{100 * points:.1f} points'} where they differ on "
            f"{share:.0%}"
            for points, share in found
        )
        say(f"{name}, {counted(len(task.items), 'problem')}, could show {shown}")
    compared = [len(made.tasks[one.task].items) for one in made.config.comparisons]
    few = sum(num < least for num in compared)
    told = f"; of {few} the problems are too few, less than {least}" if few else ""
    say(f"{counted(len(compared) - few, 'comparison')} would get a verdict{told}; nothing was run")


def _estimated(made: Any, folder: Path, rate: float | None) -> tuple[list[Any], dict[str, float]]:
    """What every cell would take, and how fast each model is: every model tells its own."""
    estimate: Any = room("benchmarks.harness.estimate")
    results: Any = room("benchmarks.harness.results")
    done = list(results.read_results(folder)) if folder.is_dir() else []
    models = made.config.models
    if made.pool is not None:
        cells = estimate.estimates(made.config, made.tasks, done=done)
        return cells, {} if rate is None else dict.fromkeys(models, rate)
    found, rates = [], {}
    for model in models:
        with engine_of(model) as engine:
            cells = estimate.estimates(made.config, made.tasks, engine=engine, done=done)
            found += [cell for cell in cells if cell.model == model]
            rates[model] = rate or estimate.measured_rate(engine, list(made.tasks.values()))
    return found, rates
