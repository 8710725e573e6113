"""Folders whose tokenizer is SentencePiece's own file, against Google's library."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.texts import mixed_texts
from ttc.engine.local.text.sentencepiece import read_sentencepiece
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import ModelFileError

OPTIONS: dict[str, Any] = {
    "model_type": "bpe",
    "vocab_size": 1200,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "character_coverage": 0.99,
    "minloglevel": 2,
}


def train(**changes: Any) -> bytes:
    """A small model."""
    model = io.BytesIO()
    texts = [text.replace("\x00", "") for text in mixed_texts(2000, seed=5)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, **(OPTIONS | changes)
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def model() -> bytes:
    """As Llama 2 has it."""
    return train()


@pytest.fixture
def make(tmp_path: Path, model: bytes) -> Callable[..., TextTokens]:
    """Reads a folder with a model, and with other files as JSON."""

    def read(content: bytes = model, **files: Any) -> TextTokens:
        (tmp_path / "tokenizer.model").write_bytes(content)
        for name, value in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(value))
        return TextTokens.from_folder(tmp_path)

    return read


def test_tokens_are_those_of_googles_library(make: Callable[..., TextTokens], model: bytes) -> None:
    """And so is the text of them."""
    theirs, mine = sentencepiece.SentencePieceProcessor(model_proto=model), make()

    for text in mixed_texts(1500, seed=6):
        if "\x00" in text or "\u2581" in text:
            continue
        ids = theirs.encode(text)
        assert mine.encode(text) == ids, text
        assert mine.decode(ids) == text


def test_ends_and_starts_come_from_all_files(make: Callable[..., TextTokens]) -> None:
    """A token that a file adds is structure, and rows beyond the tokens are never drawn."""
    tokens = make(
        config={"vocab_size": 1210, "eos_token_id": 7},
        tokenizer_config={"eos_token": "<|im_end|>", "bos_token": "<s>", "add_bos_token": True},
        added_tokens={"<|im_end|>": 1200, "<tool>": 1201},
    )

    assert tokens.end_ids == {2, 7, 1200}
    assert tokens.start_id == 1
    assert tokens.control["<|im_end|>"] == 1200
    assert tokens.encode("a<tool>")[-1] == 1201
    assert 1200 not in tokens.encode("<|im_end|>")
    assert tokens.unsampled_ids == {0, *range(1202, 1210)}


def test_a_folder_may_ask_for_no_start(make: Callable[..., TextTokens]) -> None:
    """By its configuration."""
    assert make(tokenizer_config={"add_bos_token": False}).start_id is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "unigram"}, "is a unigram model, which is not supported"),
        ({"normalization_rule_name": "nmt_nfkc"}, "precompiled_charsmap is set: not supported"),
        ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces is set: not supported"),
    ],
)
def test_a_model_of_another_kind_is_refused(
    make: Callable[..., TextTokens], changes: dict[str, Any], message: str
) -> None:
    """By what it is or does."""
    with pytest.raises(ModelFileError, match=message):
        make(train(**changes))


def test_an_added_token_in_the_place_of_another_is_refused(
    make: Callable[..., TextTokens],
) -> None:
    """Or beyond the end."""
    for place in (5, 1300):
        with pytest.raises(ModelFileError, match=f"has 1200 pieces, and .* puts '<x>' at {place}"):
            make(added_tokens={"<x>": place})


@given(cut=st.integers(0, 3000), flip=st.integers(0, 255), at=st.integers(0, 3000))
@settings(deadline=None)
def test_a_damaged_model_is_refused_or_read(
    model: bytes, tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int, at: int
) -> None:
    """Nothing but a `ModelFileError` comes of it."""
    damaged = bytearray(model[: len(model) - cut])
    damaged[at] ^= flip
    path = tmp_path_factory.getbasetemp() / "tokenizer.model"
    path.write_bytes(damaged)

    with contextlib.suppress(ModelFileError):
        assert read_sentencepiece(path).metadata["tokenizer.ggml.model"] == "llama"
