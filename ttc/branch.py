"""Branches: the texts that engines extend, token by token, and their beginnings."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from ttc.constraints import Constraint

__all__ = ["Branch", "FinishReason"]

T = TypeVar("T")

FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Branch:
    """A token-exact, immutable handle on a text that an engine can extend.

    One branch is one segment: a prompt, a text that was appended, or what one call generated. The
    whole text is the chain of its parents. Forking costs one reference.
    """

    parent: Branch | None = None
    role: str = "policy"
    """The role of the model whose tokens these are."""
    text: str
    """The text of this segment, without the stop string that ended it."""
    token_ids: tuple[int, ...] | None
    """The tokens of this segment. `None` where the engine has no tokens."""
    token_count: int | None = None
    """How many tokens the segment has, where its engine counts them and does not tell them."""
    logprobs: tuple[float, ...] | None = None
    """(tokens,) Natural log probabilities of generated tokens under the raw distribution, which is
    the model's own before temperature, filters and masks."""
    entropies: tuple[float, ...] | None = None
    """(tokens,) The entropy of the raw distribution of each generated token, in nats. `None` where
    nobody asked for it, as for the two that follow."""
    self_certainties: tuple[float, ...] | None = None
    """(tokens,) The divergence of the uniform distribution from each token's raw one, in nats."""
    top_logprobs: tuple[Sequence[float], ...] | None = None
    """(tokens, k) The k greatest log probabilities at each generated token, the greatest first."""
    finish_reason: FinishReason | None = None
    """`None` for a prompt or an appended text."""
    stop_reason: str | int | None = None
    """The stop string or the end token that ended the segment."""
    call: str | None = None
    """The call that generated the segment, as `path#index`. `None` for text that was given."""
    constraint: Constraint | None = None
    """What the text had to be that the segment is a part of. `None` for text that was given."""
    salt: str = ""
    """Of a root: what keeps its part of a prefix cache apart. Roots of other salts share none."""

    def lineage(self, after: Container[Branch] = ()) -> Iterator[Branch]:
        """The segments of this branch, from the root to this one.

        Args:
            after: segments to begin behind: the nearest one that is passed.
        """
        chain: list[Branch] = []
        branch: Branch | None = self
        while branch is not None and branch not in after:
            chain.append(branch)
            branch = branch.parent
        return reversed(chain)

    @property
    def num_tokens(self) -> int:
        """The tokens of the whole branch; where an engine has none, its bytes: at least as many.

        Computed once, from what is known of the segments before.
        """
        total, branch = 0, self
        while (known := branch.__dict__.get("_num_tokens")) is None:
            own = branch.length
            total += len(branch.text.encode()) if own is None else own
            if branch.parent is None:
                known = 0
                break
            branch = branch.parent
        self.__dict__["_num_tokens"] = total = total + known
        return total

    @property
    def length(self) -> int | None:
        """The tokens of this segment; `None` where nobody counts them."""
        return self.token_count if self.token_ids is None else len(self.token_ids)

    def place_of(self, num_tokens: int) -> tuple[Branch, int]:
        """The segment in which so many tokens of the whole branch end, and how many are its own.

        Raises:
            ValueError: the branch has fewer, or there is none, or a segment has no tokens.
        """
        whole, segment = self.num_tokens, self
        if not 1 <= num_tokens <= whole:
            raise ValueError(
                f"a branch of {whole} tokens is cut back to 1 to {whole} of them, not {num_tokens}"
            )
        rest = whole - num_tokens
        while segment.token_ids is not None:
            own = len(segment.token_ids) - rest
            if own > 0 or segment.parent is None:
                return segment, own
            segment, rest = segment.parent, -own
        raise ValueError("the branch has a segment without tokens, so it cannot be cut back")

    def is_whole(self, count: int) -> bool:
        """Whether it is its own beginning of so many tokens: it has no more, and no stop ended it.

        Where one did, it can be cut back to all of its tokens, and be gone on from after the last.
        """
        return count == self.length and self.finish_reason != "stop"

    def beginning(self, count: int, text: str | Callable[[], str]) -> Branch:
        """This segment's first tokens.

        Args:
            count: how many.
            text: their text, or what tells it once somebody reads it.
        """
        cut = object.__new__(_Beginning)
        cut.__dict__.update(
            parent=self.parent,
            role=self.role,
            token_count=self.token_count,
            finish_reason=None if self.finish_reason is None else "length",
            stop_reason=None,
            call=self.call,
            constraint=self.constraint,
            salt=self.salt,
            _whole=self._whole if isinstance(self, _Beginning) else self,
            _count=count,
            **({"text": text} if isinstance(text, str) else {"_spell": text}),
        )
        return cut

    def __reduce__(self) -> tuple[Callable[..., Branch], tuple[_Segment, ...]]:
        """Its segments one beside the other: a chain of parents would be too deep for pickle."""
        return _joined, tuple(map(_segment_of, self.lineage()))

    @property
    def output(self) -> str:
        """The text after the root: everything generated or appended since the prompt."""
        return "".join([segment.text for segment in self.lineage() if segment.parent is not None])


class _Beginning(Branch):
    """The first tokens of a segment. It copies no column before somebody reads it."""

    _whole: Branch
    _count: int

    @cached_property
    def text(self) -> str:
        spell = self.__dict__.get("_spell")
        if spell is None:  # another thread has just told it
            return str(self.__dict__["text"])
        text: str = spell()
        self.__dict__["text"] = text
        self.__dict__.pop("_spell", None)  # it may hold a whole vocabulary
        return text

    @cached_property
    def token_ids(self) -> tuple[int, ...] | None:
        return self._first(self._whole.token_ids)

    @cached_property
    def logprobs(self) -> tuple[float, ...] | None:
        return self._first(self._whole.logprobs)

    @cached_property
    def entropies(self) -> tuple[float, ...] | None:
        return self._first(self._whole.entropies)

    @cached_property
    def self_certainties(self) -> tuple[float, ...] | None:
        return self._first(self._whole.self_certainties)

    @cached_property
    def top_logprobs(self) -> tuple[Sequence[float], ...] | None:
        return self._first(self._whole.top_logprobs)

    def _first(self, column: tuple[T, ...] | None) -> tuple[T, ...] | None:
        return None if column is None else column[: self._count]


class _Segment:
    """A segment without its parent, as it is pickled: once, however many branches share it."""

    def __init__(self, branch: Branch) -> None:
        self.branch: Branch | None = None  # once it is made again
        self.values = {f.name: getattr(branch, f.name) for f in fields(Branch)}
        del self.values["parent"]

    def __getstate__(self) -> dict[str, Any]:
        return self.values

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.branch, self.values = None, values


_segments: WeakKeyDictionary[Branch, _Segment] = WeakKeyDictionary()


def _segment_of(branch: Branch) -> _Segment:
    found = _segments.get(branch)
    if found is None:
        found = _segments[branch] = _Segment(branch)
    return found


def _joined(*segments: _Segment) -> Branch:
    """The branch of such segments; what others have been made of already is shared with them."""
    branch: Branch | None = None
    for segment in segments:
        if segment.branch is None:
            segment.branch = Branch(parent=branch, **segment.values)
        branch = segment.branch
    assert branch is not None
    return branch
