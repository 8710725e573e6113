"""Strategies: the nodes that sample, verify, choose and combine, and the named graphs of them."""

from ttc.strategies.abstain import Abstain
from ttc.strategies.agent import Agent, LanguageAgentTreeSearch
from ttc.strategies.behaviour_clusters import BehaviourClusters
from ttc.strategies.best import Best
from ttc.strategies.best_of_n import BestOfN
from ttc.strategies.budget_forcing import BudgetForcing
from ttc.strategies.cascade import Cascade, Confidence, Scored, confidence
from ttc.strategies.debug import Debug
from ttc.strategies.gen_select import GenSelect
from ttc.strategies.greedy import Greedy
from ttc.strategies.guided_refine import GuidedRefine
from ttc.strategies.instruct import Instruct
from ttc.strategies.keep import Keep
from ttc.strategies.knockout import Knockout
from ttc.strategies.minimum_bayes_risk import MinimumBayesRisk, word_f1
from ttc.strategies.mixture_of_agents import MixtureOfAgents
from ttc.strategies.paraphrase import Paraphrase
from ttc.strategies.recursive_aggregation import RecursiveAggregation
from ttc.strategies.reflexion import Reflexion
from ttc.strategies.revisions import Revisions
from ttc.strategies.rounds import SampleInRounds
from ttc.strategies.route import Route
from ttc.strategies.sample import Sample
from ttc.strategies.sampling_search import SamplingSearch
from ttc.strategies.self_consistency import SelfConsistency
from ttc.strategies.self_refine import SelfRefine
from ttc.strategies.spec_reason import SpecReason
from ttc.strategies.sstar import SStar
from ttc.strategies.stopping import CannotBeOvertaken, Exhausted, LimitRule, StopRule
from ttc.strategies.stopping_branches import (
    BranchRule,
    Certaindex,
    DeepConf,
    EarlyExit,
    SureAnswer,
    Trace,
)
from ttc.strategies.stopping_limits import Deadline, Share
from ttc.strategies.stopping_votes import (
    AdaptiveConsistency,
    AgreeingWindow,
    AnytimeValid,
    Confident,
    Doubling,
)
from ttc.strategies.summarise import Summarise
from ttc.strategies.tally import Tally
from ttc.strategies.tie_break import TieBreak
from ttc.strategies.tree import (
    Action,
    AdaptiveBranchingMCTS,
    AStar,
    BeamSearch,
    BestFirst,
    BudgetGuidedMCTS,
    Delimiter,
    DiverseVerifierTreeSearch,
    FixedLength,
    HighEntropy,
    MonteCarloTreeSearch,
    ParticleFiltering,
    Rebase,
    Sentence,
    StepRule,
    TreeOfThoughts,
)
from ttc.strategies.verify import Verify
from ttc.strategies.vote import Vote

__all__ = [
    "AStar",
    "Abstain",
    "Action",
    "AdaptiveBranchingMCTS",
    "AdaptiveConsistency",
    "Agent",
    "AgreeingWindow",
    "AnytimeValid",
    "BeamSearch",
    "BehaviourClusters",
    "Best",
    "BestFirst",
    "BestOfN",
    "BranchRule",
    "BudgetForcing",
    "BudgetGuidedMCTS",
    "CannotBeOvertaken",
    "Cascade",
    "Certaindex",
    "Confidence",
    "Confident",
    "Deadline",
    "Debug",
    "DeepConf",
    "Delimiter",
    "DiverseVerifierTreeSearch",
    "Doubling",
    "EarlyExit",
    "Exhausted",
    "FixedLength",
    "GenSelect",
    "Greedy",
    "GuidedRefine",
    "HighEntropy",
    "Instruct",
    "Keep",
    "Knockout",
    "LanguageAgentTreeSearch",
    "LimitRule",
    "MinimumBayesRisk",
    "MixtureOfAgents",
    "MonteCarloTreeSearch",
    "Paraphrase",
    "ParticleFiltering",
    "Rebase",
    "RecursiveAggregation",
    "Reflexion",
    "Revisions",
    "Route",
    "SStar",
    "Sample",
    "SampleInRounds",
    "SamplingSearch",
    "Scored",
    "SelfConsistency",
    "SelfRefine",
    "Sentence",
    "Share",
    "SpecReason",
    "StepRule",
    "StopRule",
    "Summarise",
    "SureAnswer",
    "Tally",
    "TieBreak",
    "Trace",
    "TreeOfThoughts",
    "Verify",
    "Vote",
    "confidence",
    "word_f1",
]
