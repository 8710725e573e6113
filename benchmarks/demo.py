"""The demo: what a vote gains over a greedy answer, and what a perfect choice would gain.

Vote and oracle choose among the same samples, so that their rows differ in the choice alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from ttc.benchmarks.metrics import Interval, wilson
from ttc.benchmarks.oracle import Oracle
from ttc.benchmarks.tasks import Task, chain_sum
from ttc.graph import Flow, Node, Port
from ttc.ports import Engine, Scope, Stream
from ttc.registry import load_engine
from ttc.solve import solve_many
from ttc.strategies import Best, Greedy, Sample, Verify, Vote
from ttc.types import Budget, Candidate, Event, Outcome

__all__ = ["BUDGET", "Progress", "Row", "run_demo"]


class Progress(NamedTuple):
    """How far the demo has come."""

    row: str
    done: int
    total: int
    """Candidates of this row."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one strategy reached on all problems."""

    name: str
    num_correct: int
    num_problems: int
    tokens: int
    """Of all problems together. An oracle's are those of the samples that it chooses among."""
    most_tokens: int
    """Of the problem that took the most; never above its budget."""
    oracle: bool
    """Whether right answers helped to choose: then it is a bound, and no result."""

    @property
    def accuracy(self) -> float:
        """The share of problems whose chosen answer is right; unanswered is wrong."""
        return self.num_correct / self.num_problems

    @property
    def interval(self) -> Interval:
        """The 95 % Wilson interval of the accuracy."""
        return wilson(self.num_correct, self.num_problems)


@dataclass(frozen=True)
class Recorded(Node):
    """Gives the candidates that were recorded for its problem, in the place of new ones."""

    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    candidates: Mapping[str, Sequence[Candidate]] = field(repr=False)
    """By the ids of their problems."""

    def flow(self, given: Flow) -> Flow:
        """As many as were recorded for any problem."""
        return Flow(kind="finished", count=max(map(len, self.candidates.values()), default=0))

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Yields them in their order."""
        for candidate in self.candidates[scope.problem.id]:
            yield candidate


BUDGET = Budget(tokens=1_000)
"""What one problem may spend: less than sixteen answers of the greatest length would."""


def run_demo(
    model: str | Engine,
    *,
    num_problems: int = 24,
    n: int = 16,
    max_tokens: int = 96,
    budget: Budget = BUDGET,
    seed: int = 0,
    progress: Callable[[Progress], None] = lambda _: None,
) -> tuple[Row, ...]:
    """Greedy, the vote of n samples, and the best of the same n by an oracle.

    Source: `chain_sum` of Reasoning Gym (arXiv 2505.24760); the vote is that of Wang et al. 2022
    (arXiv 2203.11171), the bound is the coverage of Brown et al. 2024 (arXiv 2407.21787).
    Cost: n + 1 calls for each problem.

    Args:
        model: a name, a path to a file, or an engine.
        num_problems: how many different questions.
        n: samples of each problem.
        max_tokens: of one answer, for every row alike.
        budget: what each problem may spend, for every row alike.
        seed: seeds questions and samples.
        progress: is told of every candidate, from the run's own thread.
    """
    engine = load_engine(model)
    task = chain_sum(num_problems, seed)

    def run(name: str, strategy: Node, per_problem: int) -> list[Outcome]:
        watch = _Watch(name, num_problems * per_problem, progress)
        return solve_many(
            task.problems, strategy, model=engine, per_problem=budget, seed=seed, watch=watch
        )

    greedy, vote = "greedy", f"self-consistency, n={n}"
    oracle = f"best of the same {n}, by oracle"
    alone = run(greedy, Greedy(max_tokens=max_tokens), 1)
    voted = run(vote, Sample(n=n, temperature=0.8, max_tokens=max_tokens) >> Vote(), n)
    recorded = Recorded({outcome.problem.id: outcome.candidates for outcome in voted})
    best = run(oracle, recorded >> Verify(Oracle.of(task)) >> Best(by="oracle"), n)
    return (
        _row(greedy, task, alone, alone),
        _row(vote, task, voted, voted),
        _row(oracle, task, best, voted),
    )


class _Watch:
    """Turns the events of a run into progress."""

    def __init__(self, row: str, total: int, progress: Callable[[Progress], None]) -> None:
        self._row, self._total, self._progress = row, total, progress
        self._done = 0

    def __call__(self, event: Event) -> None:
        if event.kind == "candidate":
            self._done += 1
            self._progress(Progress(self._row, self._done, self._total))


def _row(name: str, task: Task, outcomes: Sequence[Outcome], paid: Sequence[Outcome]) -> Row:
    tokens = [outcome.usage.tokens for outcome in paid]
    grades = [
        task.grader(reference, outcome.candidate).value
        for (_, reference), outcome in zip(task.items, outcomes, strict=True)
        if outcome.candidate is not None
    ]
    return Row(
        name=name,
        num_correct=sum(grade == 1.0 for grade in grades),
        num_problems=len(outcomes),
        tokens=sum(tokens),
        most_tokens=max(tokens),
        oracle=any(outcome.oracle for outcome in outcomes),
    )
