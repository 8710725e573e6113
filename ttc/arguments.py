"""What `solve` and its siblings are given: looked at, whole, before a model is loaded.

A value of a wrong kind is refused by name, with what to pass instead.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ttc.clock import SystemClock
from ttc.control import Control
from ttc.demands import demands_of
from ttc.equivalence import prepare
from ttc.errors import GraphError
from ttc.graph import Node, compile_graph
from ttc.ports import Clock, Engine
from ttc.prices import Price, Prices, check_limits
from ttc.types import Budget, Event, Problem

if TYPE_CHECKING:
    from ttc.sandbox.zygote import SandboxChoice

__all__ = ["Arguments", "Model", "Watch", "budget_of", "problem_of", "problems_of", "shown"]

Model = str | os.PathLike[str] | Engine
Watch = Callable[[Event], None]


class Arguments:
    """What `solve` and its siblings share, resolved once."""

    def __init__(  # noqa: PLR0913 - each of its own
        self,
        model: Model | None,
        models: Mapping[str, Model] | None,
        seed: int | None,
        clock: Clock | None,
        prices: Prices | None,
        watch: Watch | None,
        control: Control | None,
        sandbox: SandboxChoice,
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        """What was given.

        Raises:
            TypeError: something is of another kind than it should be.
            ValueError: a role has two models, or the sandbox is none that there is.
        """
        self.models = _models(model, models)
        _check("seed", seed, int, "a whole number")
        _check("prices", prices, Prices, "a ttc.prices.Prices, as Prices.read(path)")
        _check("control", control, Control, "a ttc.Control")
        _check("journal", journal, (str, os.PathLike), "the path of a file or a folder")
        if clock is not None and not callable(getattr(clock, "call_later", None)):
            raise TypeError(f"clock has now() and call_later(...), which {clock!r} has not")
        if watch is not None and not callable(watch):
            raise TypeError(f"watch is a function of an Event, not {watch!r}")
        _check_sandbox(sandbox)
        self.given_seed = seed
        self.seed = secrets.randbits(63) if seed is None else seed
        self.journal = None if journal is None else Path(journal)
        self.clock = clock or SystemClock()
        self.prices = Prices.of_the_user() if prices is None else prices
        self.watch, self.sandbox = watch, sandbox
        self.control = control or Control()
        self._demands: Mapping[str, frozenset[str]] | None = None

    def prepare(self, strategy: Node | str, *budgets: Budget) -> tuple[Node, dict[str, Engine]]:
        """The strategy, checked against its engines; engines are loaded only if it can run."""
        from ttc.registry import load_engine

        strategy = _strategy(strategy)
        if any(isinstance(model, str) for model in self.models.values()):
            strategy.validate()  # a fault is told before a model is loaded
        engines = {role: load_engine(model) for role, model in self.models.items()}
        strategy.validate(engines)
        if "policy" not in engines:
            raise GraphError(["every strategy begins with the prompt of the policy; pass model="])
        for budget in budgets:
            check_limits(budget, engines, self.prices_of(engines))
        return compile_graph(strategy), engines

    def demands_of(self, graph: Node) -> Mapping[str, frozenset[str]]:
        """What a graph needs of the engine of each role: found once for all problems."""
        if self._demands is None:
            self._demands = demands_of(graph)
            prepare(graph)
        return self._demands

    def prices_of(self, engines: Mapping[str, Engine]) -> dict[str, Price]:
        """Today's price of each role's model, as far as it is known."""
        today = datetime.now(UTC).date()
        found = {role: self.prices.of(engine.name, on=today) for role, engine in engines.items()}
        return {role: price for role, price in found.items() if price is not None}


def problem_of(given: str | Problem) -> Problem:
    """A problem, or that of a question.

    Raises:
        TypeError: it is neither.
        ValueError: the question is empty.
    """
    if isinstance(given, Problem):
        return given
    if not isinstance(given, str):
        raise TypeError(f"a problem is a question or a ttc.Problem, not {given!r}")
    if not given.strip():
        raise ValueError(f"a question has some text, which {given!r} has not")
    return Problem.ask(given)


def problems_of(given: Iterable[str | Problem]) -> list[Problem]:
    """Problems, or those of questions.

    Raises:
        TypeError: it is one problem, or no list of them.
        ValueError: a question is empty.
    """
    if isinstance(given, str | Problem):
        raise TypeError(f"problems is a list of them, not {given!r}; for one there is ttc.solve")
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"problems is a list of questions or of ttc.Problem, not {given!r}")
    return [problem_of(one) for one in given]


def budget_of(name: str, given: Budget | None) -> Budget:
    """A budget; without limits where none was given.

    Raises:
        TypeError: it is none.
    """
    _check(name, given, Budget, "a ttc.Budget, as Budget(tokens=1_000)")
    return given or Budget()


def _strategy(given: Node | str) -> Node:
    if isinstance(given, Node):
        return given
    if isinstance(given, str):
        from ttc.text_form import parse

        return parse(given)
    raise TypeError(f"a strategy is a graph of nodes, or its text form, not {shown(given)}")


def shown(given: object) -> str:
    """What was given, with how to mend the usual slip: a class in place of what it makes."""
    if isinstance(given, type):
        return f"the class {given.__name__}; make one by calling it: {given.__name__}(...)"
    return repr(given)


def _models(model: Model | None, models: Mapping[str, Model] | None) -> dict[str, str | Engine]:
    """The model of each role, paths as texts."""
    _check("models", models, Mapping, "a mapping of roles to models, as {'judge': ...}")
    bound = dict(models or {})
    if model is not None:
        if "policy" in bound:
            raise ValueError("model= and models['policy'] name the same role; pass one of them")
        bound["policy"] = model
    found: dict[str, str | Engine] = {}
    for role, one in bound.items():
        if not isinstance(role, str):
            raise TypeError(f"models binds roles by their names, which {role!r} is not")
        if isinstance(one, str | os.PathLike):
            found[role] = os.fspath(one)
        elif isinstance(one, type) or not callable(getattr(one, "submit", None)):
            raise TypeError(
                f"the model of the role {role!r} is a name, a path or an engine, not {shown(one)}"
            )
        else:
            found[role] = one
    return found


def _check_sandbox(given: SandboxChoice) -> None:
    if given == "auto":
        return
    from ttc.sandbox.zygote import SandboxChoice  # the sandbox is loaded when it is needed

    known = get_args(SandboxChoice)
    if given not in known:
        raise ValueError(f"sandbox is {', '.join(known[:-1])} or {known[-1]}, not {given!r}")


def _check(name: str, given: object, kind: Any, what: str) -> None:
    """Refuses a value that is given and of another kind; a bool is no number.

    Raises:
        TypeError: with what it should be.
    """
    if given is not None and (not isinstance(given, kind) or isinstance(given, bool)):
        raise TypeError(f"{name} is {what}, not {shown(given)}")
