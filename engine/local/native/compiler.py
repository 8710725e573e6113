"""The C compiler, and what it makes of the kernels: libraries, each under a name of its own.

The name is made of everything that a library depends on: the sources, the compiler, its options and
the processor, so that no machine ever runs what was built for another one. This file needs nothing
but Python itself, since `setup.py` reads it where a wheel is made.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

__all__ = [
    "OPTIONS",
    "CompilerError",
    "Part",
    "compile_library",
    "find_compiler",
    "kernel_set",
    "library_name",
    "processor",
    "version_of",
]

Part = Literal["step", "blocks", "roofs"]
"""What every model needs, what those need that keep the codes of a file, and what measures."""

_HERE = Path(__file__).parent
_COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_S = 120.0
_EXPLICIT = ("-fno-tree-vectorize",)
"""For sources that say themselves what is a vector; gcc looks for more of them for long."""
_SOURCES: dict[Part, dict[str, tuple[str, ...]]] = {
    "step": {  # the longest first
        "attention": _EXPLICIT,
        "linear": (),
        "many_rows": (),
        "sample": _EXPLICIT,
        "step": _EXPLICIT,
    },
    "blocks": {"blocks": ()},
    "roofs": {"roofs": ()},
}
OPTIONS = ("-march=native",)
"""What fits the kernels to this processor. Others build the variant for any processor."""
_ALWAYS = ("-O3", "-std=gnu11", "-ffp-contract=off", "-fopenmp", "-fPIC")
_SETS = {"__AVX512VNNI__": "AVX-512 VNNI", "__AVX2__": "AVX2"}
"""The variants that `dot.h` has, the best first, by what the compiler defines for each."""


class CompilerError(Exception):
    """There is no C compiler, or it cannot do what it was asked."""


def find_compiler() -> list[str]:
    """The compiler's command, of `CC` where that is set.

    Raises:
        CompilerError: there is none.
    """
    named = shlex.split(os.environ.get("CC", ""))
    if named and not shutil.which(named[0]):
        raise CompilerError(f"there is no C compiler {named[0]!r}, which CC names; set or unset it")
    found = named or [name for name in _COMPILERS if shutil.which(name)][:1]
    if not found:
        raise CompilerError("there is no C compiler (cc, gcc or clang) to build the kernels with")
    return found


def version_of(compiler: Sequence[str]) -> str:
    """What a compiler says of itself, and what it is always told.

    Raises:
        CompilerError: it says nothing.
    """
    return _said([*compiler, "--version"]) + shlex.join(compiler[1:])


def kernel_set(compiler: Sequence[str]) -> str:
    """Which of the kernels' variants a compiler makes for this processor.

    Raises:
        CompilerError: it does not know the processor.
    """
    defined = _said([*compiler, *OPTIONS, "-dM", "-E", "-x", "c", os.devnull]).split()
    return next((name for macro, name in _SETS.items() if macro in defined), "portable")


def library_name(version: str, options: Sequence[str], part: Part) -> str:
    """The name of a library's file. To make it no compiler is run.

    Args:
        version: of the compiler; see `version_of`.
        options: beyond those that are always given.
        part: what of the kernels.
    """
    digest = hashlib.sha256()
    for word in (version, *_ALWAYS, repr(_SOURCES), *options, platform.machine(), processor()):
        digest.update(word.encode() + b"\0")
    for source in sorted(_HERE.glob("*.[ch]")):
        digest.update(source.read_bytes())
    return f"{digest.hexdigest()[:32]}-{part}.so"


def processor() -> str:
    """What the processor can do, as far as the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def compile_library(
    compiler: Sequence[str], options: Sequence[str], part: Part, path: Path
) -> None:
    """Compiles in a folder of its own, and moves the library into its place when it is whole.

    Raises:
        CompilerError: it cannot be compiled.
        OSError: it cannot be kept there.
    """
    command = [*compiler, *_ALWAYS, *options]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        objects = {name: f"{folder}/{name}.o" for name in _SOURCES[part]}
        commands = [
            [*command, *own, "-c", f"{_HERE / name}.c", "-o", objects[name]]
            for name, own in _SOURCES[part].items()
        ]
        with ThreadPoolExecutor() as pool:  # each waits for a compiler of its own
            list(pool.map(_run, commands))
        made = Path(folder) / path.name
        _run([*command, "-shared", *objects.values(), "-o", str(made), "-lm"])
        made.replace(path)


def _said(command: Sequence[str]) -> str:
    """What a command of the compiler writes."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerError(f"the C compiler {command[0]!r} cannot be used: {error}") from error


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"the kernels cannot be built: {error}") from error
    if done.returncode:
        raise CompilerError(f"the kernels cannot be built: {command[0]} says: {done.stderr[-500:]}")
