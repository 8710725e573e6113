"""How many threads the engine computes with, and how they wait. Imported before torch.

An embedded engine shares its cores with the program around it. OpenMP's threads spin while they
wait by default, and one busy neighbour then slows a step tenfold; a passive wait without any spin
costs 40 microseconds at each of a step's hundreds of parallel regions. A short bounded spin has
neither fault. libgomp reads these settings once, when torch is first imported.

Each engine computes with threads of its own. Where those of all engines are more than there are
processors, libgomp spins 1,000 times at most if the policy is active, and never if it is passive:
a second engine that only waits would then cost the first one its spin. (LLVM's runtime, for which
active would be forever, has a setting of its own, by which it sleeps at once.)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["thread_count", "wait_policy_fault"]

_SETTINGS = {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "2000"}
_OF_LLVM = {"KMP_BLOCKTIME": "0"}
_TORCH_CAME_FIRST = "torch" in sys.modules
_UNSET = [name for name in _SETTINGS if name not in os.environ]

for _name, _value in (_SETTINGS | _OF_LLVM).items():  # the one place, and it must be at import
    os.environ.setdefault(_name, _value)


def wait_policy_fault() -> str | None:
    """What is wrong with the way that OpenMP's threads wait, or `None`."""
    if not (_TORCH_CAME_FIRST and _UNSET):
        return None
    wanted = " ".join(f"{name}={_SETTINGS[name]}" for name in _UNSET)
    return (
        f"torch was imported before ttc.engine.local, so {', '.join(_UNSET)} came too late; "
        f"import ttc.engine.local first, or start the program with {wanted}"
    )


def thread_count() -> int:
    """Threads to compute with: the CPUs that this process may use, and is given time on."""
    if sys.platform == "linux":
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    granted = _cgroup_cpus(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return max(1, int(min(allowed, granted)))


def _cgroup_cpus(mount: Path, membership: Path) -> float:
    """CPUs' worth of time that the control group grants; infinite without a limit.

    A group's limit binds all groups below it, so every ancestor is asked (cgroup-v2.rst, cpu.max).
    """
    group = "/"
    for line in _read(membership).splitlines():
        if line.startswith("0::"):
            group = line[3:]
    folder = mount / group.lstrip("/")
    grants = [float("inf")]
    for place in (folder, *folder.parents):
        quota = _read(place / "cpu.max").split()
        if len(quota) == 2 and quota[0] != "max":
            grants.append(int(quota[0]) / int(quota[1]))
        if place == mount:
            break
    quota_v1, period_v1 = (
        _read(mount / "cpu" / f"cpu.cfs_{part}_us") for part in ("quota", "period")
    )
    if period_v1 and int(quota_v1) > 0:
        grants.append(int(quota_v1) / int(period_v1))
    return min(grants)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
