"""A GGUF file's vocabulary, from its keys `tokenizer.ggml.*`.

Source: the GGUF specification (ggml-org/ggml, docs/gguf.md), and for what a file leaves unsaid the
defaults of llama.cpp, which wrote most of them. No Unicode normalisation is applied, as no file
asks for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import cast

from ttc.engine.local.files.gguf import GGUFFile, Value
from ttc.engine.local.text.bpe import SPLITS, Split, byte_level, merge_model
from ttc.engine.local.text.spm import ScoredPairs
from ttc.engine.local.text.vocabulary import (
    SPACE,
    Vocabulary,
    is_control,
    letter_bytes,
    spaced_bytes,
)
from ttc.errors import ModelFileError

__all__ = ["gguf_vocabulary"]

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_ENDS = ("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "</s>")
"""A file names one end, or few. Where these are control tokens they end a text, too."""
_SPECIAL_KEYS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
_REFUSED = ("remove_extra_whitespaces", "precompiled_charsmap")
"""Keys that change a text before it is cut."""


def gguf_vocabulary(file: GGUFFile) -> Vocabulary:
    """The vocabulary of an open file.

    Raises:
        ModelFileError: it is missing, damaged or of a kind that is not supported.
    """
    keys = _Keys(file.path, file.metadata)
    kind = keys.value("model")
    if kind not in ("gpt2", "llama"):
        raise ModelFileError(
            f"{file.path}: tokenizer.ggml.model = {kind!r} is not supported; use a file of "
            "'gpt2' (byte-level BPE) or 'llama' (SentencePiece BPE)"
        )
    for key in _REFUSED:
        if keys.value(key):
            raise ModelFileError(f"{file.path}: tokenizer.ggml.{key} is set: not supported")
    return _byte_level(file, keys) if kind == "gpt2" else _sentencepiece(file, keys)


class _Keys:
    """Reads keys, and says which one is wrong."""

    def __init__(self, path: Path, metadata: Mapping[str, Value]) -> None:
        self.path = path
        self._metadata = metadata
        self.tokens = self.strings("tokens")
        types = self.value("token_type")
        if not isinstance(types, list) or len(types) != len(self.tokens):
            raise ModelFileError(
                f"{path}: tokenizer.ggml.token_type does not give {len(self.tokens)} tokens a type "
                "each; fetch the file again"
            )
        self.types = list(types)
        for i, type_ in enumerate(types):
            if type_ in (_CONTROL, _USER_DEFINED):
                structure = is_control(self.tokens[i], special=type_ == _CONTROL)
                self.types[i] = _CONTROL if structure else _USER_DEFINED

    def value(self, key: str) -> Value | None:
        return self._metadata.get(f"tokenizer.ggml.{key}")

    def strings(self, key: str) -> list[str]:
        value = self.value(key)
        if not isinstance(value, list) or not set(map(type, value)) <= {str}:
            raise ModelFileError(
                f"{self.path}: the key 'tokenizer.ggml.{key}' is missing or no list of texts; "
                "use a file with a tokenizer"
            )
        return cast("list[str]", value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            raise ModelFileError(
                f"{self.path}: tokenizer.ggml.{key} is {value!r}, neither true nor false"
            )
        return default if value is None else value

    def token(self, key: str) -> int | None:
        """The id under a key."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value >= len(self.tokens):
            raise ModelFileError(
                f"{self.path}: tokenizer.ggml.{key} is {value!r}, and the tokens are 0 to "
                f"{len(self.tokens) - 1}; fetch the file again"
            )
        return value

    def of_type(self, *types: int) -> dict[str, int]:
        """Ids by text."""
        return {self.tokens[i]: i for i, type_ in enumerate(self.types) if type_ in types}


def _byte_level(file: GGUFFile, keys: _Keys) -> Vocabulary:
    pre = keys.value("pre")
    if not isinstance(pre, str) or pre not in SPLITS:
        raise ModelFileError(
            f"{file.path}: tokenizer.ggml.pre = {pre!r} is not supported; use a file of one of "
            f"{', '.join(map(repr, sorted(SPLITS)))}"
        )
    if keys.flag("add_space_prefix", False):
        raise ModelFileError(
            f"{file.path}: tokenizer.ggml.add_space_prefix = True is not supported for 'gpt2'"
        )
    tokenizer = _merges(keys, SPLITS[pre])

    def spell(text: str, _: bool) -> list[int]:
        token_ids: list[int] = tokenizer(text)
        return token_ids

    return _vocabulary(file, keys, spell, letter_bytes, starts=SPLITS[pre].starts)


def _merges(keys: _Keys, split: Split) -> Callable[[str], list[int]]:
    # A control token that is no token of the merges' model can come out of no text.
    ids = keys.of_type(_NORMAL, _USER_DEFINED, _UNUSED, _BYTE)
    try:
        model = merge_model(ids, keys.strings("merges"), ignore_merges=split.whole_words)
    except ValueError as error:
        raise ModelFileError(f"{keys.path}: {error}; fetch the file again") from error
    tokenizer = byte_level(model, split, keys.of_type(_USER_DEFINED))
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _sentencepiece(file: GGUFFile, keys: _Keys) -> Vocabulary:
    scores = keys.value("scores")
    if not isinstance(scores, list) or len(scores) != len(keys.tokens):
        raise ModelFileError(
            f"{file.path}: tokenizer.ggml.scores does not give {len(keys.tokens)} tokens a score "
            "each; use a file with scores"
        )
    bytes_ = {spaced_bytes(token)[0]: i for token, i in keys.of_type(_BYTE).items()}
    if bytes_ and len(bytes_) != 256:
        raise ModelFileError(
            f"{file.path}: tokenizer.ggml.token_type has {len(bytes_)} bytes, not 256 or none"
        )
    pairs = ScoredPairs(
        {token: float(scores[i]) for token, i in keys.of_type(_NORMAL, _UNUSED).items()},
        keys.of_type(_NORMAL),
        bytes_,
        keys.token("unknown_token_id"),
    )
    whole = {token.replace(" ", SPACE): i for token, i in keys.of_type(_USER_DEFINED).items()}
    longest_first = sorted(whole, key=len, reverse=True)
    cut = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    def spell(text: str, prefixed: bool) -> list[int]:
        spaced = (SPACE if prefixed and text else "") + text.replace(" ", SPACE)
        token_ids: list[int] = []
        for i, part in enumerate(cut.split(spaced)):
            token_ids += [whole[part]] if i % 2 else pairs.tokens(part)
        return token_ids

    return _vocabulary(
        file,
        keys,
        spell,
        spaced_bytes,
        starts=True,
        prefixed=keys.flag("add_space_prefix", True),
    )


def _vocabulary(
    file: GGUFFile,
    keys: _Keys,
    spell: Callable[[str, bool], list[int]],
    token_bytes: Callable[[str], bytes],
    *,
    starts: bool,
    prefixed: bool = False,
) -> Vocabulary:
    """What both kinds have in common."""
    control = keys.of_type(_CONTROL)
    declared = (*map(keys.token, _END_KEYS), *map(control.get, _ENDS))
    end_ids = frozenset(i for i in declared if i is not None)
    special = {
        name: keys.tokens[i]
        for name, key in _SPECIAL_KEYS.items()
        if (i := keys.token(key)) is not None
    }
    meaningless = {i for i, type_ in enumerate(keys.types) if type_ in (_UNKNOWN, _UNUSED)}
    embeddings = file.tensors.get("token_embd.weight")
    size = max(len(keys.tokens), embeddings.shape[0] if embeddings else 0)
    return Vocabulary(
        spell=spell,
        bytes_of=_spelling(keys, token_bytes),
        size=size,
        control=control,
        special=special,
        end_ids=end_ids,
        start_id=keys.token("bos_token_id") if keys.flag("add_bos_token", starts) else None,
        unsampled_ids=frozenset(meaningless.union(range(len(keys.tokens), size)) - end_ids),
        prefix="always" if prefixed else "never",
        trims=prefixed,
    )


def _spelling(keys: _Keys, token_bytes: Callable[[str], bytes]) -> Callable[[int], bytes]:
    """What each token adds to the text, found out when it is first asked."""
    tokens, types = keys.tokens, keys.types

    @cache
    def bytes_of(token_id: int) -> bytes:
        type_ = types[token_id] if token_id < len(types) else _CONTROL
        if type_ == _CONTROL:
            return b""
        if type_ == _UNKNOWN:
            return "\ufffd".encode()
        if type_ == _USER_DEFINED and token_bytes is letter_bytes:
            return tokens[token_id].encode(errors="surrogateescape")  # written in no letters
        return token_bytes(tokens[token_id])

    return bytes_of
