"""Replies: what a server says of one call, piece by piece, until it is whole.

A reply is whole once the server has told why it ended. Usage is what the server told last: those
that tell it again and again tell running totals. What it cannot be, such as no tokens for a text,
is taken for untold. A call whose tokens nobody told is charged in full.

Calls of tools, which a server reads out of what its model wrote, are written into the text again,
between tags: so a branch says all that the model has said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ttc.branch import FinishReason
from ttc.call_json import CallDelta, join_deltas, spelt
from ttc.constraints import Choice, Constraint, Schema
from ttc.engine.openai.failures import Unknown
from ttc.errors import EngineError
from ttc.types import UNMEASURED, Branch, Chunk, Usage

if TYPE_CHECKING:
    from ttc.ports import Request

__all__ = ["Reply", "count_of", "greatest"]

_REASONS: Mapping[str, FinishReason] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("tool_calls", "function_call"), "stop"),
    **dict.fromkeys(("length", "max_tokens"), "length"),
}


class Reply:
    """What has come of a call until now."""

    def __init__(
        self,
        request: Request,
        on_chunk: Callable[[Chunk], None] | None = None,
        after: Reply | None = None,
    ) -> None:
        """A reply.

        Args:
            request: what was asked for.
            on_chunk: is told of every piece.
            after: an attempt before, of which pieces were passed on already.
        """
        self.id: str | None = None
        self.finish: str | None = None
        """Why it ended, in the server's word; `None` until it has told."""
        self.is_over = False
        """Whether nothing that still comes matters, so that the server can be left."""
        self._words, self._calls = "", list[CallDelta]()
        self._request, self._on_chunk = request, on_chunk
        self._stops = tuple(end for end in request.until if isinstance(end, str))
        self._hold = max(map(len, self._stops), default=1) - 1
        self._thought = ""
        self._given: int = 0 if after is None else after._given
        self._stop_reason: str | int | None = None
        self._logprobs: list[float] = []
        self._top: list[tuple[float, ...]] = []
        self._usage: Mapping[str, Any] = {}

    def take(self, data: bytes) -> None:
        """Reads one event.

        Raises:
            Unknown: it is no event of the API, or says that the call has failed.
        """
        event = _json(data)
        if not isinstance(event, dict):
            raise Unknown(f"the server sent {str(event)[:80]!r}, which is no object")
        if event.get("error"):
            raise Unknown(f"the server gave up: {_said(event['error'])}")
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        if self.id is None and isinstance(event.get("id"), str):
            self.id = event["id"]
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self._read(choice)

    @property
    def text(self) -> str:
        """What it says: words, and calls once they are whole."""
        if self.finish is None or not self._calls:
            return self._words
        return "\n".join(filter(None, [self._words, *map(spelt, join_deltas(self._calls))]))

    def _read(self, choice: Mapping[str, Any]) -> None:
        said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
        self._thought += said.get("reasoning_content") or said.get("reasoning") or ""
        self._note(choice.get("logprobs"))
        if isinstance(choice.get("finish_reason"), str):
            self.finish = choice["finish_reason"]
            self._stop_reason = choice.get("stop_reason")
        piece = said.get("content")
        if isinstance(piece, str) and piece:
            self._words += piece
        calls = said.get("tool_calls")
        self._calls += [_delta(part) for part in calls if isinstance(part, dict)] if calls else []
        if piece or self.finish is not None:
            self._tell()

    def _note(self, told: object) -> None:
        """Log probabilities, in the form of chats or in that of plain completions."""
        if not isinstance(told, dict):
            return
        if isinstance(told.get("content"), list):
            for entry in told["content"]:
                self._logprobs.append(float(entry["logprob"]))
                others = entry.get("top_logprobs") or ()
                self._top.append(greatest(other["logprob"] for other in others))
        elif isinstance(told.get("token_logprobs"), list):
            self._logprobs += [float(value) for value in told["token_logprobs"]]
            rows = told.get("top_logprobs") or [{}] * len(told["token_logprobs"])
            self._top += [greatest((row or {}).values()) for row in rows]

    def _tell(self) -> None:
        """Passes on what surely is a part of the text: the beginning of a stop may not be."""
        if self._on_chunk is None:
            return
        end = self._end
        if end is None:
            end = len(self.text) if self.finish is not None else len(self._words) - self._hold
        if end > self._given:
            chunk = Chunk(text=self.text[self._given : end], token_ids=None)
            self._given = end
            self._on_chunk(chunk)

    @property
    def _end(self) -> int | None:
        """Where a stop begins that the server let through."""
        found = [place for stop in self._stops if (place := self._words.find(stop)) >= 0]
        return min(found, default=None)

    @property
    def length(self) -> int | None:
        """Its tokens, as the server tells them; `None` where it does not, or tells nonsense."""
        told = count_of(self._usage.get("completion_tokens"))
        least = max(len(self._logprobs), bool(self._words or self._thought or self._calls))
        return None if told is None or told < least else told

    @property
    def at_most(self) -> int:
        """The tokens of what has come until now: as told, or as many as it has bytes."""
        if self.length is not None:
            return self.length
        called = "".join(f"{part.name or ''}{part.arguments or ''}" for part in self._calls)
        return max(len(self._logprobs), len((self._words + self._thought + called).encode()))

    @property
    def greatest(self) -> tuple[float, ...]:
        """The greatest log probabilities at its first token."""
        return self._top[0] if self._top else ()

    @property
    def usage(self) -> Usage:
        """The physical lines."""
        details = self._usage.get("prompt_tokens_details")
        cached = count_of(details.get("cached_tokens")) if isinstance(details, dict) else None
        prompt = count_of(self._usage.get("prompt_tokens")) or 0
        if cached is not None and cached > prompt:
            cached = None
        lines = vars(UNMEASURED) | {"input_tokens": prompt, "cached_input_tokens": cached}
        return Usage(**lines | {"retried_tokens": 0})

    def segment(self) -> Branch:
        """The whole reply.

        Raises:
            EngineError: it is not whole, or the server ended it for a reason of its own.
        """
        reason, end, branch = self._ended(), self._end, self._request.branch
        stop = self._stop_reason
        if end is not None:
            reason, stop = "stop", next(s for s in self._stops if self.text.startswith(s, end))
        self._check_held(reason, self.text)
        wants_top = self._request.sampling.logprobs
        return Branch(
            parent=branch,
            role=branch.role,
            text=self.text[:end],
            token_ids=None,
            token_count=self.length,
            logprobs=tuple(self._logprobs) if self._logprobs or self.length == 0 else None,
            top_logprobs=tuple(r[:wants_top] for r in self._top) if wants_top else None,
            finish_reason=reason,
            stop_reason=stop,
            constraint=self._request.sampling.constraint,
        )

    def _ended(self) -> FinishReason:
        """Why it ended."""
        if self.finish is None:
            raise Unknown("the server's stream was cut before it told why it ended")
        reason = _REASONS.get(self.finish)
        if reason is None:
            said = f"the server ended the call by itself: {self.finish!r}"
            raise EngineError(said, output_tokens=self.charged)
        return reason

    def _check_held(self, reason: FinishReason | None, text: str) -> None:
        constraint = self._request.sampling.constraint
        if reason == "stop" and not _holds(constraint, text):
            said = f"the server did not hold to {constraint}"
            raise EngineError(said, output_tokens=self.charged)

    @property
    def charged(self) -> int:
        """What a call that has ended is charged."""
        return self._request.max_tokens if self.length is None else self.length


def _json(data: bytes) -> Any:
    import orjson

    try:
        return orjson.loads(data)
    except ValueError:  # some servers write NaN, or one half of a surrogate pair
        pass
    try:
        return json.loads(data)
    except ValueError:
        raise Unknown(f"the server sent no JSON: {data[:80]!r}") from None


def _holds(constraint: Constraint | None, text: str) -> bool:
    """Whether a text is what it had to be, as far as that is told without a grammar."""
    if isinstance(constraint, Choice):
        return text in constraint.options
    if isinstance(constraint, Schema):
        try:
            json.loads(text)
        except ValueError:
            return False
    return True


def _delta(part: Mapping[str, Any]) -> CallDelta:
    """A piece of a call; what is of another kind than it should be is left out."""
    function = part.get("function")
    told = function if isinstance(function, dict) else {}
    arguments = told.get("arguments")
    if isinstance(arguments, dict | list):  # some servers do not encode them
        arguments = json.dumps(arguments)
    index, id_, name = part.get("index"), part.get("id"), told.get("name")
    return CallDelta(
        index=index if type(index) is int else None,
        id=id_ if isinstance(id_, str) else None,
        name=name if isinstance(name, str) else None,
        arguments=arguments if isinstance(arguments, str) else None,
    )


def greatest(values: Any) -> tuple[float, ...]:
    """Log probabilities, the greatest first."""
    return tuple(sorted((float(value) for value in values), reverse=True))


def count_of(value: object) -> int | None:
    """A number of tokens; `None` where it is none."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None  # type: ignore[return-value]


def _said(error: object) -> str:
    message = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(message).split())[:300]
