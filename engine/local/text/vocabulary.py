"""What a tokenizer is made of, whichever file describes it.

Five kinds of tokens are told apart, and each has one rule:

- Normal and byte tokens spell text.
- User-defined tokens are text, too: a vocabulary that writes `<tool_call>` or a run of spaces as
  one token writes it so wherever a text spells it, as it did when the model was trained.
- Control tokens are structure: where a turn ends, who speaks. No text ever becomes one.
- Unused and unknown tokens are never sampled: nothing was learned of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "BYTE_LETTERS",
    "SPACE",
    "After",
    "Prefix",
    "Vocabulary",
    "is_control",
    "letter_bytes",
    "spaced_bytes",
]

After = Literal["nothing", "control", "text"]
"""What comes before a text in its sequence."""

Prefix = Literal["never", "first", "always"]
"""Whether a text is given a space that it does not have: never, at the start of a sequence, or
there and after every control token."""

SPACE = "\u2581"
"""How SentencePiece writes a space."""

_MARKUP = re.compile(r"<[|\uff5c].*[|\uff5c]>", re.DOTALL)
_THOUGHTS = ("<think>", "</think>")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Tokens, and how a text is cut into them."""

    spell: Callable[[str, bool], list[int]]
    """The tokens of a text; with the space of `prefix` in front where the flag says so."""
    bytes_of: Callable[[int], bytes]
    """What a token adds to the text, in UTF-8. Nothing for a control token."""
    size: int
    """The rows of the model's embedding; more than there are tokens in some models."""
    control: Mapping[str, int]
    """The ids of control tokens by their text."""
    special: Mapping[str, str]
    """Texts of special tokens by the names that chat templates use, such as `bos_token`."""
    end_ids: frozenset[int]
    """Every token that ends a text or a turn."""
    start_id: int | None
    """The token that every sequence begins with, if any."""
    unsampled_ids: frozenset[int]
    """Tokens of which nothing was learned, and rows of the embedding beyond the tokens."""
    prefix: Prefix = "never"
    trims: bool = False
    """Whether one space at the start of a sequence is that of `prefix`, and no part of the text."""


def is_control(token: str, *, special: bool) -> bool:
    """Whether an added token is structure.

    Files often leave the flag `special` off, so what looks like `<|this|>` is structure, too. The
    marks around a thought are text: whoever reads an answer looks for them.
    """
    return (special or _MARKUP.fullmatch(token) is not None) and token not in _THOUGHTS


def _byte_letters() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    letters.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return letters


BYTE_LETTERS = _byte_letters()
"""GPT-2's printable letters for bytes (openai/gpt-2, encoder.py, bytes_to_unicode)."""

_FOREIGN = "\u0100"  # any letter that latin-1 lacks
_TO_LATIN = {
    **{code: _FOREIGN for code in range(0x100) if chr(code) not in BYTE_LETTERS},
    **{ord(letter): chr(byte) for letter, byte in BYTE_LETTERS.items()},
}


def letter_bytes(token: str) -> bytes:
    """What a token in GPT-2's letters adds to the text; one in other letters is itself."""
    try:
        return token.translate(_TO_LATIN).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode(errors="surrogateescape")


def spaced_bytes(token: str) -> bytes:
    """What a SentencePiece token adds to the text: `<0x0A>` is a byte."""
    if byte := _BYTE.fullmatch(token):
        return bytes([int(byte[1], 16)])
    return token.replace(SPACE, " ").encode(errors="surrogateescape")
