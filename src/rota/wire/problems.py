"""Problem details (RFC 9457): errors as the API answers them, and exceptions that carry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class FieldError(msgspec.Struct):
    """What is wrong with one field, by its path such as `retry.max_attempts`."""

    field: str
    message: str


class Problem(msgspec.Struct, omit_defaults=True):
    """What went wrong, for people and programs."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []


MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:rota:problem:"

TITLES: Mapping[int, str] = {
    400: "The request cannot be read",
    401: "Who are you?",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    415: "Not this kind of body",
    416: "No such part",
    421: "Wrong host",
    422: "The request makes no sense",
    429: "Too much at once",
    431: "Head too large",
    500: "A fault of ours",
    503: "Not now",
    507: "No space left",
}

NO_HEADERS: Mapping[str, str] = {}


class ProblemError(Exception):
    """An answer other than the one asked for, found out by a server or a gateway itself."""

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
        self.headers = headers


class ClientDisconnectedError(Exception):
    """The client left before the answer was ready, so there is nobody to answer."""
