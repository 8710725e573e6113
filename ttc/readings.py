"""What a scope reads: given texts, rewards and next tokens, and the branches that they are of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ttc.budget import Account
from ttc.run import Run
from ttc.score_call import ReadPlan, ScoreCall
from ttc.types import Branch, Logprobs, NextTokens
from ttc.work import Work

__all__ = ["Readings"]


class Readings(Work):
    """The part of a node's scope that reads; see `ttc.ports.Scope`."""

    def __init__(self, run: Run, account: Account, path: str) -> None:
        super().__init__(run, path)
        self._account = account
        self._scored = 0

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with given text; see `ttc.ports.Scope`."""
        return self._run.engine(branch.role).append(branch, text, as_token=as_token)

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """The first tokens of a branch; see `ttc.ports.Scope`."""
        return self._run.engine(branch.role).cut(branch, num_tokens)

    async def score(
        self, branch: Branch, suffixes: Sequence[str | tuple[int, ...] | Branch]
    ) -> tuple[Logprobs, ...]:
        """The log probabilities of given texts after a branch; see `ttc.ports.Scope`."""
        given = tuple(self._suffix(branch, suffix) for suffix in suffixes)
        if not given:
            return ()
        values = await self._reading(branch, suffixes=given)
        return tuple(
            Logprobs(token_ids=segment.token_ids or (), values=found)
            for segment, found in zip(given, values, strict=True)
        )

    async def reward(self, branch: Branch, rows: Sequence[int]) -> tuple[Mapping[str, float], ...]:
        """What a reward model says of some tokens of a branch; see `ttc.ports.Scope`."""
        if not rows:
            return ()
        labels = self._run.engine(branch.role).labels
        values = await self._reading(branch, rows=tuple(rows))
        return tuple(dict(zip(labels, found, strict=True)) for found in values)

    async def hidden(self, branch: Branch, rows: Sequence[int]) -> tuple[tuple[float, ...], ...]:
        """What the model's head reads at some tokens of a branch; see `ttc.ports.Scope`."""
        return await self._reading(branch, rows=tuple(rows), hidden=True) if rows else ()

    async def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None
    ) -> tuple[NextTokens, ...]:
        """What comes next after the first tokens of a branch; see `ttc.ports.Scope`."""
        if at is not None and not at:
            return ()
        counts = (branch.num_tokens,) if at is None else tuple(at)
        values = await self._reading(branch, at=counts, top=top)
        return tuple(
            NextTokens(tuple(token_ids), tuple(logprobs), *measured)
            for token_ids, logprobs, *measured in values
        )

    def _suffix(self, branch: Branch, suffix: str | tuple[int, ...] | Branch) -> Branch:
        if isinstance(suffix, Branch):
            given = suffix
        elif isinstance(suffix, str):
            given = self.append(branch, suffix)
        else:
            given = Branch(parent=branch, role=branch.role, text="", token_ids=suffix)
        if not given.token_ids:
            raise ValueError(
                f"{self.path}: a suffix to score has at least one token, not {suffix!r}"
            )
        return given

    async def _reading(self, branch: Branch, **asked: Any) -> tuple[Any, ...]:
        work = self._open_work()
        self._run.check_deadline()
        index, self._scored = self._scored, self._scored + 1
        plan = ReadPlan(path=self.path, index=index, branch=branch, **asked)
        call = ScoreCall(self._run, self._account, plan)
        work.calls.append(call)
        return await call.run()

    def _open_work(self) -> Work:
        """What belongs together with whatever is started now, unless it has ended."""
        work = self.innermost()
        if self.has_ended or work.has_ended:
            raise asyncio.CancelledError
        return work
