"""What one run may use, and the part of it that the kernel holds by resource limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

__all__ = ["Limits"]

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one run may use. A program that reaches a limit has not passed."""

    seconds: float = 10.0
    """Wall time of the whole run; then everything is killed."""
    cpu_seconds: float = 10.0
    """Processor time of each process."""
    memory_bytes: int = 512 * _MIB
    """Memory beyond what the bare interpreter has; of all processes together."""
    output_bytes: int = 1 * _MIB
    """What is kept of standard output, and of standard error; a run that writes more is killed."""
    disk_bytes: int = 16 * _MIB
    """Files in the run's only writable folder, which is memory and vanishes with it."""
    files: int = 256
    """Files in that folder."""
    threads: int = 8
    """Threads beside the first."""
    processes: int = 0
    """Processes beside the first. With 0 the program can neither fork nor start another."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                kind = "a whole number" if whole else "a number"
                raise TypeError(f"the limit {field.name} is {kind}, not {value!r}")
            least = 0 if field.name in {"threads", "processes"} else 1e-3
            if not least <= value < math.inf:
                raise ValueError(
                    f"the limit {field.name} is finite and at least {least:g}, not {value}"
                )

    def hold(self, *, tasks: bool, base: int | None) -> None:
        """Sets the resource limits of this process, for good.

        Args:
            tasks: whether the kernel counts the threads and processes of this run alone.
            base: the address space that the bare process has, in bytes; `None` where unknown.
        """
        import resource  # which Windows does not have

        cpu = math.ceil(self.cpu_seconds)
        wanted = {
            resource.RLIMIT_CPU: cpu,
            resource.RLIMIT_FSIZE: self.disk_bytes,
            resource.RLIMIT_NOFILE: 64,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
        }
        if hasattr(resource, "RLIMIT_MSGQUEUE"):  # Linux
            wanted |= {resource.RLIMIT_MSGQUEUE: 0, resource.RLIMIT_SIGPENDING: 64}
        if base is not None:
            wanted[resource.RLIMIT_AS] = base + self.memory_bytes
        if tasks:
            wanted[resource.RLIMIT_NPROC] = 1 + self.threads + self.processes
        for limit, value in wanted.items():
            _, hard = resource.getrlimit(limit)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (value, value))
