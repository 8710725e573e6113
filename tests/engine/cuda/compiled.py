"""The kernels compiled for three generations of GPUs, without one; run by `test_kernels`.

Kernels that the interpreter was told to run cannot be compiled, so this is a process of its own.
In the gate a kernel is compiled for each way that it can differ in, on one model's sizes; with
`TTC_ALL_KERNELS=1` everything is that the engine would launch on four models.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
import triton

from tests.engine.cuda.variants import MODELS, Compiled, Variant, compiled, launched
from ttc.engine.local.cuda.work import TILES

EVERYTHING = bool(os.environ.get("TTC_ALL_KERNELS"))
CAPABILITIES = (80, 90, 100)
TENSOR_CORES = {
    ("fold", 80): "HMMA",
    ("fold", 90): "HGMMA",
    ("fold", 100): "UTCHMMA",
    ("multiply", 80): "HMMA",
    ("multiply", 90): "HGMMA",
    ("multiply", 100): "UTCHMMA",
    ("multiply_codes", 80): "HMMA",
    ("multiply_codes", 90): "HGMMA",
    ("multiply_codes", 100): "UTCHMMA",
    ("multiply_int8", 80): "IMMA",
    ("multiply_int8", 90): "IGMMA",
    ("multiply_int8", 100): "UTCIMMA",
}
"""The instruction of a generation: at one row and at a thousand, or rows would differ in bits."""
SHARED = {80: 163, 90: 227, 100: 227}
"""KiB that a program may have of shared memory."""
REGISTERS = 255
SPILLS = 16
"""Bytes that may lie in memory for want of registers; the innermost loops read and write none."""
_SPILL = "(?:LDL|STL)"
if triton.__version__.startswith("3.6"):  # it multiplies bytes by the older instruction there
    TENSOR_CORES["multiply_int8", 100] = "IMMA"


def everything() -> list[tuple[Variant, int]]:
    """What the engine launches on four models: in every arithmetic, for few and many rows."""
    found: dict[Variant, None] = {}
    for shapes in MODELS.values():
        for rows in (1, 17, 300):
            for kind in ("bf16", "int8", "q4", "q8"):
                found |= dict.fromkeys(launched(shapes, kind, rows=rows))
            found |= dict.fromkeys(launched(shapes, "int8", rows=rows, kv=torch.int8))
    return [(variant, capability) for variant in found for capability in CAPABILITIES]


def some() -> list[tuple[Variant, int]]:
    """The products and the fold for few and for many rows, and one of each other kernel."""
    shapes, found = MODELS["qwen2.5-1.5b"], dict[tuple[object, ...], tuple[Variant, int]]()
    for kind, rows, kv in (
        ("bf16", 1, torch.bfloat16),
        ("bf16", 300, torch.bfloat16),
        ("int8", 1, torch.int8),
        ("int8", 300, torch.int8),
        ("q4", 300, torch.bfloat16),
    ):
        for variant in launched(shapes, kind, rows=rows, kv=kv):
            many = rows > 1 and variant.name.startswith("multiply")
            told = dict(variant.constants)
            is_int8 = variant.name == "fold" and told["INT8"]
            # Of products the one whose slices are many, where a program adds them up itself.
            key = (variant.name, many, told.get("TILE"), is_int8)
            if not many or told["SLICES"] > 1 or key not in found:
                found[key] = variant, 90
            is_small = not many and not is_int8 and told.get("TILE") != TILES[1]
            if variant.name in ("fold", "multiply") and is_small:
                found |= {(*key, each): (variant, each) for each in (80, 100)}
    return list(found.values())


def name_of(case: object) -> str:
    """A case's kernel, capability and what sets it apart."""
    if not isinstance(case, Variant):
        return f"sm_{case}"
    told = ("BM", "TILE", "SLICES", "INT8", "BITS", "MASKED")
    return "-".join([case.name, *(f"{k}{v}" for k, v in case.constants if k in told)])


CASES = pytest.mark.parametrize(
    ("variant", "capability"), everything() if EVERYTHING else some(), ids=name_of
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where machine code lies for a moment."""
    return tmp_path_factory.mktemp("cubin")


@CASES
def test_a_kernel_stays_within_its_registers_and_the_tensor_cores_compute(
    variant: Variant, capability: int, folder: Path
) -> None:
    """No loop of them touches what spills; what is read in bulk is read by 16 bytes."""
    made = compiled(variant, capability, folder)

    assert made.registers <= REGISTERS
    assert made.shared <= SHARED[capability] * 1024
    assert made.stack <= SPILLS
    if instruction := TENSOR_CORES.get((variant.name, capability)):
        assert made.count(instruction) > 0, counted(made)
        assert made.count("LDGSTS") > 0  # copies that go past the registers
        innermost = [*made.loops_with(instruction), made.sass][0]
        assert not re.search(rf"\b{_SPILL}", innermost)
    else:
        assert not made.loops_with(_SPILL)
    if variant.name in ("copy_pages", "measure_slices", "find_floors"):
        assert made.count(r"LDG\.E\.128") + made.count(r"LDG\.E\.ENL2\.256") > 0


def counted(made: Compiled) -> dict[str, int]:
    """How often each instruction of tensor cores is there."""
    names = ("HMMA", "HGMMA", "IMMA", "IGMMA", "QGMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA")
    return {name: made.count(name) for name in names if made.count(name)}
