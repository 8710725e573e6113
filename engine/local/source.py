"""A model as the engine needs it: what it is made of, vocabulary, template, weights for later.

Opening a GGUF file imports no torch, so that `load` can do both at once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from ttc.config import ARITHMETICS, Arithmetic
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.files.gguf import GGUFFile, read_gguf
from ttc.engine.local.files.gguf_config import gguf_config, gguf_weights
from ttc.engine.local.files.tensor import Tensor
from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import EngineError, ModelFileError
from ttc.safe_text import safe_logger

if TYPE_CHECKING:
    from ttc.engine.local.files.folder import Folder
    from ttc.engine.local.files.loader import Weights
    from ttc.engine.local.model import Model
    from ttc.engine.local.native import Kernels

__all__ = ["Device", "KVType", "ModelSource", "Progress", "open_model"]

logger = safe_logger(__name__)

Device = Literal["cpu", "cuda"]
"""Where a model computes."""
KVType = Literal["int8"]
"""What keys and values are kept in, where it is not the type of the arithmetic."""

Progress = Callable[[str, int, int | None], None]
"""Is told a stage, how much of it is done, and of how much (`None` where that is unknown)."""

_KERNELS = ("int8", "file")
_TYPES = {"fp32": "float32", "bf16": "bfloat16"}
"""What torch calls them."""
_DRAFTED = 1 << 16
"""Tokens that a draft model knows: 98 to 99 of 100 in English, maths and code."""
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model that is ready to be built."""

    config: ModelConfig
    build: Callable[[], Model]
    """Loads the weights. Called once, on the thread that will compute."""
    tokens: TextTokens
    template: ChatTemplate | None
    """The chat template, where the model has one."""
    fingerprint: str
    """What identifies the weights, in hex."""
    device: Device = "cpu"
    """Where it will compute."""


def open_model(
    path: Path,
    arithmetic: Arithmetic | None = None,
    progress: Progress = lambda stage, done, total: None,
    *,
    device: Device = "cpu",
    kv_type: KVType | None = None,
    drafts: bool = False,
) -> ModelSource:
    """Opens a GGUF file, or a folder as Hugging Face lays it out.

    Args:
        path: the file (of a split one, the first) or the folder.
        arithmetic: what it computes with; by default `int8`, and `fp32` with a warning where the
            kernels cannot be built. On a GPU by default `bf16`.
        progress: is told the stage `open` here, and the stage `load`, in layers, while `build`
            runs, from its thread.
        device: where it computes.
        kv_type: `int8` for keys and values of a byte each, on a GPU or by the kernels in C.
        drafts: whether it only guesses what another model says, on the CPU: then it keeps the codes
            of its file, which is less to read, and knows the most frequent tokens alone.

    Raises:
        ModelFileError: the model is missing, damaged or of a kind that is not supported.
        EngineError: `int8` or `file` was asked for, and the kernels cannot be built; or there is no
            such device.
    """
    if device not in get_args(Device) or kv_type not in (None, *get_args(KVType)):
        raise ValueError(
            f"device is one of {', '.join(get_args(Device))} and kv_type None or "
            f"{', '.join(get_args(KVType))}, not {device!r} and {kv_type!r}"
        )
    if kv_type is not None and device == "cpu" and arithmetic in _TYPES:
        raise ValueError(
            f"kv_type={kv_type!r} on the CPU is for the arithmetics {' and '.join(_KERNELS)}, not "
            f"{arithmetic!r}"
        )
    if arithmetic is not None and arithmetic not in ARITHMETICS:
        raise ValueError(f"arithmetic is one of {', '.join(ARITHMETICS)}, not {arithmetic!r}")
    progress("open", 0, None)
    if path.suffix in _PICKLED:
        raise ModelFileError(
            f"{path} is a pickle, which can run code when it is opened and is never read; use a "
            "GGUF file or a folder with safetensors"
        )
    if path.suffix == ".safetensors":
        raise ModelFileError(
            f"{path} holds weights alone; give its folder, with config.json and tokenizer.json"
        )
    model, config, weights = _read(path)
    with ThreadPoolExecutor(1) as pool:  # a digest leaves the interpreter to the vocabulary
        digest = pool.submit(model.fingerprint)
        tokens, template = _text(model)
        fingerprint = digest.result()
    if tokens.size > config.vocab:
        raise ModelFileError(
            f"{path}: the tokenizer has {tokens.size} tokens, and the model knows {config.vocab}; "
            "fetch the model again"
        )
    keeps_codes = arithmetic == "file"
    if drafts:
        keeps_codes |= any(isinstance(t, Tensor) and t.format.coding for t in weights.values())
        config, weights = _with_short_head(config, weights)
    return ModelSource(
        config=config,
        build=lambda: (
            _build(config, weights, (arithmetic, kv_type), progress, keeps_codes=keeps_codes)
            if device == "cpu"
            else _build_on_gpu(config, weights, (arithmetic or "bf16", kv_type), progress)
        ),
        tokens=tokens,
        template=template,
        fingerprint=fingerprint,
        device=device,
    )


def _with_short_head(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """A model that gives logits of its first tokens alone.

    Vocabularies are made from the most frequent pair of texts down, so few others ever come; and of
    a small model the head is a quarter of what a step reads.

    *Source:* Zhao et al. 2025, arXiv 2502.14856. *Differs:* they count the tokens of a corpus.
    """
    if config.vocab <= _DRAFTED or config.reward is not None:
        return config, weights
    head = weights["token_embd.weight" if config.tied else "output.weight"]
    short = head.first(_DRAFTED) if isinstance(head, Tensor) else head[:_DRAFTED]
    return replace(config, vocab=_DRAFTED, tied=False), {**weights, "output.weight": short}


def _build(
    config: ModelConfig,
    weights: Weights,
    types: tuple[Arithmetic | None, KVType | None],
    progress: Progress,
    *,
    keeps_codes: bool,
) -> Model:
    """The model in memory. Only here is torch needed, and imported."""
    import torch

    from ttc.engine.local.model import Llama
    from ttc.engine.local.native import NativeModel

    def told(done: int, total: int) -> None:
        progress("load", done, total)

    arithmetic, kv_type = types
    must = arithmetic in _KERNELS or kv_type is not None
    kernels = None if arithmetic in _TYPES else _kernels(config, must=must)
    if kernels is not None:
        kv_dtype = torch.bfloat16 if kv_type is None else torch.int8
        return NativeModel(
            config, weights, kernels, told, keeps_codes=keeps_codes, kv_dtype=kv_dtype
        )
    dtype: torch.dtype = getattr(torch, _TYPES[arithmetic or "fp32"])
    return Llama(config, weights, dtype, told)


def _build_on_gpu(
    config: ModelConfig,
    weights: Weights,
    types: tuple[Arithmetic, KVType | None],
    progress: Progress,
) -> Model:
    """The model in a GPU's memory. Only here is anything for GPUs imported."""
    from ttc.engine.local.cuda.model import DeviceModel
    from ttc.engine.local.cuda.place import setting_for

    setting = setting_for(config, *types)
    return DeviceModel(config, weights, setting, lambda done, total: progress("load", done, total))


def _kernels(config: ModelConfig, *, must: bool) -> Kernels | None:
    """The compiled kernels, or `None` where PyTorch computes, unless they must."""
    from ttc.engine.local.native import Kernels, NativeModel

    try:
        NativeModel.check(config)
        return Kernels()
    except EngineError as error:
        if must:
            raise
        logger.warning("computing in fp32 with PyTorch, which is many times slower: %s", error)
        return None


def _read(path: Path) -> tuple[Folder | GGUFFile, ModelConfig, Weights]:
    """The headers, what they describe, and the tensors."""
    if path.is_dir():
        from ttc.engine.local.files.folder import folder_weights, read_folder

        folder = read_folder(path)
        return folder, folder.config, folder_weights(folder)
    file = read_gguf(path)
    config = gguf_config(file)
    return file, config, gguf_weights(file, config)


def _text(model: Folder | GGUFFile) -> tuple[TextTokens, ChatTemplate | None]:
    """The vocabulary and the chat template."""
    if isinstance(model, GGUFFile):
        tokens = TextTokens.from_gguf(model)
        return tokens, ChatTemplate.from_gguf(model, tokens)
    tokens = TextTokens.from_folder(model.path)
    return tokens, ChatTemplate.from_folder(model.path, tokens)
