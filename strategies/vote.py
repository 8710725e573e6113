"""Vote: the most frequent answer.

Source: Wang et al. 2022 (arXiv 2203.11171), equation of section 2: argmax_a sum_i 1[a_i = a]. The
weighted form sums scores instead: Snell et al. 2024 (arXiv 2408.03314), best-of-N weighted.
Differs: answers are compared by canonical key, and by symbolic equivalence where that is asked for,
not by text; a sample without an answer never votes.
Cost: nothing; with symbolic equivalence, milliseconds for each pair of answers that keys leave
open.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from ttc.graph import Flow, Node, Port
from ttc.ports import Bid, Scope, Stream
from ttc.registry import install_hint
from ttc.strategies.stopping import Exhausted, LimitRule, StopRule
from ttc.strategies.stopping_votes import leads
from ttc.strategies.tally import Tally
from ttc.types import Candidate, Usage

__all__ = ["Vote", "gain", "which_score"]


@dataclass(frozen=True, kw_only=True)
class Vote(Node):
    """Picks the candidate with the most frequent answer; ties go to the earliest launched.

    Its confidence is the winner's share of all samples, those without an answer included.
    """

    remote: ClassVar[bool] = True
    gives: ClassVar[Port] = Port("finished", "one")
    selects: ClassVar[bool] = True
    offers: ClassVar[bool] = True

    weighted: bool = False
    """Sum scores instead of counting. An unknown one weighs 0; if all are unknown, votes count."""
    by: str | None = None
    """Which score weighs, where candidates carry several."""
    stop: StopRule = field(default_factory=Exhausted)
    """When the vote is decided before the last sample."""
    limit: LimitRule | None = None
    """When it has cost enough."""
    equivalence: Literal["key", "symbolic"] = "key"
    """When two answers are one. By `key`: numbers of one value, and expressions of the same parts
    in any order and spelling, as `0.5` and `1/2`. `symbolic` also joins what algebra finds equal,
    as `(x+1)^2` and `x^2+2x+1`; what it cannot decide stays apart."""

    def faults(self, given: Flow) -> list[str]:
        """A rule that is none; weights that do not exist, are ambiguous, or have no bounds."""
        faults: list[str] = []
        if not isinstance(self.stop, StopRule):
            faults.append(f"stop={self.stop!r} is no rule; pass CannotBeOvertaken(), say")
        elif self.weighted and self.stop.counts:
            faults.append(f"{self.stop!r} counts votes, so it cannot end a weighted vote")
        if not isinstance(self.limit, LimitRule | None):
            faults.append(f"limit={self.limit!r} is no limit; pass Deadline(seconds=10), say")
        faults += self._equivalence_faults()
        if not self.weighted:
            return faults + (["by names a score, but the vote is not weighted"] if self.by else [])
        score, fault = which_score(self.by, given)
        if score is None:
            return [*faults, fault]
        bounds = given.scores[score]
        if bounds is None or bounds[0] < 0:
            faults.append(
                f"the score {score!r} has the range {bounds}, so it cannot weigh votes; "
                "weigh by a verifier whose range starts at 0 or above"
            )
        return faults

    def _equivalence_faults(self) -> list[str]:
        if self.equivalence not in ("key", "symbolic"):
            return [f"equivalence is 'key' or 'symbolic', not {self.equivalence!r}"]
        if self.equivalence == "symbolic" and find_spec("sympy") is None:
            return [f"symbolic equivalence needs sympy: {install_hint('verify')}"]
        return []

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Tallies until the rule stops it or the samples end, and yields the winner."""
        tally = Tally(weighted=self.weighted, by=self.by, at_most=candidates.at_most)
        usage = Usage()
        async for candidate in candidates:
            rivals = tally.rivals(candidate) if self.equivalence == "symbolic" else []
            pairs = [(candidate, rival) for rival in rivals]
            verdicts = await scope.equivalent(pairs) if pairs else ()
            keys = (rival.key for rival in rivals)
            tally.add(candidate, dict(zip(keys, verdicts, strict=True)))
            usage += candidate.usage
            rule = self._ended_by(tally, usage, scope) if tally.num_remaining != 0 else None
            if rule is not None:
                ahead: dict[str, Any] = {"ahead": rule.ahead} if rule.ahead else {}
                physical = isinstance(rule, LimitRule) and rule.is_physical
                scope.decide(rule.name, physical=physical, num_samples=tally.num_samples, **ahead)
                candidates.stop()
            is_over = rule is not None or tally.num_remaining == 0
            scope.offer(partial(_bid, tally, usage.tokens, is_over=is_over))
        ranked = tally.ranking()
        if not ranked:
            scope.decide("no_valid_answer", num_samples=tally.num_samples)
            return
        winner = ranked[0][0]
        yield replace(winner, confidence=tally.share(winner))

    def _ended_by(self, tally: Tally, usage: Usage, scope: Scope) -> StopRule | LimitRule | None:
        """The rule that ends the vote now."""
        if self.stop(tally):
            return self.stop
        if self.limit is None:
            return None
        now = replace(usage, seconds=scope.elapsed)
        return self.limit if self.limit(now, scope.budget) else None


def _bid(tally: Tally, tokens: int, *, is_over: bool) -> Bid:
    worth = 0.0 if is_over else gain(tally)
    return worth, tokens / tally.num_samples, tally.leading_share()


def gain(tally: Tally) -> float:
    """What one more sample is worth: the chance that it brings about the right choice.

    That the leader is not the most likely answer has the posterior chance `1 - I`; at least `lead +
    1` samples are needed to show it, so each is worth that part of it. Without a vote it is the
    chance that the next sample has an answer, by the rule of succession.
    """
    counts = sorted((count for _, count in tally.votes()), reverse=True)
    if not counts:
        return 1.0 / (tally.num_samples + 2)
    first, second = (*counts, 0)[:2]
    return (1.0 - leads(first, second)) / (first - second + 1)


def which_score(by: str | None, given: Flow) -> tuple[str | None, str]:
    """The name of the score that is meant, or `None` and what is wrong."""
    known = ", ".join(sorted(given.scores)) or "none"
    if by is not None:
        return (
            (by, "")
            if by in given.scores
            else (None, f"no score is called {by!r}; there is {known}")
        )
    if len(given.scores) == 1:
        return next(iter(given.scores)), ""
    if not given.scores:
        return None, "its candidates carry no score; put a verifier before it"
    return None, f"its candidates carry several scores ({known}); name one with by="
