"""Refusals: every fault that a client is told, in the shape that OpenAI's API gives to errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

__all__ = ["Refusal", "conflicting", "invalid", "refusal_of", "unsupported"]

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    502: "server_error",
    503: "server_error",
}


class Refusal(Exception):
    """A request that is not served, and what its client is told."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """What is sent."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        if self.code == "insufficient_quota":
            kind = "insufficient_quota"
        told = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": told}

    def response(self) -> Response:
        """It as a response."""
        return Response(
            orjson.dumps(self.body),
            self.status,
            headers=self.headers,
            media_type="application/json",
        )


def invalid(param: str | None, message: str, code: str = "invalid_value") -> Refusal:
    """A parameter that cannot have its value."""
    return Refusal(400, message, code=code, param=param)


def refusal_of(error: Exception) -> Refusal:
    """What a client is told of any fault; of one of ours nothing but that it was one."""
    if isinstance(error, Refusal):
        return error
    refusal = Refusal(500, "the server failed; its log says more", code="internal_error")
    refusal.__cause__ = error
    return refusal


def unsupported(param: str, message: str) -> Refusal:
    """A parameter that is not served."""
    return Refusal(400, message, code="unsupported_parameter", param=param)


def conflicting(param: str, message: str) -> Refusal:
    """A parameter that says something else than the strategy, or than another parameter."""
    return Refusal(400, message, code="conflicting_parameter", param=param)
