"""Grammars: which tokens a constraint allows next.

Built by llguidance, which runs an Earley parser over a lexer of regular expressions and gives a bit
for each token. This module makes its grammars of ttc's constraints, bounds what a model could spin
out for ever (white space, the digits of a number), and keeps what it has compiled.

The state of a call is a function of the tokens since its constraint began, so it is made again from
them wherever a branch goes on: forks and cuts need nothing of their own. Control tokens are no text
here, and only an end token ends: it is allowed where the text so far satisfies the constraint.

Cost: compiling milliseconds, in the caller's thread; a mask mostly 0.05 ms, and at most about 20,
by the library's own limits.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from ttc.call_grammars import JSON_OPTIONS
from ttc.constraints import Calls, Constraint, Pattern, Schema
from ttc.engine.local.path import segment_tokens
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.registry import install_hint
from ttc.types import Branch

__all__ = ["Grammar", "Grammars", "begun_tokens", "has_grammars"]

_KEPT = 64
_MAX_DIGITS = 20  # in a row; a float has 17, and an integer of 64 bits 19
Mask = npt.NDArray[np.uint32]


def has_grammars() -> bool:
    """Whether llguidance is installed."""
    return find_spec("llguidance") is not None


def begun_tokens(branch: Branch, constraint: Constraint, end_ids: frozenset[int]) -> list[int]:
    """The tokens of a branch that a constraint holds for already.

    They are those of the calls under it that it goes on from, and of what was appended between
    them. A call that an end token closed had satisfied it, and another one begins anew.
    """
    begun: list[int] = []
    given: list[int] = []  # after the last call that was looked at
    for segment in reversed(list(branch.lineage())):
        tokens = list(segment_tokens(segment))
        if segment.finish_reason is None:
            given = tokens + given
            continue
        is_closed = segment.finish_reason == "stop" and segment.stop_reason in end_ids
        if segment.constraint != constraint or is_closed:
            break
        begun, given = tokens + given + begun, []
    return begun


class Grammar:
    """Where one call stands. It belongs to one thread at a time.

    Args:
        matcher: llguidance's state, of its own.
        tokens: the vocabulary.
        digits: tokens that begin with a digit, where a run of digits is bounded.
        depth: how many brackets are open: digits are counted where there is one.
    """

    def __init__(
        self, matcher: Any, tokens: TextTokens, digits: Mask | None, depth: int = 1
    ) -> None:
        self._matcher, self._tokens, self._digits, self._depth = matcher, tokens, digits, depth
        self._allowed: Mask = np.zeros(-(-tokens.size // 32), np.uint32)
        self._run, self._is_string, self._is_escaped = 0, False, False

    @property
    def error(self) -> str:
        """What went wrong; empty if nothing did."""
        return _short(self._matcher.get_error())

    def allowed(self) -> Mask:
        """The tokens that may come next, which are none after an error. Valid until it goes on."""
        self._allowed[:] = 0
        if not self._is_dead():
            self._matcher.unsafe_compute_mask_ptr(self._allowed.ctypes.data, self._allowed.nbytes)
        if self._is_dead():
            self._allowed[:] = 0
        if self._digits is not None and self._run >= _MAX_DIGITS:
            rest = self._allowed & ~self._digits
            if rest.any():  # else more digits are what the schema itself asks for
                self._allowed[:] = rest
        return self._allowed

    def accept(self, token: int) -> bool:
        """Goes on by a token. Whether it was allowed."""
        if not self._matcher.consume_token(token):
            return False
        if self._digits is not None:
            for byte in self._tokens.bytes_of(token):
                self._read(byte)
        return True

    def num_legal(self, tokens: Sequence[int]) -> int:
        """How many of some tokens it could go on by."""
        return int(self._matcher.validate_tokens(list(tokens)))

    def copy(self) -> Grammar:
        """The same state, which goes on by itself."""
        other = Grammar(self._matcher.deep_copy(), self._tokens, self._digits, self._depth)
        other._run, other._is_string, other._is_escaped = (
            self._run,
            self._is_string,
            self._is_escaped,
        )
        return other

    def _is_dead(self) -> bool:
        """Whether nothing can follow, and what there is does not satisfy the constraint."""
        matcher = self._matcher
        return bool(matcher.is_error() or (matcher.is_stopped() and not matcher.is_accepting()))

    def _read(self, byte: int) -> None:
        """Counts the digits in a row outside of JSON's strings."""
        if self._is_string:
            is_end = byte == 0x22 and not self._is_escaped
            self._is_escaped = byte == 0x5C and not self._is_escaped
            self._is_string = not is_end
        else:
            self._depth = max(0, self._depth + (byte in b"{[") - (byte in b"}]"))
            self._is_string = byte == 0x22 and self._depth > 0
            self._run = self._run + 1 if self._depth > 0 and 0x30 <= byte <= 0x39 else 0


class Grammars:
    """The grammars of one vocabulary, compiled when they are first asked for. For any thread.

    Args:
        tokens: the vocabulary.
    """

    def __init__(self, tokens: TextTokens) -> None:
        self._tokens = tokens
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Constraint, Any] = OrderedDict()
        self._library: Any = None
        self._vocabulary: Any = None
        self._digits: Mask | None = None

    def begin(self, constraint: Constraint, begun: Sequence[int] = ()) -> Grammar:
        """The state after some tokens.

        Raises:
            ValueError: llguidance is missing, or does not support the constraint; no text satisfies
                it; or it does not allow the tokens.
        """
        with self._lock:
            prototype = self._compiled.get(constraint)
            if prototype is None:
                prototype = self._compile(constraint)
                self._compiled[constraint] = prototype
                if len(self._compiled) > _KEPT:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(constraint)
            matcher = prototype.deep_copy()
        digits = self._digits if isinstance(constraint, Schema | Calls) else None
        is_turn = isinstance(constraint, Calls)  # of which only a call is JSON
        grammar = Grammar(matcher, self._tokens, digits, 0 if is_turn else 1)
        for place, token in enumerate(begun):
            if not grammar.accept(token):
                raise ValueError(
                    f"the branch goes on from a text that {_named(constraint)} does not allow: "
                    f"{self._tokens.decode(begun[: place + 1], after='text')[-60:]!r}"
                )
        return grammar

    def _compile(self, constraint: Constraint) -> Any:
        if self._vocabulary is None:
            self._load()
        library = self._library
        matcher = library.LLMatcher(
            self._vocabulary, _source(constraint, library.LLMatcher, self._tokens), log_level=0
        )
        fault = matcher.get_error()
        if not fault and not Grammar(matcher.deep_copy(), self._tokens, None).allowed().any():
            fault = "no text satisfies it"
        if fault:
            raise ValueError(f"{_named(constraint)} cannot be held to: {_short(fault)}")
        return matcher

    def _load(self) -> None:
        tokens = self._tokens
        if not has_grammars():
            raise ValueError(
                f"constraints need llguidance, which is missing: {install_hint('local')}"
            )
        if not tokens.end_ids:
            raise ValueError("the model has no end token, so no text under a constraint could end")
        library = import_module("llguidance")
        wrapper = library.TokenizerWrapper(_Spelling(tokens))
        self._vocabulary = library.LLTokenizer(
            wrapper, n_vocab=tokens.size, eos_token=sorted(tokens.end_ids)
        )
        starts = [tokens.bytes_of(i)[:1].isdigit() for i in range(tokens.size)]
        bits = np.packbits(np.array(starts), bitorder="little")
        words = np.zeros(-(-tokens.size // 32), np.uint32)
        words.view(np.uint8)[: len(bits)] = bits
        self._library, self._digits = library, words


class _Spelling:
    """A vocabulary as llguidance asks for it."""

    bos_token_id = None

    def __init__(self, tokens: TextTokens) -> None:
        self.eos_token_id = min(tokens.end_ids)
        special = {*tokens.control.values(), *tokens.unsampled_ids, *tokens.end_ids}
        self.special_token_ids = sorted(special)
        self.tokens = [  # a special token has a name, which tells it from the others
            f"<|{i}|>".encode() if i in special else tokens.bytes_of(i) for i in range(tokens.size)
        ]
        self._encode = tokens.encode

    def __call__(self, text: bytes) -> list[int]:
        """The tokens of a text that is forced."""
        return self._encode(text.decode(errors="replace"), after="text")


def _source(constraint: Constraint, matcher: Any, tokens: TextTokens) -> Any:
    """The grammar that llguidance compiles."""
    if isinstance(constraint, Calls):
        return matcher.grammar_from_lark(constraint.grammar(tokens.control))
    if isinstance(constraint, Schema):
        return matcher.grammar_from_json_schema(constraint.schema, overrides=JSON_OPTIONS)
    if isinstance(constraint, Pattern):
        return matcher.grammar_from_regex(constraint.regex)
    return matcher.grammar_from_regex("|".join(map(_literal, constraint.options)))


def _literal(text: str) -> str:
    """A regular expression of a text alone."""
    return re.sub(r"[^A-Za-z0-9]", lambda found: f"\\x{{{ord(found[0]):x}}}", text)


def _named(constraint: Constraint) -> str:
    """A constraint in a message."""
    text = ", ".join(map(repr, vars(constraint).values()))
    return f"{type(constraint).__name__}({text if len(text) <= 80 else text[:77] + '...'})"


def _short(error: str) -> str:
    """A message of llguidance without the state that it prints."""
    return " ".join(error.partition("<state>")[0].split())[:300]
