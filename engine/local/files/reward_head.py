"""The heads of reward models, as folders of Hugging Face name and lay them out.

Source: transformers, `*ForSequenceClassification` and `*ForTokenClassification`; the modelling code
that comes with Qwen2.5-Math-RM and Qwen2.5-Math-PRM; Skywork-o1-Open-PRM, whose value head is that
of trl's `AutoModelForCausalLMWithValueHead`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ttc.engine.local.config import Family, RewardHead
from ttc.engine.local.files.keys import Keys

__all__ = ["REWARD_ARCHITECTURES", "REWARD_KEYS", "reward_head"]


class _Kind(NamedTuple):
    layers: tuple[str, ...]
    has_bias: bool
    num_labels: int | None
    """`None`: the configuration says it."""


REWARD_ARCHITECTURES: Mapping[str, _Kind] = {
    "ForSequenceClassification": _Kind(("score",), False, None),
    "ForTokenClassification": _Kind(("score",), True, None),
    "ForRewardModel": _Kind(("score.0", "score.2"), True, 1),
    "ForProcessRewardModel": _Kind(("score.0", "score.2"), True, 2),
    "ForPrmModel": _Kind(("v_head.summary",), True, 1),
}
"""By the end of the architecture's name."""

REWARD_KEYS = (
    "auto_map",
    "classifier_dropout",
    "num_labels",
    "problem_type",
    "summary_dropout_prob",
)
"""Keys that training and the code that comes with such models have for themselves."""

_USUAL_LABELS = 2  # of transformers, where the configuration names none
_MOST_LABELS = 1024


def reward_head(keys: Keys, family: Family) -> RewardHead | None:
    """The reward head that a configuration describes, or `None` for a language model.

    Raises:
        ModelFileError: its labels make no sense.
    """
    architectures = keys.value("architectures")
    if not isinstance(architectures, list) or not architectures:
        return None
    stem = family.architecture.removesuffix("ForCausalLM")
    kind = REWARD_ARCHITECTURES.get(str(architectures[0]).removeprefix(stem))
    if kind is None:
        return None
    labels = _labels(keys)
    if kind.num_labels is not None and len(labels) != kind.num_labels:
        labels = tuple(f"LABEL_{i}" for i in range(kind.num_labels))
    return RewardHead(labels=labels, layers=kind.layers, has_bias=kind.has_bias)


def _labels(keys: Keys) -> tuple[str, ...]:
    """The names in `id2label`, whose keys are the numbers from 0 on, as JSON spells them."""
    named = keys.value("id2label")
    if named is None:
        count = keys.count("num_labels", _USUAL_LABELS, most=_MOST_LABELS)
        return tuple(f"LABEL_{i}" for i in range(count))
    if not isinstance(named, dict) or not 1 <= len(named) <= _MOST_LABELS:
        raise keys.fault("id2label", "no names of labels")
    labels = [named.get(str(i)) for i in range(len(named))]
    names = tuple(label for label in labels if isinstance(label, str))
    if len(set(names)) < len(labels):
        raise keys.fault("id2label", "no different names for the labels 0, 1, ...")
    return names
