"""What every registered strategy must do. A new one is tested here by being registered."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

import ttc
from tests.core.lab import (
    QUESTION,
    Ledgers,
    check_no_task_is_left,
    seen,
    solved,
    talker,
    uneven,
)
from ttc import Budget, EngineError, Node, confidence
from ttc.registry import lookup, names
from ttc.strategies import (
    Abstain,
    AdaptiveBranchingMCTS,
    AStar,
    BeamSearch,
    BehaviourClusters,
    Best,
    BestFirst,
    BudgetForcing,
    BudgetGuidedMCTS,
    Cascade,
    Debug,
    DiverseVerifierTreeSearch,
    GenSelect,
    GuidedRefine,
    Instruct,
    Keep,
    Knockout,
    MinimumBayesRisk,
    MixtureOfAgents,
    MonteCarloTreeSearch,
    Paraphrase,
    ParticleFiltering,
    Rebase,
    RecursiveAggregation,
    Reflexion,
    Revisions,
    Sample,
    SamplingSearch,
    SelfRefine,
    SpecReason,
    SStar,
    Summarise,
    TieBreak,
    TreeOfThoughts,
    Vote,
)
from ttc.strategies.named import NamedGraph
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier

SCORES = ScriptedVerifier({"1": 0.25, "2": 0.5})

CASES: dict[str, Callable[[int], Node]] = {
    "sample": lambda n: Sample(n=n) >> Vote(),
    "sample_in_rounds": lambda n: lookup("nodes", "sample_in_rounds")(n=n) >> Vote(),
    "vote": lambda n: Sample(n=n) >> SCORES >> Vote(weighted=True),
    "best": lambda n: Sample(n=n) >> SCORES >> Best(),
    "verify": lambda n: Sample(n=n) >> SCORES >> Vote(),
    "cascade": lambda n: Cascade(
        Sample(n=n) >> Vote(), Sample(n=n) >> Vote(), accept=confidence(1)
    ),
    "abstain": lambda n: Sample(n=n) >> Vote() >> Abstain(bool),
    "greedy": lambda n: lookup("nodes", "greedy")(),
    "self_consistency": lambda n: lookup("nodes", "self_consistency")(n=n),
    "best_of_n": lambda n: lookup("nodes", "best_of_n")(n=n, verifier=SCORES),
    "astar": lambda n: AStar(SCORES, width=n, num_answers=n, max_expansions=n) >> Vote(),
    "beam_search": lambda n: BeamSearch(SCORES, num_beams=n, beam_width=1, max_steps=3) >> Vote(),
    "best_first": lambda n: BestFirst(SCORES, width=n, num_answers=n, max_expansions=n) >> Vote(),
    "diverse_verifier_tree_search": lambda n: (
        DiverseVerifierTreeSearch(SCORES, num_beams=n, beam_width=1, max_steps=3) >> Vote()
    ),
    "particle_filtering": lambda n: (
        ParticleFiltering(SCORES, num_particles=n, max_steps=3) >> Vote(weighted=True)
    ),
    "adaptive_branching_mcts": lambda n: AdaptiveBranchingMCTS(SCORES, max_expansions=n) >> Vote(),
    "budget_guided_mcts": lambda n: (
        BudgetGuidedMCTS(SCORES, token_budget=100_000, max_expansions=n) >> Vote()
    ),
    "monte_carlo_tree_search": lambda n: MonteCarloTreeSearch(SCORES, max_expansions=n) >> Vote(),
    "rebase": lambda n: Rebase(SCORES, width=n, max_steps=3) >> Best(),
    "tree_of_thoughts": lambda n: TreeOfThoughts(SCORES, width=n, breadth=2, max_steps=3) >> Vote(),
    "instruct": lambda n: Instruct("", "Think first.") >> Sample(n=n) >> Vote(),
    "paraphrase": lambda n: Paraphrase(n=2) >> Sample(n=n) >> Vote(),
    "keep": lambda n: Sample(n=n) >> SCORES >> Keep(share=0.5) >> Vote(),
    "minimum_bayes_risk": lambda n: Sample(n=n) >> MinimumBayesRisk(),
    "self_refine": lambda n: Sample(n=n) >> SelfRefine() >> Vote(),
    "reflexion": lambda n: Sample(n=n) >> Reflexion(verifier=SCORES) >> Vote(),
    "guided_refine": lambda n: Sample(n=n) >> GuidedRefine(verifier=SCORES, drafts=2) >> Best(),
    "debug": lambda n: Sample(n=n) >> Debug() >> Vote(),
    "revisions": lambda n: Revisions(chains=n, length=2) >> Vote(),
    "budget_forcing": lambda n: BudgetForcing(n=n, waits=1) >> Vote(),
    "summarise": lambda n: Summarise(n=n, segments=2) >> Vote(),
    "spec_reason": lambda n: SpecReason(n=n, draft="policy", max_steps=4) >> Vote(),
    "mixture_of_agents": lambda n: MixtureOfAgents(*["policy"] * n, layers=1),
    "recursive_aggregation": lambda n: Sample(n=n) >> RecursiveAggregation(rounds=2) >> Vote(),
    "gen_select": lambda n: Sample(n=n) >> GenSelect(group=2, samples=2, role="policy"),
    "knockout": lambda n: Sample(n=n) >> Knockout(role="policy"),
    "tie_break": lambda n: Sample(n=n) >> SCORES >> TieBreak(role="policy"),
    "sampling_search": lambda n: SamplingSearch(n=n, verifier=SCORES, role="policy"),
    "behaviour_clusters": lambda n: Sample(n=n) >> BehaviourClusters(),
    "sstar": lambda n: SStar(n=n),
}
"""A strategy of about n samples around each registered node."""

SHOWS_TEXTS = frozenset(
    (
        "instruct",
        "paraphrase",
        "self_refine",
        "reflexion",
        "guided_refine",
        "debug",
        "summarise",
        "spec_reason",
        "mixture_of_agents",
        "recursive_aggregation",
        "gen_select",
        "knockout",
        "tie_break",
        "sampling_search",
        "sstar",
        "adaptive_branching_mcts",
    )
)
"""Those that write prompts of their own, whose tokens nothing bounds before the texts are there."""

each = pytest.mark.parametrize("name", CASES)


def test_every_registered_node_is_tested_here() -> None:
    """Whoever registers a node writes down how it is used."""
    nodes = {
        name
        for name in names("nodes")
        if isinstance(lookup("nodes", name), type) and issubclass(lookup("nodes", name), Node)
    }

    assert nodes == set(CASES)


@each
def test_one_sample_works(name: str) -> None:
    """The smallest strategy is plain sampling."""
    assert solved(CASES[name](1), "The answer is 1.").outcome.answer == "1"


@each
@pytest.mark.parametrize("budget", [Budget(tokens=60), Budget(calls=2), Budget(verifier_calls=1)])
def test_no_limit_is_overrun(name: str, budget: Budget) -> None:
    """To the token; every run is settled and counted."""
    run = solved(CASES[name](6), talker(0.2), budget=budget, pace=uneven(1))

    for resource in ("tokens", "calls", "verifier_calls"):
        limit = getattr(budget, resource)
        assert limit is None or getattr(run.outcome.usage, resource) <= limit


@each
@pytest.mark.parametrize("failing", [0.5, 1.0])
def test_failed_calls_are_survived(name: str, failing: float) -> None:
    """They are data: no exception, and no answer where all fail."""
    outcome = solved(CASES[name](6), talker(failing)).outcome

    assert (outcome.answer is None) or failing < 1


@each
def test_a_reply_without_an_answer_is_no_answer(name: str) -> None:
    """A successful call with nothing in it counts for nothing."""
    for reply in ("", "   ", "I cannot say."):
        outcome = solved(CASES[name](3), reply).outcome
        assert outcome.answer is None
        assert outcome.stopped_by == "no_valid_answer"


@each
def test_unknown_scores_are_survived(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier that knows nothing leaves a vote, or no finite score."""
    outcome = solved(CASES[name](3), "The answer is 7.").outcome

    assert outcome.answer == "7" or outcome.stopped_by == "no_finite_score"


@each
def test_results_do_not_depend_on_timing(name: str) -> None:
    """Neither on latencies nor on concurrency."""
    runs = [
        solved(CASES[name](8), talker(0.1), seed=4, pace=uneven(salt), concurrency=slots).outcome
        for salt, slots in ((1, 1), (2, 4), (3, 16))
    ]

    assert [seen(outcome) for outcome in runs] == [seen(runs[0])] * 3
    assert not any(outcome.timing_dependent for outcome in runs)


@each
@pytest.mark.parametrize("budget", [Budget(tokens=150), Budget(tokens=900), Budget(calls=5)])
def test_a_tight_budget_grants_the_same_whatever_is_fast(name: str, budget: Budget) -> None:
    """Grants follow from what earlier calls used."""
    runs = [
        solved(
            CASES[name](4), talker(0.1), seed=4, pace=uneven(salt), concurrency=slots, budget=budget
        ).outcome
        for salt, slots in ((1, 1), (3, 16))
    ]

    assert seen(runs[0]) == seen(runs[1])
    assert not any(outcome.timing_dependent for outcome in runs)


@each
def test_a_deadline_returns_what_there_is(name: str) -> None:
    """By then, whatever hangs."""
    run = solved(CASES[name](4), talker(), pace=uneven(5), budget=Budget(seconds=0.5))

    assert run.clock.now() <= 1.0


@each
@pytest.mark.parametrize("steps", range(0, 60, 7))
def test_cancelling_leaves_nothing_behind(name: str, steps: int) -> None:
    """At any step."""
    clock, ledgers = ManualClock(), Ledgers()
    engine = FakeEngine(talker(), clock=clock, seconds_per_token=uneven(2))

    async def run() -> None:
        task = asyncio.ensure_future(
            ttc.asolve(QUESTION, CASES[name](5), model=engine, clock=clock)
        )
        for _ in range(steps):
            await asyncio.sleep(0)
            clock.jump()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        check_no_task_is_left()

    with ledgers:
        clock.run(run())
    ledgers.check_settled()
    assert engine.active == 0


@each
def test_the_worst_case_bounds_what_is_spent(name: str) -> None:
    """Known before anything runs."""
    graph = CASES[name](4)
    run = solved(graph, "no end " * 600)
    bound = graph.worst_case(run.outcome.problem, run.engine)

    for resource in ("tokens", "calls", "verifier_calls"):
        most = getattr(bound, resource)
        assert (most is None) == (resource == "tokens" and name in SHOWS_TEXTS)
        assert most is None or getattr(run.outcome.usage, resource) <= most


@each
def test_a_strategy_is_a_value(name: str) -> None:
    """Two that are made alike are equal, and a run leaves no trace on one."""
    graph = CASES[name](3)
    before = repr(graph)
    solved(graph, talker())

    assert graph == CASES[name](3)
    assert repr(graph).split("seen")[0] == before.split("seen")[0]


@each
def test_more_samples_cost_no_less(name: str) -> None:
    """And an error in all calls but one still gives that one's answer."""
    few, many = (solved(CASES[name](n), "The answer is 1.").outcome for n in (2, 6))

    assert few.usage.tokens <= many.usage.tokens
    if name != "greedy":
        replies = [EngineError("broken")] * 2 + ["The answer is 2."] + [EngineError("broken")]
        assert solved(CASES[name](4), replies, in_order=True).outcome.answer == "2"


def test_named_graphs_say_what_they_stand_for() -> None:
    """Each expands to nodes that are no names."""
    for name, case in CASES.items():
        graph = case(2)
        if isinstance(graph, NamedGraph):
            assert not isinstance(graph.expand(), NamedGraph), name
