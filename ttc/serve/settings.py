"""What a server is told when it is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from ttc.resources import MEASURED, RESERVED
from ttc.sandbox.zygote import SandboxChoice
from ttc.types import Budget

__all__ = ["EFFORTS", "LOOPBACK", "Settings"]

EFFORTS: Mapping[str, Fraction | None] = {
    "none": None,
    "minimal": Fraction(1, 16),
    "low": Fraction(1, 4),
    "medium": Fraction(1, 2),
    "high": Fraction(1),
    "xhigh": Fraction(1),
    "max": Fraction(1),
}
"""What share of the allowed budget each effort may spend; `None` is no strategy."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""The names by which a machine reaches itself."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a server serves."""

    strategy: str | None = None
    """The strategy of a request that names none; `None` samples plainly."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Strategies of the operator's, which clients ask for by name. They may hold anything."""
    request_budget: Budget = field(default_factory=lambda: Budget(tokens=65_536))
    """What one request may spend at most."""
    key_budget: Budget = field(default_factory=Budget)
    """What each key may spend as long as the server runs, where its own line says nothing."""
    budget: Budget = field(default_factory=Budget)
    """What all may spend as long as the server runs."""
    sampling: Literal["request", "strategy"] = "request"
    """Who wins where a request samples otherwise than its strategy: the `request` is refused, or
    the `strategy` overrides it, and the reply says so."""
    efforts: Mapping[str, Fraction | None] = field(default_factory=lambda: dict(EFFORTS))
    """What `reasoning_effort` means."""
    allow_code: bool = False
    """Whether clients may ask for strategies that execute code which a model wrote."""
    sandbox: SandboxChoice = "auto"
    """How safely such code is run."""
    max_tokens: int = 2_048
    """Output tokens of a plain sample, where the request does not say."""
    max_choices: int = 64
    """The greatest `n`."""
    max_calls: int = 1_024
    """The most calls that a client's strategy may need at worst."""
    concurrency: int = 32
    """Requests that run at once."""
    queue: int = 256
    """Requests that wait at most."""
    deadline_s: float = 300.0
    """How long a request may take, its wait included."""
    heartbeat_s: float = 10.0
    """The longest silence of a stream."""
    drain_s: float = 30.0
    """How long requests may still run once the server is told to end."""
    max_body_bytes: int = 8 << 20
    hosts: frozenset[str] = LOOPBACK
    """The names by which clients may call the server."""
    max_traces: int = 16
    """Runs of each key that the viewer shows; with 0 it shows none."""

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_choices", "max_calls", "concurrency", "max_body_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
        for whose, limit in (("key", self.key_budget), ("server", self.budget)):
            self.check(whose, limit)

    def check(self, whose: str, limit: Budget) -> None:
        """Whether a limit over many requests can be kept.

        Raises:
            ValueError: it limits what no request reserves beforehand.
        """
        for name in ("seconds", *MEASURED):
            if getattr(limit, name) is not None:
                raise ValueError(
                    f"a {whose}'s budget is of {', '.join(RESERVED)}, not of {name}, which is "
                    "known only afterwards; limit it for each request"
                )
        for name in ("flops", "cost_usd"):
            if getattr(limit, name) is not None and getattr(self.request_budget, name) is None:
                raise ValueError(
                    f"a {whose}'s budget of {name} needs one for each request, which is what a "
                    f"request reserves; set the request budget's {name}"
                )
