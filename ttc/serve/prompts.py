"""Prompts: what each prompt of a request begins with, what answers it, and what that may cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from ttc.errors import ContextOverflow, EngineError
from ttc.flow import Flow
from ttc.graph import Node, compile_graph, roles_of
from ttc.lengths import lengths_of
from ttc.ports import Engine
from ttc.resources import LOGICAL
from ttc.serve.ask import Ask
from ttc.serve.echo import Echo, Read
from ttc.serve.plain import Plain, Tell
from ttc.serve.refusal import Refusal, invalid, unsupported
from ttc.serve.share import Share, speller
from ttc.types import Branch, Budget, Problem

__all__ = ["Prompt", "check_least", "prompts_of"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Prompt:
    """One prompt of a request."""

    problem: Problem
    root: Branch
    graph: Node
    """What answers it: the compiled strategy; of a plain sample without a listener."""
    most: Mapping[str, int | None]
    """The most that one run of it can use; `None` where nothing bounds that."""
    read: list[Read] = field(default_factory=list)
    """What was read of it, where it is to be echoed with its log probabilities."""

    @property
    def plain(self) -> Plain | None:
        """The node of a plain sample."""
        last = self.graph.children()[-1]
        return last if isinstance(last, Plain) else None

    def telling(self, tell: Tell | None) -> Node:
        """Its graph, with somebody who is told the pieces of a plain sample."""
        plain = self.plain
        if plain is None or tell is None:
            return self.graph
        return self.graph.rebuilt((*self.graph.children()[:-1], replace(plain, tell=tell)))


def prompts_of(ask: Ask, graph: Node, engines: Mapping[str, Engine]) -> tuple[Prompt, ...]:
    """The prompts of a request, each with what answers it.

    Args:
        ask: the request.
        graph: the compiled strategy, or the plain sample.
        engines: who is asked, as the key's shares.

    Raises:
        Refusal: one of them cannot be served.
    """
    problems = _problems(engines["policy"], ask)
    return tuple(_prompt(problem, ask, graph, engines) for problem in problems)


def _prompt(problem: Problem, ask: Ask, graph: Node, engines: Mapping[str, Engine]) -> Prompt:
    root = _root(engines["policy"], problem, ask)
    read: list[Read] = []
    if ask.echo and ask.logprobs is not None:
        graph = _echoing(graph, ask, root, read)
    worst = graph.bound(Flow())
    if worst.tokens is None:  # it shows texts, so lengths have to be measured
        worst = graph.bound(Flow(text=0, lengths=lengths_of(problem, engines)))
    most = {name: getattr(worst, name) for name in LOGICAL}
    if most["tokens"] is not None:
        most["tokens"] += root.num_tokens + _num_tokens(problem, graph, engines)
    return Prompt(problem=problem, root=root, graph=graph, most=most, read=read)


def _problems(engine: Engine, ask: Ask) -> Iterator[Problem]:
    """The problems; a prompt of tokens is spelt, and its tokens stand as they are."""
    for problem, tokens in zip(ask.problems, ask.tokens or [()] * len(ask.problems), strict=True):
        if not tokens:
            yield problem
            continue
        spelt = replace(problem, prompt=_spelt(engine, tokens))
        cast("Share", engine).begin(spelt, "policy", tokens)
        yield spelt


def _spelt(engine: Engine, tokens: Sequence[int]) -> str:
    spells = speller(engine)
    if spells is None or not engine.capabilities.tokens:
        raise unsupported("prompt", "this model's engine takes no tokens; send a text")
    if max(tokens) >= spells.vocab_size:
        raise invalid(
            "prompt", f"this model has the tokens 0 to {spells.vocab_size - 1}, no {max(tokens)}"
        )
    return b"".join(map(spells.spell, tokens)).decode(errors="replace")


def _root(engine: Engine, problem: Problem, ask: Ask) -> Branch:
    """The prompt, if it leaves room for one token."""
    try:
        root = engine.root(problem, "policy")
    except ContextOverflow as error:
        raise _overflow(str(error), ask) from None
    except EngineError as error:
        raise invalid(_param(ask), str(error)) from None
    room = None if engine.context is None else engine.context - root.num_tokens
    if room is not None and room < 1:
        raise _overflow(
            f"the prompt has {root.num_tokens} tokens and needs room for one more, and the context "
            f"holds {engine.context}; shorten the prompt",
            ask,
        )
    return root


def _overflow(message: str, ask: Ask) -> Refusal:
    return invalid(_param(ask), message, "context_length_exceeded")


def _param(ask: Ask) -> str:
    return "messages" if ask.endpoint == "chat" else "prompt"


def _echoing(graph: Node, ask: Ask, root: Branch, read: list[Read]) -> Node:
    """A plain sample that reads its prompt first; without any output, it only does that."""
    first = graph.children()[0]
    if not isinstance(first, Plain):
        raise unsupported("echo", "echo with logprobs is served without a strategy; leave it out")
    echo = Echo(top=ask.logprobs or 0, num_tokens=root.num_tokens, tell=read.append)
    return compile_graph(echo if ask.max_tokens == 0 else echo >> first)


def _num_tokens(problem: Problem, graph: Node, engines: Mapping[str, Engine]) -> int:
    """The tokens of a problem's prompt, for every other role that reads it."""
    roots = [
        engines[role].root(problem, role)
        for role in sorted(roles_of(graph) - {"policy"})
        if not engines[role].capabilities.reward
    ]
    return sum(root.num_tokens for root in roots)


def check_least(limits: Sequence[tuple[Prompt, Budget]]) -> None:
    """Whether each run can read its prompt and write a token.

    Raises:
        Refusal: with what it needs, and what it may have.
    """
    for prompt, limit in limits:
        least = prompt.root.num_tokens + 1
        if limit.tokens is not None and limit.tokens < least:
            part = "the request" if len(limits) == 1 else "one of its runs"
            raise invalid(
                "ttc.budget",
                f"{part} needs at least {least} tokens and may have {limit.tokens}; raise "
                "ttc.budget.tokens, or shorten the prompt",
                "budget_too_small",
            )
        for name in ("calls", "seconds"):
            if getattr(limit, name) == 0:
                raise invalid(
                    "ttc.budget", f"the request needs {name} and may have 0", "budget_too_small"
                )
