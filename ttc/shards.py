"""Shards: one run over many problems, divided among processes and hosts before it starts.

    plan = Plan(problems=..., strategy="...", models={"policy": "..."}, budget=..., count=8)
    plan.write(folder)
    run_shard(folder, 3)      # anywhere that sees the folder, in any order
    merge(folder).rows

Each shard is a run of its own over a block of the problems, with its part of the budget: parts are
fixed beforehand and add up to the whole, so no shard has to know of another. Without an allocator
every problem comes to what it comes to in one undivided run. With one each shard gives its own
part away.

A shard that is lost is run again. It goes on from its journals, so what had been asked is not paid
again. Where they are lost, too, nobody knows what it had spent: it is run again only if that is
asked for, and its whole part is booked as lost.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

from ttc.errors import RecordError
from ttc.journal.values import Values, budget_of, plain, problem_of, problem_values
from ttc.limits import Limits
from ttc.resources import LOGICAL, MEASURED, RESERVED, shares
from ttc.sandbox.zygote import SandboxChoice
from ttc.solve import solve_many
from ttc.types import Budget, Outcome, Problem, Usage

__all__ = ["LOCAL", "Merged", "Plan", "merge", "run_shard", "start", "write_result"]

SCHEMA_VERSION = 1
LOCAL = (sys.executable, "-m", "ttc")
"""How a worker on this machine is started."""
_PLAN = "plan.json"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be run, and how it is divided."""

    problems: tuple[Problem, ...]
    strategy: str
    """In its text form."""
    models: Mapping[str, str]
    """By role; names that mean the same wherever a shard runs."""
    count: int
    """Shards."""
    budget: Budget = field(default_factory=Budget)
    """What all shards together may spend; `seconds` are each one's own."""
    per_problem: Budget = field(default_factory=Budget)
    allocator: str | None = None
    concurrency: int = 64
    """Problems in flight in a shard, or with an allocator calls."""
    seed: int = field(default_factory=lambda: secrets.randbits(63))
    sandbox: str = "auto"

    def __post_init__(self) -> None:
        if not 1 <= self.count <= max(1, len(self.problems)):
            raise ValueError(
                f"{len(self.problems)} problems are divided into 1 to {len(self.problems)} shards, "
                f"not {self.count}"
            )
        Limits(self.budget, self.per_problem, self.allocator, self.concurrency)

    @property
    def sizes(self) -> list[int]:
        """The problems of each shard."""
        return shares(len(self.problems), [1] * self.count)

    def places(self, shard: int) -> range:
        """The places of a shard's problems.

        Raises:
            ValueError: there is no such shard.
        """
        if not 0 <= shard < self.count:
            raise ValueError(f"the shards are 0 to {self.count - 1}, and {shard} is none of them")
        end = list(accumulate(self.sizes))[shard]
        return range(end - self.sizes[shard], end)

    def part(self, shard: int) -> Budget:
        """A shard's part of the budget: what its problems would have of the whole."""
        places, whole = self.places(shard), len(self.problems)
        parts: dict[str, Any] = {}
        for resource in (*RESERVED, *MEASURED):
            total = getattr(self.budget, resource)
            if total is None:
                continue
            if resource in LOGICAL:
                each = shares(total, [1] * whole)
                own: float = sum(each[place] for place in places)
            else:
                own = total * len(places) / whole
            parts[resource] = own
        return replace(self.budget, **parts)

    def write(self, folder: Path) -> None:
        """Writes it into a folder that has no plan.

        Raises:
            RecordError: there is one, or it cannot be written.
        """
        values = {
            "schema_version": SCHEMA_VERSION,
            **{name: value for name, value in vars(self).items() if name != "problems"},
            "budget": plain(vars(self.budget)),
            "per_problem": plain(vars(self.per_problem)),
            "models": dict(self.models),
            "problems": [problem_values(problem) for problem in self.problems],
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / _PLAN).open("x", encoding="utf-8") as file:
                json.dump(values, file)
        except FileExistsError:
            raise RecordError(f"{folder} has a plan already; name another folder") from None
        except OSError as error:
            raise RecordError(f"{folder} cannot be written: {error.strerror}") from error

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """The plan in a folder.

        Raises:
            RecordError: there is none, or it is damaged.
        """
        try:
            values = json.loads((folder / _PLAN).read_text(encoding="utf-8"))
            version = values.pop("schema_version")
            if version != SCHEMA_VERSION:
                raise ValueError(f"it has schema_version {version}, not {SCHEMA_VERSION}")
            return cls(
                **{
                    **values,
                    "problems": tuple(map(problem_of, values["problems"])),
                    "budget": budget_of(values["budget"]),
                    "per_problem": budget_of(values["per_problem"]),
                }
            )
        except OSError as error:
            raise RecordError(f"{folder} has no plan: {error.strerror}") from None
        except (ValueError, TypeError, KeyError) as error:
            raise RecordError(f"the plan in {folder} is damaged: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What all shards came to."""

    rows: tuple[Values, ...]
    """One for each problem of a shard that has ended, in the order of the plan: `place`, `id`,
    `answer`, `confidence`, `text`, `stopped_by`, `usage`, `timing_dependent` and `error`."""
    usage: Usage
    """What they spent together."""
    missing: tuple[int, ...]
    """Shards that have not ended."""
    tokens_lost: int
    """The most tokens that lost shards may have spent of which nothing is known."""


def run_shard(
    folder: Path, shard: int, *, journals: Path | None = None, again: bool = False
) -> Path:
    """Runs a shard, or goes on with it, and writes its result.

    Args:
        folder: where the plan is. Every host sees it.
        shard: which.
        journals: where its journals lie; in the folder by default.
        again: runs it from its beginning though it had begun and its journals are lost. Its whole
            part is then booked as lost.

    Returns:
        The file of its result. One that is there is not made again.

    Raises:
        RecordError: its journals are lost, or in use by another process.
        TTCError: as `solve_many`.
    """
    plan, result = Plan.read(folder), _result(folder, shard)
    places, part = plan.places(shard), plan.part(shard)
    if result.exists():
        return result
    kept = (journals or folder / "journals") / f"{shard:04d}"
    lost = _begin(folder, shard, kept, part, again=again)
    outcomes = solve_many(
        [plan.problems[place] for place in places],
        plan.strategy,
        models=plan.models,
        budget=part,
        per_problem=plan.per_problem,
        allocator=plan.allocator,
        concurrency=plan.concurrency,
        seed=plan.seed,
        sandbox=cast(SandboxChoice, plan.sandbox),
        journal=kept,
    )
    return write_result(folder, shard, outcomes, tokens_lost=lost)


def write_result(
    folder: Path, shard: int, outcomes: Sequence[Outcome], *, tokens_lost: int = 0
) -> Path:
    """Writes what a shard came to, whole or not at all; for who runs it by other means.

    Raises:
        ValueError: these are not the outcomes of all its problems.
    """
    result, places = _result(folder, shard), Plan.read(folder).places(shard)
    rows = [_row(place, outcome) for place, outcome in zip(places, outcomes, strict=True)]
    end = {"end": len(rows), "tokens_lost": tokens_lost}
    text = "".join(json.dumps(row) + "\n" for row in (*rows, end))
    draft = result.with_suffix(f".{os.getpid()}.part")
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text(text, encoding="utf-8")
    draft.replace(result)
    return result


def merge(folder: Path) -> Merged:
    """What the shards that have ended came to.

    Raises:
        RecordError: a result is damaged.
    """
    plan = Plan.read(folder)
    rows: list[Values] = []
    missing, lost = [], 0
    for shard in range(plan.count):
        try:
            lines = _result(folder, shard).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            missing.append(shard)
            continue
        *own, end = map(json.loads, lines)
        if end.get("end") != len(own) or [row["place"] for row in own] != [*plan.places(shard)]:
            raise RecordError(f"the result of shard {shard} is damaged; remove it, run it again")
        rows += own
        lost += end["tokens_lost"]
    usage = sum((Usage(**row["usage"]) for row in rows), Usage())
    seconds = [row["usage"]["seconds"] for row in rows if row["usage"]["seconds"] is not None]
    usage = replace(usage, seconds=max(seconds, default=None))
    return Merged(rows=tuple(rows), usage=usage, missing=tuple(missing), tokens_lost=lost)


async def start(
    folder: Path,
    workers: Sequence[Sequence[str]],
    *,
    attempts: int = 3,
    tell: Callable[[str], object] | None = None,
) -> Merged:
    """Runs all shards that have not ended, each by a worker that is free; a lost one again.

    Args:
        folder: where the plan is.
        workers: how each is started: `LOCAL`, or `("ssh", "host", "ttc")`. It runs one shard at a
            time, by `shards run FOLDER --shard N` behind it.
        attempts: how often a shard is begun at most, by another worker where there is one.
        tell: is told what happens.

    Returns:
        What they came to; `missing` names shards that no attempt has ended.
    """
    line = _Line(merge(folder).missing, attempts, num_workers=len(workers))
    told = tell or (lambda _: None)

    async def work(number: int, command: Sequence[str]) -> None:
        while (shard := await line.take(number)) is not None:
            ended = False
            try:
                ended = await _ended(command, folder, shard, told)
            finally:
                line.give_back(shard, number, ended=ended)

    async with asyncio.TaskGroup() as group:
        for number, command in enumerate(workers):
            group.create_task(work(number, command))
    return merge(folder)


class _Line:
    """The shards that wait, and who has failed on each."""

    def __init__(self, shards: Sequence[int], attempts: int, *, num_workers: int) -> None:
        self._waiting = list(shards)
        self._attempts, self._num_workers = attempts, num_workers
        self._failed: dict[int, list[int]] = {}
        self._running = 0
        self._changed = asyncio.Event()

    async def take(self, worker: int) -> int | None:
        """The next shard; `None` once all is over. What it failed on others try before."""
        while self._waiting or self._running:
            mine = next((shard for shard in self._waiting if self._is_for(worker, shard)), None)
            if mine is not None:
                self._waiting.remove(mine)
                self._running += 1
                return mine
            await self._changed.wait()
        return None

    def _is_for(self, worker: int, shard: int) -> bool:
        failed = set(self._failed.get(shard, ()))
        return worker not in failed or len(failed) == self._num_workers

    def give_back(self, shard: int, worker: int, *, ended: bool) -> None:
        """Notes what became of a shard."""
        self._running -= 1
        if not ended:
            failed = self._failed.setdefault(shard, [])
            failed.append(worker)
            if len(failed) < self._attempts:
                self._waiting.append(shard)
        self._changed.set()
        self._changed = asyncio.Event()


async def _ended(
    command: Sequence[str], folder: Path, shard: int, tell: Callable[[str], object]
) -> bool:
    """Whether a worker brought a shard to its end."""
    asked = [*command, "shards", "run", str(folder), "--shard", str(shard)]
    try:
        process = await asyncio.create_subprocess_exec(
            *asked,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        tell(f"shard {shard}: {command[0]} cannot be started: {error.strerror}")
        return False
    try:
        _, said = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        raise
    ended = process.returncode == 0 and _result(folder, shard).exists()
    last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
    tell(f"shard {shard}: " + ("done" if ended else f"lost ({process.returncode}) {last}"))
    return ended


def _begin(folder: Path, shard: int, kept: Path, part: Budget, *, again: bool) -> int:
    """Notes that a shard begins; returns the tokens that are lost of an earlier attempt.

    Raises:
        RecordError: it had begun, and its journals are gone.
    """
    begun = folder / "shards" / f"{shard:04d}.begun"
    lost = int(begun.read_text() or 0) if begun.exists() else 0
    if begun.exists() and not kept.is_dir():
        if not again:
            raise RecordError(
                f"shard {shard} had begun and its journals are not at {kept}, so what it spent is "
                "not known; bring them there, or run it again with --again, which books its whole "
                "part as lost"
            )
        lost += part.tokens or 0
    begun.parent.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    begun.write_text(str(lost))
    return lost


def _result(folder: Path, shard: int) -> Path:
    return folder / "shards" / f"{shard:04d}.jsonl"


def _row(place: int, outcome: Outcome) -> Values:
    return {
        "place": place,
        "id": outcome.problem.id,
        "answer": outcome.answer,
        "confidence": outcome.confidence,
        "text": outcome.text,
        "stopped_by": outcome.stopped_by,
        "usage": _plain(asdict(outcome.usage)),
        "timing_dependent": list(outcome.timing_dependent),
        "error": None if outcome.error is None else f"{outcome.error}",
    }


def _plain(values: Any) -> Any:
    return json.loads(json.dumps(values))
