"""The life of one verifier call in a run: admitted, charged, and ended at once where it must."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ttc.budget import Account, Ticket
from ttc.engine_call import interrupt
from ttc.errors import (
    BudgetExceeded,
    EngineError,
    NodeError,
    RecordError,
    SandboxError,
    TTCError,
    VerifierError,
)
from ttc.journal import fingerprint
from ttc.ports import Scope, Verifier, parts_of
from ttc.run import Run
from ttc.types import Candidate, Record, Score, Usage
from ttc.work import Work

__all__ = ["VerifierCall"]

_log = logging.getLogger(__name__)


class VerifierCall:
    """One request to a verifier, for one or more candidates. Once admitted, it is charged."""

    def __init__(
        self,
        run: Run,
        account: Account,
        index: int,
        candidates: Sequence[Candidate],
        inside: tuple[Work, Scope],
    ) -> None:
        """A verifier call.

        Args:
            run: the run.
            account: what it draws on.
            index: which of its scope's verifier calls it is.
            candidates: what is to be scored.
            inside: the scope in which the verifier works, as work and as a port.
        """
        self._work, self._scope = inside
        self._path = self._work.path.rpartition("/")[0]
        self.key = f"{self._path}#verify {index}"
        self._run, self._account, self._candidates = run, account, candidates
        self._usage = Usage()
        self._admitted = self._done = False
        self._refusal: TTCError | None = None
        self._started = run.clock.now()
        self._ticket: Ticket | None = None
        self._arrival: asyncio.Future[tuple[Score, ...]] | None = None
        hashes = " ".join(fingerprint(candidate.branch) for candidate in candidates)
        self._place = run.journal.add(
            Record(path=self._path, index=index, kind="verify", fingerprint=hashes)
        )
        run.opened(self)

    async def run(self, verifier: Verifier) -> tuple[Score, ...]:
        """Waits for admission, then for the verifier. One that fails leaves scores unknown.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
        """
        count = 0 if parts_of(verifier) else len(self._candidates)  # its parts are charged
        need = {"verifier_calls": count}
        self._ticket = self._account.launch(self._path, need=need)
        try:
            await self._ticket.admitted()
            self._ticket.settle(need)  # nothing of it ever comes back
            self._usage = Usage(verifier_calls=count)
            self._admitted = True
            self._run.admitted(self, "verifier")
            self._run.book("verifier", self._usage)
            self._arrival = asyncio.get_running_loop().create_future()
            self._work.task(self._verified(verifier)).add_done_callback(self._receive)
            scores = await self._arrival
            if self._done:
                raise self._refusal or asyncio.CancelledError
        except BudgetExceeded as refusal:
            if not self._done:
                self._end({"refused": refusal.resource})
            raise
        except EngineError as by_hand:
            return self._unknown(verifier, str(by_hand))
        except BaseException:
            self.abort()
            raise
        self._end({"scores": tuple(score.value for score in scores)})
        return scores

    def abort(self, reason: TTCError | None = None) -> None:
        """Ends it in this tick, with all that the verifier had started."""
        if self._done:
            return
        self._refusal = reason
        refusal = reason if isinstance(reason, BudgetExceeded) else None
        if self._admitted:
            self._run.cut = True
            self._end({"cut": True})
        else:
            if self._ticket is not None:
                self._ticket.cancel(reason)
            self._end({"refused": refusal.resource if refusal else "cancelled"})
        interrupt(self._arrival, reason)

    def discard(self) -> None:
        """Ends it, and labels what the verifier asked of engines as cancelled."""
        self.abort()
        self._work.cancel(frozenset())
        if not self._admitted and self._candidates:
            self._run.journal.drop(self._place)

    async def _verified(self, verifier: Verifier) -> tuple[Score, ...]:
        try:
            raw = await self._run.journal.scores(
                self._place,
                verifier,
                lambda: verifier(self._run.problem, self._candidates, self._scope),
            )
            if len(raw) != len(self._candidates):
                raise VerifierError(
                    f"{verifier.name} gave {len(raw)} scores for {len(self._candidates)} candidates"
                )
            return tuple(  # a value out of the range raises
                replace(score, verifier=verifier.name, range=verifier.range, call=self.key)
                for score in raw
            )
        except (BudgetExceeded, NodeError, RecordError, SandboxError):
            raise
        except asyncio.CancelledError:
            if self._done:
                raise
            return self._unknown(verifier, "it cancelled itself")
        except Exception as error:  # noqa: BLE001 - a verifier that fails leaves scores unknown
            return self._unknown(verifier, f"{type(error).__name__}: {error}")

    def _unknown(self, verifier: Verifier, reason: str) -> tuple[Score, ...]:
        _log.warning("%s: the verifier %s failed: %s", self._path, verifier.name, reason)
        score = Score(
            value=None,
            range=verifier.range,
            verifier=verifier.name,
            evidence={"error": reason},
            call=self.key,
        )
        return (score,) * len(self._candidates)

    def _receive(self, work: asyncio.Task[tuple[Score, ...]]) -> None:
        if self._arrival is None or self._arrival.done():
            return
        if work.cancelled():
            self._arrival.cancel()
        elif (error := work.exception()) is not None:
            self._arrival.set_exception(error)
        else:
            self._arrival.set_result(work.result())

    def _end(self, detail: Mapping[str, Any]) -> None:
        self._done = True
        self._run.closed(self)
        self._work.close()
        seconds = self._run.clock.now() - self._started
        self._run.journal.amend(self._place, detail=detail, usage=self._usage, seconds=seconds)
        self._run.emit("call", self._path)
