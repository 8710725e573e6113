"""The nouns of ttc: frozen, documented values without behaviour of their own.

Nothing here knows an engine, a clock or a graph, and nothing here imports a third party.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ttc.branch import Branch, FinishReason
from ttc.constraints import Constraint, constraint_of, constraint_values
from ttc.messages import Message, ToolCall
from ttc.usage import NO_USAGE, UNMEASURED, Budget, Usage

if TYPE_CHECKING:
    from ttc.errors import BudgetExceeded
    from ttc.prices import Price

__all__ = [
    "MAX_BIAS",
    "MAX_LOGPROBS",
    "PENALTIES",
    "UNFILTERED",
    "UNMEASURED",
    "AnswerFormat",
    "Branch",
    "Budget",
    "Candidate",
    "Chunk",
    "Event",
    "EventKind",
    "FinishReason",
    "Logprobs",
    "Message",
    "NextTokens",
    "Order",
    "Outcome",
    "Problem",
    "Record",
    "Sampling",
    "Score",
    "Status",
    "Tail",
    "ToolCall",
    "Usage",
]

Status = Literal["open", "finished", "truncated", "failed", "cancelled"]
Order = Literal["launch", "arrival"]
EventKind = Literal["opened", "closed", "admitted", "call", "candidate", "decision"]
AnswerFormat = Literal["auto", "boxed", "marked", "number", "choice", "code", "json", "text"]

MAX_LOGPROBS = 20
"""The most log probabilities that a token carries beside its own."""

MAX_BIAS = 100
"""The greatest bias of a token's logit, either way."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One input to solve. It holds no reference answer: only a grader ever sees that."""

    id: str = ""
    """Names the problem in results; it does not enter the result itself."""
    messages: tuple[Message, ...] = ()
    """A conversation, put through the model's chat template. Empty where `prompt` is given."""
    prompt: str | None = None
    """Raw text for the engine, without a template. `None` where `messages` are given."""
    continue_last: bool = False
    """The last message is the assistant's, and the model goes on with it, to the letter."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """JSON schemas of the tools that the chat template tells the model of."""
    template_options: Mapping[str, Any] = field(default_factory=dict)
    """What else the chat template may read, such as `enable_thinking`."""
    answer_format: AnswerFormat = "auto"
    """How an answer is read out of a text; see `ttc.answers.extract_answer`."""
    tests: tuple[str, ...] = ()
    """Public tests, which a verifier may run."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for message in self.messages:
            if not isinstance(message, Message):
                raise TypeError(
                    f"messages are ttc.Message, as Message(role='user', content='...'), not "
                    f"{message!r}"
                )
        if self.answer_format not in get_args(AnswerFormat):
            known = ", ".join(get_args(AnswerFormat))
            raise ValueError(f"answer_format is one of {known}, not {self.answer_format!r}")
        if bool(self.messages) == (self.prompt is not None):
            raise ValueError(
                f"a problem has messages or a prompt, exactly one of them; got "
                f"{len(self.messages)} messages and prompt={self.prompt!r}"
            )
        if self.prompt is not None and (self.continue_last or self.tools or self.template_options):
            raise ValueError(
                "a prompt goes through no chat template, so it has no continue_last, no tools and "
                "no template_options; give messages, or leave them out"
            )
        if self.continue_last and self.messages[-1].role != "assistant":
            raise ValueError(
                f"continue_last goes on with a message of the assistant, and the last one is the "
                f"{self.messages[-1].role}'s; add one, or leave continue_last out"
            )
        last = self.messages[-1] if self.continue_last else None
        if last and (last.tool_calls or last.reasoning_content is not None):
            raise ValueError(
                "continue_last goes on with the content of the last message, which has tool_calls "
                "or reasoning_content; write them into the content, or leave continue_last out"
            )

    @classmethod
    def ask(cls, question: str, *, id: str = "", answer_format: AnswerFormat = "auto") -> Problem:
        """A problem of one user message."""
        message = Message(role="user", content=question)
        return cls(id=id, messages=(message,), answer_format=answer_format)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a next token is drawn. `None` is off; a temperature of 0 is greedy."""

    temperature: float = 1.0
    top_k: int | None = None
    """Keep the k most probable tokens."""
    top_p: float | None = None
    """Keep the smallest set of tokens whose probability reaches this; at least one token."""
    min_p: float | None = None
    """Keep tokens at least this fraction as probable as the most probable one."""
    repetition_penalty: float | None = None
    """Divide the positive logits of tokens that prompt or output hold by this, and multiply the
    negative ones. Above 1 it repeats less. Source: Keskar et al. 2019, arXiv 1909.05858, section
    4.1; differs: that divides negative logits, too, which makes their tokens likelier."""
    presence_penalty: float | None = None
    """Take this from the logits of tokens that the output holds: what any call has generated on the
    branch. -2 to 2, as in OpenAI's API."""
    frequency_penalty: float | None = None
    """Take this from a token's logit as often as the output holds it. -2 to 2."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Token ids, and what is added to their logits before all else: -100 to 100, as in OpenAI's
    API, where -100 all but forbids a token and 100 all but forces it."""
    constraint: Constraint | None = None
    """What the text has to be: only tokens after which it can still become so are drawn, before
    every filter. On a branch that was begun under the same constraint it goes on."""
    logprobs: int = 0
    """How many of the greatest log probabilities each token carries beside its own; at most 20."""
    entropy: bool = False
    """Whether each token carries the entropy and the self-certainty of its distribution.

    What a verifier `requires` is asked for by itself; a node asks only for what it reads itself.
    """

    def __post_init__(self) -> None:
        for name in ("temperature", "top_k", *_RANGES):
            value = getattr(self, name)
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not (is_number or (value is None and name != "temperature")):
                raise TypeError(f"{name} is a number, not {value!r}")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature is finite and at least 0 (0 is greedy), not {self.temperature}"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is at least 1, or None for off, not {self.top_k}")
        if type(self.logprobs) is not int or not 0 <= self.logprobs <= MAX_LOGPROBS:
            raise ValueError(f"logprobs lies in 0 to {MAX_LOGPROBS}, not {self.logprobs!r}")
        object.__setattr__(self, "logit_bias", _ordered_bias(self.logit_bias))
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} lies in [{low}, {high}], or is None for off, not {value}")
        if not isinstance(self.constraint, Constraint | None):
            raise TypeError(f"constraint={self.constraint!r} is none; pass Choice(...), say")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Sampling:
        """The sampling that such values as `values` gives describe."""
        bias = tuple(map(tuple, values.get("logit_bias", ())))
        constraint = constraint_of(values.get("constraint"))
        return cls(**{**values, "logit_bias": bias, "constraint": constraint})

    @property
    def values(self) -> dict[str, Any]:
        """Its fields as JSON; without a bias where there is none, as before there was any."""
        values = vars(self) | {"constraint": constraint_values(self.constraint)}
        if not self.logit_bias:
            del values["logit_bias"]
        return values

    @property
    def penalises(self) -> bool:
        """Whether what is drawn next depends on what was there before by more than the model."""
        return any(getattr(self, name) is not None for name in PENALTIES)


PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
"""The fields of `Sampling` that look at the tokens before."""

_RANGES = {
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 100),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}


def _ordered_bias(given: object) -> tuple[tuple[int, float], ...]:
    """A bias by token, without what changes nothing: so equal ones are equal."""
    found: dict[int, float] = {}
    try:
        pairs = [(token, bias) for token, bias in given]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise TypeError(
            f"logit_bias is a tuple of (token id, bias), as ((7, -100),), not {given!r}"
        ) from None
    for token, bias in pairs:
        if type(token) is not int or token < 0:
            raise ValueError(f"logit_bias names tokens by their ids, from 0 on, not {token!r}")
        if type(bias) not in (int, float) or not -MAX_BIAS <= bias <= MAX_BIAS:
            raise ValueError(
                f"logit_bias of the token {token} lies in [-{MAX_BIAS}, {MAX_BIAS}], not {bias!r}"
            )
        if token in found:
            raise ValueError(f"logit_bias names the token {token} twice")
        found[token] = float(bias)
    return tuple((token, found[token]) for token in sorted(found) if found[token])


UNFILTERED = Sampling()
"""The model's own distribution."""


@dataclass(frozen=True, kw_only=True)
class Tail:
    """What follows a call that was cut by its length: a cue, and a few tokens for the answer.

    A call and its tail are one reservation, so the tail can always run.
    """

    cue: str
    """Text that is appended to the cut branch, as plain tokens."""
    max_tokens: int = 16

    def __post_init__(self) -> None:
        if not isinstance(self.cue, str):
            raise TypeError(f"a tail's cue is a text, not {self.cue!r}")
        if self.max_tokens < 1:
            raise ValueError(f"a tail's max_tokens is at least 1, not {self.max_tokens}")


@dataclass(frozen=True, kw_only=True)
class Logprobs:
    """What a model thinks of a given text."""

    token_ids: tuple[int, ...]
    """The tokens of the text."""
    values: tuple[float, ...]
    """The natural log probability of each, after all before it, under the raw distribution."""

    @property
    def total(self) -> float:
        """The log probability of the whole text."""
        return math.fsum(self.values)


class NextTokens(NamedTuple):
    """What a model expects after a text, under the raw distribution."""

    token_ids: tuple[int, ...]
    """The most probable next tokens, the most probable first; of equals the lower one."""
    logprobs: tuple[float, ...]
    """Their natural log probabilities."""
    entropy: float
    """The entropy of the whole distribution, in nats."""
    self_certainty: float
    """The divergence of the uniform distribution from it, in nats."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a running generation. The texts of all its chunks join to the branch's text."""

    text: str
    token_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None = None
    """Those of its tokens, as on the branch; `None` where the engine tells them only at the end."""
    top_logprobs: tuple[Sequence[float], ...] | None = None
    """Those of its tokens, as on the branch; `None` where nobody asked for them."""
    branch: Branch | None = None
    """The whole branch, on the last chunk."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """What a verifier says of a candidate: a finite value, higher is better, or unknown."""

    value: float | None
    """`None` is unknown. Never NaN, never infinite."""
    range: tuple[float, float] | None = (0.0, 1.0)
    """The least and the largest value, (0, 1), or `None` for a score without bounds."""
    verifier: str = ""
    is_probability: bool = False
    """Whether the value is an estimate of the chance that the candidate is right."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    call: str | None = None
    """The verifier call that gave the score, as `path#verify index`."""

    def __post_init__(self) -> None:
        if self.value is None:
            return
        if not math.isfinite(self.value):
            raise ValueError(f"a score is finite or None, not {self.value}; use Score.of")
        if self.range is not None and not self.range[0] <= self.value <= self.range[1]:
            raise ValueError(f"a score of {self.value} lies outside its range {self.range}")

    @classmethod
    def of(
        cls,
        value: float | None,
        *,
        verifier: str = "",
        range: tuple[float, float] | None = (0.0, 1.0),
    ) -> Score:
        """A score from a verifier's raw number: NaN and the infinities are unknown."""
        if value is None or math.isfinite(value):
            return cls(value=value, verifier=verifier, range=range)
        return cls(value=None, verifier=verifier, range=range, evidence={"not finite": repr(value)})


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One proposed solution; what streams carry."""

    branch: Branch
    text: str = ""
    """Everything since the prompt."""
    answer: str | None = None
    """The extracted answer. `None` where there is none."""
    key: Hashable = None
    """What two equal answers share; `None` where there is no answer."""
    status: Status = "open"
    scores: Mapping[str, Score] = field(default_factory=dict)
    """Scores by the name of their verifier."""
    confidence: float | None = None
    """How sure the selector is of its choice. Set by selectors only."""
    usage: Usage = NO_USAGE
    """What its calls were charged; the first call of a tree pays for the shared prompt."""
    error: str | None = None
    """Why it failed."""
    chosen_among: frozenset[str] = frozenset()
    """The calls of all those among which selectors chose it."""

    @property
    def lineage(self) -> frozenset[str]:
        """Every call that it rests on, as `path#index`: what made it, scored it, or lost to it."""
        made = {segment.call for segment in self.branch.lineage() if segment.call}
        scored = {score.call for score in self.scores.values() if score.call}
        return self.chosen_among | made | scored


@dataclass(frozen=True, kw_only=True)
class Record:
    """One entry of a trace: a call or a decision."""

    path: str
    """The node that asked or decided."""
    index: int
    """Which of the node's calls, or of its decisions, this is."""
    kind: Literal["call", "score", "verify", "execution", "tool", "decision"]
    """A call that generates, reads given text, or verifies; a program; a tool; a decision."""
    fingerprint: str = ""
    """A hash of the whole request: branch, sampling, ends, seed."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What was granted, how it ended, why it was refused: logical facts only."""
    usage: Usage = NO_USAGE
    seconds: float | None = field(default=None, compare=False)
    """How long it took; measured, and so not part of a record's identity."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a run, for those who watch it. Events never change a result."""

    kind: EventKind
    """A node `opened` or `closed`; a call was `admitted`, or has ended and was settled (`call`); a
    `candidate` reached a selector; a node came to a `decision`."""
    path: str
    usage: Usage
    """What the run has spent until now."""
    by_role: Mapping[str, Usage] = field(default_factory=dict)
    """The same by role."""
    call: str | None = None
    """The call that was admitted or has ended, as `path#index`."""
    rule: str | None = None
    """What was decided."""
    candidate: Candidate | None = None
    """What reached a selector, where the kind is `candidate`."""
    branch: Branch | None = None
    """What an admitted call goes on from."""
    finish: str | None = None
    """How a call has ended: `stop`, `length`, `cancelled` or `error`, where it ran at all."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a strategy came to."""

    problem: Problem
    candidate: Candidate | None
    """The one that was chosen."""
    candidates: tuple[Candidate, ...]
    """Everything that reached the selector, in launch order."""
    usage: Usage
    usage_by_role: Mapping[str, Usage]
    trace: tuple[Record, ...]
    stopped_by: str
    """`completed`; a stop rule; the limit of a `Budget` that acted, as `tokens` or `seconds`;
    `cancelled`; `no_valid_answer`; `no_finite_score`; `abstained`; `error`."""
    refusal: BudgetExceeded | None = None
    """What the limit in `stopped_by` refused: what it needed, and what was left."""
    timing_dependent: tuple[str, ...] = ()
    """What makes the result depend on timing; empty when a second run must give the same."""
    seconds_by: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Where `usage.seconds` went: the engine, the sandbox, verifiers, tools, waiting for admission,
    and orchestration, which is ttc's own; see `ttc.stopwatch`."""
    seed: int
    numerics: Mapping[str, str]
    """The engine and its arithmetic, by role."""
    speculation: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Who drafted tokens for an engine and how they were accepted, by role, where anybody did."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """The dated prices that `usage.cost_usd` was reckoned by, by role."""
    oracle: bool = False
    """Whether a reference answer helped to choose."""
    error: Exception | None = None
    """A bug in a node, where the run goes on without this problem."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: _thawed(value) for name, value in vars(self).items()}

    @property
    def answer(self) -> str | None:
        """The chosen answer, or `None` where no candidate has one."""
        return self.candidate.answer if self.candidate else None

    @property
    def confidence(self) -> float | None:
        """How sure the selector is; `None` where no selector said."""
        return self.candidate.confidence if self.candidate else None

    @property
    def text(self) -> str | None:
        """The whole text of the chosen candidate."""
        return self.candidate.text if self.candidate else None


def _thawed(value: Any) -> Any:
    """A mapping that nobody can change, as one that can be pickled."""
    return dict(value) if isinstance(value, MappingProxyType) else value
