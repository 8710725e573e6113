"""Random strategies for property tests: what composes, in every way that it composes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from ttc import Budget, Candidate, Node, Problem, Score, Tail, confidence
from ttc.ports import Scope, Verifier
from ttc.strategies import (
    Abstain,
    AdaptiveConsistency,
    AgreeingWindow,
    AnytimeValid,
    Best,
    BudgetForcing,
    CannotBeOvertaken,
    Cascade,
    Certaindex,
    Confident,
    DeepConf,
    Doubling,
    EarlyExit,
    Exhausted,
    GenSelect,
    Instruct,
    Knockout,
    MixtureOfAgents,
    Paraphrase,
    RecursiveAggregation,
    Revisions,
    Sample,
    SampleInRounds,
    SelfConsistency,
    SelfRefine,
    Share,
    SpecReason,
    Summarise,
    Verify,
    Vote,
)
from ttc.strategies.stopping import StopRule
from ttc.streams import iterate
from ttc.testing import ScriptedVerifier
from ttc.verifiers import FirstDecided

TAILS = st.sampled_from([None, None, Tail(cue=" The answer is", max_tokens=2)])


def _score(candidate: Candidate) -> float | None:
    return {"1": 0.25, "2": 0.5, "3": None}.get(candidate.answer or "")


class Judge(ScriptedVerifier):
    """A verifier that asks the policy's model, by one call or by a vote of two at once."""

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """A score out of what the model says."""
        if self.name.endswith("1"):
            root = Candidate(branch=scope.root())
            panel = (Sample(n=1, max_tokens=4) | Sample(n=1, max_tokens=3)) >> Vote()
            said = [c.text async for c in scope.run(panel, iterate(root), name="panel")]
        else:
            said = [(await scope.generate(scope.root(), index=0, max_tokens=4)).text]
        return (Score(value=len("".join(said)) % 4 / 4),) * len(candidates)


COUNTING: Sequence[StopRule] = (
    AdaptiveConsistency(),
    AgreeingWindow(size=2),
    AnytimeValid(),
    Confident(at_least=0.6) & AgreeingWindow(size=2),
    Doubling(),
)
RULES: st.SearchStrategy[StopRule] = st.sampled_from([Exhausted(), CannotBeOvertaken()])
TRACES = st.sampled_from(
    [None, None, EarlyExit(), Certaindex(interval=4, equal=2), DeepConf(num_warm_up=2)]
)


SHORT: dict[str, Any] = {"max_tokens": 8}
IN_STAGES: Sequence[Node] = (
    Revisions(length=2, chains=2, **SHORT),
    BudgetForcing(n=2, max_thinking=12, waits=1, ends="5", max_tokens=4),
    Summarise(n=2, segments=2, summary_tokens=4, max_tokens=4),
    SpecReason(n=2, max_steps=2, step_tokens=4, draft="policy", delimiter="1"),
    Instruct("", "Think.") >> Sample(n=1, **SHORT),
    Paraphrase(n=1, **SHORT) >> Sample(n=1, **SHORT),
    MixtureOfAgents("policy", "policy", layers=1, max_tokens=8),
    Sample(n=2, **SHORT) >> SelfRefine(rounds=1, **SHORT),
    Sample(n=2, **SHORT) >> RecursiveAggregation(size=2, rounds=1, **SHORT),
    Sample(n=3, **SHORT) >> Knockout(role="policy", **SHORT),
    Sample(n=3, **SHORT) >> GenSelect(role="policy", group=2, **SHORT),
)
"""Nodes that make their calls in stages, some of them with prompts of their own."""


@st.composite
def samples(draw: st.DrawFn) -> Node:
    """A sampler."""
    kind = draw(st.integers(0, 6))
    if kind > 4:
        return draw(st.sampled_from(IN_STAGES))
    if kind == 0:
        n = draw(st.integers(1, 4))
        return SampleInRounds(
            n=n,
            first=draw(st.sampled_from([None, 1, n])),
            rule=draw(TRACES),
            every=draw(st.sampled_from([2, 4])),
            max_tokens=draw(st.sampled_from([4, 8, 12])),
        )
    return Sample(
        n=draw(st.one_of(st.integers(1, 6), st.integers(1, 6), st.just("budget"))),
        max_tokens=draw(st.sampled_from([1, 4, 8, 8, 12, 12])),
        ahead=draw(st.sampled_from([None, None, 1, 2])),
        at_least=draw(st.sampled_from([None, 1])),
        tail=draw(TAILS),
    )


@st.composite
def choosing(draw: st.DrawFn, many: st.SearchStrategy[Node]) -> Node:
    """Many candidates and a selector."""
    graph, rule = draw(many), draw(RULES)
    kind = draw(st.sampled_from(["vote", "vote", "weighted", "best"]))
    if kind == "vote":
        rule = draw(st.one_of(st.just(rule), st.sampled_from(COUNTING)))
        limit = draw(st.sampled_from([None, None, Share(at=0.4), Share(resource="calls", at=0.6)]))
        vote = graph >> Vote(stop=rule, limit=limit)
        return vote >> Abstain(unless=confidence(0.5)) if draw(st.booleans()) else vote
    name = f"score{crc32(repr(graph).encode())}"  # what is inside may carry another one
    verifier = draw(st.sampled_from([ScriptedVerifier, ScriptedVerifier, Judge]))
    scored: Verifier = verifier(
        _score,
        name=name,
        needs=draw(st.sampled_from(["each", "each", "all"])),
        roles=frozenset({"policy"} if verifier is Judge else ()),
    )
    if draw(st.booleans()):
        other, name = ScriptedVerifier({"3": 0.7}, name=f"{name}b"), f"{name}c"
        scored = FirstDecided(scored, other, name=name)
    graph = graph >> Verify(scored, ahead=draw(st.sampled_from([None, 1, 2])))
    return graph >> (Best(by=name) if kind == "best" else Vote(weighted=True, by=name, stop=rule))


def strategies() -> st.SearchStrategy[Node]:
    """Whole strategies: chains, cascades, pools, and these in one another."""

    def larger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        parts = st.one_of(samples(), inner)
        pools = st.lists(parts, min_size=2, max_size=3).map(_pooled)
        cascades = st.lists(inner, min_size=1, max_size=3).map(
            lambda rungs: Cascade(*rungs, accept=confidence(0.9))
        )
        return st.one_of(choosing(pools), cascades)

    leaves = choosing(samples()) | st.builds(
        SelfConsistency, n=st.integers(1, 6), max_tokens=st.just(8)
    )
    return st.recursive(leaves, larger, max_leaves=4)


def _pooled(parts: list[Node]) -> Node:
    pool = parts[0] | parts[1]
    for part in parts[2:]:
        pool = pool | part
    return pool


def bounded(graph: Node, budget: Budget) -> Budget:
    """The budget, with a limit where the graph would go on forever without one."""
    is_bounded = budget.tokens is not None or budget.calls is not None
    return budget if is_bounded or "'budget'" not in repr(graph) else replace(budget, tokens=120)


def budgets(seconds: bool = True) -> st.SearchStrategy[Budget]:
    """Limits that are ample, tight, and too tight."""

    def often_none(most: int) -> st.SearchStrategy[int | None]:
        return st.one_of(st.none(), st.none(), st.integers(0, most))

    return st.builds(
        Budget,
        tokens=often_none(150),
        calls=often_none(12),
        verifier_calls=often_none(8),
        seconds=st.sampled_from([None, None, 0.0, 0.06, 0.5, 3.0]) if seconds else st.none(),
    )
