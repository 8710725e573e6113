"""Engines on scripted servers, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ttc.engine.openai import OpenAIEngine, Report, Service
from ttc.ports import Request
from ttc.testing.openai_server import Asked, Fault, OpenAIServer
from ttc.types import Problem, Sampling

GOOD = Report(
    kind="vllm",
    tells_usage=True,
    seed=True,
    n=True,
    logprobs=20,
    schemas=True,
    honours=frozenset({"top_k", "min_p"}),
    ids=True,
)
"""What is found out about a server that does all that it should."""
QUESTION = Problem.ask("What is 17 * 23?")

Faults = Callable[[int, Asked], Fault | None]


@contextmanager
def served(
    script: Any = "The answer is 391.",
    *,
    report: Report = GOOD,
    server: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[tuple[OpenAIEngine, OpenAIServer]]:
    """An engine on a server of its own; `options` are those of the service."""
    with OpenAIServer(script, **(server or {})) as there:
        service = Service(**{"model": "fake", "urls": (there.url,), **options})
        engine = OpenAIEngine(service, report)
        try:
            yield engine, there
        finally:
            engine.close()


def faulty(*faults: Fault | None) -> Faults:
    """The faults of the first requests; all others go well."""
    return lambda place, _: faults[place] if place < len(faults) else None


def request(engine: OpenAIEngine, *, max_tokens: int = 16, seed: int = 0, **more: Any) -> Request:
    """A request for a text on the usual question."""
    sampling = more.pop("sampling", Sampling())
    root = engine.root(more.pop("problem", QUESTION), "policy")
    return Request(branch=root, max_tokens=max_tokens, sampling=sampling, seed=seed, **more)
