"""Control: changes a run while it runs, from any thread.

    control = Control()
    watcher = threading.Thread(target=lambda: control.set_budget(tokens=500))
    outcome = ttc.solve(question, strategy, model=model, control=control)

What it is told takes effect at the next step of the run's event loop, and so before the engine's
next step is over. What changed a run is named in `Outcome.timing_dependent`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ttc.prices import Price, check_limits
from ttc.resources import LOGICAL, MEASURED, RESERVED, UNITS, in_units, shares
from ttc.safe_text import safe_logger
from ttc.types import Budget, Usage

if TYPE_CHECKING:
    from ttc.allocate import Market
    from ttc.ports import Engine
    from ttc.run import Run

__all__ = ["Control"]

_log = safe_logger(__name__)


class Control:
    """Steers the run that it is given to as `control=`; a run takes one, and it takes one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._early: list[Callable[[], object]] = []
        self._engines: Mapping[str, Engine] = {}
        self._budgets: list[Budget] = []
        self._runs: dict[int, Run] = {}
        self._ended: dict[int, Mapping[str, float]] = {}
        self._cancelled: set[int] = set()
        self._prices: dict[str, Price] = {}
        self._repriced: dict[str, Price] = {}
        self._began = 0.0
        self._shared: dict[str, float | None] | None = None
        self._cap = Budget()
        self._market: Market | None = None
        self._changed: dict[int, dict[str, float | None]] = {}
        self._is_paused = False

    # For whoever steers, from any thread.

    def set_budget(self, problem: int | None = None, **limits: float | None) -> None:
        """Changes limits of the whole run, or of one of its problems by its place.

        A limit that is lowered below what is spent and reserved ends calls, the newest first,
        until the others fit; what had been spent at that moment is all that is ever spent beyond
        it. What a run over many problems has left is divided anew among those that have not ended,
        or, of tokens and calls, given away by its allocator, where it has one.

        Args:
            problem: the place of a problem; `None` is the whole run.
            limits: fields of `Budget`; `None` lifts a limit.

        Raises:
            TypeError: a limit has no such name.
            ValueError: a limit cannot have such a value, or an allocator cannot do without it.
            PriceError: nobody has told what work costs, so the limit could not be kept.
        """
        wanted: dict[str, Any] = dict(limits)
        budget = Budget(**wanted)
        if self._engines:
            check_limits(budget, self._engines, self._prices)
        if problem is None:
            self._check_given_away(wanted)
        self._post(lambda: self._set_budget(problem, wanted))

    def pause(self) -> None:
        """Lets no call start any more; those that run go on to their end, and time goes on."""
        self._post(lambda: self._hold(True))

    def resume(self) -> None:
        """Lets calls start again, in the order in which they were launched."""
        self._post(lambda: self._hold(False))

    def cancel(self, problem: int | None = None, *, call: str | None = None) -> None:
        """Ends the run, one problem of it, or one call; the best so far is the result.

        Args:
            problem: the place of a problem; `None` is every problem.
            call: one call, as `path#index`: its candidate is cancelled, and its siblings go on.
        """
        self._post(lambda: self._cancel(problem, call))

    def set_price(self, price: Price) -> None:
        """Changes what the tokens of a model cost, for calls that are launched from now on."""
        self._post(lambda: self._set_price(price))
        with self._lock:  # at once, for a limit on dollars that may follow
            self._prices |= dict.fromkeys(self._roles_of(price.model), price)

    def state(self) -> Future[dict[str, Any]]:
        """What is being run: by problem its usage and its limits, for those that have not ended."""
        told: Future[dict[str, Any]] = Future()
        self._post(lambda: told.set_result(self._state()))
        return told

    # For `ttc.solve`, in the run's event loop.

    def begin(
        self,
        budgets: Sequence[Budget],
        engines: Mapping[str, Engine],
        prices: Mapping[str, Price],
        *,
        now: float,
        shared: Mapping[str, float | None] | None = None,
        cap: Budget | None = None,
        market: Market | None = None,
    ) -> None:
        """Takes a run over.

        Args:
            budgets: what each of its problems may spend.
            engines: the engine of each role.
            prices: the price of each role's model, as far as it is known.
            now: the moment of its start, by its clock.
            shared: limits that hold for all problems together, undivided: seconds, and what an
                allocator gives away. `None` for a run of one problem, whose limits are its own.
            cap: what one problem may spend at most, however much the run may.
            market: what gives tokens and calls away, where an allocator does.

        Raises:
            ValueError: it has had a run already.
        """
        with self._lock:
            if self._loop is not None:
                raise ValueError("this Control has had a run already; make one for each run")
            self._budgets, self._engines, self._prices = list(budgets), engines, dict(prices)
            self._began, self._market, self._cap = now, market, cap or Budget()
            self._shared = None if shared is None else dict(shared)
            self._loop = asyncio.get_running_loop()
        for action in self._early:
            action()

    def budget_of(self, problem: int, began: float) -> Budget:
        """What a problem that began at some moment may spend."""
        budget = self._budgets[problem]
        for name, limit in (self._shared or {}).items():
            if limit is None:
                continue
            if name == "seconds":
                limit = max(0.0, self._began + limit - began)
            own = getattr(budget, name)
            least: Any = limit if own is None else min(own, limit)
            budget = replace(budget, **{name: least})
        return budget

    def attach(self, problem: int, run: Run) -> None:
        """Takes a problem's run over, with all that has been changed for it before it began."""
        self._runs[problem] = run
        run.prices = dict(self._prices)
        for price in dict.fromkeys(self._repriced.values()):
            run.repriced(price)
        for name, limit in self._changed.get(problem, {}).items():
            run.changed(name, limit)
        run.account.gate.hold(self._is_paused)
        if problem in self._cancelled:
            run.cancel()

    def detach(self, problem: int) -> None:
        """Forgets a run that has ended, but for what it spent."""
        run = self._runs.pop(problem)
        self._ended[problem] = self._spent(run)

    # What happens, in the run's event loop.

    def _post(self, action: Callable[[], object]) -> None:
        with self._lock:
            if self._loop is None:
                self._early.append(action)
                return
            try:
                self._loop.call_soon_threadsafe(action)
            except RuntimeError:
                _log.debug("the run had ended before it was changed")

    def _check_given_away(self, limits: Mapping[str, Any]) -> None:
        if self._market is not None and limits.get("tokens", 0) is None:
            raise ValueError("an allocator gives tokens away, so their limit cannot be lifted")

    def _set_budget(self, problem: int | None, limits: Mapping[str, Any]) -> None:
        if problem is not None:
            self._change(problem, limits)
            return
        self._check_given_away(limits)
        unfinished = [i for i in range(len(self._budgets)) if i not in self._ended]
        if self._shared is None:
            parts = [dict(limits)] * len(unfinished)
        else:
            parts = self._divided(limits, unfinished)
            self._shared.update({name: limits[name] for name in self._shared if name in limits})
        for place, part in zip(unfinished, parts, strict=True):
            self._change(place, part, limits)
        if self._market is not None:
            self._market.set_limits(self._shared or {})

    def _divided(
        self, limits: Mapping[str, Any], unfinished: Sequence[int]
    ) -> list[dict[str, float | None]]:
        """What each unfinished problem may spend: what it has spent, and a part of what is left."""
        spent = {i: self._spent(run) for i, run in self._runs.items()}
        parts: list[dict[str, float | None]] = [{} for _ in unfinished]
        for name, limit in limits.items():
            if name in (self._shared or {}):
                continue
            cap = getattr(self._cap, name)
            if limit is None:
                for part in parts:
                    part[name] = cap
                continue
            gone = sum(usage[name] for usage in (*self._ended.values(), *spent.values()))
            unit = UNITS.get(name, 1 if name in LOGICAL else 10**6)
            left = shares(max(0, round((limit - gone) * unit)), [1] * len(unfinished))
            for place, part, more in zip(unfinished, parts, left, strict=True):
                own = spent[place][name] if place in spent else 0
                most = own + (more if name in LOGICAL else more / unit)
                part[name] = most if cap is None else min(most, cap)
        return parts

    def _change(
        self,
        problem: int,
        limits: Mapping[str, Any],
        told: Mapping[str, float | None] | None = None,
    ) -> None:
        """Changes what a problem may spend; `told` is what of it is noted, by default the same."""
        if problem in self._ended or not 0 <= problem < len(self._budgets):
            return
        self._budgets[problem] = replace(self._budgets[problem], **limits)
        noted = limits if told is None else {name: limits.get(name, told[name]) for name in told}
        self._changed.setdefault(problem, {}).update(noted)
        if problem in self._runs:
            for name, limit in noted.items():
                self._runs[problem].changed(name, limit)
            self._runs[problem].set_limits(self.budget_of(problem, self._runs[problem].started))

    def _hold(self, is_held: bool) -> None:
        self._is_paused = is_held
        for run in self._runs.values():
            run.account.gate.hold(is_held)

    def _cancel(self, problem: int | None, call: str | None) -> None:
        places = range(len(self._budgets)) if problem is None else [problem]
        for place in places:
            run = self._runs.get(place)
            if call is None:
                self._cancelled.add(place)
            if run is not None and call is None:
                run.cancel()
            elif run is not None:
                run.cancel_call(call or "")

    def _set_price(self, price: Price) -> None:
        changed = dict.fromkeys(self._roles_of(price.model), price)
        self._prices |= changed
        self._repriced |= changed
        for run in self._runs.values() if changed else ():
            run.prices |= changed
            run.repriced(price)

    def _roles_of(self, model: str) -> list[str]:
        return [role for role, engine in self._engines.items() if engine.name == model]

    def _state(self) -> dict[str, Any]:
        problems = [
            {
                "problem": place,
                "id": run.problem.id,
                "usage": _told(run.usage),
                "budget": _told(self.budget_of(place, run.started)),
                "calls_running": run.running,
            }
            for place, run in self._runs.items()
        ]
        return {
            "paused": self._is_paused,
            "problems": len(self._budgets),
            "ended": len(self._ended),
            "running": problems,
        }

    @staticmethod
    def _spent(run: Run) -> dict[str, float]:
        spent = {r: in_units(r, run.account.spent[r]) for r in RESERVED}
        return spent | {r: getattr(run.usage, r) or 0.0 for r in MEASURED}


def _told(lines: Usage | Budget) -> dict[str, Any]:
    return {name: value for name, value in vars(lines).items() if value is not None}
