"""Strategies: the nodes that sample, verify, choose and combine, and the named graphs of them."""

from ttc.strategies.abstain import Abstain
from ttc.strategies.best import Best
from ttc.strategies.best_of_n import BestOfN
from ttc.strategies.cascade import Cascade, Confidence, confidence
from ttc.strategies.greedy import Greedy
from ttc.strategies.sample import Sample
from ttc.strategies.self_consistency import SelfConsistency
from ttc.strategies.stopping import CannotBeOvertaken, Exhausted, StopRule
from ttc.strategies.tally import Tally
from ttc.strategies.verify import Verify
from ttc.strategies.vote import Vote

__all__ = [
    "Abstain",
    "Best",
    "BestOfN",
    "CannotBeOvertaken",
    "Cascade",
    "Confidence",
    "Exhausted",
    "Greedy",
    "Sample",
    "SelfConsistency",
    "StopRule",
    "Tally",
    "Verify",
    "Vote",
    "confidence",
]
