"""The worker that has a generator of Reasoning Gym score an answer by its own scorer, in the jail.

Many of those scorers evaluate what they are given, so an answer meets one nowhere else, and each in
a process of its own. The problem is generated anew from its options and its place: no object of a
generator passes the border. Where it does not come out as it was asked, nothing is scored.

Source: Stojanovski et al. 2025, arXiv 2505.24760.
"""

from __future__ import annotations

import json
import time
from typing import Any

from reasoning_gym import factory

from ttc.sandbox import codec

__all__ = ["main"]


def main(link: int) -> None:
    """Answers requests until the link closes."""
    codec.serve(link, _answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    score, reason = _score(request)
    return {"score": score, "reason": reason, "cpu_seconds": time.process_time()}


def _score(request: dict[str, Any]) -> tuple[float | None, str]:
    try:
        options = json.loads(request["options"])
        dataset = factory.create_dataset(request["generator"], **options)
        entry = dataset[request["place"]]
    except Exception as error:  # noqa: BLE001 - whatever a generator raises, nothing is scored
        return None, f"the generator failed: {type(error).__name__}"
    if entry["question"] != request["question"]:
        return None, "the generator does not give the problem again"
    try:
        return float(dataset.score_answer(request["answer"], entry=entry)), "scored"
    except Exception as error:  # noqa: BLE001 - a scorer that cannot read an answer finds it wrong
        return 0.0, f"the scorer failed: {type(error).__name__}"
