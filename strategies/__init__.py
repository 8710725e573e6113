"""Strategies: the nodes that sample, verify, choose and combine, and the named graphs of them."""

from ttc.strategies.best import Best
from ttc.strategies.best_of_n import BestOfN
from ttc.strategies.cascade import Cascade, Confidence, confidence
from ttc.strategies.greedy import Greedy
from ttc.strategies.sample import Sample
from ttc.strategies.self_consistency import SelfConsistency
from ttc.strategies.stopping import CannotBeOvertaken, Exhausted, LimitRule, StopRule
from ttc.strategies.stopping_limits import Deadline, Share
from ttc.strategies.stopping_votes import (
    AdaptiveConsistency,
    AgreeingWindow,
    AnytimeValid,
    Confident,
    Doubling,
)
from ttc.strategies.tally import Tally
from ttc.strategies.verify import Verify
from ttc.strategies.vote import Vote

__all__ = [
    "AdaptiveConsistency",
    "AgreeingWindow",
    "AnytimeValid",
    "Best",
    "BestOfN",
    "CannotBeOvertaken",
    "Cascade",
    "Confidence",
    "Confident",
    "Deadline",
    "Doubling",
    "Exhausted",
    "Greedy",
    "LimitRule",
    "Sample",
    "SelfConsistency",
    "Share",
    "StopRule",
    "Tally",
    "Verify",
    "Vote",
    "confidence",
]
