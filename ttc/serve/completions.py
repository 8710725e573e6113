"""The parameters of `/v1/completions`: a raw prompt, which no chat template sees."""

from __future__ import annotations

from typing import Any

from ttc.serve.ask import INERT, Ask, common, merged
from ttc.serve.fields import Fields, boolean, choice, integer
from ttc.serve.refusal import invalid, unsupported
from ttc.serve.settings import Settings
from ttc.types import MAX_LOGPROBS, Problem

__all__ = ["completions_ask"]

_MAX_PROMPTS = 128


def completions_ask(body: Any, settings: Settings) -> Ask:
    """What a body asks for.

    Raises:
        Refusal: with the parameter that is wrong, or that is not served.
    """
    fields = Fields(body)
    shared = common(fields, settings.max_choices)
    prompts = fields.need("prompt", _prompts)
    best_of = fields.take("best_of", integer(1, settings.max_choices), shared["n"])
    if best_of != shared["n"]:
        raise unsupported(
            "best_of",
            "this server does not throw samples away unseen; let best_of be n, or name a strategy "
            "as MODEL@best_of_n(...)",
        )
    asked = Ask(
        problems=tuple(
            Problem(
                prompt=prompt if isinstance(prompt, str) else "",
                answer_format=shared["ttc"].answer_format,
            )
            for prompt in prompts
        ),
        tokens=() if isinstance(prompts[0], str) else prompts,
        max_tokens=merged(fields, "max_tokens", least=0),
        logprobs=fields.take("logprobs", integer(0, MAX_LOGPROBS), None),
        echo=fields.take("echo", boolean, False),
        effort=fields.take("reasoning_effort", choice(tuple(settings.efforts)), None),
        endpoint="completions",
        **shared,
    )
    if asked.max_tokens == 0 and not (asked.echo and asked.logprobs is not None):
        raise invalid("max_tokens", "max_tokens of 0 only reads the prompt: with echo and logprobs")
    fields.inert(INERT)
    fields.end()
    return asked


def _prompts(where: str, given: Any) -> tuple[Any, ...]:
    """Texts, or tuples of tokens; all of one kind, and none of them empty."""
    prompts = given if isinstance(given, list) and not _is_tokens(given) else [given]
    if not 1 <= len(prompts) <= _MAX_PROMPTS:
        raise invalid(where, f"{where} is 1 to {_MAX_PROMPTS} prompts, not {len(prompts)}")
    if all(isinstance(prompt, str) and prompt for prompt in prompts):
        return tuple(prompts)
    if all(_is_tokens(prompt) for prompt in prompts):
        return tuple(map(tuple, prompts))
    raise invalid(
        where,
        f"{where} is a text, a list of token ids, or a list of either, and none of them is empty",
    )


def _is_tokens(given: Any) -> bool:
    return (
        isinstance(given, list)
        and bool(given)
        and all(type(token) is int and token >= 0 for token in given)
    )
