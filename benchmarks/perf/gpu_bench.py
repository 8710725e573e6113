"""Where the parts of `gpu.py` run, how they are timed, and random inputs of kernels."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ttc.benchmarks.perf.gpu_models import SHAPES, TINY, Shapes, random_weights
from ttc.engine.local.cuda.model import DeviceModel, Setting
from ttc.engine.local.cuda.ops import Ops, Parts, Quantised, Rows
from ttc.engine.local.cuda.pool import Cache
from ttc.engine.local.cuda.step import Step, lay_out, needed_sizes, views
from ttc.engine.local.cuda.torch_ops import TorchOps
from ttc.engine.local.cuda.weights import BLOCK, Coded, Dense, Int8, Stacked, quantised
from ttc.engine.local.cuda.work import plan_work
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.sample import Draw
from ttc.types import Sampling

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where the parts run, and how they are timed."""

    device: torch.device
    name: str
    """The GPU's name; or that this was a dry run, which measures nothing."""
    is_gpu: bool
    ops: Ops
    """What is measured."""
    reference: TorchOps
    shapes: tuple[Shapes, ...]

    def ms(self, work: Callable[[], object], repeats: int = 20) -> float | None:
        """The median milliseconds of the device, its cache cold; `None` in a dry run."""
        work()
        if not self.is_gpu:
            return None
        cold = torch.empty(256 << 20, dtype=torch.uint8, device=self.device)  # more than the L2
        times = []
        for _ in range(repeats):
            cold.zero_()
            begin = self.mark()
            work()
            end = self.mark()
            torch.cuda.synchronize(self.device)
            times.append(float(begin.elapsed_time(end)))
        return statistics.median(times)

    def mark(self) -> Any:
        """A moment on the GPU's own clock; nothing in a dry run."""
        if not self.is_gpu:
            return None
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def random(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Normal numbers, the same every time."""
        generator = torch.Generator(self.device).manual_seed(sum(shape))
        return torch.randn(*shape, generator=generator, device=self.device).to(dtype)


def bench_here(*, dry_run: bool) -> Bench:
    """The GPU and its kernels; in a dry run the CPU, and kernels in the interpreter if it is on."""
    dtype = torch.bfloat16
    if not dry_run:
        if not torch.cuda.is_available():
            sys.exit("no GPU that PyTorch can use; --dry-run goes through the parts without one")
        from ttc.engine.local.cuda.triton_ops import TritonOps

        device = torch.device("cuda", torch.cuda.current_device())
        name, ops, shapes = torch.cuda.get_device_name(device), TritonOps(dtype), SHAPES
        return Bench(
            device=device,
            name=name,
            is_gpu=True,
            ops=ops,
            reference=TorchOps(dtype),
            shapes=shapes,
        )
    made: Ops = TorchOps(dtype)
    if os.environ.get("TRITON_INTERPRET") == "1":
        from ttc.engine.local.cuda.triton_ops import TritonOps

        made = TritonOps(dtype, upcasts=True)
    return Bench(
        device=torch.device("cpu"),
        name="none: a dry run",
        is_gpu=False,
        ops=made,
        reference=TorchOps(dtype),
        shapes=(TINY,),
    )


def weight_of(bench: Bench, kind: str, outputs: int, columns: int) -> Stacked:
    """A random weight of a kind."""
    values = bench.random(outputs, columns)
    shape = outputs, columns
    if kind == "bf16":
        return Stacked(weights=(Dense(values=values),))
    if kind == "int8":
        codes, scales = quantised(values)
        weight = Int8(codes=codes, scales=scales.T.contiguous(), shape=shape)
        return Stacked(weights=(weight,))
    blocks = -(-columns // BLOCK)
    generator = torch.Generator(bench.device).manual_seed(0)
    packed = torch.randint(
        0, 256, (outputs, blocks, BLOCK // 2), generator=generator, device=bench.device
    )
    scales = bench.random(outputs, blocks, BLOCK // 32, dtype=torch.float16).abs()
    return Stacked(
        weights=(
            Coded(
                codes=packed.to(torch.uint8),
                scales=scales,
                minima=-8 * scales,
                bits=4,
                offset=0,
                group=32,
                shape=shape,
            ),
        )
    )


def rows_of(bench: Bench, kind: str, count: int, columns: int) -> Rows:
    """Random rows for a weight of a kind."""
    x = bench.random(count, columns)
    return bench.ops.quantise(x) if kind == "int8" else x


def added(parts: Parts) -> torch.Tensor:
    """The sum of slices, in their order."""
    total = parts.sums[0]
    for part in parts.sums[1:]:
        total = total + part
    return total


def tree(bench: Bench, shapes: Shapes, branches: int, prefix: int) -> tuple[Step, Step, Cache]:
    """Branches of a prefix, one token each: sharing its pages, and with pages of their own."""
    own, common = 2, prefix // PAGE
    tied = [
        Span([*range(common), *(common + own * b + i for i in range(own))], prefix + 20, 1)
        for b in range(branches)
    ]
    each = common + own
    untied = [Span(range(each * b, each * (b + 1)), prefix + 20, 1) for b in range(branches)]
    page = (each * branches, shapes.kv_heads, PAGE, shapes.head_dim)
    cache = Cache(bench.random(*page), bench.random(*page), None, None)
    group = shapes.heads // shapes.kv_heads
    return step_of(bench, tied, group), step_of(bench, untied, group), cache


def step_of(bench: Bench, spans: Sequence[Span], group: int) -> Step:
    """A step's tables."""
    plan = Plan(spans)
    work = plan_work(plan, group, bench.ops.tiles)
    sizes = needed_sizes(plan, work)
    tables = lay_out(torch.zeros(plan.num_rows, dtype=torch.int64), plan, work, sizes)
    return views(tables.to(bench.device), sizes, plan.length)


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The root mean square error, relative."""
    difference = (found.float() - expected.float()).square().mean().sqrt()
    return float(difference / expected.float().square().mean().sqrt().clamp(min=1e-30))


def plain(rows: Rows) -> torch.Tensor:
    """Rows as numbers."""
    if not isinstance(rows, Quantised):
        return rows
    groups = rows.codes.float().view(*rows.scales.shape, -1)
    return (groups * rows.scales[..., None]).flatten(1)


def draw_of(seed: int, **sampling: Any) -> Draw:
    """How a token is drawn."""
    return Draw(sampling=Sampling(**sampling), seed=seed, position=100)


def wall_ms(bench: Bench, work: Callable[[], object], repeats: int = 5) -> float | None:
    """The least milliseconds on the clock; `None` in a dry run."""
    work()
    if not bench.is_gpu:
        return None
    found = []
    for _ in range(repeats):
        torch.cuda.synchronize(bench.device)
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize(bench.device)
        found.append(time.perf_counter() - begun)
    return min(found) * 1e3


def model_of(bench: Bench, shapes: Shapes, kind: str, ops: Ops | None = None) -> DeviceModel:
    """A model of random weights; of few layers where it is only tried."""
    layers = 2 if ops is not None or not bench.is_gpu else min(shapes.layers, 4)
    return built(bench, shapes, kind, layers, ops)


def built(
    bench: Bench, shapes: Shapes, kind: str, layers: int, ops: Ops | None = None
) -> DeviceModel:
    """A model of random weights."""
    setting = Setting(
        ops=bench.ops if ops is None else ops,
        device=bench.device,
        kind=kind,
        dtype=torch.bfloat16,
        kv_dtype=torch.bfloat16,
    )
    config = shapes.config(layers)
    return DeviceModel(config, random_weights(config), setting)
