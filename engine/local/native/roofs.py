"""The processor's roofs, by kernels of our own: what a step's time is measured against.

They take about a second and all threads: they are measured where someone asks, never at load.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from functools import partial
from itertools import cycle, repeat

import numpy as np

from ttc.engine.local.native.build import OPTIONS, load_library

__all__ = ["Roofs", "measure_roofs"]

_BYTES = 256 << 20  # more than any cache of a few cores
_PIECE = 16 << 20  # what one timing reads; when it comes again the others have taken the cache
_LEAST_S = 0.001  # of one timing: long against a clock, short against another process's turn
_TIMES = 48


@dataclass(frozen=True, kw_only=True)
class Roofs:
    """What the processor does at most in a second, with so many threads."""

    read_bytes: float
    """Bytes read from memory, in huge pages where the system gives them."""
    int8_operations: float
    """Multiplications and additions of bytes, summed in 32 bits."""
    float_operations: float
    """Multiplications and additions of bf16 where the processor has them, else of float32."""
    threads: int


def measure_roofs(
    threads: int,
    options: Sequence[str] = OPTIONS,
    take: Callable[[list[float]], float] = min,
) -> Roofs:
    """Measures the roofs.

    Args:
        threads: to measure with.
        options: of the compiler.
        take: makes one time of several: the least, as others may be computing; or the mean, to
            compare with work that others slow down likewise.

    Raises:
        EngineError: the kernels cannot be built.
    """
    library = load_library(options, "roofs")
    library.read_memory.argtypes = [c_void_p, c_size_t, c_int]
    library.read_memory.restype = c_int32
    for function in (library.multiply_bytes, library.multiply_floats):
        function.argtypes, function.restype = [c_int64, c_int], c_double
    with mmap.mmap(-1, _BYTES) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        numbers = np.frombuffer(memory, dtype=np.int32)
        numbers[:] = 1  # a page that was never written is the one page of zeros
        pieces = cycle(range(numbers.ctypes.data, numbers.ctypes.data + _BYTES, _PIECE))
        count = _PIECE // numbers.itemsize
        seconds = take(_timed(lambda: library.read_memory(next(pieces), count, threads)))
        del numbers  # it keeps the map open
    return Roofs(
        read_bytes=_PIECE / seconds,
        int8_operations=threads * _rate(lambda n: float(library.multiply_bytes(n, threads)), take),
        float_operations=threads
        * _rate(lambda n: float(library.multiply_floats(n, threads)), take),
        threads=threads,
    )


def _rate(multiply: Callable[[int], float], take: Callable[[list[float]], float]) -> float:
    """Operations a second of each thread of a kernel that multiplies so many times on it."""
    rounds = 1 << 10
    while min(_timed(partial(multiply, rounds), times=2)) < _LEAST_S:
        rounds *= 2
    return 2 * multiply(rounds) / take(_timed(partial(multiply, rounds)))


def _timed(work: Callable[[], object], times: int = _TIMES) -> list[float]:
    """How long it took, each of several times."""
    seconds = []
    for _ in repeat(None, times):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return seconds
