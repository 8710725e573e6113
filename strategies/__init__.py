"""Strategies: the nodes that sample, verify, choose and combine, and the named graphs of them."""

from ttc.strategies.abstain import Abstain
from ttc.strategies.best import Best
from ttc.strategies.best_of_n import BestOfN
from ttc.strategies.cascade import Cascade, Confidence, confidence
from ttc.strategies.greedy import Greedy
from ttc.strategies.rounds import SampleInRounds
from ttc.strategies.sample import Sample
from ttc.strategies.self_consistency import SelfConsistency
from ttc.strategies.stopping import CannotBeOvertaken, Exhausted, LimitRule, StopRule
from ttc.strategies.stopping_branches import BranchRule, Certaindex, DeepConf, EarlyExit, Trace
from ttc.strategies.stopping_limits import Deadline, Share
from ttc.strategies.stopping_votes import (
    AdaptiveConsistency,
    AgreeingWindow,
    AnytimeValid,
    Confident,
    Doubling,
)
from ttc.strategies.tally import Tally
from ttc.strategies.tree import (
    AStar,
    BeamSearch,
    BestFirst,
    Delimiter,
    DiverseVerifierTreeSearch,
    FixedLength,
    HighEntropy,
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
    "AdaptiveConsistency",
    "AgreeingWindow",
    "AnytimeValid",
    "BeamSearch",
    "Best",
    "BestFirst",
    "BestOfN",
    "BranchRule",
    "CannotBeOvertaken",
    "Cascade",
    "Certaindex",
    "Confidence",
    "Confident",
    "Deadline",
    "DeepConf",
    "Delimiter",
    "DiverseVerifierTreeSearch",
    "Doubling",
    "EarlyExit",
    "Exhausted",
    "FixedLength",
    "Greedy",
    "HighEntropy",
    "LimitRule",
    "ParticleFiltering",
    "Rebase",
    "Sample",
    "SampleInRounds",
    "SelfConsistency",
    "Sentence",
    "Share",
    "StepRule",
    "StopRule",
    "Tally",
    "Trace",
    "TreeOfThoughts",
    "Verify",
    "Vote",
    "confidence",
]
