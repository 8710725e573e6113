"""What an engine can do, as nodes and verifiers ask for it."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Capabilities"]


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an engine can do. What a node `requires` is checked before anything is spent."""

    tokens: bool = False
    """Branches hold token ids."""
    fork: bool = False
    """A branch can be extended many times, from any call's end."""
    cut: bool = False
    """A branch can be cut back to any token, and a running call forked at any token."""
    cancel: bool = False
    """A running call ends before the next engine step."""
    priority: bool = False
    """Greater priorities come first, and a running call can be given another one."""
    logprobs: int = 0
    """How many log probabilities each token can carry: 0 none, 1 its own, k the k greatest, too."""
    entropy: bool = False
    """Each token can carry the entropy and the self-certainty of its whole distribution."""
    score: bool = False
    """Given text can be scored."""
    next_tokens: int = 0
    """How many of the most probable next tokens can be read at a branch's end; 0 none."""
    reward: bool = False
    """Given text gets rewards: the engine is a reward model, and generates nothing."""
    prefix_cache: bool = False
    """A shared prefix is computed once."""
    grammar: bool = False
    logit_bias: bool = False
    """A call can add to the logits of tokens, which it names by their ids."""
    hidden_states: bool = False
    replayable: bool = False
    """The same request gives the same tokens, and costs nothing but time."""
    price: bool = False
    """The cost of work is known before it runs."""
    speculation: str = ""
    """Who drafts tokens for it and how they are accepted, as `ngram, coupled`; empty for nobody."""

    def has(self, name: str) -> bool:
        """Whether a capability is there; `logprobs>=20` asks for a number of them.

        Raises:
            ValueError: nothing is called so.
        """
        name, _, least = name.partition(">=")
        if name not in {f.name for f in fields(self)} or (least and not least.isdecimal()):
            raise ValueError(f"no capability is called {name!r}")
        value = getattr(self, name)
        return int(bool(value) if isinstance(value, str) else value) >= int(least or 1)
