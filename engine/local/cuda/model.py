"""A model whose steps run on a device: the same families as `ttc.engine.local.model`.

Rows are bfloat16 between products, sums and the residual are float32; with int8, rows are codes
with a scale for every 64 columns. A step is a fixed list of launches, none of which asks the host
for anything, so that a decode step can be captured and replayed. Each result depends on its own
sequence alone, to the bit; see `kernels.product` and `kernels.attention`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ttc.engine.local.attention import CHUNK
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.cuda.graphs import StepGraphs, StepOutputs
from ttc.engine.local.cuda.ops import Ops, Quantised, Rows, Turning
from ttc.engine.local.cuda.pool import DevicePool
from ttc.engine.local.cuda.sampler import DeviceSampler
from ttc.engine.local.cuda.step import Step, lay_out, needed_sizes, padded_sizes, views
from ttc.engine.local.cuda.weights import Dense, Packer, Stacked
from ttc.engine.local.cuda.work import SEGMENT, TILES, plan_work
from ttc.engine.local.files.loader import Rows as FileRows
from ttc.engine.local.files.loader import Weights, vector
from ttc.engine.local.kv import KVPool, kv_costs
from ttc.engine.local.linear import Linear
from ttc.engine.local.model import reward_layers, stacked_bias, stacked_qk_norm
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.rotation import Rotation
from ttc.engine.local.sample import Draw, Drawn
from ttc.errors import EngineError
from ttc.types import Sampling

__all__ = ["DeviceModel", "Setting", "check_heads"]

_MOST_CAPTURED = 256  # rows; a longer step is worth its launches
_COMPILED_ROWS = (1, 17, 65)  # of each tile of products
_MAX_GROUP, _MAX_HEAD_DIM = TILES[0], 128


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a model computes with."""

    ops: Ops
    device: torch.device
    kind: str
    """`bf16` or `fp32` (plain numbers), `int8`, or `file` (a file's codes)."""
    dtype: torch.dtype
    """Of rows and plain numbers."""
    kv_dtype: torch.dtype
    """Of keys and values; int8 codes have scales."""


@dataclass(frozen=True, kw_only=True)
class _Layer:
    attention_norm: torch.Tensor
    qkv: Stacked
    qk_norm: torch.Tensor | None
    is_rotated: bool
    window: int | None
    output: Stacked
    feed_forward_norm: torch.Tensor
    gate_up: Stacked
    down: Stacked


def check_heads(config: ModelConfig) -> None:
    """Whether the kernels have room for a model's heads; raises `EngineError` if not."""
    if config.group > _MAX_GROUP or config.head_dim > _MAX_HEAD_DIM:
        raise EngineError(
            f"the GPU's kernels have room for {_MAX_GROUP} query heads of size {_MAX_HEAD_DIM} for "
            f"each key head, not for {config.group} of {config.head_dim}; load the model with "
            "device='cpu'"
        )


class DeviceModel:
    """A model, ready to compute; see `ttc.engine.local.model.Model`.

    Args:
        config: what it is made of.
        weights: its tensors, each read once.
        setting: what it computes with.
        progress: is told how many of how many layers are loaded.

    Raises:
        EngineError: a file's codes are to be kept, and there are none; or heads are too large.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        setting: Setting,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        check_heads(config)
        self.config, self._setting = config, setting
        self._ops, self._device = setting.ops, setting.device
        self.costs = kv_costs(config, setting.kv_dtype)
        self._reward: Linear | None = None
        self._head = Stacked(weights=())
        kind = setting.kind if setting.kind in ("int8", "file") else "plain"
        plain = Packer("plain", setting.dtype, self._device)
        with plain, Packer(kind, setting.dtype, self._device) as packer:
            table = plain.stacked([weights["token_embd.weight"]])
            (embedding,) = table.weights
            assert isinstance(embedding, Dense)
            self._embedding = embedding.values
            if config.reward is not None:
                self._reward = reward_layers(config.reward, weights, torch.float32)
            elif config.tied and kind == "plain":
                self._head = table
                packer.num_weights, packer.num_bytes = plain.num_weights, plain.num_bytes
            else:
                name = "token_embd.weight" if config.tied else "output.weight"
                self._head = packer.stacked([weights[name]])
            self._layers = self._load(weights, packer, progress)
        if kind == "file" and not packer.formats:
            raise EngineError(
                "the model's file holds plain numbers and no codes to compute with; load it with "
                "arithmetic='bf16'"
            )
        self._norm = self._vector(weights["output_norm.weight"])
        self._rotation = Rotation(config.rope, config.head_dim)
        self._cos = self._sin = torch.empty(0, config.head_dim // 2, device=self._device)
        self._pool: DevicePool | None = None
        self._residual = torch.empty(0, config.hidden, device=self._device)
        self._sampler = DeviceSampler(self._ops)
        self._graphs = StepGraphs(self._run, self._device) if self._captures() else None
        formats = f"({'+'.join(sorted(packer.formats))})" if packer.formats else ""
        self.numerics = (
            f"{setting.kind}{formats} {self._ops.name} attention={CHUNK}/{SEGMENT} "
            f"kv={str(setting.kv_dtype).removeprefix('torch.')}"
        )
        """The types and kernels that decide the bits of a result."""
        self.bytes_per_weight = packer.num_bytes / max(1, packer.num_weights)
        if self._device.type == "cuda":
            self._compile()

    @torch.inference_mode()
    def _compile(self) -> None:
        """Runs steps of few and of many rows: kernels are compiled, and the first call waits less.

        Whoever measures how long steps take finds them compiled, too.
        """
        pool = self.make_pool(_COMPILED_ROWS[-1] // PAGE + 1)
        for rows in _COMPILED_ROWS:
            ids, wanted = torch.zeros(rows, dtype=torch.int64), torch.arange(rows)
            span = Span(range(_COMPILED_ROWS[-1] // PAGE + 1), 0, rows)
            outputs = self.forward(ids, Plan([span]), pool, wanted)
            if self._reward is None:
                self.draw(outputs, [Draw(Sampling(), row, 0) for row in range(rows)])
        self._pool = None

    def _captures(self) -> bool:
        return self._ops.captures and self._device.type == "cuda"

    def _load(
        self, weights: Weights, packer: Packer, progress: Callable[[int, int], None]
    ) -> list[_Layer]:
        count, layers = self.config.num_layers, []
        for i in range(count):
            progress(i, count)
            start = f"blk.{i}."
            block = {n.removeprefix(start): r for n, r in weights.items() if n.startswith(start)}
            layers.append(self._layer(i, block, packer))
        progress(count, count)
        return layers

    def make_pool(self, num_pages: int) -> DevicePool:
        """Memory for keys and values, on the device."""
        return DevicePool(
            self.config, num_pages, self._setting.kv_dtype, self._device, self._ops.copy_pages
        )

    def forward(
        self, token_ids: torch.Tensor, plan: Plan, pool: KVPool, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Computes a step: writes its keys and values, and returns logits, or rewards.

        Args:
            token_ids: (rows,) the tokens of all spans, one after another, on the host.
            plan: where they stand.
            pool: keys and values, those of earlier positions computed.
            wanted: (n,) the rows whose logits are wanted, on the host.

        Returns:
            (n, vocab) on the device, which the next step may overwrite; or (n, labels) of a reward
            model, whose head is computed on the host in float32
        """
        assert isinstance(pool, DevicePool)
        if pool is not self._pool:
            self._pool = pool
            self._forget_graphs()
        self._reach(plan.length)
        if self._reward is not None:
            self._residual, _ = self._compute(token_ids, plan)
            return self._reward(self.hidden(wanted).cpu())
        rows = plan.num_rows
        is_all = len(wanted) == rows and torch.equal(wanted, torch.arange(rows))
        if self._graphs is None or not is_all or rows > _MOST_CAPTURED:
            self._residual, outputs = self._compute(token_ids, plan)
            return self._summed(_chosen(outputs, wanted.to(self._device)))
        work = plan_work(plan, self.config.group, self._ops.tiles)
        sizes = padded_sizes(needed_sizes(plan, work))
        tables = lay_out(token_ids, plan, work, sizes, pin=True)
        logits, self._residual = self._graphs(tables, sizes, plan.length)
        return logits[:rows]

    def hidden(self, rows: torch.Tensor) -> torch.Tensor:
        """What the head reads of rows of the step that ran last: (n, hidden) float32."""
        some = self._residual[rows.to(self._device)]
        return F.rms_norm(some, self._norm.shape, self._norm, self.config.norm_eps)

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """Draws a token for each row."""
        return self._sampler.draw(logits, draws)

    def logprobs(
        self, logits: torch.Tensor, wanted: Sequence[Sequence[int]]
    ) -> list[dict[int, float] | None]:
        """The log probabilities of some tokens of each row; `None` of one that is not finite."""
        return self._sampler.logprobs(logits, wanted)

    def _compute(self, token_ids: torch.Tensor, plan: Plan) -> tuple[torch.Tensor, Rows]:
        """Runs a step launch by launch, with tables of just its sizes."""
        work = plan_work(plan, self.config.group, self._ops.tiles)
        sizes = needed_sizes(plan, work)
        tables = lay_out(token_ids, plan, work, sizes, pin=self._device.type == "cuda")
        step = views(tables.to(self._device, non_blocking=True), sizes, plan.length)
        return self._layers_of(step)

    def _run(self, step: Step) -> StepOutputs:
        residual, rows = self._layers_of(step)
        return StepOutputs(self._summed(rows), residual)

    def _summed(self, rows: Rows) -> torch.Tensor:
        """The head's product; its vocabulary is long enough to be one slice."""
        sums = self._ops.product(rows, self._head).sums
        total = sums[0]
        for part in sums[1:]:  # of a small vocabulary, in the order of every other product
            total = total + part
        return total

    @property
    def _int8(self) -> bool:
        return self._setting.kind == "int8"

    def _layers_of(self, step: Step) -> tuple[torch.Tensor, Rows]:
        """Runs all layers: the residual that they leave, and what the head reads."""
        ops, eps, int8 = self._ops, self.config.norm_eps, self._int8
        pool = self._pool
        assert pool is not None
        x = self._embedding[step.token_ids].float()
        parts = None
        for layer, cache in zip(self._layers, pool.layers, strict=True):
            rows = ops.norm(x, parts, layer.attention_norm, eps, int8)
            turning = self._turning(layer)
            queries = ops.turn(ops.product(rows, layer.qkv), turning, step, cache)
            attended = ops.attend(queries, cache, step, layer.window)
            rows = ops.quantise(attended) if int8 else attended
            parts = ops.product(rows, layer.output)
            rows = ops.norm(x, parts, layer.feed_forward_norm, eps, int8)
            parts = ops.product(ops.gate(ops.product(rows, layer.gate_up), int8), layer.down)
        return x, ops.norm(x, parts, self._norm, eps, int8)

    def _turning(self, layer: _Layer) -> Turning:
        config = self.config
        return Turning(
            norm=layer.qk_norm,
            cos=self._cos,
            sin=self._sin,
            is_rotated=layer.is_rotated,
            eps=config.norm_eps,
            query_scale=config.head_dim**-0.5 * math.log2(math.e),
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
        )

    def _reach(self, length: int) -> None:
        """Lets the tables of the rotation reach as far as a step does."""
        if length <= len(self._cos):
            return
        turn = self._rotation.tables(length)
        self._cos, self._sin = turn.cos.to(self._device), turn.sin.to(self._device)
        self._forget_graphs()

    def _forget_graphs(self) -> None:
        if self._graphs is not None:
            self._graphs.clear()

    def _layer(self, index: int, block: Weights, packer: Packer) -> _Layer:
        config = self.config

        def linear(*names: str) -> Stacked:
            matrices = [block[f"{name}.weight"] for name in names]
            return packer.stacked(matrices, stacked_bias(config, block, names))

        qk_norm = stacked_qk_norm(config, block)
        return _Layer(
            attention_norm=self._vector(block["attn_norm.weight"]),
            qkv=linear("attn_q", "attn_k", "attn_v"),
            qk_norm=None if qk_norm is None else qk_norm.float().contiguous().to(self._device),
            is_rotated=index not in config.unrotated,
            window=config.window_of(index),
            output=linear("attn_output"),
            feed_forward_norm=self._vector(block["ffn_norm.weight"]),
            gate_up=linear("ffn_gate", "ffn_up"),
            down=linear("ffn_down"),
        )

    def _vector(self, rows: FileRows) -> torch.Tensor:
        return vector(rows).float().to(self._device)


def _chosen(rows: Rows, wanted: torch.Tensor) -> Rows:
    """Some rows."""
    if isinstance(rows, Quantised):
        return Quantised(rows.codes[wanted], rows.scales[wanted])
    return rows[wanted]
