"""Demands: what a graph needs of the engine of each role, and what an engine lacks of it.

They are checked before anything is spent, and then every call asks its engine to measure what
somebody downstream will read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ttc.ports import Engine
from ttc.types import Sampling

if TYPE_CHECKING:
    from ttc.graph import Node, Placed

__all__ = ["demands_of", "engine_faults", "measuring"]


def demands_of(graph: Node) -> dict[str, frozenset[str]]:
    """What all nodes of a graph together need of the engine of each role."""
    demands: dict[str, frozenset[str]] = {}
    for placed in graph.walk():
        for role, needs in placed.node.demands(placed.given).items():
            demands[role] = demands.get(role, frozenset()) | needs
    return demands


def engine_faults(placed: Placed, engines: Mapping[str, Engine] | None) -> list[str]:
    """Roles of a node without an engine, and engines that lack what it needs of them."""
    if engines is None:
        return []
    faults = []
    for role, needs in sorted(placed.node.demands(placed.given).items()):
        if role not in engines:
            how = "model=" if role == "policy" else f"models={{{role!r}: ...}}"
            faults.append(f"no model is bound to the role {role!r}; pass {how}")
            continue
        own = [need.removeprefix(f"{role}:") for need in sorted(needs)]
        lacking = [n for n in own if ":" not in n and not engines[role].capabilities.has(n)]
        if lacking:
            faults.append(
                f"needs {', '.join(lacking)}, which the engine {engines[role].name} lacks"
            )
    return faults


def measuring(sampling: Sampling, demands: frozenset[str], engine: Engine) -> Sampling:
    """How a call draws its tokens, with all that somebody downstream will read of them.

    Raises:
        ValueError: the sampling itself asks for what the engine lacks, or cannot hold to.
    """
    wanted = [int(need.partition(">=")[2]) for need in demands if need.startswith("logprobs>=")]
    logprobs = max([sampling.logprobs, *wanted])
    entropy = sampling.entropy or "entropy" in demands
    has = engine.capabilities
    if sampling.constraint is not None:
        if not has.grammar:
            raise ValueError(
                f"the engine {engine.name} holds to no constraint, and {sampling.constraint} is "
                "asked of it; leave it out, or run on an engine with the capability grammar"
            )
        engine.check_constraint(sampling.constraint)
    if sampling.logit_bias and not has.logit_bias:
        raise ValueError(
            f"the engine {engine.name} takes no logit_bias; leave it out, or run on an engine with "
            "the capability logit_bias"
        )
    if (logprobs and has.logprobs < max(2, logprobs)) or entropy > has.entropy:
        raise ValueError(
            f"logprobs={logprobs} and entropy={entropy} are asked of the engine {engine.name}, "
            f"which has logprobs={has.logprobs} and entropy={has.entropy}"
        )
    if (logprobs, entropy) == (sampling.logprobs, sampling.entropy):
        return sampling
    return replace(sampling, logprobs=logprobs, entropy=entropy)
