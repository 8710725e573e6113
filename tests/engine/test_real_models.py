"""Real models of two families, in every format that a file may have, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from tests.engine.reference import (
    load_gguf,
    logits_of,
    reference_logits,
    reference_model,
    round_through,
    write_gguf,
)
from ttc.engine.local.files.gguf import read_gguf
from ttc.engine.local.hub.models import find, models_folder
from ttc.engine.local.text.tokenizer import TextTokens

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

QWEN = ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf")
"""Of these, `make qwen` tests those that lie among the models."""
TEXTS = [
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n    return fibonacci(n - 1)",
    "The capital of France is Paris, and the capital of Australia is Canberra. Once upon a time,",
    "<html>\n<body>\n<h1>日本語 naïve café</h1>\n" + "x = 1\n" * 30,
]


@pytest.fixture(scope="module", params=QWEN, ids=["0.5B", "1.5B"])
def qwen(request: pytest.FixtureRequest) -> tuple[Any, Any, TextTokens]:
    """The engine's model, transformers' and the vocabulary; skipped, loudly, without the file."""
    path = models_folder() / request.param
    if not path.is_file():
        pytest.skip(f"{path} is missing; put the file there to test Qwen's family")
    return load_gguf(path), reference_model(path), TextTokens.from_gguf(read_gguf(path))


@pytest.mark.parametrize("text", TEXTS, ids=["code", "prose", "page"])
def test_logits_of_qwen_are_those_of_transformers(
    qwen: tuple[Any, Any, TextTokens], text: str
) -> None:
    """Every logit within 1e-3 and the best token of every position, in a file of four formats."""
    mine, reference, tokens = qwen
    ids = torch.tensor(tokens.encode(text))
    actual, expected = logits_of(mine, ids), reference_logits(reference, ids)

    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-3)
    best = expected.topk(2).values
    clear = best[:, 0] - best[:, 1] > 1e-3
    assert torch.equal(actual.argmax(-1)[clear], expected.argmax(-1)[clear])


def test_tokens_of_qwen_without_a_meaning_are_known(qwen: tuple[Any, Any, TextTokens]) -> None:
    """The rows of its embedding that no token has; they are never drawn."""
    mine, _, tokens = qwen

    assert (tokens.size, len(tokens.unsampled_ids)) == (mine.config.vocab, 271)


def perplexity(logits: torch.Tensor, ids: torch.Tensor) -> float:
    """Of all tokens but the first."""
    return float(torch.nn.functional.cross_entropy(logits[:-1].double(), ids[1:]).exp())


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q6_K])
def test_the_perplexity_of_a_format_is_that_of_its_weights(kind: Kind, tmp_path: Path) -> None:
    """SmolLM2 written again in one format: the engine's against transformers' to four digits."""
    reference = reference_model(find("smollm2-135m"))
    tokens = TextTokens.from_gguf(read_gguf(find("smollm2-135m")))
    path = write_gguf(reference, tmp_path / "model.gguf", kind=kind)
    ids = torch.tensor(tokens.encode("\n".join(TEXTS)))
    actual = perplexity(logits_of(load_gguf(path), ids), ids)

    expected = perplexity(reference_logits(round_through(reference, kind), ids), ids)
    assert actual == pytest.approx(expected, rel=1e-4)
