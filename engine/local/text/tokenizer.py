"""Text to tokens and back.

Plain text never becomes a control token: those are put in by their ids, by whoever writes a
prompt. A lone surrogate, which stands for a byte that was no UTF-8, is read as U+FFFD.

A vocabulary may give a text a space that it does not have, so that words at its start are written
as they are elsewhere. Then one space at the start of a sequence is no part of the text; wherever a
text goes on from another one, every space counts. So prompt and output join to what all their
tokens say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from ttc.engine.local.files.gguf import GGUFFile
from ttc.engine.local.text.folder_vocabulary import folder_vocabulary
from ttc.engine.local.text.gguf_vocabulary import gguf_vocabulary
from ttc.engine.local.text.vocabulary import After, Vocabulary

__all__ = ["TextTokens", "clean_text"]

_SURROGATES = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """The text with U+FFFD in place of every lone surrogate."""
    return _SURROGATES.sub("\ufffd", text)


class TextTokens:
    """A model's vocabulary. May be used from any thread."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._spell = vocabulary.spell
        self._bytes_of = vocabulary.bytes_of
        self._prefix = vocabulary.prefix
        self._trims = vocabulary.trims
        self.control = vocabulary.control
        """The ids of control tokens by their text."""
        self.special = vocabulary.special
        """Texts of special tokens by the names that chat templates use."""
        self.end_ids = vocabulary.end_ids
        """Every token that is declared to end a text or a turn, in whichever place."""
        self.start_id = vocabulary.start_id
        """The token that every sequence begins with, where the model asks for one."""
        self.unsampled_ids = vocabulary.unsampled_ids
        """Tokens of which nothing was learned, to be left out when one is drawn."""
        self.size = vocabulary.size
        """The rows of the model's embedding; more than there are tokens in some models."""
        names = sorted(filter(None, self.control), key=len, reverse=True)
        self.control_pattern = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        """Matches the text of any control token, the longest of several."""

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> Self:
        """The vocabulary in a GGUF file.

        Raises:
            ModelFileError: it is missing, damaged or of a kind that is not supported.
        """
        return cls(gguf_vocabulary(file))

    @classmethod
    def from_folder(cls, path: Path) -> Self:
        """The vocabulary in a folder with a `tokenizer.json`, as Hugging Face lays it out.

        Raises:
            ModelFileError: it is missing, damaged or of a kind that is not supported.
        """
        return cls(folder_vocabulary(path))

    def encode(self, text: str, *, after: After = "nothing") -> list[int]:
        """The tokens of plain text; what looks like a control token is spelt out like the rest.

        Args:
            text: what to encode.
            after: what comes before it in its sequence.
        """
        prefixed = after != "text" and self._prefix == "always"
        prefixed |= after == "nothing" and self._prefix == "first"
        return self._spell(clean_text(text), prefixed)

    def bytes_of(self, token_id: int) -> bytes:
        """What a token adds to the text, in UTF-8; nothing for a control token."""
        return self._bytes_of(token_id)

    @cached_property
    def longest(self) -> int:
        """The most bytes that a token adds to a text; what is no UTF-8 by itself is U+FFFD."""
        texts = (self.bytes_of(token_id).decode(errors="replace") for token_id in range(self.size))
        return max(len(text.encode()) for text in texts)

    def decode(self, token_ids: Sequence[int], *, after: After = "nothing") -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
        data = b"".join(map(self.bytes_of, token_ids))
        if self._trims and after == "nothing":
            data = data.removeprefix(b" ")
        return data.decode(errors="replace")

    def trims_after(self, token_ids: Iterable[int]) -> bool:
        """Whether text that goes on from these tokens begins with a space that is none of it."""
        return self._trims and not any(map(self.bytes_of, token_ids))
