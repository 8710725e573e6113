"""Threads: how many, how they wait, and what an import brings along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ttc.engine.local.threads import _cgroup_cpus, thread_count


def run(program: str) -> str:
    """What a program prints, in a fresh interpreter without settings for OpenMP."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_importing_the_engine_package_is_light() -> None:
    """No torch, no gguf; and the names can still be asked for."""
    program = """
import sys
import ttc.engine, ttc.engine.local, ttc.engine.local.hub.models
print([name for name in ("torch", "gguf", "numpy", "transformers") if name in sys.modules])
print(ttc.engine.local.LocalEngine.__name__, "torch" in sys.modules)
"""
    assert run(program).splitlines() == ["[]", "LocalEngine True"]


def test_the_wait_policy_is_set_before_torch() -> None:
    """And there is nothing to complain about."""
    program = """
import os
from ttc.engine.local.threads import wait_policy_fault
print(*(os.environ[n] for n in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")))
print(wait_policy_fault())
"""
    assert run(program) == "ACTIVE 2000 0\nNone"


def test_a_torch_that_came_first_is_told() -> None:
    """Unless the program was started with the settings."""
    early = "import sys; sys.modules['torch'] = None; "
    say = "from ttc.engine.local.threads import wait_policy_fault; print(wait_policy_fault())"
    preset = "import os; os.environ.update(OMP_WAIT_POLICY='x', GOMP_SPINCOUNT='1'); "

    assert "torch was imported before ttc.engine.local" in run(early + say)
    assert run(preset + early + say) == "None"


def test_there_is_at_least_one_thread() -> None:
    """And no more than the machine has processors."""
    import os

    assert 1 <= thread_count() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({}, float("inf")),
        ({"a/b": "max 100000"}, float("inf")),
        ({"a/b": "150000 100000"}, 1.5),
        ({"a": "300000 100000", "a/b": "max 100000"}, 3.0),
        ({"": "200000 100000", "a": "400000 100000"}, 2.0),
    ],
)
def test_every_control_group_above_bounds_the_threads(
    tmp_path: Path, quotas: dict[str, str], expected: float
) -> None:
    """The tightest quota on the way to the root is the one that counts."""
    membership = tmp_path / "membership"
    membership.write_text("0::/a/b\n")
    mount = tmp_path / "mount"
    (mount / "a" / "b").mkdir(parents=True)
    for group, quota in quotas.items():
        (mount / group / "cpu.max").write_text(quota + "\n")

    assert _cgroup_cpus(mount, membership) == expected


def test_the_quota_of_the_first_version_counts_too(tmp_path: Path) -> None:
    """Where there is no second one."""
    folder = tmp_path / "cpu"
    folder.mkdir()
    (folder / "cpu.cfs_quota_us").write_text("250000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")

    assert _cgroup_cpus(tmp_path, tmp_path / "absent") == 2.5
