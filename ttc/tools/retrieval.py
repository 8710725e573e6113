"""A tool that finds passages of a local corpus, by BM25.

Source: Robertson and Zaragoza 2009, "The probabilistic relevance framework: BM25 and beyond"; the
library bm25s, Lù 2024 (arXiv 2407.03618).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from ttc.registry import install_hint
from ttc.tools.folder import Folder
from ttc.tools.function import FunctionTool, tool

__all__ = ["Corpus", "retrieval_tool"]


class Corpus:
    """Passages by name, and which of them a question is about."""

    def __init__(self, passages: Mapping[str, str]) -> None:
        """A corpus.

        Raises:
            ModuleNotFoundError: bm25s is not installed.
            ValueError: it is empty.
        """
        if find_spec("bm25s") is None:
            raise ModuleNotFoundError(
                f"retrieval needs bm25s, which is not installed; {install_hint('agents')}",
                name="bm25s",
            )
        if not any(text.strip() for text in passages.values()):
            raise ValueError("the corpus has no passage with a word in it")
        self._names, self._texts = list(passages), list(passages.values())

    @classmethod
    def of_folder(cls, root: str | os.PathLike[str]) -> Corpus:
        """The paragraphs of a folder's files; what stands between empty lines is one.

        Raises:
            NotADirectoryError: there is no such folder.
        """
        passages: dict[str, str] = {}
        for path, text in Folder(root).texts():
            for number, part in enumerate(filter(str.strip, text.split("\n\n")), 1):
                passages[f"{path}#{number}"] = part.strip()
        return cls(passages)

    def best(self, query: str, k: int) -> list[tuple[str, str]]:
        """The k passages that fit a query best, with their names, the best first.

        Those that share no word with it are left out; of equals the earlier one comes first.
        """
        words = self._tokens([query])[0]
        if not words:
            return []
        scores = self._index.get_scores(words).tolist()
        ranked = sorted(range(len(scores)), key=lambda place: -scores[place])
        return [(self._names[n], self._texts[n]) for n in ranked[:k] if scores[n] > 0]

    @cached_property
    def _index(self) -> Any:
        import bm25s

        index = bm25s.BM25()
        index.index(self._tokens(self._texts), show_progress=False)
        return index

    @staticmethod
    def _tokens(texts: list[str]) -> list[list[str]]:
        import bm25s

        found: list[list[str]] = bm25s.tokenize(
            texts, stopwords="en", return_ids=False, show_progress=False
        )
        return found


def retrieval_tool(
    corpus: Corpus | Mapping[str, str] | str | os.PathLike[str],
    *,
    k: int = 3,
    name: str = "search",
    is_trusted: bool = False,
) -> FunctionTool:
    """A tool that finds the k passages of a corpus that fit a query best.

    Args:
        corpus: a corpus, passages by name, or a folder of texts.
        k: how many passages it tells.
        name: what the model calls it.
        is_trusted: whether you vouch for what the corpus says.

    Raises:
        ModuleNotFoundError: bm25s is not installed.
    """
    if k < 1:
        raise ValueError(f"k is at least 1, not {k}")
    if isinstance(corpus, Mapping):
        corpus = Corpus(corpus)
    elif not isinstance(corpus, Corpus):
        corpus = Corpus.of_folder(corpus)
    found_in = corpus

    @tool(effect="pure", name=name, is_trusted=is_trusted)
    async def search(query: str) -> str:
        """Finds passages that have to do with a query."""
        passages = found_in.best(query, k)
        return "\n\n".join(f"[{name}]\n{text}" for name, text in passages) or "nothing was found"

    return search
