"""Names to things: the one core module that knows the rooms, and imports them only when asked.

Built-in names come from here. Third parties add theirs by the entry points `ttc.nodes`,
`ttc.verifiers`, `ttc.checks` and `ttc.engines`; a built-in name wins, and a clash is an error that
names both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ttc.errors import EngineError, GraphError
from ttc.ports import Engine

if TYPE_CHECKING:
    from ttc.config import Acceptance, Arithmetic  # reads folders of the user: not at import

__all__ = [
    "DISTRIBUTION",
    "IN_VLLM",
    "SERVED",
    "install_hint",
    "is_local",
    "is_pool",
    "load_allocator",
    "load_engine",
    "lookup",
    "names",
    "node_class",
    "room",
    "third_parties",
]

DISTRIBUTION = "ttc-orchestrator"
"""The name under which ttc is installed; `ttc` itself belongs to another project."""

SERVED = "openai:"
"""How names of models begin that are at an OpenAI-compatible server."""

IN_VLLM = "vllm:"
"""How names of models begin that vLLM is to run, in this process."""

_BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "nodes": {
        "sample": "ttc.strategies:Sample",
        "agent": "ttc.strategies:Agent",
        "language_agent_tree_search": "ttc.strategies:LanguageAgentTreeSearch",
        "calculator": "ttc.tools:Calculator",
        "python": "ttc.tools:Python",
        "sample_in_rounds": "ttc.strategies:SampleInRounds",
        "vote": "ttc.strategies:Vote",
        "best": "ttc.strategies:Best",
        "verify": "ttc.strategies:Verify",
        "cascade": "ttc.strategies:Cascade",
        "route": "ttc.strategies:Route",
        "greedy": "ttc.strategies:Greedy",
        "self_consistency": "ttc.strategies:SelfConsistency",
        "best_of_n": "ttc.strategies:BestOfN",
        "exhausted": "ttc.strategies:Exhausted",
        "cannot_be_overtaken": "ttc.strategies:CannotBeOvertaken",
        "adaptive_consistency": "ttc.strategies:AdaptiveConsistency",
        "agreeing_window": "ttc.strategies:AgreeingWindow",
        "anytime_valid": "ttc.strategies:AnytimeValid",
        "confident": "ttc.strategies:Confident",
        "doubling": "ttc.strategies:Doubling",
        "certaindex": "ttc.strategies:Certaindex",
        "deep_conf": "ttc.strategies:DeepConf",
        "early_exit": "ttc.strategies:EarlyExit",
        "sure_answer": "ttc.strategies:SureAnswer",
        "deadline": "ttc.strategies:Deadline",
        "share": "ttc.strategies:Share",
        "confidence": "ttc.strategies:confidence",
        "scored": "ttc.strategies:Scored",
        "tail": "ttc.types:Tail",
        "choice": "ttc.constraints:Choice",
        "pattern": "ttc.constraints:Pattern",
        "schema": "ttc.constraints:Schema",
        "astar": "ttc.strategies:AStar",
        "action": "ttc.strategies:Action",
        "adaptive_branching_mcts": "ttc.strategies:AdaptiveBranchingMCTS",
        "beam_search": "ttc.strategies:BeamSearch",
        "best_first": "ttc.strategies:BestFirst",
        "budget_guided_mcts": "ttc.strategies:BudgetGuidedMCTS",
        "diverse_verifier_tree_search": "ttc.strategies:DiverseVerifierTreeSearch",
        "monte_carlo_tree_search": "ttc.strategies:MonteCarloTreeSearch",
        "particle_filtering": "ttc.strategies:ParticleFiltering",
        "rebase": "ttc.strategies:Rebase",
        "tree_of_thoughts": "ttc.strategies:TreeOfThoughts",
        "delimiter": "ttc.strategies:Delimiter",
        "fixed_length": "ttc.strategies:FixedLength",
        "high_entropy": "ttc.strategies:HighEntropy",
        "sentence": "ttc.strategies:Sentence",
        "abstain": "ttc.strategies:Abstain",
        "keep": "ttc.strategies:Keep",
        "minimum_bayes_risk": "ttc.strategies:MinimumBayesRisk",
        "instruct": "ttc.strategies:Instruct",
        "paraphrase": "ttc.strategies:Paraphrase",
        "self_refine": "ttc.strategies:SelfRefine",
        "reflexion": "ttc.strategies:Reflexion",
        "guided_refine": "ttc.strategies:GuidedRefine",
        "debug": "ttc.strategies:Debug",
        "revisions": "ttc.strategies:Revisions",
        "budget_forcing": "ttc.strategies:BudgetForcing",
        "summarise": "ttc.strategies:Summarise",
        "spec_reason": "ttc.strategies:SpecReason",
        "mixture_of_agents": "ttc.strategies:MixtureOfAgents",
        "recursive_aggregation": "ttc.strategies:RecursiveAggregation",
        "gen_select": "ttc.strategies:GenSelect",
        "knockout": "ttc.strategies:Knockout",
        "tie_break": "ttc.strategies:TieBreak",
        "sampling_search": "ttc.strategies:SamplingSearch",
        "behaviour_clusters": "ttc.strategies:BehaviourClusters",
        "sstar": "ttc.strategies:SStar",
        "conformal": "ttc.verifiers:Conformal",
        "isotonic": "ttc.verifiers:Isotonic",
        "platt": "ttc.verifiers:Platt",
        "rates": "ttc.verifiers:Rates",
    },
    "allocators": {
        "uniform": "ttc.allocate:Uniform",
        "uniform_stop": "ttc.allocate:UniformStop",
        "greedy_gain": "ttc.allocate:GreedyGain",
        "bandit": "ttc.allocate:Bandit",
        "optscale": "ttc.allocate:OptScale",
        "shadow_price": "ttc.allocate:ShadowPrice",
    },
    "verifiers": {
        "answer_probability": "ttc.verifiers:AnswerProbability",
        "ask_back": "ttc.verifiers:AskBack",
        "bayes": "ttc.verifiers:Bayes",
        "bayes_vote": "ttc.verifiers:BayesVote",
        "calibrated": "ttc.verifiers:Calibrated",
        "constraint": "ttc.verifiers:Constraint",
        "code_t": "ttc.verifiers:CodeT",
        "entropy": "ttc.verifiers:Entropy",
        "exact": "ttc.verifiers:Exact",
        "first_decided": "ttc.verifiers:FirstDecided",
        "gate": "ttc.verifiers:Gate",
        "group_confidence": "ttc.verifiers:GroupConfidence",
        "json_schema": "ttc.verifiers:JsonSchema",
        "judge": "ttc.verifiers:Judge",
        "length": "ttc.verifiers:Length",
        "margin": "ttc.verifiers:Margin",
        "mean_logprob": "ttc.verifiers:MeanLogprob",
        "outcome_reward_model": "ttc.verifiers:OutcomeRewardModel",
        "pairwise_judge": "ttc.verifiers:PairwiseJudge",
        "perplexity": "ttc.verifiers:Perplexity",
        "process_reward_model": "ttc.verifiers:ProcessRewardModel",
        "product": "ttc.verifiers:Product",
        "rank": "ttc.verifiers:Rank",
        "regex": "ttc.verifiers:Regex",
        "rollout_value": "ttc.verifiers:RolloutValue",
        "round_trip": "ttc.verifiers:RoundTrip",
        "self_certainty": "ttc.verifiers:SelfCertainty",
        "self_verify": "ttc.verifiers:SelfVerify",
        "semantic_entropy": "ttc.verifiers:SemanticEntropy",
        "sequence_logprob": "ttc.verifiers:SequenceLogprob",
        "sequence_probability": "ttc.verifiers:SequenceProbability",
        "surprisal": "ttc.verifiers:Surprisal",
        "tail_entropy": "ttc.verifiers:TailEntropy",
        "thought_value": "ttc.verifiers:ThoughtValue",
        "thought_vote": "ttc.verifiers:ThoughtVote",
        "tournament": "ttc.verifiers:Tournament",
        "weighted_sum": "ttc.verifiers:WeightedSum",
        "unit_tests": "ttc.verifiers:UnitTests",
    },
    "checks": {},
}


def lookup(group: str, name: str) -> Any:
    """What a name stands for in a group: `nodes`, `verifiers`, `checks` or `allocators`.

    Raises:
        KeyError: nobody has registered the name; the message lists the names that there are.
    """
    target = _BUILT_IN[group].get(name)
    if target is not None:
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)
    found = _third_party(group).get(name)
    if found is None:
        raise KeyError(f"{name!r} is none of the {group}: {', '.join(names(group))}")
    return found.load()


def names(group: str) -> list[str]:
    """Every registered name of a group, sorted."""
    return sorted({*_BUILT_IN[group], *_third_party(group)})


def third_parties(group: str) -> list[str]:
    """The names of a group that others than ttc have registered, sorted."""
    return sorted(_third_party(group))


def node_class(name: str) -> Callable[..., Any]:
    """The node that a name stands for."""
    return cast("Callable[..., Any]", lookup("nodes", name))


def room(name: str) -> Any:
    """A module of a room that the core reaches by name only, as `benchmarks.demo`."""
    return import_module(f"ttc.{name}")


def install_hint(extra: str) -> str:
    """The command that installs an optional part."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


def load_allocator(name: str) -> Any:
    """The allocator of a name, with its defaults.

    Raises:
        ValueError: nobody has registered the name.
    """
    try:
        return lookup("allocators", name)()
    except KeyError as error:
        raise ValueError(error.args[0]) from None


def is_pool(model: str) -> bool:
    """Whether a model is the path of a pool of completions."""
    return model.endswith(".jsonl")


def is_local(model: str) -> bool:
    """Whether a model is one that computes here, in the embedded engine."""
    return not (is_pool(model) or model.startswith((SERVED, IN_VLLM)))


def load_engine(
    model: str | Engine,
    progress: Callable[[str, int, int | None], None] | None = None,
    *,
    arithmetic: Arithmetic | None = None,
    speculate: str | None = None,
    acceptance: Acceptance | None = None,
) -> Engine:
    """The engine of a model: the name of a local one, a path of a model or pool, or itself.

    Args:
        model: see `ttc.engine.local.hub.models.find`; `openai:NAME@URL` is a model at a server,
            and `vllm:PATH` one that vLLM runs.
        progress: is told a stage of loading, how much of it is done, and of how much.
        arithmetic: what a local model computes with; by default that of the settings.
        speculate: what drafts tokens for a local model; by default that of the settings.
        acceptance: how drafts are accepted; by default that of the settings.

    Raises:
        EngineError: nobody knows the model, or what it needs is not installed.
        ValueError: an option is unknown, or the model is none that computes here.
    """
    options = {"arithmetic": arithmetic, "speculate": speculate, "acceptance": acceptance}
    for name, value in options.items():
        if value is not None and not (isinstance(model, str) and is_local(model)):
            raise ValueError(f"{model} is no local model, which {name}={value!r} is for")
    if not isinstance(model, str):
        return model
    if is_pool(model):
        return cast("Engine", room("engine.replay").ReplayEngine(model))
    if model.startswith(SERVED):
        servers = room("engine.openai")
        return cast("Engine", servers.connect(servers.named(model.removeprefix(SERVED))))
    if model.startswith(IN_VLLM):
        path = room("engine.local.hub.models").find(model.removeprefix(IN_VLLM))
        return cast("Engine", room("engine.vllm").VllmEngine.load(path))
    try:
        local = import_module("ttc.engine.local")
        told: dict[str, Any] = {} if progress is None else {"progress": progress}
        return cast("Engine", local.load(model, **options, **told))
    except ModuleNotFoundError as error:
        raise EngineError(
            f"the model {model!r} needs {error.name}, which is missing: {install_hint('local')}"
        ) from error


@cache
def _third_party(group: str) -> dict[str, Any]:
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    found: dict[str, Any] = {}
    for entry in entry_points(group=f"ttc.{group}"):
        other = found.get(entry.name)
        if entry.name in _BUILT_IN[group]:
            raise GraphError(
                [f"the name {entry.name!r} of {entry.value} is built in; register another name"]
            )
        if other is not None:
            raise GraphError(
                [f"{entry.value} and {other.value} both register the name {entry.name!r}"]
            )
        found[entry.name] = entry
    return found
