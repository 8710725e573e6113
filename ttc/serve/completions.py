"""The parameters of `/v1/completions`: a raw prompt, which no chat template sees."""

from __future__ import annotations

from typing import Any

from ttc.serve.ask import INERT, Ask, common, merged
from ttc.serve.fields import Fields, boolean, choice, integer
from ttc.serve.refusal import invalid, unsupported
from ttc.serve.settings import Settings
from ttc.types import MAX_LOGPROBS, Problem

__all__ = ["completions_ask"]


def completions_ask(body: Any, settings: Settings) -> Ask:
    """What a body asks for.

    Raises:
        Refusal: with the parameter that is wrong, or that is not served.
    """
    fields = Fields(body)
    shared = common(fields, settings.max_choices)
    prompt = fields.need("prompt", _prompt)
    best_of = fields.take("best_of", integer(1, settings.max_choices), shared["n"])
    if best_of != shared["n"]:
        raise unsupported(
            "best_of",
            "this server does not throw samples away unseen; let best_of be n, or name a strategy "
            "as MODEL@best_of_n(...)",
        )
    asked = Ask(
        problem=Problem(prompt=prompt, answer_format=shared["ttc"].answer_format),
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


def _prompt(where: str, given: Any) -> str:
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    if not isinstance(given, str):
        raise unsupported(where, f"{where} is one text; send one request for each, and no tokens")
    if not given:
        raise invalid(where, f"{where} is not empty")
    return given
