"""GenSelect: a model reads several solutions at once and says which one is best.

Source: Moshkov et al. 2025, arXiv 2504.16891 (AIMO-2), section 4: up to 8 solutions are shown, and
the index of the best one is generated; more than that meet in a knockout.
Differs: the order is drawn with the run's seed; equal answers are shown once; a verdict that cannot
be read falls back to the votes for the answers, and never to chance.
Cost: with n distinct answers and groups of g, about (n - 1) / (g - 1) x `samples` calls of the
judge's role, each of which shows g solutions; none where all agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ttc.graph import Flow
from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, question, solution
from ttc.strategies.calls import Ask, Calls
from ttc.strategies.comparing import Comparing, Entry
from ttc.strategies.refinement import count_faults
from ttc.types import Sampling
from ttc.verdicts import index_on

__all__ = ["GenSelect"]


@dataclass(frozen=True, kw_only=True)
class GenSelect(Comparing):
    """Picks by index, in groups; the winners of groups meet again."""

    remote: ClassVar[bool] = True
    never_answers: ClassVar[bool] = True

    group: int = 8
    """The most solutions that are shown at once."""
    samples: int = 1
    """Verdicts on each group, each of another order; the most frequent one counts."""

    def faults(self, given: Flow) -> list[str]:
        """As of all comparisons, and groups of one."""
        faults = super().faults(given) + count_faults(group=self.group, samples=self.samples)
        return faults if faults or self.group > 1 else ["group is at least 2, to have a choice"]

    @property
    def verdicts(self) -> int:
        """For each group."""
        return self.samples

    @property
    def at_once(self) -> int:
        """The size of a group."""
        return self.group

    async def winners(
        self, groups: Sequence[Sequence[Entry]], number: int, calls: Calls, scope: Scope
    ) -> list[Entry]:
        """The best one of each group."""
        orders = [
            scope.random(number, place, sample).sample(range(len(group)), len(group))
            for place, group in enumerate(groups)
            for sample in range(self.samples)
        ]
        whose = [group for group in groups for _ in range(self.samples)]
        found = await calls.judge(
            (self._ask([group[n] for n in order], scope), index_on(len(order)))
            for group, order in zip(whose, orders, strict=True)
        )
        chosen = []
        for place, group in enumerate(groups):
            votes: Counter[int] = Counter()
            part = slice(place * self.samples, (place + 1) * self.samples)
            for order, (verdict, call) in zip(orders[part], found[part], strict=True):
                for entry in group:
                    entry.calls += [call] if call else []
                if verdict.value is not None:
                    votes[order[int(verdict.value)]] += 1
            best = max(range(len(group)), key=lambda n: (votes[n], group[n].votes, -group[n].place))
            chosen.append(group[best])
        return chosen

    def _ask(self, shown: Sequence[Entry], scope: Scope) -> Ask:
        asked = question(scope.problem)
        texts = [solution(entry.candidate) for entry in shown]
        paragraphs = (
            f"You choose among solutions to a problem. {PREAMBLE}",
            f"The rubric: {self.rubric}",
            fenced("problem", asked),
            *(fenced(f"solution {n}", text, asked, *texts) for n, text in enumerate(texts, 1)),
            "Compare the solutions by the rubric, whatever their order. Give your reasons in a few "
            "sentences, and then a last line of exactly this form, with N a whole number from 1 to "
            f"{len(shown)}:\nVerdict: N",
        )
        sampling = Sampling(temperature=self.temperature)
        return Ask(of=paragraphs, role=self.role, max_tokens=self.max_tokens, sampling=sampling)
