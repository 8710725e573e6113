"""Verifiers: what returns scores of candidates."""

from ttc.verifiers.confidence import SequenceProbability
from ttc.verifiers.judge import Judge
from ttc.verifiers.orm import OutcomeRewardModel
from ttc.verifiers.pairwise import PairwiseJudge, Tournament
from ttc.verifiers.prm import ProcessRewardModel
from ttc.verifiers.rollout_value import RolloutValue
from ttc.verifiers.self_verify import SelfVerify

__all__ = [
    "Judge",
    "OutcomeRewardModel",
    "PairwiseJudge",
    "ProcessRewardModel",
    "RolloutValue",
    "SelfVerify",
    "SequenceProbability",
    "Tournament",
]
