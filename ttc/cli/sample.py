"""`ttc sample`: many completions of each problem of a task, into a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ttc.cli.engines import (
    DEFAULT_MODEL,
    MODEL_HELP,
    AcceptanceOption,
    ArithmeticOption,
    SpeculateOption,
    engine_of,
)
from ttc.cli.terminal import Fault, counted, is_live, say, status
from ttc.pools import PoolFile
from ttc.pools.draw import Drawn, Plan, draw
from ttc.registry import room
from ttc.types import Sampling

__all__ = ["sample"]


def sample(  # noqa: PLR0913 - every option of the command
    task: Annotated[
        str, typer.Argument(help="A file of problems, or a registered task.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The pool to write.", show_default=False)
    ],
    n: Annotated[int, typer.Option("-n", help="Completions of each problem.")] = 16,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = DEFAULT_MODEL,
    arithmetic: ArithmeticOption = None,
    speculate: SpeculateOption = None,
    acceptance: AcceptanceOption = None,
    problems: Annotated[
        int | None,
        typer.Option("--limit", "--problems", min=1, help="Problems.", show_default="all"),
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 1.0,
    top_p: Annotated[float | None, typer.Option(show_default="off")] = None,
    top_k: Annotated[int | None, typer.Option(show_default="off")] = None,
    max_tokens: Annotated[int, typer.Option(help="Of one completion.")] = 512,
    seed: Annotated[int, typer.Option(help="Seeds task and completions.")] = 0,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Take problems in an order of the seed's.")
    ] = False,
    data: Annotated[
        list[Path] | None, typer.Option(help="A folder of data sets.", show_default=False)
    ] = None,
) -> None:
    """Draw completions into a pool; one that was cut short goes on where it ended."""
    try:
        sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k)
        plan = Plan(n=n, sampling=sampling, max_tokens=max_tokens, seed=seed)
        tasks: Any = room("benchmarks.data")
        asking = tasks.Asking(limit=problems, seed=seed, shuffle=shuffle, folders=tuple(data or ()))
        asked: Any = tasks.task_named(task, asking)
    except ValueError as error:
        raise Fault(str(error)) from None
    except ModuleNotFoundError as error:
        raise Fault(str(error)) from error
    with (
        engine_of(model, arithmetic, speculate, acceptance) as engine,
        PoolFile(output) as file,
        _progress() as progress,
    ):
        drawn = asyncio.run(draw(asked.problems, engine, file, plan, progress=progress))
        held = len(file.pool)
    if drawn.drawn and drawn.failed == drawn.drawn:
        first = next(completion for completion in file.pool if completion.failed)
        raise Fault(f"all {counted(drawn.failed, 'call')} failed: {first.error}")
    say(_told(drawn, held, output))


def _told(drawn: Drawn, held: int, output: Path) -> str:
    made = f"drew {counted(drawn.drawn, 'completion')}, found {drawn.found}"
    failed = f"; {drawn.failed} failed: the same command draws them again" if drawn.failed else ""
    return f"{made}; {output} holds {held}{failed}"


@contextmanager
def _progress() -> Iterator[Any]:
    if not is_live():
        yield lambda done, total: None
        return
    with status("reading the problems") as update:
        yield lambda done, total: update(f"{done:,} of {counted(total, 'completion')}")
