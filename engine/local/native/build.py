"""Builds the kernels when they are first needed, and keeps the libraries for the next time.

A library lies in the cache under a name made of everything that it depends on: the sources, the
compiler, its options and the processor, since a home directory may be shared by many machines. What
only some need is a library of its own. Those that nobody has used for a month go when another one
is built.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from ttc.config import settings
from ttc.errors import EngineError

__all__ = ["OPTIONS", "Part", "describe", "load_libraries", "load_library"]

Part = Literal["step", "blocks", "roofs"]
"""What every model needs, what those need that keep the codes of a file, and what measures."""

_HERE = Path(__file__).parent
_COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_S = 120.0
_KEPT_S = 30 * 24 * 3600.0
_SOURCES: dict[Part, tuple[str, ...]] = {
    "step": ("attention", "linear", "many_rows", "sample", "step"),  # the longest first
    "blocks": ("blocks",),
    "roofs": ("roofs",),
}
OPTIONS = ("-march=native",)
"""What fits the kernels to this processor. Others build the variant for any processor."""
_ALWAYS = ("-O3", "-std=gnu11", "-ffp-contract=off", "-fopenmp", "-fPIC")
_OF_PART: dict[Part, tuple[str, ...]] = {
    "step": ("-fno-tree-vectorize",),  # it says itself what is a vector; gcc looks for long
    "blocks": (),
    "roofs": (),
}
_SETS = {"__AVX512VNNI__": "AVX-512 VNNI", "__AVX2__": "AVX2"}
"""The variants that `dot.h` has, the best first, by what the compiler defines for each."""


def load_library(options: Sequence[str] = OPTIONS, part: Part = "step") -> ctypes.CDLL:
    """The kernels of a part, built if they are not there yet.

    Raises:
        EngineError: there is no C compiler, it cannot build them, or they cannot be kept.
    """
    return load_libraries([options], part)[0]


def load_libraries(variants: Sequence[Sequence[str]], part: Part) -> list[ctypes.CDLL]:
    """A part with each of several options. Those that are not there yet are built side by side."""
    compiler = _compiler()
    paths = {_place(compiler, options, part): options for options in variants}
    folder = settings().home.value / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of many processes one builds, and the others wait
            missing = [path for path in paths if not path.exists()]
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda path: _build(compiler, paths[path], part, path), missing))
            if missing:
                _remove_old(folder)
            for path in paths:
                os.utime(path)
        return [ctypes.CDLL(str(path)) for path in paths]
    except OSError as error:
        raise EngineError(f"the kernels cannot be kept in {folder}: {error}") from error


def describe() -> str:
    """Which kernels this machine gets, by which compiler, and whether they are built already.

    Raises:
        EngineError: there is no C compiler, or it does not know this processor.
    """
    compiler = _compiler()
    defined = _said([*compiler, *OPTIONS, "-dM", "-E", "-x", "c", os.devnull]).split()
    name = next((name for macro, name in _SETS.items() if macro in defined), "portable")
    is_built = _place(compiler, OPTIONS, "step").exists()
    state = "built" if is_built else "not built yet, which the first model that is loaded does"
    return f"{name}, {state}, compiler {shlex.join(compiler)}"


def _compiler() -> list[str]:
    """The compiler's command, of `CC` where that is set."""
    named = shlex.split(os.environ.get("CC", ""))
    if named and not shutil.which(named[0]):
        raise EngineError(f"there is no C compiler {named[0]!r}, which CC names; set or unset it")
    found = named or [name for name in _COMPILERS if shutil.which(name)][:1]
    if not found:
        raise EngineError("there is no C compiler (cc, gcc or clang) to build the kernels with")
    return found


def _place(compiler: Sequence[str], options: Sequence[str], part: Part) -> Path:
    """Where a library lies once it is built."""
    return settings().home.value / "kernels" / f"{_name(compiler, options)}-{part}.so"


def _remove_old(folder: Path) -> None:
    """Removes libraries that nobody has loaded for a month. Whoever still runs one keeps it."""
    for library in folder.glob("*.so"):
        if time.time() - library.stat().st_mtime > _KEPT_S:
            library.unlink()


def _said(command: Sequence[str]) -> str:
    """What a command of the compiler writes."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"the C compiler {command[0]!r} cannot be used: {error}") from error


def _name(compiler: Sequence[str], options: Sequence[str]) -> str:
    version = _said([*compiler, "--version"])
    digest = hashlib.sha256()
    always = (*_ALWAYS, repr(_OF_PART))
    for part in (version, *always, *options, platform.machine(), _processor()):
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


def _build(compiler: Sequence[str], options: Sequence[str], part: Part, path: Path) -> None:
    """Compiles in a folder of its own, and moves the library into its place when it is whole."""
    command = [*compiler, *_ALWAYS, *_OF_PART[part], *options]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        objects = {f"{_HERE / name}.c": f"{folder}/{name}.o" for name in _SOURCES[part]}
        commands = [[*command, "-c", source, "-o", made] for source, made in objects.items()]
        with ThreadPoolExecutor() as pool:  # each waits for a compiler of its own
            list(pool.map(_run, commands))
        made = Path(folder) / path.name
        _run([*command, "-shared", *objects.values(), "-o", str(made), "-lm"])
        made.replace(path)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"the kernels cannot be built: {error}") from error
    if done.returncode:
        raise EngineError(f"the kernels cannot be built: {command[0]} says: {done.stderr[-500:]}")
