"""System calls that Python has no name for, over ctypes.

A refusal is an `OSError` that names the call. Linux only; nothing here decides anything.
*Source:* the manual pages of the calls, section 2.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = [
    "bind_read_only",
    "capabilities_dropped",
    "landlock",
    "mount",
    "no_new_privileges",
    "pivot_root",
    "prctl",
    "set_read_only",
    "setns",
    "unmount",
    "unshare",
]

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE, _MNT_DETACH = -100, 0x8000, 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_MOUNT_SETATTR = 442
_LANDLOCK = {"create_ruleset": 444, "add_rule": 445, "restrict_self": 446}

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _call(name: str, *arguments: object) -> int:
    """A function of the C library that tells its faults by errno."""
    return _checked(name, getattr(_libc, name)(*arguments))


def _system_call(
    name: str, number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char]
) -> int:
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(name, getattr(_libc, "syscall")(ctypes.c_long(number), *passed))  # noqa: B009


def unshare(flags: int) -> None:
    """Leaves the namespaces that `flags` name for new ones."""
    _call("unshare", flags)


def setns(descriptor: int, kind: int) -> None:
    """Joins a namespace."""
    _call("setns", descriptor, kind)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mounts a file system, or binds one."""
    encoded = (os.fsencode(source), os.fsencode(target), os.fsencode(kind))
    _call("mount", *encoded, ctypes.c_ulong(flags), os.fsencode(options) or None)


def bind_read_only(source: str, target: str, *, devices: bool = False) -> None:
    """Shows `source` and all that is mounted below it at `target`, without a way to write."""
    mount(source, target, "", MS_BIND | MS_REC)
    set_read_only(target, devices=devices)


def set_read_only(target: str, *, devices: bool = False) -> None:
    """Makes a mount and all below it read-only, without set-uid programs and device files."""
    attributes = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | (0 if devices else _MOUNT_ATTR_NODEV)
    packed = attributes.to_bytes(8, sys.byteorder) + bytes(24)
    path = os.fsencode(target)
    flags = _AT_RECURSIVE
    _system_call("mount_setattr", _MOUNT_SETATTR, _AT_FDCWD, path, flags, packed, len(packed))


def unmount(target: str) -> None:
    """Takes a mount away, at the latest when the last file in it is closed."""
    _call("umount2", os.fsencode(target), _MNT_DETACH)


def pivot_root(new: str, old: str) -> None:
    """Makes `new` the root of the mount namespace."""
    number = _PIVOT_ROOT[os.uname().machine]
    _system_call("pivot_root", number, os.fsencode(new), os.fsencode(old))


def prctl(option: int, value: int = 0, pointer: object = None) -> None:
    """Sets a property of this process."""
    zero = ctypes.c_ulong(0)
    _call("prctl", option, ctypes.c_ulong(value), zero if pointer is None else pointer, zero, zero)


def no_new_privileges() -> None:
    """No program that this process starts can gain privileges."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def capabilities_dropped() -> None:
    """Gives up every capability. With `no_new_privileges` no program gains one back."""
    header = _CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)
    _system_call("capset", _CAPSET[os.uname().machine], header, bytes(24))


def landlock(call: str, *arguments: int | bytes) -> int:
    """One of the three calls of Landlock."""
    return _system_call(f"landlock_{call}", _LANDLOCK[call], *arguments)
