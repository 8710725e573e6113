"""Which device there is, what computes on it, and whether rows come out the same in any company.

Tiles of different sizes are used for few and for many rows. That they give the same bits is a
property of the device's tensor cores and of the compiler, so it is tried when a model is loaded,
with the sizes of that model; where it does not hold, one tile serves every number of rows.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

from ttc.engine.local.config import ModelConfig
from ttc.engine.local.cuda.model import Setting
from ttc.engine.local.cuda.ops import Ops, Rows
from ttc.engine.local.cuda.pool import Cache
from ttc.engine.local.cuda.step import lay_out, needed_sizes, views
from ttc.engine.local.cuda.torch_ops import TorchOps
from ttc.engine.local.cuda.weights import Dense, Int8, Stacked, quantised
from ttc.engine.local.cuda.work import plan_work
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.errors import EngineError
from ttc.registry import install_hint
from ttc.safe_text import safe_logger

__all__ = ["is_attention_invariant", "is_product_invariant", "setting_for"]

logger = safe_logger(__name__)

_ROWS = (1, 3, 16, 17, 64, 65)
_TYPES = {"fp32": torch.float32}
_START = 500  # a span that begins in one segment and ends in the next


def setting_for(config: ModelConfig, kind: str, kv_type: str | None = None) -> Setting:
    """What a model computes with on this machine's GPU.

    Args:
        config: the model.
        kind: `bf16`, `fp32`, `int8` or `file`.
        kv_type: `int8` for keys and values in a byte each; by default the type of rows.

    Raises:
        EngineError: there is no GPU that PyTorch can use.
    """
    if not torch.cuda.is_available():
        raise EngineError(
            "device='cuda' needs a GPU and a PyTorch built for CUDA, and this PyTorch "
            f"({torch.__version__}) finds none; load the model with device='cpu'"
        )
    device = torch.device("cuda", torch.cuda.current_device())
    dtype = _TYPES.get(kind, torch.bfloat16)
    return Setting(
        ops=_ops(config, kind, dtype, device),
        device=device,
        kind=kind,
        dtype=dtype,
        kv_dtype=torch.int8 if kv_type == "int8" else dtype,
    )


def _ops(config: ModelConfig, kind: str, dtype: torch.dtype, device: torch.device) -> Ops:
    if kind == "fp32":
        return TorchOps(dtype)  # the reference; the kernels are for shorter types
    if find_spec("triton") is None:
        logger.warning(
            "computing on the GPU with PyTorch alone, without the kernels that are made for it: "
            "Triton is not installed; %s",
            install_hint("cuda"),
        )
        return TorchOps(dtype)
    from ttc.engine.local.cuda.triton_ops import PRODUCT_TILES, ProductTile, TritonOps
    from ttc.engine.local.cuda.work import TILES

    ops = TritonOps(dtype)
    product_tiles: tuple[ProductTile, ...] = PRODUCT_TILES
    tiles: tuple[int, ...] = TILES
    if not is_product_invariant(ops, config, device, int8=kind == "int8"):
        logger.warning(_ONE_TILE, "products", product_tiles[1].rows)
        product_tiles = (product_tiles[1],)
    if not is_attention_invariant(ops, config, device):
        logger.warning(_ONE_TILE, "attention", tiles[1])
        tiles = (tiles[1],)
    return TritonOps(dtype, product_tiles=product_tiles, tiles=tiles)


_ONE_TILE = (
    "the tiles of %s do not give the same bits on this device; every step uses the one of %d "
    "rows, which is slower"
)


def is_product_invariant(
    ops: Ops, config: ModelConfig, device: torch.device, *, int8: bool = False
) -> bool:
    """Whether a row's products are the same to the bit among any number of rows."""
    columns, outputs = config.hidden, 2 * config.hidden + 24
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(outputs, columns, generator=generator)
    x = torch.randn(_ROWS[-1] + 1, columns, generator=generator)
    dtype = torch.bfloat16
    rows: Rows = ops.quantise(x.to(device)) if int8 else x.to(device, dtype)
    if int8:
        codes, scales = quantised(values)
        weight = Stacked(
            weights=(
                Int8(
                    codes=codes.to(device),
                    scales=scales.T.contiguous().to(device),
                    shape=(outputs, columns),
                ),
            )
        )
    else:
        weight = Stacked(weights=(Dense(values=values.to(device, dtype)),))
    whole = _added(ops, rows, weight)
    return all(
        torch.equal(_added(ops, _some(rows, slice(1, 1 + count)), weight), whole[1 : 1 + count])
        for count in _ROWS
    )


def _some(rows: Rows, which: slice) -> Rows:
    if isinstance(rows, torch.Tensor):
        return rows[which].contiguous()
    return type(rows)(rows.codes[which].contiguous(), rows.scales[which].contiguous())


def _added(ops: Ops, rows: Rows, weight: Stacked) -> torch.Tensor:
    sums = ops.product(rows, weight).sums
    total = sums[0]
    for part in sums[1:]:
        total = total + part
    return total


def is_attention_invariant(ops: Ops, config: ModelConfig, device: torch.device) -> bool:
    """Whether a row's attention is the same to the bit alone and with others that share pages."""
    dtype = torch.bfloat16
    num_rows, num_pages = 40, -(-(_START + 40) // PAGE)
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    page = num_pages, config.num_kv_heads, PAGE, config.head_dim
    cache = Cache(random(*page), random(*page), None, None)
    queries = random(num_rows, config.num_heads, config.head_dim)

    def attend(start: int, count: int) -> torch.Tensor:
        plan = Plan([Span(pages=range(num_pages), start=_START + start, count=count)])
        work = plan_work(plan, config.group, ops.tiles)
        sizes = needed_sizes(plan, work)
        tables = lay_out(torch.zeros(count, dtype=torch.int64), plan, work, sizes)
        step = views(tables.to(device), sizes, plan.length)
        return ops.attend(queries[start : start + count].contiguous(), cache, step, None)

    whole = attend(0, num_rows)
    return all(
        torch.equal(attend(row, count), whole[row : row + count])
        for row, count in ((0, 1), (11, 1), (12, 5), (num_rows - 1, 1))
    )
