"""A sandbox to test: on an event loop of its own, as root or as an ordinary user, at any level."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest

from ttc.sandbox import kernel, seccomp, zygote
from ttc.sandbox.execution import Execution
from ttc.sandbox.forms import Asserts, Tests
from ttc.sandbox.limits import Limits
from ttc.sandbox.sandbox import Sandbox
from ttc.sandbox.zygote import SandboxChoice

T = TypeVar("T")

NOBODY = 64321
"""A uid without rights."""

Spawn = Callable[..., "subprocess.Popen[bytes]"]

QUICK = Limits(seconds=20, cpu_seconds=20)


class Bench:
    """A sandbox and the loop that it belongs to."""

    def __init__(self, choice: SandboxChoice = "auto", *, popen: Spawn | None = None) -> None:
        self._popen = popen or zygote._popen
        self.loop = asyncio.new_event_loop()
        self.sandbox = Sandbox(choice)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with mock.patch.object(zygote, "_popen", self._popen):
            return self.loop.run_until_complete(work)

    def execute(
        self, program: str, tests: Tests | None = None, limits: Limits = QUICK
    ) -> Execution:
        return self.run(self.sandbox.execute(program, tests, limits=limits))

    def asserts(self, program: str, *asserts: str, limits: Limits = QUICK) -> Execution:
        return self.execute(program, Asserts(asserts=asserts), limits)

    def needs(self, probe: str, told: str, limits: Limits = QUICK) -> None:
        """Skips unless a capped, harmless program shows that a limit holds."""
        execution = self.execute(probe, limits=limits)
        if execution.output.strip() != told:
            pytest.skip(
                f"the limit that protects this machine does not hold: {execution.output!r} "
                f"({execution.verdict}, {execution.reason}), not {told!r}"
            )

    def close(self) -> None:
        self.run(self.sandbox.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def spawning(python: str | None = None, **changes: Any) -> Spawn:
    """A way to start zygotes as the product does, but for the interpreter and some options."""

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            super().__init__([python or command[0], *command[1:]], **{**options, **changes})

    return Popen


@cache
def interpreter_of_nobody() -> str:
    """An interpreter that an ordinary user can run, with this ttc in reach; else skips."""
    check = f"import sys; assert sys.version_info >= (3, 11); {zygote._START.partition('main(')[0]}"
    home = str(Path(zygote.__file__).parent.parent)
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        if python is None:
            continue
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                [python, "-S", "-s", "-P", "-c", check, home],
                **as_nobody(),
                env={},
                cwd="/",
                capture_output=True,
                check=True,
            )
            return python
    pytest.skip("no interpreter and no copy of ttc here can be read by an ordinary user")


def as_nobody() -> Mapping[str, Any]:
    """Options of `Popen` for an ordinary user."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def refuse_namespaces() -> None:
    """Makes this process one that gets no namespaces, as in many containers."""
    column = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
    seccomp.install([
        (0x20, 0, 0, 0),  # load the number of the call
        (0x15, 0, 1, column),
        (0x06, 0, 0, 0x00050000 | 1),  # EPERM
        (0x06, 0, 0, 0x7FFF0000),  # allow
    ])  # fmt: skip


def prepare_refusal() -> None:
    kernel.no_new_privileges()
    refuse_namespaces()
