"""The system calls that a jailed program is refused: a filter of classic BPF, assembled here.

A call newer than this table, or of another architecture, is refused too. *Source:* seccomp(2), and
`struct seccomp_data` of the kernel's `linux/seccomp.h`. *Cost:* some 250 instructions, run once for
each system call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from ttc.sandbox import kernel

__all__ = ["MACHINES", "Instruction", "install", "prepare", "refuse"]

MACHINES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The architectures that the filter knows, and their names in the kernel."""

_COLUMNS = {"x86_64": 0, "aarch64": 1}
_NEWER = 451  # the first number that the table below does not cover, on both architectures
_X32 = 0x40000000

_REFUSED: Mapping[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    # the network, and passing descriptors
    "socket": (41, 198), "socketpair": (53, 199), "bind": (49, 200), "connect": (42, 203),
    "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242), "sendmsg": (46, 211),
    "recvmsg": (47, 212), "sendmmsg": (307, 269), "recvmmsg": (299, 243),
    # memory that no limit counts, and that outlives a process
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "userfaultfd": (323, 282), "remap_file_pages": (216, 234),
    "move_pages": (279, 239), "migrate_pages": (256, 238), "mbind": (237, 235),
    "set_mempolicy": (238, 237), "set_mempolicy_home_node": (450, 450),
    # large parts of the kernel that no program here needs
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_setup": (206, 0),
    "io_submit": (209, 2), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    # file systems and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "unshare": (272, 97), "setns": (308, 268),
    "mknod": (133, None), "mknodat": (259, 33), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225),
    # the machine
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "syslog": (103, 116), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None),
    "ioperm": (173, None), "modify_ldt": (154, None), "personality": (135, 92),
    "vhangup": (153, 58), "lookup_dcookie": (212, 18), "nfsservctl": (180, 42),
    "uselib": (134, None), "_sysctl": (156, None),
    # priorities and places of other processes
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274),
}  # fmt: skip
_FORKS = {"fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281)}
_TO_A_PROCESS = {  # calls whose first argument is a process; 0 is the caller for the second group
    "kill": (62, 129), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}  # fmt: skip
_OF_A_PROCESS = {"prlimit64": (302, 261), "sched_setaffinity": (203, 122)}
_TKILL, _CLONE, _CLONE3, _PRCTL = (200, 130), (56, 220), (435, 435), (157, 167)

_CLONE_NEW_ANYTHING = 0x7E020080  # user, pid, net, ipc, uts, cgroup, mount and time namespaces
_CLONE_THREAD = 0x00010000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_SECCOMP_MODE_FILTER = 2

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse(*, threads: bool, forks: bool) -> None:
    """Refuses this process what a jailed program does not need, for good.

    Args:
        threads: whether it may start threads.
        forks: whether it may start processes, and send them signals.
    """
    _load(_assembled(os.uname().machine, os.getpid(), threads, forks))


def install(instructions: Iterable[Instruction]) -> None:
    """Puts a filter of one's own on this process, for good."""
    _load(_packed(instructions))


def _packed(instructions: Iterable[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _load(packed: bytes) -> None:
    held = ctypes.create_string_buffer(packed, len(packed))
    program = _Program(len(packed) // 8, ctypes.addressof(held))
    kernel.prctl(kernel.PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))


@cache
def _assembled(machine: str, pid: int, threads: bool, forks: bool) -> bytes:
    return _packed(_filter(machine, pid, threads, forks))


def prepare() -> None:
    """Assembles the filters of first processes of pid namespaces, for all that fork from here."""
    for threads, forks in ((True, False), (False, False), (True, True), (False, True)):
        _assembled(os.uname().machine, 1, threads, forks)


def _filter(machine: str, pid: int, threads: bool, forks: bool) -> Iterator[Instruction]:
    column = _COLUMNS[machine]
    denied, missing = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    yield (_LOAD, 0, 0, _ARCHITECTURE)
    yield (_EQUAL, 1, 0, MACHINES[machine])
    yield (_RETURN, 0, 0, _KILL)
    yield (_LOAD, 0, 0, _NUMBER)
    yield from _when(_AT_LEAST, _X32, _KILL)
    yield from _when(_AT_LEAST, _NEWER, missing)
    yield from _when(_EQUAL, _CLONE3[column], missing)  # its flags lie where no filter can look
    refused = dict(_REFUSED) if forks else {**_REFUSED, **_FORKS}
    for numbers in refused.values():
        if (number := numbers[column]) is not None:
            yield from _when(_EQUAL, number, denied)
    yield from _clone(_CLONE[column], threads, forks)
    yield from _argument(_PRCTL[column], {kernel.PR_SET_PDEATHSIG}, _ALLOW, denied)
    for numbers in _OF_A_PROCESS.values():
        yield from _argument(numbers[column], {0, pid}, denied, _ALLOW)
    if not forks:
        for numbers in _TO_A_PROCESS.values():
            yield from _argument(numbers[column], {pid}, denied, _ALLOW)
        yield from _when(_EQUAL, _TKILL[column], denied)
    yield (_RETURN, 0, 0, _ALLOW)


def _when(test: int, value: int, then: int) -> Iterator[Instruction]:
    yield (test, 0, 1, value)
    yield (_RETURN, 0, 0, then)


def _argument(number: int, known: set[int], otherwise: int, then: int) -> Iterator[Instruction]:
    """For the call `number`: `then` if its first argument is known."""
    checks = [pair for value in sorted(known) for pair in _when(_EQUAL, value, then)]
    yield (_EQUAL, 0, len(checks) + 2, number)
    yield (_LOAD, 0, 0, _FIRST_ARGUMENT)
    yield from checks
    yield (_RETURN, 0, 0, otherwise)


def _clone(number: int, threads: bool, forks: bool) -> Iterator[Instruction]:
    denied = _ERRNO | errno.EPERM
    checks = [
        *_when(_ANY_BIT, _CLONE_NEW_ANYTHING, denied),
        *_when(_ANY_BIT, _CLONE_THREAD, _ALLOW if threads else denied),
    ]
    yield (_EQUAL, 0, len(checks) + 2, number)
    yield (_LOAD, 0, 0, _FIRST_ARGUMENT)
    yield from checks
    yield (_RETURN, 0, 0, _ALLOW if forks else denied)
