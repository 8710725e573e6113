"""Results: a JSON file that says what was measured, by which command, on which machine and code.

It names no host, no user and no folder.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["SCHEMA_VERSION", "Value", "commit", "machine", "version_of", "write_result"]

SCHEMA_VERSION = 1
_FOLDER = re.compile(r"(^|=)/.*/")
_VECTORS = frozenset(["amx_int8", "asimddp", "avx2", "avx512_bf16", "avx512_vnni", "avx_vnni"])
"""Instructions that decide how fast kernels are; processors of one name may differ in them."""
Value = str | int | float | bool | None


def write_result(
    path: Path, *, command: Sequence[str], rows: Sequence[Mapping[str, Value]], seed: int
) -> None:
    """Writes a result, in one piece or not at all.

    Args:
        path: the file.
        command: the command line that gives the same rows again. Absolute paths in it are cut to
            their names.
        rows: what was measured. NaN and the infinities are refused: they are no JSON.
        seed: the seed of the run.
    """
    result = {
        "schema_version": SCHEMA_VERSION,
        "date": datetime.now(UTC).date().isoformat(),
        "command": shlex.join(_FOLDER.sub(r"\1", part) for part in command),
        "seed": seed,
        "commit": commit(),
        "machine": machine(),
        "rows": [dict(row) for row in rows],
    }
    text = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def machine() -> dict[str, Value]:
    """The processor, memory, system and versions that a measurement depends on."""
    return {
        "cpu": _cpu("model name") or platform.processor() or platform.machine(),
        "vectors": " ".join(sorted(_VECTORS.intersection(_cpu("flags", "Features").split()))),
        "cores": os.cpu_count(),
        "ram_gib": _ram_gib(),
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": version_of("torch"),
    }


def commit() -> str | None:
    """The commit of the code, with `-dirty` after it where files differ from it; else `None`."""
    here = Path(__file__).resolve()
    if _git("ls-files", "--error-unmatch", here.name, folder=here.parent) is None:
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*", folder=here.parent)


def _git(*arguments: str, folder: Path) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _cpu(*names: str) -> str:
    """What Linux tells of the first processor under one of these names."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    parts = (line.partition(":") for line in lines)
    return next((told.strip() for name, _, told in parts if name.strip() in names), "")


def _ram_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def version_of(distribution: str) -> str | None:
    """The version of a package; `None` where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
