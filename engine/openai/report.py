"""What was found out about a server: what it does, what it ignores, what it does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ttc.capabilities import Capabilities

__all__ = ["KINDS", "Report", "TellsTokens"]

TellsTokens = Literal["token_ids", "logprobs"]
"""Where a reply has the ids of its tokens."""

KINDS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "ttc": "ttc"}
"""Servers that are known, by what `GET /models` names as the owner of their models."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a server was found to do. Nothing is taken for granted: by default it does little."""

    kind: str = "unknown"
    """`vllm`, `sglang`, `llamacpp`, `ttc`, or `unknown`."""
    context: int | None = None
    """The tokens of its context, where it tells them."""
    length_field: str = "max_tokens"
    """The name of the limit of output tokens that it enforces."""
    streams_usage: bool = True
    """Whether it takes `stream_options`."""
    tells_usage: bool = False
    """Whether it tells how many tokens a call came to. Without, every call is charged in full."""
    seed: bool = False
    """Whether one seed gives one text, and another seed another one."""
    n: bool = False
    """Whether one request can have several choices. ttc makes a request for each anyhow."""
    logprobs: int = 0
    """As `Capabilities.logprobs`: those of the model's own distribution."""
    schemas: bool = False
    """Whether it holds to JSON schemas."""
    tools: bool = False
    """Whether it tells its model of tools, and reads calls out of what that writes."""
    logprobs_beside_tools: bool = True
    """Whether it takes a request for log probabilities that tells of tools as well."""
    honours: frozenset[str] = frozenset()
    """Sampling parameters that it honours, of those that not every server knows."""
    ids: bool = False
    """Whether each reply has an id of its own."""
    tells_tokens: TellsTokens | None = None
    """Where it tells the ids of its tokens, if it takes prompts of ids as well, and if both are of
    the vocabulary that the service names. `None` where they are not, and where nobody asked."""
    overhead: int = 0
    """Tokens that its chat template adds beyond what a prompt has bytes."""
    tokens: int = 0
    """What finding out has cost: prompt and output tokens, outside of every run's budget."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What was seen, in words, by what was asked."""

    @property
    def stream_options(self) -> dict[str, Any]:
        """What makes it count while it writes."""
        return {"continuous_usage_stats": True} if self.kind in ("vllm", "sglang") else {}

    @property
    def holds_schemas(self) -> bool:
        """Whether it holds to JSON schemas where it is asked: for tokens that is no chat."""
        return self.schemas and (self.tells_tokens is None or self.kind == "vllm")

    @property
    def ends_on_disconnect(self) -> bool:
        """Whether it is known to end a call whose client is gone."""
        return self.kind in KINDS.values()

    def capabilities(self, *, cancels: bool | None = None) -> Capabilities:
        """What an engine on it can do; `cancels` is what the user knows of it."""
        has_tokens = self.tells_tokens is not None
        return Capabilities(
            tokens=has_tokens,
            fork=has_tokens,
            cut=has_tokens,
            cancel=self.ends_on_disconnect if cancels is None else cancels,
            logprobs=self.logprobs,
            grammar=self.holds_schemas,
            logit_bias="logit_bias" in self.honours,
            prefix_cache=self.kind in KINDS.values(),
        )

    def rows(self) -> list[tuple[str, str]]:
        """What it was found to do, in words, for people."""
        said = {True: "honoured", False: "ignored or refused"}
        found = {
            "kind": self.kind,
            "limit of tokens": f"{self.length_field} is enforced",
            "usage": "told" if self.tells_usage else "not told: calls are charged in full",
            "seed": said[self.seed],
            "n": said[self.n],
            "logprobs": f"{self.logprobs} of the greatest" if self.logprobs else "none",
            "JSON schemas": said[self.schemas],
            "tools": said[self.tools],
            "further parameters": ", ".join(sorted(self.honours)) or "none",
            "ends when the client is gone": "known to" if self.ends_on_disconnect else "unknown",
            "ids": "each its own" if self.ids else "not told apart",
            "prompts of tokens": "taken, and told" if self.tells_tokens else "not asked for",
            "spent on finding out": f"{self.tokens} tokens",
        }
        notes = {name: f"; {note}" for name, note in self.notes.items()}
        return [(name, told + notes.get(name, "")) for name, told in found.items()]
