"""One verifier call in a run: scores of what it gives, unknown ones where it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ttc.budget import Account
from ttc.errors import EngineError, VerifierError
from ttc.journal import fingerprint
from ttc.ports import Scope, Verifier, parts_of
from ttc.run import Run
from ttc.spent_call import PASSED_ON, SpentCall
from ttc.types import Candidate, Record, Score
from ttc.work import Work

__all__ = ["VerifierCall"]


class VerifierCall(SpentCall[tuple[Score, ...]]):
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
        self._candidates = candidates
        path = inside[0].path.rpartition("/")[0]
        hashes = " ".join(fingerprint(candidate.branch) for candidate in candidates)
        record = Record(path=path, index=index, kind="verify", fingerprint=hashes)
        super().__init__(run, account, inside, label=f"verify {index}", record=record)

    async def run(self, verifier: Verifier) -> tuple[Score, ...]:
        """Waits for admission, then for the verifier. One that fails leaves scores unknown.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
        """
        count = 0 if parts_of(verifier) else len(self._candidates)  # its parts are charged
        try:
            scores = await self._spend(
                {"verifier_calls": count},
                lambda: self._verified(verifier),
                kind="verifier",
                role="verifier",
            )
        except EngineError as by_hand:
            return self._unknown(verifier, str(by_hand))
        self._end({"scores": tuple(score.value for score in scores)})
        return scores

    def _drop(self) -> None:
        """As of any call; one that had nothing to score stays."""
        if self._candidates:
            super()._drop()

    async def _verified(self, verifier: Verifier) -> tuple[Score, ...]:
        try:
            raw = await self._run.journal.scores(
                self._place, verifier, lambda: self._asked(verifier)
            )
            if len(raw) != len(self._candidates):
                raise VerifierError(
                    f"{verifier.name} gave {len(raw)} scores for {len(self._candidates)} candidates"
                )
            return tuple(  # a value out of the range raises
                replace(score, verifier=verifier.name, range=verifier.range, call=self.key)
                for score in raw
            )
        except PASSED_ON:
            raise
        except asyncio.CancelledError:
            if self._done:
                raise
            return self._unknown(verifier, "it cancelled itself")
        except Exception as error:  # noqa: BLE001 - a verifier that fails leaves scores unknown
            return self._unknown(verifier, f"{type(error).__name__}: {error}")

    async def _asked(self, verifier: Verifier) -> Sequence[Score]:
        """What a verifier gives; others' verifiers may give what is no score."""
        given: object = await verifier(self._run.problem, self._candidates, self._scope)
        if not isinstance(given, Sequence):
            raise VerifierError(
                f"{verifier.name} gave a {type(given).__name__}; give a tuple of one Score for "
                "each candidate"
            )
        wrong = [type(one).__name__ for one in given if not isinstance(one, Score)]
        if wrong:
            raise VerifierError(
                f"{verifier.name} gave a {wrong[0]} where a Score belongs; give Score.of(number), "
                "or Score(value=None) where it is unknown"
            )
        return given

    def _unknown(self, verifier: Verifier, reason: str) -> tuple[Score, ...]:
        count = len(self._candidates)
        self._run.unscored.add(self._path, verifier.name, reason, count)
        score = Score(
            value=None,
            range=verifier.range,
            verifier=verifier.name,
            evidence={"error": reason},
            call=self.key,
        )
        return (score,) * count
