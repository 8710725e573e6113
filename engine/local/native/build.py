"""Builds the kernels when they are first needed, and keeps the library for the next time.

The library lies in the cache under a name made of everything that it depends on: the sources, the
compiler, its options and the processor, since a home directory may be shared by many machines.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ttc.config import settings
from ttc.errors import EngineError

__all__ = ["OPTIONS", "load_library"]

_HERE = Path(__file__).parent
_COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_S = 120.0
OPTIONS = ("-march=native",)
"""What fits the kernels to this processor. Others build the variant for any processor."""
_ALWAYS = ("-O3", "-std=gnu11", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC")


def load_library(options: Sequence[str] = OPTIONS) -> ctypes.CDLL:
    """The kernels, built if they are not there yet.

    Raises:
        EngineError: there is no C compiler, or it cannot build them.
    """
    compiler = os.environ.get("CC") or next(filter(shutil.which, _COMPILERS), None)
    if compiler is None:
        raise EngineError("there is no C compiler (cc, gcc or clang) to build the kernels with")
    path = settings().home.value / "kernels" / f"{_name(compiler, options)}.so"
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of many processes one builds, and the others wait
        if not path.exists():
            _build(compiler, options, path)
    return ctypes.CDLL(str(path))


def _name(compiler: str, options: Sequence[str]) -> str:
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    ).stdout
    digest = hashlib.sha256()
    for part in (version, *_ALWAYS, *options, platform.machine(), _processor()):
        digest.update(part.encode() + b"\0")
    for source in sorted(_HERE.glob("*.[ch]")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def _processor() -> str:
    """What the processor can do, as far as the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _build(compiler: str, options: Sequence[str], path: Path) -> None:
    """Compiles in a folder of its own, and moves the library into its place when it is whole."""
    sources = [str(source) for source in sorted(_HERE.glob("*.c"))]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [compiler, *_ALWAYS, *options, *sources, "-o", str(made), "-lm"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"the kernels cannot be built: {error}") from error
        if done.returncode:
            raise EngineError(
                f"the kernels cannot be built: {' '.join(command[:1])} says: {done.stderr[-500:]}"
            )
        made.replace(path)
