"""Prompts: how a question of a data set is asked of a model, and by which examples.

A chat gets its examples as turns; a plain prompt is one text that the model goes on with, for
models that were never taught to talk. What is asked is part of the result: the card tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ttc.types import Message

__all__ = ["BOXED", "LETTER", "PROGRAM", "Prompt", "Shot", "Style"]

BOXED = "Reason step by step, and put the final answer into \\boxed{}."
LETTER = "Answer with the letter of the right option, as: Answer: A"
PROGRAM = "Answer with one block of Python that holds the whole program."

Style = Literal["chat", "plain"]


class Shot(NamedTuple):
    """An example: a question with its solution."""

    question: str
    solution: str


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """How a question is put."""

    instruction: str = ""
    """Stands behind every question."""
    shots: tuple[Shot, ...] = ()
    style: Style = "chat"

    def asked(self, question: str) -> dict[str, Any]:
        """`messages` or `prompt` of the problem that asks a question."""
        if self.style == "plain":
            told = [f"Question: {self._put(q)}\nAnswer: {solution}" for q, solution in self.shots]
            return {"prompt": "\n\n".join([*told, f"Question: {self._put(question)}\nAnswer:"])}
        turns = []
        for shot in self.shots:
            turns.append(Message(role="user", content=self._put(shot.question)))
            turns.append(Message(role="assistant", content=shot.solution))
        return {"messages": (*turns, Message(role="user", content=self._put(question)))}

    def _put(self, question: str) -> str:
        return f"{question}\n{self.instruction}" if self.instruction else question
