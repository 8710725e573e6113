"""Byte-pair encoding: merges in their order, in the `tokenizers` library.

Source: Sennrich et al. 2016, arXiv 1508.07909; over bytes: Radford et al. 2019. A text is split
into words first, in the way in which the merges were learned; a GGUF file only names that way. The
patterns are those that the models' own tokenizer.json files have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

__all__ = ["SPLITS", "Split", "byte_level", "merge_model"]


@dataclass(frozen=True, kw_only=True)
class Split:
    """How a kind of vocabulary splits text, and what else its name says."""

    patterns: tuple[str, ...] = ()
    """Applied in turn, each match a word of its own."""
    then_gpt2: bool = False
    """Whether GPT-2's own pattern follows."""
    whole_words: bool = False
    """Whether a word that is a token is taken whole, whatever the merges say."""
    starts: bool = False
    """Whether a sequence has a start token where the file does not say."""


_LLAMA3 = Split(
    patterns=(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    whole_words=True,
    starts=True,
)
_QWEN2 = Split(
    patterns=(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
_TEKKEN = Split(
    patterns=(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    whole_words=True,
    starts=True,
)

SPLITS: Mapping[str, Split] = {
    "default": Split(then_gpt2=True),
    "deepseek-r1-qwen": _QWEN2,
    "gpt-2": Split(then_gpt2=True),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "smollm": Split(patterns=(r"\p{N}",), then_gpt2=True),
    "tekken": _TEKKEN,
}
"""By the values of `tokenizer.ggml.pre`."""


def byte_level(model: models.BPE, split: Split, user_defined: Iterable[str]) -> Tokenizer:
    """A tokenizer over bytes.

    Args:
        model: of `merge_model`.
        split: how text is split.
        user_defined: tokens of the model that are cut out of a text before anything else.
    """
    tokenizer = Tokenizer(model)
    words = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in split.patterns]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split.then_gpt2)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*words, letters])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in user_defined])
    return tokenizer


def merge_model(
    ids: dict[str, int], merges: Sequence[str | Sequence[str]], **options: Any
) -> models.BPE:
    """The merges of a vocabulary.

    Raises:
        ValueError: they do not fit the tokens.
    """
    try:
        pairs: Any = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in merges]
        return models.BPE(ids, pairs, **options)
    except Exception as error:  # the library raises bare exceptions
        raise ValueError(f"the merges do not fit the tokens: {error}") from error
