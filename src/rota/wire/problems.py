"""Problem details (RFC 9457): the error answers of the API, and exceptions that carry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class FieldError(msgspec.Struct):
    """Error in one field, with its path, such as `retry.max_attempts`."""

    field: str
    message: str


class Problem(msgspec.Struct, omit_defaults=True):
    """An error, for people and programs."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []
    reasons: list[str] = []
    """Why a server is not ready, a sentence each."""


MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:rota:problem:"

TITLES: Mapping[int, str] = {
    400: "Unreadable request",
    401: "Token required",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request too slow",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    415: "Unsupported type of body",
    416: "No such range",
    421: "Wrong host",
    422: "Invalid request",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    503: "Not available now",
    507: "No space left",
}

NO_HEADERS: Mapping[str, str] = {}


class ProblemError(Exception):
    """An error answer that a server or a gateway decided on itself."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = list(errors)
        self.reasons: list[str] = []
        self.headers = headers


class ClientDisconnectedError(Exception):
    """The client disconnected before the answer was ready, so nothing is sent."""
