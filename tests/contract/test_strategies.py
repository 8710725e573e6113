"""Every registered strategy conforms. A new one is tested here by being registered."""

from collections.abc import Callable

import pytest

from tests.core.lab import solved
from ttc import Node, confidence
from ttc.ports import Verifier
from ttc.registry import lookup, names
from ttc.strategies import (
    Abstain,
    AdaptiveBranchingMCTS,
    Agent,
    AStar,
    BeamSearch,
    BehaviourClusters,
    Best,
    BestFirst,
    BestOfN,
    BudgetForcing,
    BudgetGuidedMCTS,
    Cascade,
    Debug,
    DiverseVerifierTreeSearch,
    GenSelect,
    Greedy,
    GuidedRefine,
    Instruct,
    Keep,
    Knockout,
    LanguageAgentTreeSearch,
    MinimumBayesRisk,
    MixtureOfAgents,
    MonteCarloTreeSearch,
    Paraphrase,
    ParticleFiltering,
    Rebase,
    RecursiveAggregation,
    Reflexion,
    Revisions,
    Route,
    Sample,
    SampleInRounds,
    SamplingSearch,
    SelfConsistency,
    SelfRefine,
    SpecReason,
    SStar,
    Summarise,
    TieBreak,
    TreeOfThoughts,
    Verify,
    Vote,
)
from ttc.strategies.named import NamedGraph
from ttc.testing import CHECK_NAMES, ScriptedVerifier, check_strategy

CASES: dict[str, Callable[[int, Verifier], Node]] = {
    "sample": lambda n, v: Sample(n=n) >> Vote(),
    "sample_in_rounds": lambda n, v: SampleInRounds(n=n) >> Vote(),
    "vote": lambda n, v: Sample(n=n) >> v >> Vote(weighted=True),
    "best": lambda n, v: Sample(n=n) >> v >> Best(),
    "verify": lambda n, v: Sample(n=n) >> Verify(v) >> Vote(weighted=True),
    "cascade": lambda n, v: Cascade(
        Sample(n=n) >> Vote(), Sample(n=n) >> Vote(), accept=confidence(1)
    ),
    "route": lambda n, v: Route(Sample(n=2) >> Vote(), Sample(n=n) >> Vote(), below=(0.9,)),
    "abstain": lambda n, v: Sample(n=n) >> Vote() >> Abstain(bool),
    "greedy": lambda n, v: Greedy(),
    "self_consistency": lambda n, v: SelfConsistency(n=n),
    "best_of_n": lambda n, v: BestOfN(n=n, verifier=v),
    "astar": lambda n, v: AStar(v, width=n, num_answers=n, max_expansions=n) >> Best(),
    "beam_search": lambda n, v: BeamSearch(v, num_beams=n, beam_width=1, max_steps=3) >> Best(),
    "best_first": lambda n, v: BestFirst(v, width=n, num_answers=n, max_expansions=n) >> Best(),
    "diverse_verifier_tree_search": lambda n, v: (
        DiverseVerifierTreeSearch(v, num_beams=n, beam_width=1, max_steps=3) >> Vote(weighted=True)
    ),
    "particle_filtering": lambda n, v: (
        ParticleFiltering(v, num_particles=n, max_steps=3) >> Vote(weighted=True)
    ),
    "adaptive_branching_mcts": lambda n, v: AdaptiveBranchingMCTS(v, max_expansions=n) >> Best(),
    "budget_guided_mcts": lambda n, v: (
        BudgetGuidedMCTS(v, token_budget=100_000, max_expansions=n) >> Best()
    ),
    "monte_carlo_tree_search": lambda n, v: MonteCarloTreeSearch(v, max_expansions=n) >> Best(),
    "rebase": lambda n, v: Rebase(v, width=n, max_steps=3) >> Best(),
    "tree_of_thoughts": lambda n, v: TreeOfThoughts(v, width=n, breadth=2, max_steps=3) >> Best(),
    "instruct": lambda n, v: Instruct("", "Think first.") >> Sample(n=n) >> Vote(),
    "paraphrase": lambda n, v: Paraphrase(n=2) >> Sample(n=n) >> Vote(),
    "agent": lambda n, v: Agent(tools=["calculator"], n=n, calls="react") >> Vote(),
    "language_agent_tree_search": lambda n, v: (
        LanguageAgentTreeSearch(
            v, agent=Agent(tools=["calculator"]), max_expansions=n, memory=2, window=1
        )
        >> Best()
    ),
    "keep": lambda n, v: Sample(n=n) >> v >> Keep(share=0.5) >> Vote(weighted=True),
    "minimum_bayes_risk": lambda n, v: Sample(n=n) >> MinimumBayesRisk(),
    "self_refine": lambda n, v: Sample(n=n) >> SelfRefine() >> Vote(),
    "reflexion": lambda n, v: Sample(n=n) >> Reflexion(verifier=v) >> Best(),
    "guided_refine": lambda n, v: Sample(n=n) >> GuidedRefine(verifier=v, drafts=2) >> Best(),
    "debug": lambda n, v: Sample(n=n) >> Debug() >> Vote(),
    "revisions": lambda n, v: Revisions(chains=n, length=2) >> Vote(),
    "budget_forcing": lambda n, v: BudgetForcing(n=n, waits=1) >> Vote(),
    "summarise": lambda n, v: Summarise(n=n, segments=2) >> Vote(),
    "spec_reason": lambda n, v: SpecReason(n=n, draft="policy", max_steps=4) >> Vote(),
    "mixture_of_agents": lambda n, v: MixtureOfAgents(*["policy"] * n, layers=1),
    "recursive_aggregation": lambda n, v: Sample(n=n) >> RecursiveAggregation(rounds=2) >> Vote(),
    "gen_select": lambda n, v: Sample(n=n) >> GenSelect(group=2, samples=2, role="policy"),
    "knockout": lambda n, v: Sample(n=n) >> Knockout(role="policy"),
    "tie_break": lambda n, v: Sample(n=n) >> v >> TieBreak(role="policy"),
    "sampling_search": lambda n, v: SamplingSearch(n=n, verifier=v, role="policy"),
    "behaviour_clusters": lambda n, v: Sample(n=n) >> BehaviourClusters(),
    "sstar": lambda n, v: SStar(n=n),
}
"""A strategy of about n samples around each registered node."""

EXEMPT: dict[str, dict[str, str]] = {
    "spec_reason": {
        "best_so_far": "a drafted step that nobody has judged is no part of an answer",
        "failures": "a trace of it is a chain of calls, none of which may fail",
    },
}
"""Why checks do not apply, by node and check."""

PROBLEMS = 100
"""On how many simulated problems more budget is tried; `make conformance` takes 4,000."""

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
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("check", CHECK_NAMES)
def test_it_conforms(name: str, check: str) -> None:
    """To every check of the kit, which says what it promises."""
    report = check_strategy(CASES[name], only=[check], exempt=EXEMPT.get(name), problems=PROBLEMS)

    assert [one.name for one in report.checked] == [check]


@each
def test_more_samples_cost_no_less(name: str) -> None:
    """Where nothing stops them early."""
    few, many = (
        solved(CASES[name](n, ScriptedVerifier({"1": 0.5})), "The answer is 1.") for n in (2, 6)
    )

    assert few.outcome.usage.tokens <= many.outcome.usage.tokens


def test_named_graphs_say_what_they_stand_for() -> None:
    """Each expands to nodes that are no names."""
    for name, case in CASES.items():
        graph = case(2, ScriptedVerifier({}))
        if isinstance(graph, NamedGraph):
            assert not isinstance(graph.expand(), NamedGraph), name
