"""Every variant of a kernel that the engine launches, compiled without a GPU.

`TritonOps` computes on tensors that have shapes and no memory, with a launcher that only takes down
what it is given. So what is compiled here is what would run: types, constants, divisibility of
sizes, warps and stages. (Triton takes a size that a multiple of 16 divides for one, and a size of 1
for a constant; pointers of PyTorch are always multiples of 16, and those to a part of a product
are, if its first column is one of 4.)
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ttc.engine.local.cuda.ops import Draws, Turning
from ttc.engine.local.cuda.pool import Cache
from ttc.engine.local.cuda.step import Sizes, views
from ttc.engine.local.cuda.triton_ops import TritonOps
from ttc.engine.local.cuda.weights import BLOCK, GROUP, Coded, Dense, Int8, Stacked, Weight
from ttc.engine.local.plan import PAGE

META = torch.device("meta")
_TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.int32: "*i32",
}


class Shapes(NamedTuple):
    """The sizes of a model."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int


MODELS = {
    "smollm2-135m": Shapes(576, 9, 3, 64, 1536, 49152),
    "qwen2.5-0.5b": Shapes(896, 14, 2, 64, 4864, 151936),
    "qwen2.5-1.5b": Shapes(1536, 12, 2, 128, 8960, 151936),
    "llama-3.1-8b": Shapes(4096, 32, 8, 128, 14336, 128256),
}
KINDS = ("bf16", "int8", "q4", "q8")


@dataclass(frozen=True)
class Variant:
    """A kernel with its types and constants; variants that compile to the same are equal."""

    name: str
    kernel: Any
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    divisible: tuple[int, ...]
    warps: int
    stages: int

    def constant(self, name: str) -> Any:
        """The value of a constant."""
        return dict(self.constants)[name]


class Recorder:
    """Takes launches down."""

    def __init__(self) -> None:
        self.variants: dict[Variant, None] = {}

    def __call__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        *arguments: Any,
        warps: int = 4,
        stages: int = 3,
        **constants: Any,
    ) -> None:
        assert all(0 < size < 1 << 31 for size in grid[:1])
        assert all(0 < size < 1 << 16 for size in grid[1:])
        signature: dict[str, str] = {}
        divisible = []
        for i, (name, value) in enumerate(zip(kernel.arg_names, arguments, strict=False)):
            plain = kernel.params[i].do_not_specialize
            if isinstance(value, torch.Tensor):
                signature[name] = _TYPES[value.dtype]
                if value.storage_offset() * value.element_size() % 16 == 0:
                    divisible.append(i)
            elif isinstance(value, float):
                signature[name] = "fp32"
            elif value == 1 and not plain:
                signature[name], constants[name] = "constexpr", 1
            else:
                signature[name] = "i32"
                if value % 16 == 0 and not plain:
                    divisible.append(i)
        for name in kernel.arg_names[len(arguments) :]:
            signature[name] = "constexpr"
            assert name in constants, name
        variant = Variant(
            kernel.__name__,
            kernel,
            tuple(signature.items()),
            tuple(sorted(constants.items())),
            tuple(divisible),
            warps,
            stages,
        )
        self.variants[variant] = None


def launched(
    shapes: Shapes, kind: str, *, rows: int, dtype: torch.dtype = torch.bfloat16, kv: Any = None
) -> list[Variant]:
    """What a step of so many rows launches, and the drawing of its tokens."""
    run = Recorder()
    ops = TritonOps(dtype, run=run)
    cache = _cache(shapes, kv or torch.bfloat16)
    sizes = Sizes(rows, 64, 2 * rows, (8, 4), (2 * rows, 2 * rows))
    step = views(_empty(20 * rows + 200, dtype=torch.int32), sizes, 2048)
    int8 = kind == "int8"
    x = _empty(rows, shapes.hidden)
    norm = _empty(shapes.hidden)
    width = (shapes.heads + 2 * shapes.kv_heads) * shapes.head_dim
    read = ops.norm(x, None, norm, 1e-5, int8)
    qkv = ops.product(read, _stacked(kind, width, shapes.hidden, has_bias=True))
    queries = ops.turn(qkv, _turning(shapes), step, cache)
    attended = ops.attend(queries, cache, step, None)
    some = ops.quantise(attended) if int8 else attended
    parts = ops.product(some, _stacked(kind, shapes.hidden, shapes.heads * shapes.head_dim))
    read = ops.norm(x, parts, norm, 1e-5, int8)
    both = ops.product(read, _stacked(kind, 2 * shapes.feed_forward, shapes.hidden))
    gated = ops.gate(both, int8)
    parts = ops.product(gated, _stacked(kind, shapes.hidden, shapes.feed_forward))
    ops.norm(x, parts, norm, 1e-5, int8)
    logits = ops.product(read, _stacked(kind, shapes.vocab, shapes.hidden)).sums[0]
    for masked in (False, True):
        ops.draw(logits, logits, _empty(rows), _draws(rows, masked=masked))
    ops.measure(logits)
    ops.copy_pages(
        _empty(24, 64, shapes.kv_heads, PAGE, shapes.head_dim, dtype=dtype), step.items[0]
    )
    return list(run.variants)


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device=META)


def _cache(shapes: Shapes, dtype: torch.dtype) -> Cache:
    page = (64, shapes.kv_heads, PAGE)
    numbers = [_empty(*page, shapes.head_dim, dtype=dtype) for _ in range(2)]
    scales = [_empty(*page) if dtype == torch.int8 else None for _ in range(2)]
    return Cache(numbers[0], numbers[1], scales[0], scales[1])


def _turning(shapes: Shapes) -> Turning:
    half = _empty(4096, shapes.head_dim // 2)
    norm = _empty(shapes.heads + shapes.kv_heads, shapes.head_dim)
    return Turning(norm, half, half, True, 1e-5, 0.1, shapes.heads, shapes.kv_heads)


def _stacked(kind: str, outputs: int, columns: int, *, has_bias: bool = False) -> Stacked:
    return Stacked(
        weights=(_weight(kind, outputs, columns),), bias=_empty(outputs) if has_bias else None
    )


def _weight(kind: str, outputs: int, columns: int) -> Weight:
    shape = outputs, columns
    if kind == "bf16":
        return Dense(values=_empty(*shape, dtype=torch.bfloat16))
    if kind == "int8":
        groups = -(-columns // GROUP)
        codes = _empty(outputs, groups * GROUP, dtype=torch.int8)
        return Int8(codes=codes, scales=_empty(groups, outputs), shape=shape)
    blocks, bits = -(-columns // BLOCK), 4 if kind == "q4" else 8
    codes = _empty(
        outputs, blocks, BLOCK * bits // 8, dtype=torch.uint8 if bits == 4 else torch.int8
    )
    group = 32 if bits == 4 else 16
    scales = _empty(outputs, blocks, BLOCK // group, dtype=torch.float16)
    minima = scales if bits == 4 else None
    return Coded(
        codes=codes, scales=scales, minima=minima, bits=bits, offset=0, group=group, shape=shape
    )


def _draws(rows: int, *, masked: bool) -> Draws:
    def table(*shape: int) -> torch.Tensor:
        return _empty(*shape, dtype=torch.int32)

    allowed = table(4748) if masked else None
    return Draws(_empty(rows, 3), table(rows, 2), table(rows, 2), table(rows), allowed)


class Compiled(NamedTuple):
    """What the compiler made of a variant."""

    registers: int
    stack: int
    """Bytes; what does not fit into registers spills there."""
    shared: int
    """Bytes of shared memory."""
    sass: str
    """The machine's instructions."""

    def count(self, instruction: str) -> int:
        """How many instructions begin so."""
        return len(re.findall(rf"\b{instruction}", self.sass))

    def loops_with(self, instruction: str) -> list[str]:
        """The loops that have it, the shortest first.

        A loop ends in a branch back under a condition; what waits apart comes back under none.
        """
        lines = [line.strip() for line in self.sass.splitlines()]
        labels = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
        loops = []
        for end, line in enumerate(lines):
            for label in re.findall(r"(?:P\d +BRA\b|\bBRA\.U +!?UP).*`\((.+)\)", line):
                loop = "\n".join(lines[labels[label] : end + 1])
                if re.search(rf"\b{instruction}", loop):
                    loops.append(loop)
        return sorted(loops, key=len)


@cache
def compiled(variant: Variant, capability: int, folder: Path) -> Compiled:
    """Compiles a variant for a capability; the machine code lies in the folder for a moment."""
    source = ASTSource(
        fn=variant.kernel,
        signature=dict(variant.signature),
        constexprs=dict(variant.constants),
        attrs={(i,): [["tt.divisibility", 16]] for i in variant.divisible},
    )
    options = {
        "num_warps": variant.warps,
        "num_stages": variant.stages,
        "enable_fp_fusion": False,
    }
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    binary = folder / "kernel.cubin"
    binary.write_bytes(made.asm["cubin"])
    usage = _tool("cuobjdump", "--dump-resource-usage", str(binary))
    (registers,) = re.findall(r"\bREG:(\d+)", usage)
    (stack,) = re.findall(r"\bSTACK:(\d+)", usage)
    sass = _tool("nvdisasm", "-c", str(binary))
    return Compiled(int(registers), int(stack), int(made.metadata.shared), sass)


def _tool(name: str, *arguments: str) -> str:
    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    done = subprocess.run(
        [folder / name, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout
