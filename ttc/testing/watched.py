"""A run on fakes with everything in view: its ledger, its tasks, and what its engine counted.

What does not add up is an `AssertionError`, which says what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from random import Random
from typing import Any
from unittest import mock

from ttc.budget import LOGICAL, RESERVED, Account, in_units
from ttc.control import Control
from ttc.errors import EngineError
from ttc.graph import Node
from ttc.manual_clock import ManualClock
from ttc.ports import Request
from ttc.prices import Prices
from ttc.solve import asolve
from ttc.testing.fakes import FakeEngine, Script, _FakeGeneration
from ttc.types import Budget, Chunk, Event, Outcome, Usage

__all__ = [
    "PROMPT",
    "QUESTION",
    "CheckedEngine",
    "Ledgers",
    "Solved",
    "calls",
    "check_counts",
    "check_no_task_is_left",
    "counted",
    "lines",
    "prompt_tokens",
    "seen",
    "solved",
    "talker",
    "uneven",
    "whole",
]

QUESTION = "What is the answer to this?"
PROMPT = 8
"""Tokens of the question as the fake engine reads it, with the speaker's name."""

NOISE = Random(0).choices(("so", "well", "then", "hence", "but"), k=40)


class Ledgers(AbstractContextManager["Ledgers"]):
    """Sees every account that is made while it is entered."""

    def __init__(self) -> None:
        self.accounts: list[Account] = []

    def __enter__(self) -> Ledgers:
        made, plain = self.accounts, Account.__init__

        def init(account: Account, *args: object, **kwargs: object) -> None:
            plain(account, *args, **kwargs)  # type: ignore[arg-type]
            made.append(account)

        self._patch = mock.patch.object(Account, "__init__", init)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def check(self) -> None:
        """No account is overdrawn, now."""
        for account in self.accounts:
            for resource in RESERVED:
                spent, reserved = account.spent[resource], account.reserved[resource]
                limit = getattr(account.limit, resource)
                if reserved < 0:
                    raise AssertionError(f"{reserved} {resource} are reserved")
                if limit is not None and in_units(resource, spent + reserved) > limit:
                    raise AssertionError(
                        f"{resource}: {spent} spent and {reserved} reserved of {limit}"
                    )

    def check_settled(self) -> None:
        """Nothing is reserved, and no ticket is open."""
        for account in self.accounts:
            if any(account.reserved.values()) or not account.is_settled:
                raise AssertionError(f"after the end, reserved is {dict(account.reserved)}")


class CheckedEngine(FakeEngine):
    """A fake engine that looks at the ledgers whenever something happens in it."""

    ledgers: Ledgers | None = None
    is_lowered = False  # a limit below what was spent cannot hold any more

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> _FakeGeneration:
        """Checks before and after."""
        self.check()
        generation = super().submit(request, on_chunk)
        generation.future.add_done_callback(lambda _: self.check())
        return generation

    def check(self) -> None:
        """Looks at every account."""
        if self.ledgers is not None and not self.is_lowered:
            self.ledgers.check()


@dataclass(frozen=True)
class Solved:
    """An outcome, and what was seen on the way to it."""

    outcome: Outcome
    engine: FakeEngine
    clock: ManualClock
    ledgers: Ledgers

    @property
    def spent(self) -> Mapping[str, int]:
        """What the problem's own account says."""
        return self.ledgers.accounts[0].spent


def solved(  # noqa: PLR0913 - all keywords but two, each of its own
    graph: Node | str,
    script: Script = ("The answer is 1.", "The answer is 2.", "I see. The answer is 1."),
    *,
    budget: Budget | None = None,
    seed: int = 0,
    pace: Callable[[Request], float] | float = 0.1,
    concurrency: int | None = None,
    in_order: bool = False,
    context: int | None = None,
    roles: Sequence[str] = (),
    prices: Prices | None = None,
    watch: Callable[[Event], None] | None = None,
    control: Control | None = None,
    clock: ManualClock | None = None,
) -> Solved:
    """Solves a question and checks that everything was settled and counted."""
    clock, ledgers = clock or ManualClock(), Ledgers()
    engine = CheckedEngine(
        script,
        clock=clock,
        seconds_per_token=pace,
        concurrency=concurrency,
        in_order=in_order,
        context=context,
    )
    engine.ledgers, engine.is_lowered = ledgers, control is not None

    async def run() -> Outcome:
        outcome = await asolve(
            QUESTION,
            graph,
            model=engine,
            models=dict.fromkeys(roles, engine),
            budget=budget,
            seed=seed,
            clock=clock,
            prices=prices,
            watch=watch,
            control=control,
        )
        check_no_task_is_left()
        return outcome

    with ledgers:
        outcome = clock.run(run())
    ledgers.check_settled()
    check_counts(outcome, engine, ledgers)
    return Solved(outcome, engine, clock, ledgers)


def check_no_task_is_left() -> None:
    """Nobody but the caller is alive in this event loop."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        raise AssertionError(f"tasks are left behind: {left}")


def check_counts(outcome: Outcome, engine: FakeEngine, ledgers: Ledgers) -> None:
    """Ledger, usage, trace and the engine's own count agree, to the token."""
    usage, spent = outcome.usage, ledgers.accounts[0].spent
    tokens = prompt_tokens(engine.requests) + engine.output_tokens
    pairs: dict[str, tuple[object, object]] = {
        "calls that still run": (engine.active, 0),
        "tokens": (usage.tokens, tokens),
        "output tokens": (usage.output_tokens, engine.output_tokens),
        "calls": (usage.calls, calls(engine.requests)),
        "the ledger": ({r: spent[r] for r in LOGICAL}, {r: getattr(usage, r) for r in LOGICAL}),
    }
    if engine.costs is not None:
        pairs |= {
            "input tokens": (usage.input_tokens, engine.input_tokens),
            "FLOPs": (usage.flops, engine.flops),
            "the ledger's FLOPs": (spent["flops"], usage.flops),
            "KV": (_rounded(usage.kv_byte_seconds), _rounded(engine.kv_byte_seconds)),
        }
    traced = lines(sum((record.usage for record in outcome.trace), Usage()))
    pairs |= {f"the trace's {name}": (traced[name], told) for name, told in lines(usage).items()}
    wrong = [f"{name}: {told} and {true}" for name, (told, true) in pairs.items() if told != true]
    if wrong:
        raise AssertionError(f"the usage is not complete: {'; '.join(wrong)}")


def lines(usage: Usage) -> dict[str, object]:
    """Every line of a usage but the seconds; what is measured in fractions, rounded."""
    found = {f.name: getattr(usage, f.name) for f in fields(Usage) if f.name != "seconds"}
    return {name: _rounded(value) for name, value in found.items()}


def _rounded(value: Any) -> Any:
    """A fraction to nine digits."""
    return float(f"{value:.8e}") if isinstance(value, float) else value


def counted(usage: Usage) -> dict[str, object]:
    """What a run counts rather than measures."""
    names = ("tokens", "calls", "verifier_calls", "tokens_cancelled", "output_tokens", "flops")
    return {name: getattr(usage, name) for name in names}


def prompt_tokens(requests: Sequence[Request]) -> int:
    """Every distinct prompt token once: a set of all prefixes, by brute force."""
    prefixes: set[tuple[object, ...]] = set()
    for request in requests:
        before: tuple[object, ...] = (request.branch.role,)
        for segment in request.branch.lineage():
            if segment.call is not None:
                before = ("call", segment.call, segment.text)
                continue
            for token in segment.token_ids or ():
                before = (*before, token)
                prefixes.add(before)
    return len(prefixes)


def calls(requests: Sequence[Request]) -> int:
    """Calls without those that are only the tail of one."""
    return sum(not request.call.endswith("/tail") for request in requests)


def talker(failing: float = 0.0, answers: str = "1123", longest: int = 9) -> Script:
    """A script whose reply is a function of the request's seed: of any length, or an error."""

    def reply(request: Request) -> str | EngineError:
        random = Random(request.seed)
        if random.random() < failing:
            return EngineError("it broke", output_tokens=random.randrange(2))
        words = NOISE[: random.randrange(longest)]
        ending = random.choice([*answers, ""])
        return " ".join([*words, f"The answer is {ending}." if ending else "I give up."])

    return reply


def uneven(salt: int) -> Callable[[Request], float]:
    """Latencies with a heavy tail, a function of the request and of a salt."""

    def pace(request: Request) -> float:
        return Random(request.seed ^ salt).choice((0.01, 0.02, 0.05, 1.0))

    return pace


def seen(outcome: Outcome) -> tuple[object, ...]:
    """What no timing may change, even where a stop cut calls in flight."""
    candidates = [
        (c.text, c.answer, c.status, c.confidence, c.error, [s.value for s in c.scores.values()])
        for c in outcome.candidates
    ]
    usage = outcome.usage
    return (
        outcome.answer,
        outcome.confidence,
        outcome.stopped_by,
        candidates,
        usage.tokens - usage.tokens_cancelled,
    )


def whole(outcome: Outcome) -> tuple[object, ...]:
    """Everything that no timing may change where nothing was stopped."""
    return (*seen(outcome), outcome.trace, counted(outcome.usage), outcome.usage_by_role)
