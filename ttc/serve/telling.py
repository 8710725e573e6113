"""Telling: what of a choice that is being written may be told by now, its tokens included."""

from __future__ import annotations

import codecs
from collections import deque
from dataclasses import replace

from ttc.ports import Engine
from ttc.serve.ask import Ask
from ttc.serve.reply import Token, namer, tops_of
from ttc.serve.share import speller
from ttc.serve.thoughts import Thoughts
from ttc.serve.words import Words
from ttc.spoken import form_for
from ttc.types import Branch, Chunk

__all__ = ["Telling"]


class Telling:
    """One choice of a plain sample.

    Args:
        ask: the request.
        engine: who writes it.
        root: its prompt.
    """

    def __init__(self, ask: Ask, engine: Engine, root: Branch) -> None:
        begun = root.text.rstrip().endswith("<think>")
        self._thoughts = None if ask.is_raw else Thoughts(begun=begun)
        self._words = Words(form_for(engine), ask.tools) if ask.tools else None
        self._line = _Line(engine, root, ask) if ask.tells_tokens else None

    def feed(self, piece: Chunk) -> tuple[str, str]:
        """What a piece adds to the thought, and to the answer that may be told."""
        thought, answer = "", piece.text
        if self._thoughts is not None:
            thought, answer = self._thoughts.feed(answer)
        if self._line is not None:
            self._line.feed(piece, answer)
        return thought, answer if self._words is None else self._words.feed(answer)

    async def expect(self) -> None:
        """Finds out what was expected in the places of tokens that have come since."""
        if self._line is not None:
            await self._line.expect()

    def due(self, num_chars: int) -> list[Token]:
        """The tokens of the answer's first characters, and before, that were not told before."""
        return [] if self._line is None else self._line.due(num_chars)


class _Line:
    """The tokens of one choice that wait until their text is told."""

    def __init__(self, engine: Engine, root: Branch, ask: Ask) -> None:
        self._engine, self._root, self._top = engine, root, ask.logprobs or 0
        self._measures = ask.logprobs is not None
        self._spells, self._names = speller(engine), namer(engine, ask)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._ids: list[int] = []
        self._known = 0
        """Tokens in whose places it is known what was expected."""
        self._waiting: deque[tuple[int, Token]] = deque()
        """Each with the place where its text ends."""
        self._end = self._fed = 0
        self._hidden: int | None = None
        """Characters before the answer."""

    def feed(self, piece: Chunk, answer: str) -> None:
        """Takes the tokens of a piece. The last one ends the choice, which is told as a whole."""
        self._fed += len(piece.text)
        if self._hidden is None and answer:
            self._hidden = self._fed - len(answer)
        ids, logprobs = piece.token_ids, piece.logprobs
        if piece.branch is not None or ids is None or (logprobs is None and self._measures):
            return
        for token, logprob in zip(ids, logprobs or [None] * len(ids), strict=True):
            spelt = b"" if self._spells is None else self._spells.spell(token)
            text = piece.text if self._spells is None else self._decoder.decode(spelt)
            self._ids.append(token)
            self._end += len(text)
            self._waiting.append((self._end, Token(text=text, logprob=logprob, id=token)))

    async def expect(self) -> None:
        """Reads on, for all tokens that have come since at once."""
        places = range(self._known, len(self._ids))
        if not self._top or not places:
            return
        branch = Branch(
            parent=self._root, role=self._root.role, text="", token_ids=tuple(self._ids)
        )
        found = await tops_of(self._engine, branch, places, self._top, self._names)
        first = len(self._waiting) - (len(self._ids) - self._known)
        for place, top in enumerate(found, max(0, first)):
            end, token = self._waiting[place]
            self._waiting[place] = end, replace(token, top=top)
        self._known = places.stop

    def due(self, num_chars: int) -> list[Token]:
        """Those whose text ends within so many characters of the answer."""
        due: list[Token] = []
        if self._hidden is None:
            return due
        unknown = len(self._ids) - self._known if self._top else 0
        while len(self._waiting) > unknown and self._waiting[0][0] <= self._hidden + num_chars:
            end, token = self._waiting.popleft()
            due.append(replace(token, is_thought=end - len(token.text) < self._hidden))
        return due
