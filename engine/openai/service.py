"""What a user says of a service: which model, where, and how much may be asked of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ttc.errors import EngineError

__all__ = ["CONNECT_S", "Service", "named"]

CONNECT_S = 10.0
"""How long a server may take to accept a connection."""

_KEY = "OPENAI_API_KEY"
_URL = "OPENAI_BASE_URL"


@dataclass(frozen=True, kw_only=True)
class Service:
    """A model at one or more OpenAI-compatible servers."""

    model: str
    urls: tuple[str, ...]
    """The base URLs of servers that all have the model, as `http://host:8000/v1`."""
    key: str | None = field(default=None, repr=False)
    """Sent as a bearer token; by default `OPENAI_API_KEY`, if the environment has it."""
    concurrency: int = 64
    """The most calls that each server works on at once; more wait here."""
    rate: float | None = None
    """The most requests to all servers in a second."""
    attempts: int = 4
    """How often a call is sent at most, where that cannot be paid twice."""
    seconds: float = 600.0
    """The most that a call takes, with all waiting and all attempts."""
    silence: float = 120.0
    """The most that a server says nothing while it works on a call."""
    deduplicates: bool = False
    """Whether the servers do one work for all requests with one `Idempotency-Key`. Then a call
    whose end is unknown is sent again, too."""
    tokenizer: str | None = None
    """The model's own vocabulary and chat template, as a GGUF file, a folder or a model's name.
    With it branches hold tokens: they fork, are cut and gone on with, and nothing is tokenised
    again. The servers have to take prompts of tokens, and to tell the tokens of what they write."""
    cancels: bool | None = None
    """Whether a server ends a call, and bills no more, once its client is gone; by default where it
    is of a kind that is known to. Elsewhere a cancelled call is charged in full."""

    def __post_init__(self) -> None:
        if not self.model:
            raise EngineError("a service has a model; name it, as openai:NAME@http://host/v1")
        if not self.urls:
            raise EngineError(
                f"the model {self.model!r} has no server; name one, as "
                f"openai:{self.model}@http://host/v1, or set {_URL}"
            )
        urls = tuple(dict.fromkeys(url.strip().rstrip("/") for url in self.urls))
        for url in urls:
            parts = urlsplit(url)
            if parts.username is not None or parts.password is not None:
                raise EngineError(f"a server's address holds no password; set {_KEY}")
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
                raise EngineError(f"a server is http://… or https://…, not {url!r}")
        if self.concurrency < 1 or self.attempts < 1 or (self.rate is not None and self.rate <= 0):
            raise EngineError(
                f"concurrency ({self.concurrency}) and attempts ({self.attempts}) are at least 1, "
                f"and rate ({self.rate}) is above 0, or None"
            )
        if not (self.seconds > 0 and self.silence > 0):
            raise EngineError(f"seconds ({self.seconds}) and silence ({self.silence}) are above 0")
        key = os.environ.get(_KEY, "").strip() if self.key is None else self.key
        if not (key.isascii() and (not key or key.isprintable())):
            raise EngineError("the key holds characters that no key has; set it anew")
        object.__setattr__(self, "urls", urls)
        object.__setattr__(self, "key", key or None)


def named(name: str) -> Service:
    """The service of a model's name: `NAME`, `NAME@URL` or `NAME@URL,URL`.

    Without an address it is that of `OPENAI_BASE_URL`.

    Raises:
        EngineError: there is no address, or it is none.
    """
    place = max(name.rfind("@http://"), name.rfind("@https://"))
    first = min((p for p in (name.find("@http://"), name.find("@https://")) if p >= 0), default=-1)
    if place < 0:
        url = os.environ.get(_URL, "").strip()
        return Service(model=name, urls=(url,) if url else ())
    return Service(model=name[:first], urls=tuple(name[first + 1 :].split(",")))
