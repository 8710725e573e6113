"""The jail: what a process loses before it runs a program that nobody has read.

Three levels. `full`: user, mount, pid, net, IPC and UTS namespaces, a root of its own in memory
with the interpreter read-only, and for each run fresh user, pid and mount namespaces, with Landlock
where the kernel has it, seccomp and resource limits. `restricted`, where namespaces are refused:
Landlock, seccomp, resource limits, and no second process or thread. `none`: resource limits alone.

Two steps. `enter` puts the zygote into the jail, `confine` each process that it forks. What holds
is found by doing, in `ttc.sandbox.selfcheck`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn

from ttc.sandbox import kernel, landlock, seccomp
from ttc.sandbox.limits import Limits

__all__ = ["Jail", "Level", "enter"]

Level = Literal["full", "restricted", "none"]

_MOST_DESCRIPTORS = 1 << 16
_SPARE_UIDS = 0x6000_0000  # far above what account databases hand out
_STAGES = ("/tmp", "/var/tmp", "/mnt", "/dev/shm")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_PROGRAMS = ("/bin", "/usr/bin", "/usr/share/zoneinfo", "/etc/alternatives")


@dataclass(frozen=True, kw_only=True)
class Jail:
    """What the zygote has entered, and what it does to each process that it forks."""

    level: Level
    has_proc: bool
    """Whether a fresh `/proc` can be mounted; some containers forbid it."""
    readable: tuple[str, ...]
    """What a run may read."""
    base: int | None
    """The address space of the bare process, in bytes."""
    work: str = "/"
    """Where a run starts; at level full a folder of its own, the only one that it can write to."""
    own_pids: int | None = None
    """The zygote's own pid namespace, to return to."""

    def fork(self, child: Callable[[], None]) -> int:
        """Forks a process that runs `child` and ends; at level full, in a new pid namespace."""
        if self.own_pids is not None:
            kernel.unshare(kernel.CLONE_NEWPID)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    child()
                finally:
                    os._exit(1)
        finally:
            if self.own_pids is not None:
                kernel.setns(self.own_pids, kernel.CLONE_NEWPID)
        return pid

    def kill(self, pid: int) -> None:
        """Ends a process that `fork` started; at level full, with all that it has started."""
        if self.level == "none":  # the best that can be done for what it has started
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)

    def confine(self, limits: Limits) -> None:
        """Takes from this process all that a run must not have, for good."""
        if self.level == "none":
            limits.hold(tasks=False, base=self.base)
            return
        if self.level == "full":
            self._own_mounts(limits)
            kernel.unshare(kernel.CLONE_NEWUSER)  # so that the kernel counts this run's tasks alone
        kernel.capabilities_dropped()
        kernel.no_new_privileges()
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        full = self.level == "full"
        if landlock.version():
            writable = (self.work, "/dev/null") if full else ("/dev/null",)
            landlock.restrict(read=("/",) if full else self.readable, write=writable)
        limits.hold(tasks=full, base=self.base)
        seccomp.refuse(threads=full and limits.threads > 0, forks=full and limits.processes > 0)

    def _own_mounts(self, limits: Limits) -> None:
        kernel.unshare(kernel.CLONE_NEWNS)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        options = f"size={limits.disk_bytes},nr_inodes={limits.files + 1},mode=0700"
        kernel.mount("tmpfs", self.work, "tmpfs", flags, options)
        if self.has_proc:
            kernel.mount("proc", "/proc", "proc", flags | kernel.MS_NOEXEC, "subset=pid")
        os.chdir(self.work)


def enter(level: Level, packages: Iterable[str], loaded: Callable[[], None]) -> Jail:
    """Puts this process, or rather a child of it that alone returns, into the jail.

    Args:
        level: how far to go; an `OSError` tells what the machine refuses.
        packages: folders that a run may read, beside the interpreter's own.
        loaded: imports what the zygote is to hold, while all files can still be reached.
    """
    readable = tuple(dict.fromkeys([*_LIBRARIES, *_interpreter(), *packages]))
    if level == "full":
        return _enter_full((*readable, *_PROGRAMS, *_DEVICES), loaded)
    loaded()
    if level == "restricted":
        if not landlock.version():
            raise OSError("landlock: the kernel does not have it")
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.capabilities_dropped()
    return Jail(level=level, has_proc=False, readable=readable, base=_address_space())


def _interpreter() -> Iterator[str]:
    """The standard library, and where the interpreter and its shared library lie."""
    for name in ("stdlib", "platstdlib"):
        yield sysconfig.get_path(name)
    if library := sysconfig.get_config_var("LDLIBRARY"):
        yield os.path.join(sysconfig.get_config_var("LIBDIR") or "", library)
    yield os.path.join(sys.base_exec_prefix, "bin")


def _address_space() -> int | None:
    try:
        with open("/proc/self/statm", encoding="utf-8") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _enter_full(shown: Iterable[str], loaded: Callable[[], None]) -> Jail:
    seccomp.prepare()
    _become_first_of_new_namespaces()
    loaded()
    base = _address_space()
    # Opened while this process still owns its home; bound once it owns nothing but the namespaces.
    sources = [(path, os.open(path, os.O_PATH)) for path in _outermost(shown)]
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    below = any(path.startswith("/tmp/") for path, _ in sources)
    work = "/box" if below else "/tmp"  # which must hide nothing that a run may read
    has_proc = _build_root(sources, work)
    pids = os.open("/proc/self/ns/pid", os.O_RDONLY)
    _move_into_root()
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    return Jail(
        level="full", has_proc=has_proc, readable=("/",), base=base, work=work, own_pids=pids
    )


def _become_first_of_new_namespaces() -> None:
    """Forks twice: the child's child returns, as the first process of its pid namespace.

    The parents only wait. As root the new namespaces belong to a uid that nobody has, since the
    kernel counts no processes against root's limit; only a process outside can map it.
    """
    as_root = os.geteuid() == 0
    uid, gid = (_SPARE_UIDS + os.getpid(),) * 2 if as_root else (os.geteuid(), os.getegid())
    unshared, mapped = os.pipe(), os.pipe()
    if (pid := os.fork()) != 0:
        os.read(unshared[0], 1)
        _map_ids(pid, uid, gid, as_root)
        os.write(mapped[1], b".")
        _keep(pid)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.unshare(
        kernel.CLONE_NEWUSER
        | kernel.CLONE_NEWNS
        | kernel.CLONE_NEWPID
        | kernel.CLONE_NEWNET
        | kernel.CLONE_NEWIPC
        | kernel.CLONE_NEWUTS
    )
    os.write(unshared[1], b".")
    for end in (unshared[0], unshared[1], mapped[1]):
        os.close(end)
    if not os.read(mapped[0], 1):
        raise OSError("the ids of a user namespace could not be mapped")
    os.close(mapped[0])
    if as_root:
        os.setgroups([])
    if (pid := os.fork()) != 0:
        _keep(pid)


def _map_ids(pid: int, uid: int, gid: int, as_root: bool) -> None:
    maps = {"uid_map": f"0 {uid} 1", "gid_map": f"0 {gid} 1"}
    for name, text in (maps if as_root else {"setgroups": "deny", **maps}).items():
        with open(f"/proc/{pid}/{name}", "w", encoding="utf-8") as file:
            file.write(text)


def _keep(pid: int) -> NoReturn:
    """Waits for a child, holding nothing, and ends as it does."""
    os.closerange(3, _MOST_DESCRIPTORS)
    _, status = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths that exist and lie below no other, the shortest first."""
    kept: list[str] = []
    for path in sorted(set(paths), key=len):
        if os.path.exists(path) and not any(path.startswith(f"{above}/") for above in kept):
            kept.append(path)
    return kept


def _build_root(sources: Iterable[tuple[str, int]], work: str) -> bool:
    """Builds the new root on a stage and makes it the working folder; tells if it has a /proc."""
    stage = next(path for path in _STAGES if os.path.isdir(path))
    kernel.mount("tmpfs", stage, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=0755")
    for path, descriptor in sources:
        target = stage + path
        is_folder = os.path.isdir(f"/proc/self/fd/{descriptor}")
        os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
        if not is_folder:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        source = f"/proc/self/fd/{descriptor}"
        kernel.bind_read_only(source, target, devices=path in _DEVICES)
        os.close(descriptor)
    for folder in ("/proc", work):
        os.makedirs(stage + folder, exist_ok=True)
    try:
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("proc", f"{stage}/proc", "proc", flags, "subset=pid")
    except OSError:  # a container that hides parts of /proc forbids whole ones
        has_proc = False
    else:
        has_proc = True
    os.chdir(stage)
    return has_proc


def _move_into_root() -> None:
    """Makes the working folder the root, read-only, and lets go of the old one."""
    kernel.pivot_root(".", ".")
    kernel.unmount(".")
    os.chdir("/")
    kernel.set_read_only("/")
