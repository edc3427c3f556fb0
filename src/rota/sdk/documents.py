"""Values and errors as the JSON documents that a job's record keeps."""

from __future__ import annotations

import json
import traceback
from typing import Any

import msgspec

from rota.sdk.job_exceptions import Retry

FRAMES_MAX = 40
"""Of a traceback: the innermost ones say most."""
TRACEBACK_CHARS_MAX = 16_000
"""Of a traceback: a record is read by people."""
ERROR_MESSAGE_CHARS_MAX = 4_000
"""Of an error's own message."""


class ArgumentError(TypeError):
    """The arguments do not fit the function, or a value cannot travel as JSON."""


def document(what: str, value: Any) -> bytes:
    """A value as JSON; raises ArgumentError, which names `what` and says why it does not go.

    Two steps, because msgspec alone would write NaN as null and nobody would notice.
    """
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_to_builtins)
        text = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode()
    except RecursionError as error:
        raise ArgumentError(f"{what} cannot be written as JSON: nested too deeply") from error
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{what} cannot be written as JSON: {error}") from error


def _to_builtins(value: Any) -> Any:
    """What msgspec does not know: subclasses of plain types, and pydantic's models."""
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"there is no JSON for a value of type {type_name(type(value))}")


def type_name(kind: type[Any]) -> str:
    """As one would import it; what is built in needs no module."""
    name = kind.__qualname__
    return name if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{name}"


def error_record(error: BaseException) -> dict[str, Any]:
    """What was raised: its type, its words and where, without the values of any variable."""
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-FRAMES_MAX)
    record: dict[str, Any] = {
        "type": type_name(type(error)),
        "message": _valid_unicode(str(error))[:ERROR_MESSAGE_CHARS_MAX],
        "traceback": _valid_unicode("".join(lines))[-TRACEBACK_CHARS_MAX:],
    }
    if isinstance(error, Retry) and error.delay is not None:
        record["delay"] = error.delay
    return record


def _valid_unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
