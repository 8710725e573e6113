"""The strategy of a request: read from text that may be a stranger's, and fitted to what was asked.

A stranger's text may name what says of itself that it is `remote`, with numbers, enums and names.
What the operator has named himself may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

from ttc.errors import GraphError
from ttc.graph import Chain, Node, Pool, compile_graph, snake_case
from ttc.ports import Verifier
from ttc.serve.ask import Ask
from ttc.serve.keys import Key
from ttc.serve.refusal import Refusal, conflicting, invalid
from ttc.serve.settings import Settings
from ttc.text_form import MAX_CHARACTERS, parse

__all__ = ["chosen", "fitted"]

_MOST = 1_000_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,63}")
_NUMBER = re.compile(r"(?<![A-Za-z_0-9.])(?:0[xXoObB][0-9A-Fa-f_]+|[0-9][0-9_]*)")


def chosen(ask: Ask, settings: Settings, key: Key) -> Node | None:
    """The strategy that a request is served by; `None` samples plainly.

    Raises:
        Refusal: it is none, or the client may not ask for it.
    """
    is_plain = ask.effort is not None and settings.efforts[ask.effort] is None
    spec = settings.strategy if ask.spec is None else ask.spec
    if is_plain:
        if ask.spec is not None:
            raise conflicting(
                "reasoning_effort",
                f"reasoning_effort {ask.effort} asks for no strategy, and the request names one",
            )
        return None
    if not spec:
        return None
    if ask.spec is None or spec in settings.named:
        _check_key(key, [spec] if ask.spec is not None else [])
        return _parsed(settings.named.get(spec, spec))
    graph = _of_stranger(spec)
    _check_key(key, [_name(value) for value in _values(graph) if _is_named(value)])
    if not settings.allow_code and any(
        getattr(value, "executes", False) for value in _values(compile_graph(graph))
    ):
        raise Refusal(
            403,
            "the strategy executes code that a model wrote, which this server does not allow",
            code="code_not_allowed",
            param="model",
        )
    return graph


def _check_key(key: Key, used: list[str]) -> None:
    if key.strategies is None:
        return
    for name in used:
        if name not in key.strategies:
            raise Refusal(
                403, f"this key may not use {name}", code="strategy_not_allowed", param="model"
            )


def _is_named(value: Any) -> bool:
    """Whether a key may be held to it by name: a node or a verifier, and not what joins them."""
    return isinstance(value, Node | Verifier) and not isinstance(value, Chain | Pool)


def _name(value: Any) -> str:
    return snake_case(type(value).__name__)


def _parsed(text: str) -> Node:
    try:
        return _cached(text)
    except GraphError as error:
        raise invalid("model", f"the strategy cannot run: {error}", "invalid_strategy") from None


@lru_cache(maxsize=256)
def _cached(text: str) -> Node:
    return parse(text)


def _of_stranger(text: str) -> Node:
    if len(text) > MAX_CHARACTERS:
        raise invalid(
            "model",
            f"a strategy has at most {MAX_CHARACTERS} characters, not {len(text)}",
            "invalid_strategy",
        )
    if not text.isprintable() or text.lstrip().startswith("{"):
        raise invalid("model", "a strategy is one line in its text form", "invalid_strategy")
    for written in _NUMBER.findall(text):
        if len(written) > 20 or int(written.replace("_", ""), _base(written)) > _MOST:
            raise invalid(
                "model", f"a strategy's whole numbers are at most {_MOST}", "invalid_strategy"
            )
    graph = _parsed(text)
    for value in _values(graph):
        if not vars(type(value)).get("remote", False):
            name = _name(value)
            raise Refusal(
                403,
                f"{name} may not be named over HTTP; let the server's operator name a strategy "
                "that holds it",
                code="strategy_not_allowed",
                param="model",
            )
        for option, given in _options(value):
            _check_plain(value, option, given)
    return graph


def _base(written: str) -> int:
    return {"x": 16, "o": 8, "b": 2}.get(written[1:2].lower(), 10)


def _values(value: Any) -> Iterator[Any]:
    """Every node, verifier and rule in a graph."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _values(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in fields(value):
            yield from _values(getattr(value, field.name))


def _options(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value was made with that is not its default."""
    for field in fields(value):
        given = getattr(value, field.name)
        if given != field.default:
            yield field.name, given


def _check_plain(owner: Any, option: str, given: Any) -> None:
    """Whether an option is a number, an enum or a name, or made of what is checked by itself."""
    if isinstance(given, tuple | list):
        for item in given:
            _check_plain(owner, option, item)
        return
    if given is None or isinstance(given, bool | int | float) or is_dataclass(given):
        return
    if isinstance(given, str) and (_NAME.fullmatch(given) or given == ""):
        return
    raise Refusal(
        403,
        f"{_name(owner)}: over HTTP {option} is a number or a name; let the server's operator "
        "name a strategy that holds it",
        code="strategy_not_allowed",
        param="model",
    )


# What a request fills in.


def fitted(graph: Node, ask: Ask, wins: str) -> tuple[Node, tuple[str, ...]]:
    """The graph with what a request asks of the generations that can become the answer.

    Args:
        graph: the strategy.
        ask: the request.
        wins: who wins where both say something; see `Settings.sampling`.

    Returns:
        The graph, and the parameters of the request that the strategy has overridden.

    Raises:
        Refusal: the request says something else than the strategy, and nobody lets that win.
    """
    wanted = {**ask.drawn}
    if ask.until:
        wanted["until"] = ask.until
    if ask.constraint is not None:
        wanted["constraint"] = ask.constraint
    overridden: dict[str, None] = {}

    def change(node: Node) -> Node:
        if not _answers(node):
            return node
        changed: dict[str, Any] = {}
        for name, value in wanted.items():
            own = getattr(node, name, ...)
            if own in (None, ()):
                changed[name] = value
            elif own != value:
                _overridden(node, name, value, own, wins)
                overridden[_PARAMS.get(name, name)] = None
        changed |= _shorter(node, ask.max_tokens)
        return replace(node, **changed) if changed else node  # type: ignore[type-var]

    whole = compile_graph(graph)
    if wanted or ask.max_tokens is not None:
        whole = rewritten(whole, change)  # type: ignore[assignment]
    return whole, tuple(overridden)


_PARAMS = {"until": "stop", "constraint": "response_format"}


def rewritten(graph: Node, change: Callable[[Node], Node]) -> Node:
    """A graph with every node changed, those inside others first."""
    children = graph.children()
    if children:
        graph = graph.rebuilt(tuple(rewritten(child, change) for child in children))
    return change(graph)


def _answers(node: Node) -> bool:
    """Whether a node generates what can become the answer."""
    return hasattr(node, "temperature") and not node.never_answers and is_dataclass(node)


def _overridden(node: Node, name: str, value: Any, own: Any, wins: str) -> None:
    param = _PARAMS.get(name, name)
    if name == "constraint":  # nothing else would make the text be of the form
        raise conflicting(param, f"{node.name} cannot hold its text to a form")
    if name == "until" and own is ...:
        raise conflicting(param, f"{node.name} ends its texts itself; leave {param} out")
    if wins == "strategy":
        return
    has = f"has no {param}" if own is ... else f"has the {param} {own}"
    raise conflicting(
        param,
        f"{node.name} {has}, and the request asks for {value}; leave {param} out, or write it into "
        "the strategy",
    )


def _shorter(node: Any, most: int | None) -> Mapping[str, Any]:
    """What cuts a node's generations to so many tokens."""
    if most is None:
        return {}
    if hasattr(node, "max_tokens"):
        least = getattr(node, "at_least", None)
        shorter = {} if least is None else {"at_least": min(least, most)}
        return {"max_tokens": min(node.max_tokens, most), **shorter}
    if hasattr(node, "steps"):
        each = min(node.steps.max_tokens, most)
        steps = replace(node.steps, max_tokens=each)
        return {"steps": steps, "max_steps": min(node.max_steps, most // each)}
    if hasattr(node, "step_tokens"):
        each = min(node.step_tokens, most)
        return {"step_tokens": each, "max_steps": min(node.max_steps, most // each)}
    raise conflicting("max_tokens", f"the length of {node.name} cannot be capped; leave it out")
