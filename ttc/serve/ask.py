"""What a request asks for, once every parameter has been ruled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ttc.constraints import Constraint
from ttc.serve.fields import Fields, boolean, choice, integer, mapping, number, text
from ttc.serve.refusal import conflicting, invalid
from ttc.types import MAX_BIAS, AnswerFormat, Budget, Problem, Sampling

__all__ = ["INERT", "Ask", "Ttc", "common", "merged"]

_MAX_STOPS = 16
_MAX_BIASED = 1_024
_ID_DIGITS = 10
_FORMATS = get_args(AnswerFormat)
_SEED = 2**63
_NONE: Mapping[str, Any] = {}
_BUDGETS: Mapping[str, Any] = {
    "tokens": integer(0, 2**53),
    "calls": integer(0, 2**53),
    "verifier_calls": integer(0, 2**53),
    "flops": number(0, 1e30),
    "cost_usd": number(0, 1e9),
    "kv_byte_seconds": number(0, 1e30),
    "sandbox_seconds": number(0, 1e9),
    "seconds": number(0, 1e6),
}

INERT: Mapping[str, Callable[[Any], bool]] = {
    "user": lambda given: isinstance(given, str),
    "metadata": lambda given: isinstance(given, Mapping),
    "safety_identifier": lambda given: isinstance(given, str),
    "prompt_cache_key": lambda given: isinstance(given, str),
    "store": lambda given: given is False,
    "service_tier": lambda given: given == "auto",
    "modalities": lambda given: given == ["text"],
    "verbosity": lambda given: given == "medium",
    "suffix": lambda given: given == "",
}
"""What changes nothing: what only names the request, and what says the API's default."""

_DRAWN: Mapping[str, tuple[Any, float | None]] = {
    "temperature": (number(0, 2), 1.0),
    "top_p": (number(0, 1), 1.0),
    "presence_penalty": (number(-2, 2), 0.0),
    "frequency_penalty": (number(-2, 2), 0.0),
    "top_k": (integer(1, 2**31), None),
    "min_p": (number(0, 1), 0.0),
    "repetition_penalty": (number(0.01, 100), 1.0),
}
"""Each sampling parameter's rule, and the value that asks for nothing."""


@dataclass(frozen=True, kw_only=True)
class Ttc:
    """What the body's `ttc` says."""

    strategy: str | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)
    events: bool = False
    """Whether a stream tells how the run goes on."""
    thinking: bool = False
    """Whether thoughts, and candidates that were not chosen, are shown."""
    answer_format: AnswerFormat = "auto"


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request, as the server understands it."""

    model: str
    spec: str | None
    """The strategy that it names, in the model's name or in `ttc`."""
    problems: tuple[Problem, ...]
    """A conversation, or prompts. Each has choices of its own."""
    tokens: tuple[tuple[int, ...], ...] = ()
    """The tokens of each prompt, where they were given in place of a text."""
    n: int = 1
    """Choices of each prompt."""
    max_tokens: int | None = None
    drawn: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters that ask for something."""
    until: tuple[str, ...] = ()
    constraint: Constraint | None = None
    logprobs: int | None = None
    """How many of the top log probabilities stand beside each token's own; `None`: none at all."""
    token_ids: bool = False
    """Whether the ids of tokens are told."""
    names_by_id: bool = False
    """Whether tokens with log probabilities are named by their ids, and not by their texts."""
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False
    effort: str | None = None
    ttc: Ttc = field(default_factory=Ttc)
    echo: bool = False
    """Whether the prompt stands before the text."""
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str = "none"
    """`none`, `auto`, `required`, or the name of a tool."""
    parallel_tool_calls: bool = True
    endpoint: Literal["chat", "completions"] = "chat"

    @property
    def budget(self) -> Budget:
        """The limits that it asks for."""
        return Budget(**self.ttc.budget)

    @property
    def tells_tokens(self) -> bool:
        """Whether something is told of each token."""
        return self.token_ids or self.logprobs is not None

    @property
    def is_raw(self) -> bool:
        """Whether a text is told as its tokens have it, a thought included."""
        return self.token_ids and self.endpoint == "completions"


def common(fields: Fields, max_choices: int) -> dict[str, Any]:
    """What both endpoints know."""
    model, at, spec = fields.need("model", text).partition("@")
    told = _ttc(fields)
    if at and told.strategy is not None and told.strategy != spec:
        raise conflicting(
            "ttc.strategy", "the model's name and ttc.strategy name two strategies; leave one out"
        )
    options = fields.take("stream_options", mapping, _NONE)
    stream = fields.take("stream", boolean, False)
    if options and not stream:
        raise invalid("stream_options", "stream_options need stream: true")
    inner = Fields(options, "stream_options")
    include_usage = inner.take("include_usage", boolean, False)
    inner.inert({"include_obfuscation": lambda given: given is False})
    inner.end()
    drawn: dict[str, Any] = {}
    for name, (rule, nothing) in _DRAWN.items():
        value = fields.take(name, rule, None)
        if value is not None and value != nothing:
            drawn[name] = value
    if bias := fields.take("logit_bias", _bias, ()):
        drawn["logit_bias"] = bias
    return {
        "model": model,
        "spec": spec if at else told.strategy,
        "ttc": told,
        "n": fields.take("n", integer(1, max_choices), 1),
        "seed": fields.take("seed", integer(-_SEED, _SEED - 1), None),
        "until": fields.take("stop", _stops, ()),
        "stream": stream,
        "include_usage": include_usage,
        "drawn": drawn,
        "token_ids": fields.take("return_token_ids", boolean, False),
        "names_by_id": fields.take("return_tokens_as_token_ids", boolean, False),
    }


def merged(fields: Fields, *names: str, least: int = 1) -> int | None:
    """A number that has several names; where more than one is given they agree."""
    found: int | None = None
    for name in names:
        value = fields.take(name, integer(least, 2**31), None)
        if value is not None and found is not None and value != found:
            raise conflicting(name, f"{' and '.join(names)} differ; leave one out")
        found = found if value is None else value
    return found


def _ttc(fields: Fields) -> Ttc:
    inner = Fields(fields.take("ttc", mapping, _NONE), "ttc")
    limits = Fields(inner.take("budget", mapping, _NONE), "ttc.budget")
    budget = {name: limits.take(name, rule, None) for name, rule in _BUDGETS.items()}
    limits.end()
    told = Ttc(
        strategy=inner.take("strategy", text, None),
        budget={name: limit for name, limit in budget.items() if limit is not None},
        events=inner.take("events", boolean, False),
        thinking=inner.take("thinking", boolean, False),
        answer_format=inner.take("answer_format", choice(_FORMATS), "auto"),  # type: ignore[arg-type]
    )
    inner.end()
    return told


def _bias(name: str, given: Any) -> tuple[tuple[int, float], ...]:
    rule = number(-MAX_BIAS, MAX_BIAS)
    if len(mapping(name, given)) > _MAX_BIASED:
        raise invalid(name, f"{name} is of at most {_MAX_BIASED} tokens, not {len(given)}")
    if not all(token.isdecimal() and len(token) <= _ID_DIGITS for token in given):
        raise invalid(name, f"{name} names tokens by their ids, such as {{'50256': -100}}")
    pairs = tuple((int(token), rule(name, bias)) for token, bias in given.items())
    try:
        return Sampling(logit_bias=pairs).logit_bias
    except ValueError as error:
        raise invalid(name, str(error)) from None


def _stops(name: str, given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise invalid(name, f"{name} is a text or a list of texts, none of them empty")
    if len(stops) > _MAX_STOPS:
        raise invalid(name, f"{name} has at most {_MAX_STOPS} texts, not {len(stops)}")
    return tuple(dict.fromkeys(stops))
