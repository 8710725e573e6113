"""What is asked of given tokens: checked, planned, and handed to the engine's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from threading import Lock
from typing import TypeVar

from ttc.engine.local.call import Call, Owner
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.path import path_tokens
from ttc.engine.local.reading import Answer, Read, Wants, next_plan, reward_plan, suffix_plan
from ttc.errors import ContextOverflow, EngineError
from ttc.types import MAX_LOGPROBS, Branch, NextTokens

__all__ = ["Reader"]

T = TypeVar("T")


class Reader:
    """The part of an engine that reads; see `ttc.ports.Engine`.

    Args:
        config: the model's.
        name: the model, as a user names it.
        num_tokens: those of the vocabulary.
        context: the most tokens of prompt and output together.
        enqueue: puts calls into the engine's inbox.
        lock: guards whether calls are cancelled.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        name: str,
        num_tokens: int,
        context: int,
        enqueue: Callable[[Iterable[Call]], None],
        lock: Lock,
    ) -> None:
        self._reward, self._width = config.reward, config.hidden
        self._name, self._num_tokens, self._context = name, num_tokens, context
        self._enqueue, self._lock = enqueue, lock

    @property
    def labels(self) -> tuple[str, ...]:
        """What the outputs of a reward model are called; empty for a language model."""
        return self._reward.labels if self._reward is not None else ()

    def score(
        self, branch: Branch, suffixes: Seq[Branch], owner: str = ""
    ) -> Read[tuple[float, ...]]:
        """Queues the scoring of suffixes: the last segments of branches that leave `branch`.

        Raises:
            ContextOverflow: the branch and a suffix do not fit.
            EngineError: the engine is closed, has no language model's head, or the branch is empty.
        """
        self.check_head(branch, "gives no log probabilities")
        given = [suffix.token_ids or () for suffix in suffixes]
        if not given or not all(given):
            raise ValueError("suffixes to score have at least one token each")
        for suffix in suffixes:
            self._given(suffix.parent or branch)
        for token in {token for ids in given for token in ids}:
            if not 0 <= token < self._num_tokens:
                most = self._num_tokens - 1
                raise ValueError(f"a suffix holds the token {token}; tokens are 0 to {most}")
        paths, answer = suffix_plan(suffixes)
        self.check_fit(max(len(tokens) for tokens, _ in paths))
        num_given = branch.num_tokens + sum(map(len, given))
        return self._read(paths, answer, num_given, branch, owner)

    def reward(self, branch: Branch, rows: Seq[int], owner: str = "") -> Read[tuple[float, ...]]:
        """Queues the rewards of rows of a branch, in the order of `labels`.

        Raises:
            ContextOverflow: the branch does not fit.
            EngineError: the engine is closed, or is no reward model.
        """
        if self._reward is None:
            raise EngineError(
                f"{self._name!r} is no reward model; bind one to the role {branch.role!r}"
            )
        plan = reward_plan(self._rows_of(branch, rows), rows, len(self.labels))
        return self._read(*plan, branch.num_tokens, branch, owner)

    def hidden(self, branch: Branch, rows: Seq[int], owner: str = "") -> Read[tuple[float, ...]]:
        """Queues the hidden states of rows of a branch: float32, after the last norm.

        Raises:
            ContextOverflow: the branch does not fit.
            EngineError: the engine is closed, or is a reward model.
        """
        self.check_head(branch, "gives no hidden states")
        plan = reward_plan(self._rows_of(branch, rows), rows, self._width)
        return self._read(*plan, branch.num_tokens, branch, owner, hidden=True)

    def next_tokens(
        self, branch: Branch, top: int, at: Seq[int] | None = None, owner: str = ""
    ) -> Read[NextTokens]:
        """Queues the reading of the most probable next tokens of a branch.

        Raises:
            ContextOverflow: the branch does not fit.
            EngineError: the engine is closed, has no language model's head, or the branch is empty.
        """
        self.check_head(branch, "expects no next token")
        if not 1 <= top <= MAX_LOGPROBS:
            raise ValueError(f"top lies in 1 to {MAX_LOGPROBS}, not {top}")
        tokens = self._given(branch)
        at = (len(tokens),) if at is None else at
        if not at or not all(1 <= count <= len(tokens) for count in at):
            raise ValueError(f"at holds some of 1 to {len(tokens)}, not {list(at)}")
        self.check_fit(len(tokens) - 1)
        return self._read(*next_plan(tokens, at, top), branch.num_tokens, branch, owner)

    def check_head(self, branch: Branch, lacks: str) -> None:
        """Refuses what a reward model cannot do."""
        if self._reward is not None:
            raise EngineError(
                f"{self._name!r} is a reward model, which {lacks}; bind another model to the role "
                f"{branch.role!r}"
            )

    def check_fit(self, prompt_length: int) -> None:
        """Refuses what leaves no room for one token more."""
        if prompt_length + 1 > self._context:
            raise ContextOverflow(
                f"the prompt has {prompt_length} tokens and needs room for one more, and the "
                f"context holds {self._context}; shorten the prompt"
            )

    def _rows_of(self, branch: Branch, rows: Seq[int]) -> list[int]:
        """The tokens of a branch, of which these are rows."""
        tokens = self._given(branch)
        if not rows or not all(0 <= row < len(tokens) for row in rows):
            raise ValueError(f"rows are some of 0 to {len(tokens) - 1}, not {list(rows)}")
        self.check_fit(len(tokens) - 1)
        return tokens

    def _given(self, branch: Branch) -> list[int]:
        tokens = path_tokens(branch)
        if not tokens:
            raise EngineError("the branch is empty; give the model at least one token to read")
        return tokens

    def _read(
        self,
        paths: Iterable[tuple[list[int], Wants]],
        answer: Answer[T],
        num_given: int,
        branch: Branch,
        owner: Owner,
        *,
        hidden: bool = False,
    ) -> Read[T]:
        root = next(branch.lineage())
        read = Read(paths, answer, num_given, self._lock, hidden=hidden, owner=owner or root)
        for reading in read.readings:
            reading.salt = root.salt
        self._enqueue(read.readings)
        return read
