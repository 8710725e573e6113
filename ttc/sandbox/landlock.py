"""Landlock: which files a process may touch, from now on and for all that it starts.

*Source:* the kernel's `linux/landlock.h`, versions 1 to 7 of its interface. An older kernel
restricts less; version 1 is enough for files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

from ttc.sandbox import kernel

__all__ = ["restrict", "version"]

_VERSION_FLAG = 1
_PATH_BENEATH = 1
_READ = 0b0_1101  # execute, read a file, read a folder
_FILE_BITS = 0b1100_0000_0000_0111  # those that a rule on a single file may hold
_ALL_BY_VERSION = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_NETWORK, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals


def version() -> int:
    """The version of the kernel's interface; 0 where there is none."""
    try:
        return kernel.landlock("create_ruleset", 0, 0, _VERSION_FLAG)
    except OSError:
        return 0


def restrict(*, read: Iterable[str], write: Iterable[str]) -> None:
    """Leaves this process what lies below `read`, read-only, and below `write`, whole.

    A path that does not exist is left out. `PR_SET_NO_NEW_PRIVS` must have been set.
    """
    supported = version()
    handled = _ALL_BY_VERSION[min(supported, max(_ALL_BY_VERSION))]
    fields = [handled]
    if supported >= 4:
        fields.append(_NETWORK)
    if supported >= 6:
        fields.append(_SCOPES)
    packed = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = kernel.landlock("create_ruleset", packed, len(packed), 0)
    try:
        for path in read:
            _allow(ruleset, path, _READ)
        for path in write:
            _allow(ruleset, path, handled)
        kernel.landlock("restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _FILE_BITS
        rule = struct.pack("=Qi", access, descriptor)
        kernel.landlock("add_rule", ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
