"""What a function returned or raised, as the JSON that the job's record keeps."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from rota.sdk.documents import ArgumentError, document, type_name
from rota.sdk.job_exceptions import Fail, Retry
from rota.wire.limits import RESULT_BYTES_MAX
from rota.wire.units import parse_duration

FRAMES_MAX = 40
"""Of a traceback: the innermost ones."""
TRACEBACK_CHARS_MAX = 16_000
MESSAGE_CHARS_MAX = 4_000
_OWN_FOLDER = str(Path(__file__).parent)


class ResultError(Exception):
    """What was returned cannot be kept, and why."""


def result_document(value: Any) -> bytes:
    """A returned value as JSON; raises ResultError."""
    if value is None:
        return b"null"
    try:
        written = document(f"the function's result, a {type_name(type(value))},", value)
    except ArgumentError as error:
        raise ResultError(str(error)) from None
    if len(written) > RESULT_BYTES_MAX:
        raise ResultError(
            f"the function's result is {len(written)} bytes as JSON, {RESULT_BYTES_MAX} are kept: "
            "store large output elsewhere and return its name"
        )
    return written


def error_document(error: BaseException) -> bytes:
    """What was raised: its type, its words and where, without the values of any variable."""
    told: dict[str, Any] = {
        "type": type_name(type(error)),
        "message": _message_of(error),
        "traceback": error_text(error),
    }
    if isinstance(error, Retry) and error.delay is not None:
        told["delay"] = error.delay
    return msgspec.json.encode(told)


def plain_error(kind: str, message: str) -> bytes:
    """An error that has no traceback worth reading."""
    return msgspec.json.encode({"type": kind, "message": message[:MESSAGE_CHARS_MAX]})


def is_retryable(error: BaseException) -> bool:
    """Whether another try may help."""
    return not isinstance(error, Fail)


def delay_ms(error: BaseException) -> int | None:
    """What the function asks for before the next try; nonsense counts as nothing."""
    if not isinstance(error, Retry) or error.delay is None:
        return None
    try:
        return parse_duration(error.delay).ms
    except ValueError:
        return None


def _message_of(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the function called sys.exit({error.code!r})"[:MESSAGE_CHARS_MAX]
    try:
        words = str(error)
    except Exception as trouble:  # noqa: BLE001  (a user's own __str__ may do anything)
        words = f"its message cannot be read: {type(trouble).__name__}"
    return _valid(words)[:MESSAGE_CHARS_MAX]


def error_text(error: BaseException) -> str:
    """What was raised and where, for people."""
    try:
        lines = traceback.format_exception(
            type(error), error, _without_own_frames(error.__traceback__), limit=-FRAMES_MAX
        )
    except Exception as trouble:  # noqa: BLE001  (as above: it asks the user's classes)
        return f"the traceback cannot be written: {type(trouble).__name__}"
    text = _valid("".join(lines))
    if len(text) <= TRACEBACK_CHARS_MAX:
        return text
    return f"[{len(text) - TRACEBACK_CHARS_MAX} characters left out]\n{text[-TRACEBACK_CHARS_MAX:]}"


def _without_own_frames(place: TracebackType | None) -> TracebackType | None:
    """Without our own frames at its head, which say nothing to the user."""
    start = place
    while start is not None and start.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        start = start.tb_next
    return start if start is not None else place


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
