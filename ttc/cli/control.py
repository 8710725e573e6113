"""`ttc control`: change a run that is running in another terminal."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ttc.cli.budgets import parse_budget
from ttc.cli.steering import ask
from ttc.cli.terminal import Fault, counted, say
from ttc.strict_json import pretty

__all__ = ["Action", "control"]


class Action(Enum):
    """What may be done to a run."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


def control(
    run: Annotated[str, typer.Argument(help="The run's name.", show_default=False)],
    action: Annotated[
        Action | None, typer.Argument(help="What to do to it; nothing tells its state.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="New limits, as tokens=500,seconds=20.", metavar="LIMITS")
    ] = None,
    problem: Annotated[
        int | None, typer.Option(help="One problem by its place, from 0 on.", min=0)
    ] = None,
    call: Annotated[
        str | None, typer.Option(help="The call to cancel, as path#index.", metavar="CALL")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="A table of prices that holds from now on.", metavar="FILE")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Change a running run: its budget, its prices; pause, resume or cancel it."""
    order: dict[str, Any] = {}
    if call is not None and action is not Action.CANCEL:
        raise Fault("--call names a call to cancel; write cancel before it")
    if problem is not None:
        order["problem"] = problem
    if prices is not None:
        try:
            order["prices"] = prices.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Fault(f"--prices: {prices} cannot be read: {error}") from error
    if budget is not None:
        limits = asdict(parse_budget(budget))
        order["budget"] = {name: limit for name, limit in limits.items() if limit is not None}
    if action is Action.CANCEL:
        order |= {"call": call, "cancel": True}
    elif action is not None:
        order["hold"] = action is Action.PAUSE
    state = ask(run, order)
    say(pretty(state) if json else _told(state))


def _told(state: dict[str, Any]) -> str:
    """A run's state, a line for each problem that is being solved."""
    lines = [
        f"{'paused' if state['paused'] else 'running'}: {state['ended']} of "
        f"{counted(state['problems'], 'problem')} ended"
    ]
    for one in state["running"]:
        limits = ", ".join(f"{name}={limit:g}" for name, limit in one["budget"].items())
        spent = f"{counted(one['usage']['tokens'], 'token')}, {one['usage']['seconds']:.1f} s"
        lines.append(
            f"problem {one['problem']}: {spent}, {counted(len(one['calls_running']), 'call')} "
            f"running; limits: {limits or 'none'}"
        )
    return "\n".join(lines)
