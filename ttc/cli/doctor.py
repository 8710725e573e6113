"""`ttc doctor`: what this machine can do. It never fails: a check that does says so itself."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ttc.cli.models import where
from ttc.cli.terminal import show, table
from ttc.errors import EngineError, SandboxError
from ttc.registry import DISTRIBUTION, SERVED, install_hint, room
from ttc.safe_text import one_line
from ttc.sandbox.zygote import Zygote

__all__ = ["doctor"]

_GIB = 1 << 30
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def doctor(
    bench: Annotated[
        bool, typer.Option("--bench", help="Also measure the processor's roofs: some seconds.")
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            help="Tell what a server does instead: a dozen small requests.",
            metavar="openai:NAME@URL",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Tell what this machine can do, or a server."""
    if server is not None:
        servers = room("engine.openai")
        report = servers.probe(servers.named(server.removeprefix(SERVED)))
        show(table(("", ""), report.rows()))
        return
    checks: dict[str, Callable[[], str]] = {
        "ttc": _version,
        "python": lambda: f"{platform.python_version()}, {sys.executable}",
        "platform": platform.platform,
        "cores": _cores,
        "memory": _memory,
        "wait policy": _wait_policy,  # before torch: importing it decides how threads wait
        "torch": _torch,
        "kernels": _kernels,
        "grammars": lambda: (
            "there"
            if find_spec("llguidance")
            else f"none, so no call is held to a constraint; {install_hint('local')}"
        ),
        "sandbox": _sandbox,
        "pip": lambda: "there" if find_spec("pip") else "missing; `ttc pull` needs it",
        "TTC_HOME": lambda: f"{room('engine.local.hub.models').home()}",
    }
    rows = [(name, _found(check)) for name, check in checks.items()]
    if bench:
        rows += _listed("roof", _roofs)
    rows += _listed("extra", _extras)
    rows += _listed("model", _models)
    show(table(("", ""), rows))


def _found(check: Callable[[], str]) -> str:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever is broken here is what is to be told
        return one_line(f"could not be found out: {type(error).__name__}: {error}")


def _listed(kind: str, check: Callable[[], dict[str, str]]) -> list[tuple[str, str]]:
    found: dict[str, str] = {}

    def note() -> str:
        found.update(check())
        return "none"

    fallback = _found(note)
    return [(f"{kind} {name}", value) for name, value in found.items()] or [(kind, fallback)]


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return f"not installed as {DISTRIBUTION}"


def _cores() -> str:
    parts = [f"{os.cpu_count()} in all"]
    if sys.platform == "linux":
        parts.append(f"{len(os.sched_getaffinity(0))} by affinity")
    usable = room("engine.local.threads").thread_count()
    return ", ".join([*parts, f"{usable} to compute with, by affinity and control group"])


def _memory() -> str:
    known = {}
    for line in _read("/proc/meminfo").splitlines():
        name, _, amount = line.partition(":")
        if amount.endswith("kB"):
            known[name] = int(amount.split()[0]) * 1024
    if "MemTotal" not in known:
        known["MemTotal"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parts = [f"{known['MemTotal'] / _GIB:.1f} GiB"]
    if "MemAvailable" in known:
        parts.append(f"{known['MemAvailable'] / _GIB:.1f} GiB available")
    limits = [int(text) for path in _CGROUP_LIMITS if (text := _read(path).strip()).isdigit()]
    if limits and min(limits) < known["MemTotal"]:
        parts.append(f"{min(limits) / _GIB:.1f} GiB by control group")
    return ", ".join(parts)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _wait_policy() -> str:
    threads: Any = room("engine.local.threads")
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    values = " ".join(f"{name}={os.environ.get(name, 'unset')}" for name in names)
    fault = threads.wait_policy_fault()
    return f"{values}, {fault or 'set before torch was imported'}"


def _torch() -> str:
    try:
        import torch
    except ModuleNotFoundError:
        return f"not installed; {install_hint('local')}"
    devices = torch.cuda.device_count()
    return f"{torch.__version__}, {f'{devices} CUDA devices' if devices else 'no CUDA device'}"


def _kernels() -> str:
    """The kernels in C of the embedded engine, which builds them when it is first used."""
    try:
        return str(room("engine.local.native.build").describe())
    except EngineError as error:
        return one_line(f"none, so models compute in fp32, many times slower: {error}")


def _roofs() -> dict[str, str]:
    """What the processor does at most, which the embedded engine's steps are measured against."""
    threads = room("engine.local.threads").thread_count()
    roofs = room("engine.local.native.roofs").measure_roofs(threads)
    return {
        "read": f"{roofs.read_bytes / 1e9:.1f} GB/s, {threads} threads",
        "int8": f"{roofs.int8_operations / 1e9:.0f} billion operations/s",
        "float": f"{roofs.float_operations / 1e9:.0f} billion operations/s",
    }


def _sandbox() -> str:
    """The level of the jail that holds, found by entering it."""
    return asyncio.run(_jail())


async def _jail() -> str:
    try:
        zygote = await Zygote.start("code")
    except SandboxError as error:
        return f"none: {error}"
    await zygote.close()
    return f"{zygote.level}: {', '.join(zygote.layers)}"


def _extras() -> dict[str, str]:
    """Each extra, and what it lacks."""
    wanted: dict[str, list[str]] = {
        extra: [] for extra in metadata(DISTRIBUTION).get_all("Provides-Extra") or ()
    }
    for line in requires(DISTRIBUTION) or ():
        found = re.match(r"([\w.-]+).*;.*extra\s*==\s*['\"]([\w.-]+)['\"]", line)
        if found:
            wanted.setdefault(found[2], []).append(found[1])
    return {
        extra: f"missing {', '.join(lacking)}; {install_hint(extra)}" if lacking else "installed"
        for extra, names in wanted.items()
        for lacking in [[name for name in names if not _is_installed(name)]]
    }


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _models() -> dict[str, str]:
    return {entry.name: where(entry) for entry in room("engine.local.hub.catalog").catalog()}
