"""The tool `python`: programs of the model in the jail, with what earlier cells of the branch left.

Nothing lives between two calls. A call runs the branch's earlier cells again, silently, and then
its own, so that a fork of a branch has its parent's state and no sibling's. Random numbers begin at
the same seed each time; what a program reads off a clock differs.
Cost: the time of all cells of the branch, for each call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ttc.ports import Scope
from ttc.sandbox.execution import Execution
from ttc.sandbox.limits import Limits
from ttc.tools.port import Arguments, Effect

__all__ = ["Python"]

_FENCE = re.compile(r"```[\w+-]*\n(.*?)\n?```", re.DOTALL)
_MOST_CELLS = 64
_GRACE_S = 30.0
"""How much longer than its program a call may take: the first one of a process starts the jail."""

_RUNNER = """
import ast, contextlib, io, json, random
def run(cell, names):
    tree = ast.parse(cell)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if value is not None:
            print(repr(value))
*earlier, now = json.loads({cells!r})
names = {{"__name__": "__main__"}}
random.seed(0)
for cell in earlier:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            run(cell, names)
        except BaseException:
            pass
run(now, names)
"""


@dataclass(frozen=True, kw_only=True)
class Python:
    """Runs a program and tells what it prints, and the value of a last expression."""

    executes: ClassVar[bool] = True
    """It runs what a model wrote, so a server asks whether that is allowed."""

    name: ClassVar[str] = "python"
    description: ClassVar[str] = (
        "Runs Python code and tells what it prints. Variables are kept from call to call."
    )
    parameters: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python code"}},
        "required": ["code"],
        "additionalProperties": False,
    }
    effect: ClassVar[Effect] = "reversible"
    """It changes the variables of the branch, and nothing else: it is jailed."""
    version: ClassVar[str] = "1"
    """Of what a program is put into."""
    is_trusted: ClassVar[bool] = True
    """A program sees nothing that the model did not write."""

    time_limit: float = 10.0
    """Seconds of a call, with all that it makes again."""
    memory_bytes: int = 512 << 20
    max_bytes: int = 8_192

    def __post_init__(self) -> None:
        self._limits()  # says what is wrong with a number

    @property
    def seconds(self) -> float:
        """The program's, and what its process needs."""
        return self.time_limit + _GRACE_S

    def check(self, arguments: Arguments) -> None:
        """Wants one text.

        Raises:
            ValueError: it is none.
        """
        if set(arguments) != {"code"} or not isinstance(arguments["code"], str):
            raise ValueError('it takes one text: {"code": "print(1)"}')

    async def __call__(
        self, arguments: Arguments, earlier: Sequence[Arguments], scope: Scope
    ) -> str:
        """Runs a program after the earlier ones of its branch.

        Raises:
            SandboxError: code cannot be run here as safely as the run wants.
        """
        if len(earlier) >= _MOST_CELLS:
            raise RuntimeError(f"it keeps the variables of {_MOST_CELLS} calls; begin anew")
        cells = [_code(one["code"]) for one in (*earlier, arguments)]
        program = _RUNNER.format(cells=json.dumps(cells))
        return _told(await scope.execute(program, limits=self._limits()))

    def _limits(self) -> Limits:
        return Limits(
            seconds=self.time_limit, cpu_seconds=self.time_limit, memory_bytes=self.memory_bytes
        )


def _code(text: str) -> str:
    """The code, without the fence that a model may put around it."""
    fenced = _FENCE.fullmatch(text.strip())
    return fenced[1] if fenced else text


def _told(execution: Execution) -> str:
    """What a program came to, in words."""
    output = execution.output.rstrip("\n")
    if execution.verdict == "finished":
        return output or "(it printed nothing)"
    reasons = {"timeout": "it took too long", "memory": "it needs too much memory"}
    reason = reasons.get(execution.verdict, execution.reason or execution.verdict)
    return f"{output}\n[{reason}]".lstrip("\n")
