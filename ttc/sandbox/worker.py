"""The zygote: a process of its own, which `ttc.sandbox.zygote` starts.

Enters the jail, then forks a process for each request that comes over its socket, and kills each
one at its limit. It reads no payload and holds no secret: programs and tests go from the caller to
each process by sockets of their own. It ends, and everything in it, when its socket closes.

Requests and reports are lines of JSON; the descriptors that a request names come along with it.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import sysconfig
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ttc.sandbox.jail import Jail, Level, enter
from ttc.sandbox.kinds import KINDS, Kind
from ttc.sandbox.limits import Limits
from ttc.sandbox.memory import Memory

__all__ = ["main"]

_WATCH_S = 0.02
_MOST_DESCRIPTORS = 1 << 16
_FIRST_FREE = 200  # above the descriptors that a process is given
_FAULT_BYTES = 1000


@dataclass(kw_only=True)
class _Running:
    """A process that has not been reaped."""

    number: int
    pid: int
    deadline: float
    limits: Limits
    fault: int
    """Where the process tells why it could not be confined; it says nothing otherwise."""
    cut: str | None = None
    """The limit that ended it."""


class _Zygote:
    def __init__(self, kind: Kind, jail: Jail, control: socket.socket) -> None:
        self._jail, self._control = jail, control
        self._mains = {name: _function(target) for name, target in kind.mains.items()}
        self._memory = Memory()
        self._running: dict[int, _Running] = {}
        self._descriptors: deque[int] = deque()
        self._buffer = b""
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Works until the socket closes."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = dict(poll.poll(self._patience()))
            if self._woken.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
            self._reap()
            if self._control.fileno() in ready and not self._read():
                return
            self._watch()

    def end(self) -> None:
        """Kills and reaps everything that still runs."""
        for running in self._running.values():
            self._jail.kill(running.pid)
        for running in self._running.values():
            os.waitpid(running.pid, 0)

    def _patience(self) -> int | None:
        """Milliseconds until something has to be looked at."""
        if not self._running:
            return None
        waits = [running.deadline - time.monotonic() for running in self._running.values()]
        if any(running.limits.processes for running in self._running.values()):
            waits.append(_WATCH_S)
        return max(0, int(min(waits) * 1000) + 1)

    def _read(self) -> bool:
        """Carries out what has been asked; tells whether the socket is still open."""
        size = array.array("i").itemsize
        data, ancillary, _, _ = self._control.recvmsg(1 << 16, socket.CMSG_SPACE(16 * size))
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                received = array.array("i")
                received.frombytes(content[: len(content) - len(content) % size])
                self._descriptors.extend(received)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["do"] == "fork":
                self._fork(request)
            else:
                self._kill(request["number"], "caller")
        return bool(data)

    def _fork(self, request: dict[str, Any]) -> None:
        passed = [self._descriptors.popleft() for _ in range(request["descriptors"])]
        limits = Limits(**request["limits"])
        main = self._mains[request["main"]]
        told, tells = os.pipe()
        try:
            pid = self._jail.fork(lambda: self._child(main, limits, passed, tells))
        except OSError as error:
            os.close(told)
            self._report({"ended": request["number"], "fault": str(error)})
        else:
            self._running[pid] = _Running(
                number=request["number"],
                pid=pid,
                deadline=time.monotonic() + limits.seconds,
                limits=limits,
                fault=told,
            )
        for descriptor in (*passed, tells):
            os.close(descriptor)

    def _child(
        self, main: Callable[..., None], limits: Limits, passed: Sequence[int], tells: int
    ) -> None:
        """Never returns: runs `main` in a confined process that holds nothing else."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        count = len(passed)
        high = [_duplicate(descriptor) for descriptor in (*passed, tells)]
        for number, descriptor in enumerate(high):
            os.dup2(descriptor, number, inheritable=number < 3)
        os.set_inheritable(count, False)
        os.closerange(count + 1, _MOST_DESCRIPTORS)
        try:
            os.setsid()
            self._jail.confine(limits)
        except Exception as error:  # noqa: BLE001 - whatever it is, the program must not run
            os.write(count, f"{type(error).__name__}: {error}".encode()[:_FAULT_BYTES])
            os._exit(1)
        os.close(count)
        random.seed(0)
        try:
            main(*range(3, count))
        except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
            traceback.print_exc()
            os._exit(1)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(0)

    def _kill(self, number: int, cut: str) -> None:
        for running in self._running.values():
            if running.number == number and running.cut is None:
                running.cut = cut
                self._jail.kill(running.pid)

    def _watch(self) -> None:
        """Kills what has reached a limit that the kernel does not hold."""
        now = time.monotonic()
        for running in list(self._running.values()):
            if now >= running.deadline:
                self._kill(running.number, "seconds")
            elif running.limits.processes and self._is_too_large(running):
                self._kill(running.number, "memory")

    def _is_too_large(self, running: _Running) -> bool:
        return self._memory.used_by(running.pid) > running.limits.memory_bytes

    def _reap(self) -> None:
        while self._running:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            running = self._running.pop(pid, None)
            if running is None:  # a process that a run had left to the first one of the namespace
                continue
            fault = os.read(running.fault, _FAULT_BYTES).decode(errors="replace")
            os.close(running.fault)
            self._report(
                {
                    "ended": running.number,
                    "status": os.waitstatus_to_exitcode(status),
                    "cpu_seconds": used.ru_utime + used.ru_stime,
                    "peak_bytes": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
                    "cut": running.cut,
                    "fault": fault or None,
                }
            )

    def _report(self, report: dict[str, Any]) -> None:
        self._control.sendall(json.dumps(report).encode() + b"\n")


def _duplicate(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)


def _function(target: str) -> Callable[..., None]:
    module, _, name = target.partition(":")
    found: Callable[..., None] = getattr(import_module(module), name)
    return found


def _packages(kind: Kind) -> list[str]:
    """The folders of the packages that runs of a kind may import.

    Raises:
        ModuleNotFoundError: one of them is not installed.
    """
    folders = []
    for name in kind.packages:
        spec = find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"{name} is not installed")
        folders += spec.submodule_search_locations or [spec.origin or ""]
    return folders


def _serve(kind: Kind, level: Level, control: socket.socket) -> None:
    packages = _packages(kind)

    def load() -> None:
        for name in (*kind.preload, *(main.partition(":")[0] for main in kind.mains.values())):
            import_module(name)

    jail = enter(level, packages, load)
    parents = {os.path.dirname(folder) for folder in packages}
    sys.path[:] = [path for path in sys.path if path in parents or path in _standard_paths()]
    gc.collect()
    gc.freeze()
    zygote = _Zygote(kind, jail, control)
    control.sendall(json.dumps({"ready": jail.has_proc}).encode() + b"\n")
    try:
        zygote.serve()
    finally:
        zygote.end()


def _standard_paths() -> set[str]:
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return folders | {os.path.join(folder, "lib-dynload") for folder in folders}


def main(kind: str, level: Level, descriptor: str) -> None:
    """Serves until the socket closes, or tells by it why the level cannot be had."""
    control = socket.socket(fileno=int(descriptor))
    try:
        _serve(KINDS[kind], level, control)
    except (OSError, ImportError) as error:
        with contextlib.suppress(OSError):
            why = getattr(error, "strerror", None) or str(error)
            control.sendall(json.dumps({"refused": why}).encode() + b"\n")
        os._exit(1)
    os._exit(0)
