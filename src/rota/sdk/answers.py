"""Reads answers: into typed records, into the error they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from rota.sdk.calls import Call
from rota.sdk.errors import (
    AnswerError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    LimitError,
    NotFoundError,
    ServerError,
    UnauthenticatedError,
    UnavailableError,
)
from rota.wire.problems import Problem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def read(call: Call[T], status: int, headers: Mapping[str, str], body: bytes) -> T:
    """The answer of a call; raises the error it stands for."""
    if status >= 300:
        raise error_of(status, headers, body)
    if call.answer is type(None):
        return None
    if call.answer is bytes:
        return body  # type: ignore[return-value]  # T is bytes here
    try:
        return msgspec.json.decode(body, type=call.answer)
    except msgspec.MsgspecError as error:
        text = f"cannot read the answer to {call.method} {call.path}: {error}"
        raise AnswerError(f"{text}; is this a Rota server of a like version?") from error


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: LimitError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
    507: UnavailableError,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that a problem document, or whatever came instead of one, stands for."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        said = body[:200].decode("utf-8", "replace").strip()
        problem = Problem("about:blank", f"HTTP {status}", status, said)
    fallback = ServerError if status >= 500 else InvalidError
    return _BY_STATUS.get(status, fallback)(problem, _retry_after_s(headers))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def is_passing(error: ApiError) -> bool:
    """Whether the same call may well succeed a little later."""
    return error.status in (429, 502, 503, 504)
