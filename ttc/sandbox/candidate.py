"""What the candidate's process runs: the program, then calls of what it has defined.

It is told the program and nothing else: no test, no expected value, no nonce. Whatever it does to
its own interpreter, only values leave it.
"""

from __future__ import annotations

import builtins
import os
import sys
from types import ModuleType
from typing import Any

from ttc.sandbox import codec
from ttc.sandbox.extraction import program_of
from ttc.sandbox.peer import Gone, Peer, fault

__all__ = ["main", "run_script"]

MODULE = "candidate"
"""The name of the module that the program is; never `__main__`, whose part it must not run."""


def main(link: int, judge: int) -> None:
    """Takes the program from `link`, runs it, and answers the judge."""
    program = _program(link)
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module

    def find(name: str) -> Any:
        for names in (vars(module), vars(builtins)):
            if name in names:
                return names[name]
        raise NameError(f"name {name!r} is not defined")

    peer = Peer(judge, find, calls_only=False)
    try:
        exec(compile(program, f"<{MODULE}>", "exec"), vars(module))
    except BaseException as error:  # noqa: BLE001 - a program may raise anything
        codec.send(judge, fault(error))
    else:
        codec.send(judge, {"loaded": True})
    try:
        peer.serve()
    except Gone:
        os._exit(0)


def run_script(link: int) -> None:
    """Takes a program from `link` and runs it as the main one, on standard input and output."""
    program = _program(link)
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["main.py"]
    status = 0
    try:
        exec(compile(program, "main.py", "exec"), vars(module))
    except SystemExit as ended:
        status = _status(ended.code)
    except BaseException:  # noqa: BLE001 - a program may raise anything
        sys.excepthook(*sys.exc_info())
        status = 1
    try:
        sys.stdout.flush()
    finally:
        os._exit(status)


def _program(link: int) -> str:
    """What is to be run; the socket is closed before it is."""
    told = codec.receive(link, limit=None)
    os.close(link)
    return program_of(told)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1
