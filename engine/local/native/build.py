"""Builds the kernels when they are first needed, and keeps the libraries for the next time.

A library lies in the cache under a name that says what it was built of and for, since a home
directory may be shared by many machines; see `compiler.py`. What only some need is a library of its
own. Those that nobody has used for a month go when another one is built.

A wheel holds what every model needs, built where the wheel was made. It is used where the processor
is such a one and `CC` names no compiler, and no compiler is run then.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shlex
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ttc.config import settings
from ttc.engine.local.native.compiler import (
    OPTIONS,
    CompilerError,
    Part,
    compile_library,
    find_compiler,
    kernel_set,
    library_name,
    version_of,
)
from ttc.errors import EngineError
from ttc.safe_text import safe_logger

__all__ = ["OPTIONS", "Part", "describe", "load_libraries", "load_library"]

INSTALLED = Path(__file__).parent / "installed"
"""Where a wheel has its library; see `setup.py`."""
_KEPT_S = 30 * 24 * 3600.0
_ELF_64 = b"\x7fELF\x02\x01"
_log = safe_logger(__name__)


def load_library(options: Sequence[str] = OPTIONS, part: Part = "step") -> ctypes.CDLL:
    """The kernels of a part, built if they are not there yet.

    Raises:
        EngineError: there is no C compiler, it cannot build them, or they cannot be kept.
    """
    return load_libraries([options], part)[0]


def load_libraries(variants: Sequence[Sequence[str]], part: Part) -> list[ctypes.CDLL]:
    """A part with each of several options. Those that are not there yet are built side by side."""
    fault: OSError | None = None
    try:
        if installed := _load_installed(variants, part):
            return installed
    except OSError as error:
        fault = error
        _log.warning("installed kernels cannot be loaded, so they are built anew: %s", error)
    try:
        return _load_kept(variants, part)
    except CompilerError as error:
        if fault is None:
            raise EngineError(str(error)) from error
        raise EngineError(f"{fault}; install ttc anew, or a C compiler: {error}") from fault


def describe() -> str:
    """Which kernels this machine gets, by which compiler, and whether they are built already.

    Raises:
        EngineError: there is no C compiler, or it does not know this processor.
    """
    with contextlib.suppress(OSError):  # those that cannot be loaded are not used
        if _load_installed([OPTIONS], "step"):
            notes = _notes()
            compiler = notes["compiler"].splitlines()[0]
            return f"{notes['kernels']}, built at installation, compiler {compiler}"
    try:
        command = find_compiler()
        name, place = kernel_set(command), library_name(version_of(command), OPTIONS, "step")
    except CompilerError as error:
        raise EngineError(str(error)) from error
    is_built = (_folder() / place).exists()
    state = "built" if is_built else "not built yet, which the first model that is loaded does"
    return f"{name}, {state}, compiler {shlex.join(command)}"


def _folder() -> Path:
    """Where libraries are kept."""
    return settings().home.value / "kernels"


def _notes() -> dict[str, str]:
    """What a wheel says of its library: the compiler's version, and which kernels they are."""
    notes: dict[str, str] = json.loads((INSTALLED / "kernels.json").read_text(encoding="utf-8"))
    return notes


def _installed(variants: Sequence[Sequence[str]], part: Part) -> list[Path]:
    """The libraries that came with the package, if it has all of them for this processor."""
    if os.environ.get("CC") or not INSTALLED.is_dir():
        return []
    version = _notes()["compiler"]
    paths = [INSTALLED / library_name(version, options, part) for options in variants]
    return paths if all(path.exists() for path in paths) else []


def _load_installed(variants: Sequence[Sequence[str]], part: Part) -> list[ctypes.CDLL]:
    """Those libraries.

    Raises:
        OSError: one is damaged, or needs a newer C library than there is here.
    """
    return [_opened(path) for path in _installed(variants, part)]


def _opened(path: Path) -> ctypes.CDLL:
    """A library, in this process.

    Raises:
        OSError: it is none for this machine, or is cut short, which would end the process.
    """
    with path.open("rb") as file:
        header = file.read(64)
    if len(header) == 64 and header[:6] == _ELF_64:
        table, entry, count = (
            *struct.unpack_from("<Q", header, 0x28),
            *struct.unpack_from("<HH", header, 0x3A),
        )
        if path.stat().st_size < table + entry * count:  # the table is the last part of it
            raise OSError(f"{path}: it is cut short")
    return ctypes.CDLL(str(path))


def _kept(path: Path) -> ctypes.CDLL | None:
    """A library of the cache; `None` where it is missing, or is to be built anew."""
    if not path.exists():
        return None
    try:
        return _opened(path)
    except OSError as error:
        _log.warning("kept kernels cannot be loaded, so they are built anew: %s", error)
        return None


def _load_kept(variants: Sequence[Sequence[str]], part: Part) -> list[ctypes.CDLL]:
    """The libraries of the cache, into which those that are missing are built."""
    compiler, folder = find_compiler(), _folder()
    version = version_of(compiler)
    paths = {folder / library_name(version, options, part): options for options in variants}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of many processes one builds, and the others wait
            kept = {path: _kept(path) for path in paths}
            missing = [path for path, library in kept.items() if library is None]
            with ThreadPoolExecutor() as pool:
                list(
                    pool.map(
                        lambda path: compile_library(compiler, paths[path], part, path), missing
                    )
                )
            if missing:
                _remove_old(folder)
            for path in paths:
                os.utime(path)
        return [library or _opened(path) for path, library in kept.items()]
    except OSError as error:
        raise EngineError(f"the kernels cannot be kept in {folder}: {error}") from error


def _remove_old(folder: Path) -> None:
    """Removes libraries that nobody has loaded for a month. Whoever still runs one keeps it."""
    for library in folder.glob("*.so"):
        if time.time() - library.stat().st_mtime > _KEPT_S:
            library.unlink()
