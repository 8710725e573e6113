"""The caller's side of a zygote: start one, fork processes from it, kill them, hear how they ended.

Belongs to one event loop and never blocks it. `ttc.sandbox.worker` is the other side.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from ttc.errors import SandboxError
from ttc.sandbox import codec
from ttc.sandbox.jail import Level
from ttc.sandbox.kinds import KINDS
from ttc.sandbox.limits import Limits
from ttc.sandbox.selfcheck import PROMISED

__all__ = ["Ended", "Process", "SandboxChoice", "Zygote"]

SandboxChoice = Literal["auto", "full", "none"]
"""What a caller accepts: any jail that holds, the full one alone, or none at all."""

_LEVELS: dict[str, tuple[Level, ...]] = {
    "auto": ("full", "restricted"),
    "full": ("full",),
    "none": ("none",),
}
_START = """
import sys, types
for name, folder in (("ttc", sys.argv[1]), ("ttc.sandbox", sys.argv[1] + "/sandbox")):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [folder]
from ttc.sandbox.worker import main
main(*sys.argv[2:])
"""  # as `-m ttc.sandbox.worker`, without the rest of ttc: each fork copies what the zygote holds
_popen = subprocess.Popen[bytes]
T = TypeVar("T")
_START_S = 60.0
_WITHOUT = 'sandbox="none" where the code may do whatever you may'
_GRACE_S = 2.0
_CHECK = Limits(seconds=10, memory_bytes=64 << 20)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended, as its zygote saw it."""

    status: int
    """The exit status; negative, the signal that killed it."""
    cpu_seconds: float = 0.0
    """Processor time of the process and of all that it had started."""
    peak_bytes: int = 0
    cut: Literal["seconds", "memory", "caller"] | None = None
    """What killed it, if it was not the kernel: a limit that the zygote holds, or `kill`."""
    fault: str | None = None
    """Why it never ran: what the machine refused. Not the program's doing."""


class Process:
    """A jailed process: a socket to talk by, pipes with what it writes, and its end."""

    def __init__(self, zygote: Zygote, number: int, limits: Limits) -> None:
        self.limits = limits
        self.link: socket.socket
        """The caller's end of the socket that the process has as its third descriptor."""
        self.stdout = self.stderr = -1
        self.ended: asyncio.Future[Ended] = zygote.loop.create_future()
        self._zygote, self._number = zygote, number

    async def give(self, message: object) -> None:
        """Sends it what it is to work on; one that has ended takes nothing, and tells so."""
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self.link, codec.pack(message))

    async def hear(self) -> dict[str, Any] | None:
        """What it says; `None` where it ends instead, or says what it cannot have meant."""
        try:
            length = codec.length_of(await self._exactly(codec.PREFIX_BYTES))
            told = codec.unpack(await self._exactly(length))
        except codec.CodecError:
            return None
        return told if isinstance(told, dict) else None

    async def _exactly(self, count: int) -> bytes:
        """So many bytes; fewer if it ends before."""
        loop, data = asyncio.get_running_loop(), b""
        with contextlib.suppress(OSError):
            while len(data) < count:
                part = await loop.sock_recv(self.link, count - len(data))
                if not part:
                    break
                data += part
        return data

    def kill(self) -> None:
        """Kills it, and at level full all that it has started; harmless once it has ended."""
        if not self.ended.done():
            self._zygote.send({"do": "kill", "number": self._number})

    def close(self) -> None:
        """Kills it and closes what leads to it."""
        self.kill()
        self.link.close()
        for descriptor in (self.stdout, self.stderr):
            if descriptor >= 0:
                os.close(descriptor)
        self.stdout = self.stderr = -1


class Zygote:
    """A running zygote. `await start(...)`, then `fork(...)`; `close()` ends all that it forked."""

    def __init__(self, kind: str, level: Level, control: socket.socket, keeper: Any) -> None:
        self.kind, self.level = kind, level
        self.layers: tuple[str, ...] = ()
        """The layers of the jail that hold, found by trying."""
        self.num_forks = 0
        self.alive = True
        self.loop = asyncio.get_running_loop()
        self._control, self._keeper = control, keeper
        self._has_proc = False
        self._processes: dict[int, Process] = {}
        self._alarms: dict[int, asyncio.TimerHandle] = {}
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        self._inbox = b""
        self._ready: asyncio.Future[dict[str, Any]] = self.loop.create_future()
        self._finalizer = weakref.finalize(self, _abandon, control, keeper)
        _reader(self.loop, control, self)

    @classmethod
    async def start(cls, kind: str, sandbox: SandboxChoice = "auto") -> Zygote:
        """Starts a zygote at the best level that holds.

        Args:
            kind: one of `ttc.sandbox.kinds.KINDS`.
            sandbox: `auto` takes level full or else restricted, `full` only that, `none` no jail.

        Raises:
            SandboxError: no level that `sandbox` accepts holds here; the message tells why.
        """
        if sandbox not in _LEVELS:
            raise SandboxError(f"sandbox is one of {', '.join(_LEVELS)}, not {sandbox!r}")
        faults = []
        for level in _LEVELS[sandbox]:
            try:
                return await cls._start(kind, level)
            except SandboxError as error:
                faults.append(f"level {level}: {error}")
        other = 'sandbox="auto" to accept a restricted one' if sandbox == "full" else _WITHOUT
        raise SandboxError(
            f"no such jail can be had here ({'; '.join(faults)}); run on Linux with user "
            f"namespaces or Landlock, or pass {other}"
        )

    @classmethod
    async def _start(cls, kind: str, level: Level) -> Zygote:
        if os.name != "posix" or (level != "none" and sys.platform != "linux"):
            raise SandboxError(f"{sys.platform} has none of its layers")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        spawning = _aside(_spawn, kind, level, theirs.fileno())
        try:
            keeper = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            ours.close()  # so that it ends at once
            await _aside(_reap, await spawning)
            raise
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        zygote = cls(kind, level, ours, keeper)
        try:
            async with asyncio.timeout(_START_S):
                ready = await zygote._ready
                if "refused" in ready:
                    raise SandboxError(ready["refused"])
                zygote._has_proc = ready["ready"]
                zygote.layers = await zygote._check()
        except TimeoutError:
            await zygote.close()
            raise SandboxError(f"it did not start within {_START_S:g} s") from None
        except BaseException:
            await zygote.close()
            raise
        return zygote

    async def _check(self) -> tuple[str, ...]:
        """The layers that hold; a fault if one that the level promises does not."""
        process = self.fork("check", _CHECK)
        try:
            told = await self.loop.sock_recv(process.link, 4096)
            ended = await process.ended
        finally:
            process.close()
        if ended.fault is not None or not told:
            raise SandboxError(ended.fault or f"its check ended with status {ended.status}")
        layers = tuple(json.loads(told))
        if missing := PROMISED[self.level] - set(layers):
            raise SandboxError(f"{', '.join(sorted(missing))} did not hold")
        return layers

    def fork(
        self,
        main: str,
        limits: Limits,
        *,
        stdin: int | None = None,
        sockets: Sequence[socket.socket] = (),
        is_heard: bool = True,
    ) -> Process:
        """Forks a confined process that runs one of the kind's mains.

        Args:
            main: its name in the kind.
            limits: what it may use.
            stdin: a descriptor for its standard input, which is closed here; nothing by default.
            sockets: further sockets, which the process gets after its link; closed here.
            is_heard: whether somebody reads what it writes; otherwise that is thrown away.

        Raises:
            SandboxError: the zygote has ended, or cannot hold the limits.
        """
        if limits.processes and not (self.level == "none" or self._has_proc):
            raise SandboxError(
                f"processes={limits.processes} needs level full and a /proc that can be mounted in "
                f"a jail, and this machine gives level {self.level}; set processes to 0"
            )
        if main not in KINDS[self.kind].mains:
            raise ValueError(
                f"{self.kind} has no {main!r}, but {', '.join(KINDS[self.kind].mains)}"
            )
        self.num_forks += 1
        process = Process(self, self.num_forks, limits)
        process.link, far = socket.socketpair()
        process.link.setblocking(False)
        if is_heard:
            process.stdout, out = os.pipe()
            process.stderr, err = os.pipe()
            for end in (process.stdout, process.stderr):
                os.set_blocking(end, False)
        else:
            out, err = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))
        passed = [os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, out, err]
        passed += [far.detach(), *(one.detach() for one in sockets)]
        self._processes[self.num_forks] = process
        if not self.alive:
            _close_all(passed)
            self._end(self.num_forks, Ended(status=-1, fault="the zygote has ended"))
            return process
        alarm = self.loop.call_later(limits.seconds + _GRACE_S, self._overdue, self.num_forks)
        self._alarms[self.num_forks] = alarm
        request = {
            "do": "fork",
            "number": self.num_forks,
            "main": main,
            "limits": asdict(limits),
            "descriptors": len(passed),
        }
        self.send(request, passed)
        return process

    @property
    def is_idle(self) -> bool:
        """Whether nothing that it forked still runs."""
        return not self._processes

    def send(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends a request; the descriptors go along and are closed here."""
        if not self.alive:
            _close_all(descriptors)
            return
        self._outbox.append((json.dumps(request).encode() + b"\n", list(descriptors)))
        if len(self._outbox) == 1:
            self._write()

    async def close(self) -> None:
        """Ends the zygote and everything that it forked."""
        self._dead("the zygote was closed")
        await _aside(self._finalizer)

    def abandon(self) -> None:
        """As `close`, once the event loop has been closed."""
        self.alive = False
        self._finalizer()

    def _write(self) -> None:
        while self._outbox:
            data, descriptors = self._outbox[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            try:
                sent = self._control.sendmsg([data], rights if descriptors else [])
            except BlockingIOError:
                self.loop.add_writer(self._control, self._write)
                return
            except OSError:
                self._dead("the zygote died")
                return
            _close_all(descriptors)
            if sent < len(data):
                self._outbox[0] = (data[sent:], [])
            else:
                self._outbox.popleft()
        self.loop.remove_writer(self._control)

    def _read(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._dead("the zygote died")
            return
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        for line in lines:
            report = json.loads(line)
            if "ended" in report:
                self._end(report.pop("ended"), Ended(**{"status": -1, **report}))
            elif not self._ready.done():
                self._ready.set_result(report)

    def _end(self, number: int, ended: Ended) -> None:
        if (alarm := self._alarms.pop(number, None)) is not None:
            alarm.cancel()
        process = self._processes.pop(number, None)
        if process is not None and not process.ended.done():
            process.ended.set_result(ended)

    def _overdue(self, number: int) -> None:
        """The zygote should have killed it by now, so it hangs: end it, and all with it."""
        if number in self._processes:
            self._end(number, Ended(status=-signal.SIGKILL, cut="seconds"))
            self._dead("the zygote hung")

    def _dead(self, why: str) -> None:
        if not self.alive:
            return
        self.alive = False
        self.loop.remove_reader(self._control)
        self.loop.remove_writer(self._control)
        self._control.close()
        for _, descriptors in self._outbox:
            _close_all(descriptors)
        self._outbox.clear()
        for number in list(self._processes):
            self._end(number, Ended(status=-signal.SIGKILL, fault=why))
        if not self._ready.done():
            self._ready.set_result({"refused": why})


def _reader(loop: asyncio.AbstractEventLoop, control: socket.socket, zygote: Zygote) -> None:
    """Lets the loop read for the zygote without keeping it alive."""
    weak = weakref.ref(zygote)

    def read() -> None:
        if (alive := weak()) is not None:
            alive._read()

    loop.add_reader(control, read)


def _aside(work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Lets a thread of its own do work that waits.

    The loop's threads may all be held by graders and tools that wait for a sandbox themselves.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="ttc sandbox")
    done = asyncio.get_running_loop().run_in_executor(thread, work, *arguments)
    thread.shutdown(wait=False)  # it ends once the work is done
    return done


def _spawn(kind: str, level: Level, descriptor: int) -> subprocess.Popen[bytes]:
    """Starts the zygote with an environment of its own and nothing else of this process."""
    environment = {
        "PYTHONPATH": os.pathsep.join(_package_parents(kind)),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MALLOC_ARENA_MAX": "1",  # an arena for each thread would count against the memory limit
        "HOME": "/tmp",
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
    }
    home = str(Path(__file__).parent.parent)
    return _popen(
        [sys.executable, "-s", "-P", "-S", "-c", _START, home, kind, level, str(descriptor)],
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        start_new_session=True,
    )


def _package_parents(kind: str) -> list[str]:
    found = (find_spec(name) for name in KINDS[kind].packages)
    return sorted({str(Path(spec.origin).parent.parent) for spec in found if spec and spec.origin})


def _abandon(control: socket.socket, keeper: subprocess.Popen[bytes]) -> None:
    """Ends a zygote that nobody closed."""
    control.close()
    _reap(keeper)


def _reap(keeper: subprocess.Popen[bytes]) -> None:
    """Lets a zygote end, whose socket is closed, or ends it."""
    try:
        keeper.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
