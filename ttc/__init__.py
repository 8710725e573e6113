"""ttc turns extra inference into better answers, under a budget that it never exceeds."""

from typing import TYPE_CHECKING

from ttc.control import Control
from ttc.errors import (
    BudgetExceeded,
    EngineError,
    GraphError,
    NodeError,
    PriceError,
    RecordError,
    SandboxError,
    SettingsError,
    TTCError,
    VerifierError,
)
from ttc.function_node import node
from ttc.graph import Node
from ttc.solve import asolve, asolve_many, solve, solve_many
from ttc.types import (
    Budget,
    Candidate,
    Message,
    Outcome,
    Problem,
    Sampling,
    Score,
    Tail,
    ToolCall,
    Usage,
)

__all__ = [
    "Budget",
    "BudgetExceeded",
    "Candidate",
    "Control",
    "EngineError",
    "GraphError",
    "Message",
    "Node",
    "NodeError",
    "Outcome",
    "PriceError",
    "Problem",
    "RecordError",
    "Sampling",
    "SandboxError",
    "Score",
    "SettingsError",
    "TTCError",
    "Tail",
    "ToolCall",
    "Usage",
    "VerifierError",
    "asolve",
    "asolve_many",
    "confidence",
    "node",
    "replay",
    "resume",
    "solve",
    "solve_many",
]


if TYPE_CHECKING:
    from ttc.again import replay, resume
    from ttc.strategies.cascade import confidence


def __getattr__(name: str) -> object:
    if name in ("replay", "resume"):  # journals on disk are loaded when they are asked for
        from ttc import again

        return getattr(again, name)
    if name == "confidence":  # lives in a room, which is loaded when it is asked for
        from ttc.strategies.cascade import confidence

        return confidence
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
