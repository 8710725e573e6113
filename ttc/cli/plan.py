"""`ttc plan`: a strategy for a budget, chosen on one part of the problems, told on the other."""

from __future__ import annotations

from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from ttc.cli.engines import DEFAULT_MODEL, MODEL_HELP, default_model, engine_of
from ttc.cli.eval import budgets_of, check_pool, ready, run_evaluation
from ttc.cli.result_files import JsonFile, check_target, write_result
from ttc.cli.strategies import arm_text, strategy_text
from ttc.cli.terminal import Fault, say, show, table
from ttc.config import settings
from ttc.registry import room

__all__ = ["plan"]

_LOOK = "sample(n=4, temperature=0.8, max_tokens=512) >> vote()"
_FRONT = ("strategy", "budget", "tokens", "accuracy", "gain over the one before", "")
_TABLE = ("look sure below", "runs", "strategy", "accuracy", "tokens")
_TEST = ("on the other part", "budget", "accuracy", "95 % interval", "tokens")


def plan(  # noqa: PLR0913 - every option of the command
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="As `ttc eval` names them.", show_default=False)],
    strategy: Annotated[
        list[str], typer.Option("--strategy", "-s", metavar="[NAME: ]SPEC", help="A candidate.")
    ],
    budget: Annotated[str, typer.Option(metavar="LIMITS", help="Caps; tokens=1000,4000 is two.")],
    within: Annotated[
        float | None,
        typer.Option(
            min=1, help="Mean tokens that a problem may spend.", show_default="the last cap"
        ),
    ] = None,
    look: Annotated[str, typer.Option(help="How difficulty is looked at.")] = _LOOK,
    pool: Annotated[Path | None, typer.Option(help="Recorded completions.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help=MODEL_HELP, show_default=DEFAULT_MODEL)
    ] = None,
    share: Annotated[float, typer.Option(help="Of the problems, to choose on.")] = 0.5,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each problem.")] = 1,
    seed: Annotated[int, typer.Option(help="Seeds parts and runs.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Problems.")] = None,
    data: Annotated[list[Path] | None, typer.Option(help="A folder of data sets.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Problems in flight.")] = 64,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A folder.", show_default="found again by its options"),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Choose a strategy for a budget, and one for each difficulty; a kill loses nothing."""
    check_target(json)
    source = context.get_parameter_source("model")
    check_pool(pool, model if source is not None and source.name == "COMMANDLINE" else None)
    planner, set_up = room("benchmarks.planner"), room("benchmarks.harness.setup")
    strategy = ready(lambda: [arm_text(text) for text in strategy])
    look = ready(lambda: f"{planner.LOOK}: {strategy_text(look)}")
    _check_look(strategy, look, planner.LOOK)
    asked = set_up.Asked(
        tasks=(task,),
        strategies=(*strategy, look),
        budgets=tuple(budgets_of(budget)),
        models=(model or default_model(),),
        seed=seed,
        repeats=repeats,
        comparisons=(),
        asking=room("benchmarks.data").Asking(limit=limit, seed=seed, folders=tuple(data or ())),
        pool=pool,
    )
    spend = asked.budgets[-1].tokens if within is None else within
    if spend is None:
        raise Fault("--within: name the mean tokens that a problem may spend")
    tuned, told = ready(lambda: set_up.parts(set_up.set_up(asked), share))
    folder = output or settings().home.value / "evals" / f"plan-{tuned.config.digest}"
    options = room("benchmarks.harness.run").Options(concurrency=concurrency, load=engine_of)
    run_evaluation(tuned, folder / "chosen-on", options)
    if pool is not None:
        _check_held(folder / "chosen-on")
    made = _planned(planner, tuned, folder / "chosen-on", spend)
    _show_plan(made, tuned)
    told = _reported(told, made)
    run_evaluation(told, folder / "told-on", options)
    study = room("benchmarks.report.study").read_study(folder / "told-on")
    _show_told(study, made)
    _write(folder, made)
    if json is not None:
        told_in: Any = room("benchmarks.report.summary")
        rows = [*told_in.plan_summary(made, tuned.config), *told_in.summary(study)]
        write_result(json, rows, context.find_root().obj, seed)


def _check_look(strategies: list[str], look: str, name: str) -> None:
    """That the look is one strategy, and the only one of its name."""
    arms_of = room("benchmarks.harness.sweeps").arms_of
    if len(ready(lambda: arms_of([look]))) > 1:
        raise Fault("--look: one strategy tells how difficult a problem is; a sweep is several")
    if any(arm.name == name for arm in ready(lambda: arms_of(strategies))):
        raise Fault(f"--strategy: {name!r} is the name of what --look gives; take another")


def _check_held(folder: Path) -> None:
    """That the pool could give all that was asked of it: a plan is worth nothing without."""
    found = room("benchmarks.harness.results").faults(folder)
    if found.num:
        raise Fault(
            f"--pool: {found.first}; --look asks for {_LOOK!r} where it is not given, and every "
            "--strategy has to ask for what the pool holds, too"
        )


def _planned(planner: Any, tuned: Any, folder: Path, spend: float) -> Any:
    study = room("benchmarks.report.study").read_study(folder)
    results = list(room("benchmarks.harness.results").read_results(folder))
    return planner.planned(tuned.config, study.cells, results, spend)


def _reported(told: Any, made: Any) -> Any:
    """The other part, with the route among its strategies, and what gets a verdict there."""
    room_config: Any = room("benchmarks.harness.config")
    config = told.config
    arms, task, model = config.arms, config.tasks[0].name, config.models[0]
    best, last = made.recommended, list(config.budgets)[-1]
    pairs = []
    if best.arm != arms[0].name:
        pairs.append((best.arm, arms[0].name, best.budget))
    if made.table is not None:
        arms = (*arms, room_config.Arm(name="route", strategy=made.table.route))
        pairs.append(("route", best.arm, last))
    comparisons = tuple(
        room_config.Comparison(task=task, model=model, budget=cap, first=first, second=second)
        for first, second, cap in pairs
    )
    return replace(told, config=replace(config, arms=arms, comparisons=comparisons))


def _show_plan(made: Any, tuned: Any) -> None:
    tables: Any = room("benchmarks.report.tables")
    facts = tuned.config.tasks[0]
    say(f"chosen on {facts.num_problems} problems of {facts.name}:")
    rows = []
    for point in made.front:
        gain, mark = "", ""
        if point.gain is not None:
            low, high = tables.points(point.gain.low), tables.points(point.gain.high)
            gain = f"{tables.points(point.gain.mean)} ({low} to {high})"
            mark = "" if point.is_distinguishable else "not distinguishable"
        accuracy = tables.percent(point.accuracy)
        rows.append((point.arm, point.budget, f"{point.spend:,.0f}", accuracy, gain, mark))
    show(table(_FRONT, rows, right="tokens,accuracy,gain over the one before"))
    best = made.recommended
    say(f"\nrecommended within {made.budget:,.0f} tokens: {best.arm} @ {best.budget}")
    for point in made.cheaper:
        say(f"cheaper, and not distinguishable from it: {point.arm} @ {point.budget}")
    if made.table is None:
        say("no table by difficulty: the look is equally sure of all, or nothing fits the budget")
        return
    say("")
    levels = [_level(level, tables) for level in made.table.levels]
    show(table(_TABLE, levels, right="runs,accuracy,tokens"))
    if tuned.config.repeats == 1:
        say("made on the samples that the look itself took; --repeats 2 takes others for the table")


def _level(level: Any, tables: Any) -> tuple[str, ...]:
    return (
        "surest" if level.below is None else f"{level.below:g}",
        str(level.num_runs),
        level.arm,
        tables.percent(level.accuracy),
        f"{level.spend:,.0f}",
    )


def _show_told(study: Any, made: Any) -> None:
    tables: Any = room("benchmarks.report.tables")
    best, last = made.recommended, list(study.config.budgets)[-1]
    wanted = {(best.arm, best.budget), ("route", last), (study.config.arms[0].name, best.budget)}
    rows = [
        (
            cell.cell.arm,
            cell.cell.budget,
            tables.percent(cell.accuracy),
            f"{100 * cell.interval.low:.1f} to {100 * cell.interval.high:.1f}",
            tables.spend(cell.spend("tokens"), "tokens"),
        )
        for cell in study.cells
        if (cell.cell.arm, cell.cell.budget) in wanted
    ]
    say(f"\nexpected, from {study.config.tasks[0].num_problems} problems that chose nothing:")
    show(table(_TEST, rows, right="accuracy,95 % interval,tokens"))
    if study.verdicts:
        say("")
        show(table(*tables.verdict_table(study), right=tables.VERDICT_RIGHT))


def _write(folder: Path, made: Any) -> None:
    values = dumps(made.values, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / "plan.json").write_text(values + "\n", encoding="utf-8")
    told = f"\n{folder / 'plan.json'}"
    if made.table is not None:
        from ttc.text_form import parse

        parse(made.table.route).save(folder / "route.json")
        told += f"; ttc solve --strategy {folder / 'route.json'} goes by the table"
    say(told)
