"""Verifiers: what returns scores of candidates, and what makes scores of scores."""

from ttc.verifiers.calibration import (
    Calibrated,
    Calibration,
    Isotonic,
    Platt,
    fit_isotonic,
    fit_platt,
    load_calibration,
)
from ttc.verifiers.codet import CodeT, agreement
from ttc.verifiers.combination import FirstDecided, Gate, Product, Rank, WeightedSum
from ttc.verifiers.confidence import (
    Entropy,
    Margin,
    MeanLogprob,
    Perplexity,
    SelfCertainty,
    SequenceLogprob,
    SequenceProbability,
    Surprisal,
)
from ttc.verifiers.conformal import Conformal, fit_conformal
from ttc.verifiers.endpoint import HttpVerifier
from ttc.verifiers.groups import GroupConfidence
from ttc.verifiers.json_schema import JsonSchema
from ttc.verifiers.judge import Judge
from ttc.verifiers.noise import (
    Agreement,
    Bayes,
    BayesVote,
    Rates,
    accepted_precision,
    best_num_samples,
    rates_from_agreement,
    rates_from_labels,
)
from ttc.verifiers.orm import OutcomeRewardModel
from ttc.verifiers.pairwise import PairwiseJudge, Tournament
from ttc.verifiers.prm import ProcessRewardModel
from ttc.verifiers.recorded import Recorded
from ttc.verifiers.rollout_value import RolloutValue
from ttc.verifiers.round_trip import AskBack, RoundTrip
from ttc.verifiers.self_verify import SelfVerify
from ttc.verifiers.semantic import AnswerProbability, SemanticEntropy
from ttc.verifiers.tail_entropy import TailEntropy
from ttc.verifiers.text import Constraint, Exact, Length, Regex
from ttc.verifiers.thoughts import ThoughtValue, ThoughtVote
from ttc.verifiers.unit_tests import UnitTests

__all__ = [
    "Agreement",
    "AnswerProbability",
    "AskBack",
    "Bayes",
    "BayesVote",
    "Calibrated",
    "Calibration",
    "CodeT",
    "Conformal",
    "Constraint",
    "Entropy",
    "Exact",
    "FirstDecided",
    "Gate",
    "GroupConfidence",
    "HttpVerifier",
    "Isotonic",
    "JsonSchema",
    "Judge",
    "Length",
    "Margin",
    "MeanLogprob",
    "OutcomeRewardModel",
    "PairwiseJudge",
    "Perplexity",
    "Platt",
    "ProcessRewardModel",
    "Product",
    "Rank",
    "Rates",
    "Recorded",
    "Regex",
    "RolloutValue",
    "RoundTrip",
    "SelfCertainty",
    "SelfVerify",
    "SemanticEntropy",
    "SequenceLogprob",
    "SequenceProbability",
    "Surprisal",
    "TailEntropy",
    "ThoughtValue",
    "ThoughtVote",
    "Tournament",
    "UnitTests",
    "WeightedSum",
    "accepted_precision",
    "agreement",
    "best_num_samples",
    "fit_conformal",
    "fit_isotonic",
    "fit_platt",
    "load_calibration",
    "rates_from_agreement",
    "rates_from_labels",
]
