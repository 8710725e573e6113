"""How long prompts can get that show texts, before the texts are there.

Texts pass from the tokens of one model to those of another, so they are counted in bytes: a text
has no more tokens than bytes, and n tokens spell at most n times the bytes of their model's longest
one. No call holds more than its model's context. What is unknown is `None`, and so is a sum of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ttc.errors import EngineError
from ttc.ports import Engine
from ttc.prompts import question
from ttc.types import Message, Problem

__all__ = ["Lengths", "Room", "largest", "lengths_of", "plus", "times"]

_WORDS = 1536
_FENCE = 160


@dataclass(frozen=True, kw_only=True)
class Room:
    """What bounds the calls of one model."""

    frame: int | None = None
    """The tokens of a prompt beside what is written into it."""
    token_bytes: int | None = None
    """The bytes of its longest token."""
    context: int | None = None
    """The most tokens of prompt and output together."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """What is known of a problem and of the models that are asked; nothing by default."""

    problem: int | None = None
    """The bytes of its text, its tests included."""
    rooms: Mapping[str, Room] = field(default_factory=dict)
    """By role."""

    def written(self, role: str, num_tokens: int) -> int | None:
        """The most bytes of a text of so many tokens."""
        longest = self._room(role).token_bytes
        return None if longest is None else num_tokens * longest

    def prompt(self, role: str, *texts: int | None) -> int | None:
        """The most tokens of a prompt that shows the problem and texts of so many bytes."""
        return self.call(role, 0, *texts)

    def call(self, role: str, max_tokens: int, *texts: int | None) -> int | None:
        """The most tokens of a call with such a prompt: what it is given and what it writes.

        A node's own instructions have at most 1,536 bytes, and what stands around a text 160.
        """
        room = self._room(role)
        shown = plus(*texts, len(texts) * _FENCE, _WORDS, self.problem)
        whole = plus(room.frame, shown, max_tokens)
        known = [most for most in (whole, room.context) if most is not None]
        return min(known, default=None)

    def _room(self, role: str) -> Room:
        return self.rooms.get(role, Room())


def lengths_of(problem: Problem, engines: Mapping[str, Engine]) -> Lengths:
    """What is known of a problem, and of the engine of each role.

    An engine may say by `token_bytes` how many bytes its longest token has.
    """
    shown = len(question(problem).encode()) + len("\n".join(problem.tests).encode())
    rooms = {role: _room_of(engine, problem, role) for role, engine in engines.items()}
    return Lengths(problem=shown, rooms=rooms)


def plus(*amounts: int | None) -> int | None:
    """The sum; unknown where a part is."""
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


def largest(*amounts: int | None) -> int | None:
    """The largest; unknown where one is."""
    known = [amount for amount in amounts if amount is not None]
    return max(known, default=0) if len(known) == len(amounts) else None


def times(amount: int | None, count: int | None) -> int | None:
    """The product; nothing stays nothing however often, and else it is unknown where one is."""
    if 0 in (amount, count):
        return 0
    return None if amount is None or count is None else amount * count


def _room_of(engine: Engine, problem: Problem, role: str) -> Room:
    frames = [_num_tokens(engine, form, role) for form in _forms(problem)]
    return Room(
        frame=max((frame for frame in frames if frame is not None), default=None),
        token_bytes=getattr(engine, "token_bytes", None),
        context=engine.context,
    )


def _forms(problem: Problem) -> list[Problem]:
    """The shapes of prompts that nodes and verifiers make, with nothing in them."""
    system, user, assistant = (
        Message(role=role, content="") for role in ("system", "user", "assistant")
    )
    emptied = tuple(replace(message, content="") for message in problem.messages) or (user,)
    asked = replace(problem, prompt=None, messages=emptied, continue_last=False)
    shapes = ((user,), emptied, (system, *emptied), (*emptied, assistant))
    chats = [replace(asked, messages=shape) for shape in (*shapes, (*emptied, assistant, user))]
    return [Problem(prompt=""), *chats]


def _num_tokens(engine: Engine, form: Problem, role: str) -> int | None:
    """`None` where the model has no such form."""
    try:
        return engine.root(form, role).num_tokens
    except EngineError:
        return None
