"""A tiny random Llama, which needs no file, and the real model, which needs one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ttc.engine.local import LocalEngine  # before torch: it sets how torch's threads wait

# isort: split
import pytest
import torch

from ttc.engine.local.config import ModelConfig
from ttc.engine.local.files.gguf import GGUFFile, Value
from ttc.engine.local.files.weights import expected_shapes
from ttc.engine.local.hub.models import MODELS, find
from ttc.engine.local.model import Llama
from ttc.engine.local.source import ModelSource
from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.local.text.vocabulary import BYTE_LETTERS
from ttc.errors import ModelFileError
from ttc.ports import Request
from ttc.types import Branch, Problem, Sampling

os.environ.setdefault("TTC_CHECK_PAGES", "1")  # every step of an engine checks its pages

TINY = ModelConfig(
    num_layers=2,
    hidden=48,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    feed_forward=64,
    vocab=261,
    context=512,
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def make_file() -> Callable[..., GGUFFile]:
    """Makes an open model file without tensors: a byte vocabulary, two merges, three controls."""

    def make(**changes: Value) -> GGUFFile:
        letters = sorted(BYTE_LETTERS, key=lambda letter: BYTE_LETTERS[letter])
        tokens = [*letters, "th", "the", *CONTROL]
        metadata: dict[str, Value] = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": ["t h", "th e"],
            "tokenizer.ggml.token_type": [1] * 258 + [3] * 3,
            "tokenizer.ggml.eos_token_id": 258,
        }
        metadata |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
        return GGUFFile(path=Path("tiny.gguf"), metadata=metadata, tensors={})

    return make


@pytest.fixture(scope="session")
def tokens(make_file: Callable[..., GGUFFile]) -> TextTokens:
    """The tiny vocabulary: token i is byte i, then `th`, `the` and the control tokens."""
    return TextTokens.from_gguf(make_file())


def tiny_weights(config: ModelConfig = TINY) -> dict[str, torch.Tensor]:
    """Random weights, large enough that the next token depends on all tokens before."""
    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.randn(*shape, generator=generator) * (3 * shape[-1] ** -0.5)
        if len(shape) == 2
        else torch.ones(shape)
        for name, shape in expected_shapes(config).items()
    }


@pytest.fixture(scope="session")
def tiny(tokens: TextTokens) -> ModelSource:
    """A tiny random model."""
    return ModelSource(
        config=TINY,
        build=lambda: Llama(TINY, tiny_weights(), torch.float32),
        tokens=tokens,
        template=ChatTemplate(TEMPLATE, tokens, {}),
        fingerprint="0" * 64,
    )


@pytest.fixture
def load(tiny: ModelSource) -> Iterator[Callable[..., LocalEngine]]:
    """Loads tiny engines, with any settings, and closes them after the test."""
    engines: list[LocalEngine] = []

    def make(**settings: Any) -> LocalEngine:
        engines.append(LocalEngine(tiny, name="tiny", **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(load: Callable[..., LocalEngine]) -> LocalEngine:
    """A tiny engine."""
    return load()


@pytest.fixture(scope="session")
def smollm2() -> Iterator[LocalEngine]:
    """The real model; a test that asks for it is skipped where it has not been pulled."""
    try:
        path = find("smollm2-135m")
    except ModelFileError:
        pytest.skip(f"{MODELS['smollm2-135m'].file} is missing; run `ttc pull smollm2-135m`")
    with LocalEngine.load(path, name="smollm2-135m") as engine:
        yield engine


@pytest.fixture(scope="session")
def ask() -> Callable[..., Request]:
    """Makes a request on a branch, or on a raw prompt's tokens."""

    def make(
        prompt: Branch | str | list[int],
        max_tokens: int = 8,
        *,
        seed: int = 0,
        until: tuple[str | int, ...] = (),
        **sampling: Any,
    ) -> Request:
        if isinstance(prompt, str):
            prompt = list(prompt.encode())  # in the tiny vocabulary a byte is its own token
        if isinstance(prompt, list):
            prompt = Branch(text="", token_ids=tuple(prompt))
        return Request(
            branch=prompt,
            max_tokens=max_tokens,
            sampling=Sampling(**sampling),
            seed=seed,
            until=until,
        )

    return make


@pytest.fixture(scope="session")
def question() -> Callable[[str], Problem]:
    """Makes a problem of one user message."""
    return Problem.ask
