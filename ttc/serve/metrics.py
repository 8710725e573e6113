"""Metrics in Prometheus' text form. No label comes from what a client wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ttc.ports import Engine
from ttc.serve.service import Service
from ttc.types import Usage

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """What a server counts."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "ttc_requests", "Requests by end.", ["endpoint", "status"], registry=registry
        )
        self._gone = Counter("ttc_clients_gone", "Clients that left early.", registry=registry)
        self._tokens = Counter(
            "ttc_tokens", "Logical tokens by model.", ["model"], registry=registry
        )
        self._output = Counter(
            "ttc_output_tokens", "Generated tokens by model.", ["model"], registry=registry
        )
        self._calls = Counter("ttc_calls", "Engine calls by model.", ["model"], registry=registry)
        self._seconds = Histogram(
            "ttc_request_seconds",
            "Time to the end.",
            ["endpoint"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            "ttc_first_event_seconds",
            "Time to a stream's first event.",
            buckets=_SECONDS,
            registry=registry,
        )
        running = Gauge("ttc_requests_running", "Requests that run.", registry=registry)
        running.set_function(lambda: service.line.running)
        waiting = Gauge("ttc_requests_waiting", "Requests that wait.", registry=registry)
        waiting.set_function(lambda: service.line.waiting)

    def ended(self, endpoint: str, status: int, seconds: float) -> None:
        """Counts a request that has ended."""
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def gone(self) -> None:
        """Counts a client that left before its reply."""
        self._gone.inc()

    def used(self, model: str, usage: Usage) -> None:
        """Counts what a job has used.

        Args:
            model: one of the server's own names.
            usage: what it came to.
        """
        self._tokens.labels(model).inc(usage.tokens)
        self._output.labels(model).inc(usage.output_tokens)
        self._calls.labels(model).inc(usage.calls)

    def first(self, seconds: float) -> None:
        """Counts the first event of a stream."""
        self._first.observe(seconds)

    def text(self) -> bytes:
        """Everything, with what the engines count themselves."""
        engines: Iterable[Any] = {id(e): e for e in self._engines()}.values()
        own = [engine.prometheus() for engine in engines if hasattr(engine, "prometheus")]
        lines = [line for text in own for line in text.splitlines()]
        # Engines of one kind say the same of their names, which may be said once.
        kept = [
            line
            for place, line in enumerate(lines)
            if not line.startswith("#") or line not in lines[:place]
        ]
        return bytes(generate_latest(self._registry)) + "\n".join([*kept, ""]).encode()

    def _engines(self) -> list[Engine]:
        return [*self._service.models.values(), *self._service.roles.values()]
