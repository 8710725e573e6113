"""A model whose steps run in C: the same families as `ttc.engine.local.model`, another arithmetic.

Weights and activations are int8, with a scale for every 64 columns of a row, or weights are the
codes of their file, with its scales. Products are summed in integers, keys and values are kept in
bfloat16, and everything else is float32. Each result depends on its own sequence alone, to the bit,
by construction: nothing is padded and nothing is probed. It is the same on every processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F

from ttc.engine.local.attention import CHUNK
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.files.loader import Rows, Weights, vector
from ttc.engine.local.kv import KVPool, kv_costs
from ttc.engine.local.linear import Linear
from ttc.engine.local.model import reward_layers, stacked_bias, stacked_qk_norm
from ttc.engine.local.native.library import (
    GROUP,
    SEGMENT,
    Kernels,
    LayerStruct,
    LinearStruct,
    ModelStruct,
)
from ttc.engine.local.native.room import Room
from ttc.engine.local.native.sampler import NativeSampler
from ttc.engine.local.native.weights import Packer, QuantisedLinear
from ttc.engine.local.plan import Plan
from ttc.engine.local.rotation import Rotation
from ttc.engine.local.sample import Draw, Drawn
from ttc.errors import EngineError

__all__ = ["NativeModel"]

_MAX_GROUP, _MAX_HEAD_DIM = 16, 256  # see attention.c
_EMBEDDING = "token_embd.weight"


class NativeModel:
    """A model, ready to compute.

    Args:
        config: what it is made of.
        weights: its tensors. The rows of the embedding are read from them when they are needed; all
            else is read once.
        kernels: the compiled kernels.
        progress: is told how many of how many layers are loaded.
        keeps_codes: whether weights that are codes in their file stay as they are.
        kv_dtype: what keys and values are kept in: bfloat16, or int8 with a scale for each head of
            a position.

    Raises:
        EngineError: the model's heads are larger than the kernels have room for, or codes are to be
            kept and there are none.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        kernels: Kernels,
        progress: Callable[[int, int], None] = lambda done, total: None,
        *,
        keeps_codes: bool = False,
        kv_dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        self.check(config, kv_dtype)
        self.config, self.costs = config, kv_costs(config, kv_dtype)
        self._kv_dtype = kv_dtype
        self._kernels, self._sampler = kernels, NativeSampler(kernels)
        self._embedding = weights[_EMBEDDING]  # (vocab, hidden)
        self._rotation = Rotation(config.rope, config.head_dim)
        self._room = Room(config)
        self._kept: list[object] = []  # what structures point to
        self._pool: KVPool | None = None
        self._residual = torch.empty(0, config.hidden)
        self._layers = (LayerStruct * config.num_layers)()
        self._reward: Linear | None = None
        head = LinearStruct()
        with Packer(kernels, keeps_codes=keeps_codes) as packer:
            packer.prepare(r for n, r in weights.items() if n != _EMBEDDING or config.tied)
            if config.reward is not None:
                self._reward = reward_layers(config.reward, weights, torch.float32)
            else:
                rows = self._embedding if config.tied else weights["output.weight"]
                head = self._keep(packer.stacked([rows])).struct
            for i in range(config.num_layers):
                progress(i, config.num_layers)
                start = f"blk.{i}."
                block = {
                    n.removeprefix(start): r for n, r in weights.items() if n.startswith(start)
                }
                self._layers[i] = self._layer(i, block, packer)
        progress(config.num_layers, config.num_layers)
        if keeps_codes and packer.formats == {"int8"}:
            raise EngineError(
                "the model's file holds plain numbers and no codes to compute with; load it with "
                "arithmetic='int8'"
            )
        self.numerics = _numerics(packer.formats if keeps_codes else (), kv_dtype)
        """The types and kernels that decide the bits of a result."""
        self.bytes_per_weight = packer.num_bytes / packer.num_weights
        norm = self._norm = vector(weights["output_norm.weight"])
        self._model = ModelStruct(
            layers=self._layers,
            head=head,
            norm=self._address(norm),
            norm_eps=config.norm_eps,
            query_scale=config.head_dim**-0.5,
            num_layers=config.num_layers,
            hidden=config.hidden,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            feed_forward=config.feed_forward,
        )

    @staticmethod
    def check(config: ModelConfig, kv_dtype: torch.dtype = torch.bfloat16) -> None:
        """Whether the kernels have room for a model's heads; raises `EngineError` if not."""
        if kv_dtype == torch.int8 and config.head_dim % 4:
            raise EngineError(
                f"keys and values cannot be int8 in heads of size {config.head_dim}, which is no "
                "multiple of 4; leave kv_type out"
            )
        if config.group > _MAX_GROUP or config.head_dim > _MAX_HEAD_DIM:
            raise EngineError(
                f"the kernels have room for {_MAX_GROUP} query heads of size {_MAX_HEAD_DIM} for "
                f"each key head, not for {config.group} of {config.head_dim}; load the model with "
                "arithmetic='fp32'"
            )

    def make_pool(self, num_pages: int) -> KVPool:
        """Memory for keys and values, in bfloat16 or as codes."""
        return KVPool(self.config, num_pages, self._kv_dtype)

    def forward(
        self, token_ids: torch.Tensor, plan: Plan, pool: KVPool, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Computes a step: writes its keys and values, and returns logits, or rewards.

        Args:
            token_ids: (rows,) the tokens of all spans, one after another.
            plan: where they stand.
            pool: keys and values, those of earlier positions computed.
            wanted: (n,) the rows whose logits are wanted.

        Returns:
            (n, vocab), which the next step may overwrite; or (n, labels) of a reward model, whose
            head is computed in float32
        """
        if pool is not self._pool:
            self._bind(pool)
        room, step = self._room, self._room.step
        room.fit(plan)
        turn = self._rotation.tables(plan.length)
        step.cos, step.sin = turn.cos.data_ptr(), turn.sin.data_ptr()
        self._residual = room.residual(plan.num_rows)
        self._residual.copy_(self._embedding[token_ids])
        asked = wanted.int() if self._reward is None else wanted[:0].int()
        step.wanted = asked.data_ptr()
        logits = room.logits(len(asked))
        self._kernels.run_step(self._model, step)
        return logits if self._reward is None else self._reward(self.hidden(wanted))

    def hidden(self, rows: torch.Tensor) -> torch.Tensor:
        """What the head reads of rows of the step that ran last: (n, hidden) float32."""
        norm = self._norm
        return F.rms_norm(self._residual[rows], norm.shape, norm, self.config.norm_eps)

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """Draws a token for each row."""
        return self._sampler.draw(logits, draws)

    def logprobs(
        self, logits: torch.Tensor, wanted: Sequence[Sequence[int]]
    ) -> list[dict[int, float] | None]:
        """The log probabilities of some tokens of each row; `None` of one that is not finite."""
        return self._sampler.logprobs(logits, wanted)

    def _layer(self, index: int, block: Weights, packer: Packer) -> LayerStruct:
        config = self.config

        def linear(*names: str) -> LinearStruct:
            matrices = [block[f"{name}.weight"] for name in names]
            bias = stacked_bias(config, block, names)
            return self._keep(packer.stacked(matrices, bias)).struct

        qk_norm = stacked_qk_norm(config, block)
        return LayerStruct(
            qkv=linear("attn_q", "attn_k", "attn_v"),
            output=linear("attn_output"),
            gate_up=linear("ffn_gate", "ffn_up"),
            down=linear("ffn_down"),
            attention_norm=self._vector(block["attn_norm.weight"]),
            feed_forward_norm=self._vector(block["ffn_norm.weight"]),
            qk_norm=None if qk_norm is None else self._address(qk_norm),
            is_rotated=index not in config.unrotated,
            window=config.window_of(index) or 0,
        )

    def _bind(self, pool: KVPool) -> None:
        """Lets the layers point to a pool's pages."""
        for layer, keys, values in zip(self._layers, pool.keys, pool.values, strict=True):
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        scales = zip(pool.key_scales, pool.value_scales, strict=True)
        for layer, (keys, values) in zip(self._layers, scales, strict=False):
            layer.key_scales, layer.value_scales = keys.data_ptr(), values.data_ptr()
        self._pool = pool

    def _keep(self, linear: QuantisedLinear) -> QuantisedLinear:
        self._kept.append(linear)
        return linear

    def _vector(self, rows: Rows) -> int:
        return self._address(vector(rows))

    def _address(self, values: torch.Tensor) -> int:
        values = values.float().contiguous()
        self._kept.append(values)
        return values.data_ptr()


def _numerics(formats: Iterable[str], kv_dtype: torch.dtype) -> str:
    """The name of an arithmetic, with the formats whose codes it keeps."""
    weights = f"file({'+'.join(sorted(formats))})" if formats else "int8"
    kv = "int8" if kv_dtype == torch.int8 else "bf16"
    return f"{weights}/{GROUP} attention={CHUNK}/{SEGMENT} kv={kv}"
