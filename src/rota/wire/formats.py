"""Formats of values in the public contract: durations, byte sizes, times, cursors, cell tags.

Also the patterns of texts with an error message for each, and the hooks through which msgspec reads
the types.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.limits import BYTES_MAX, CELL_NAME_CHARS_MAX, DURATION_MS_MAX

_IDENTIFIERS = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_TYPE = r"[^\s*\x00-\x1f\x7f-\x9f]+"

PLAIN = r"^[^\x00-\x1f\x7f-\x9f]*(?!\n)$"
"""Text without control characters: names are printed on terminals and pages."""
WORD = r"^[A-Za-z0-9_][A-Za-z0-9_.:@-]*(?!\n)$"
"""The name of a queue, tenant or calendar: it is part of URL paths."""
CELL_NAME = rf"^[a-z0-9][a-z0-9-]{{0,{CELL_NAME_CHARS_MAX - 1}}}(?!\n)$"
"""The name of a cell, like a host name: it is part of headers, cookies and metrics."""
UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?!\n)$"
BUNDLE_ID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\n)$"
WORKER_ID = r"^[A-Za-z0-9_.:-]+(?!\n)$"
SHA256 = r"^[0-9a-f]{64}(?!\n)$"
EVENT_TYPE = rf"^{_TYPE}(?!\n)$"
EVENT_TYPES = rf"^(\*|{_TYPE}|{_TYPE}\.\*)(?!\n)$"
NO_NUL = r"^[^\x00]*$"
VARIABLE = r"^[^\x00=]+$"
ENTRY = rf"^{_IDENTIFIERS}:{_IDENTIFIERS}(?!\n)$"
HEADER_NAME = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+(?!\n)$"
HEADER_VALUE = r"^[^\x00-\x08\x0a-\x1f\x7f]*(?!\n)$"
INPUT_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(?!\n)$"
HTTP_URL = r"^[Hh][Tt][Tt][Pp][Ss]?://[^\x00-\x20\x7f]+(?!\n)$"
ANY_URL = "^[a-z0-9]+://"
IMAGE = r"^[A-Za-z0-9][A-Za-z0-9_.:/@-]*(?!\n)$"
CONTAINER_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$"
ONE_LINE = r"^[^\x00\r\n]*(?!\n)$"

PATTERN_TEXTS = {
    PLAIN: "must not have control characters",
    WORD: "may have letters, digits and _ . : @ - only, and must begin with a letter, digit or _",
    CELL_NAME: "may have lower-case letters, digits and - only, and must not begin with -",
    UUID: "must be a UUID",
    BUNDLE_ID: "must be a bundle's id, a UUID",
    WORKER_ID: "may have letters, digits and _ . : - only",
    SHA256: "must be 64 hexadecimal digits in lower case",
    EVENT_TYPE: "must not have spaces, control characters or *",
    EVENT_TYPES: "must be a type of event, `prefix.*` for all types with that prefix, or `*`",
    NO_NUL: "must not have a NUL character",
    VARIABLE: "must not have a NUL character or =",
    ENTRY: "must name a function: package.module:function",
    HEADER_NAME: "must be the name of a header: letters, digits and hyphens",
    HEADER_VALUE: "must not have control characters",
    INPUT_NAME: "may have letters, digits and _ . - only, and must begin with a letter, digit or _",
    HTTP_URL: "must begin with http:// or https:// and not have spaces",
    ANY_URL: "must begin with a scheme, such as https://",
    IMAGE: "must be the name of an image, such as alpine:3.20",
    CONTAINER_VARIABLE: "may have letters, digits and _ only, and must not begin with a digit",
    ONE_LINE: "must be one line without NUL characters",
}
"""The error message for text that does not match: `FIELD` followed by this."""


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", re.ASCII)
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]i?b?|b)?", re.ASCII | re.IGNORECASE)
_SIZE_STEPS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_DATED = re.compile(r"\d{4}-")
_TEXT_CHARS_MAX = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)


class Duration:
    """A length of time: seconds as a number, or text such as "90s", "5m", "1h30m"."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def __repr__(self) -> str:
        return f"Duration({self.ms})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and other.ms == self.ms

    def __hash__(self) -> int:
        return hash(self.ms)

    @property
    def seconds(self) -> float:
        return self.ms / 1000


SomeTime: TypeAlias = Annotated[
    Duration, Meta(extra_json_schema={"exclusiveMinimum": 0, "pattern": "[1-9]"})
]
"""A duration above 0. The schema only documents it; the records that use it check it."""


class ByteSize:
    """A number of bytes: a number, or text such as "512MiB", "2GB"."""

    __slots__ = ("bytes",)

    def __init__(self, size: int) -> None:
        self.bytes = size

    def __repr__(self) -> str:
        return f"ByteSize({self.bytes})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByteSize) and other.bytes == self.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)


class Deadline:
    """A deadline: RFC 3339, or how long after the submission, such as "2h"."""

    __slots__ = ("at", "within")

    def __init__(self, *, at: datetime | None = None, within: Duration | None = None) -> None:
        self.at = at
        self.within = within

    def __repr__(self) -> str:
        return f"Deadline({self.at or self.within})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deadline) and (other.at, other.within) == (self.at, self.within)

    def __hash__(self) -> int:
        return hash((self.at, self.within))


_NO_BYTES = ByteSize(0)


def no_bytes() -> ByteSize:
    """Default of an amount that is left out: one shared object."""
    return _NO_BYTES


def parse_duration(value: object) -> Duration:
    """Parses a duration; raises ValueError with what to write instead."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('a duration is seconds as a number, or text such as "90s", "5m", "2h"')
    ms = _duration_text_ms(value) if isinstance(value, str) else value * 1000
    if not 0 <= ms <= DURATION_MS_MAX:
        raise ValueError("a duration must be between 0 and ten years")
    return Duration(round(ms))


def _duration_text_ms(text: str) -> float:
    if len(text) > _TEXT_CHARS_MAX:
        raise ValueError("the text is too long for a duration")
    text = text.strip()
    if re.fullmatch(r"\d+(?:\.\d+)?", text, re.ASCII):
        return float(text) * 1000
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise ValueError(f'{text!r} is not a duration: write "90s", "5m", "2h" or "1h30m"')
    return sum(float(number) * _DURATION_MS[unit] for number, unit in parts)


def parse_size(value: object) -> ByteSize:
    """Parses a size; raises ValueError with what to write instead."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('a size is bytes as a number, or text such as "512MiB", "2GB"')
    size = _size_text_bytes(value) if isinstance(value, str) else value
    if not 0 <= size <= BYTES_MAX:
        raise ValueError("a size must be between 0 and 1 EiB")
    return ByteSize(round(size))


def _size_text_bytes(text: str) -> float:
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _TEXT_CHARS_MAX else None
    if match is None:
        raise ValueError(f'{text[:40]!r} is not a size: write "512MiB", "2GB" or bytes as a number')
    number, unit = match.group(1), (match.group(2) or "b").lower()
    if unit == "b":
        return float(number)
    step = 1024 if "i" in unit else 1000
    return float(number) * float(step ** _SIZE_STEPS[unit[0]])


def parse_deadline(value: object) -> Deadline:
    """Parses a deadline; raises ValueError with what to write instead."""
    if not (isinstance(value, str) and _DATED.match(value)):
        length = parse_duration(value)
        if not length.ms:
            raise ValueError("a deadline must be later than now")
        return Deadline(within=length)
    try:
        at = msgspec.convert(value, Annotated[datetime, Meta(tz=True)])
    except msgspec.ValidationError:
        raise ValueError(
            f'{value[:40]!r} is not a time: write "2026-01-31T09:00:00Z", or a duration like "2h"'
        ) from None
    return Deadline(at=at)


def to_instant(moment: datetime) -> int:
    """Milliseconds since 1970 of an aware time."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(maxsize=1024)
def from_instant(instant: int) -> str:
    """RFC 3339 in UTC with milliseconds.

    Cached: the jobs of a batch, and the orders of a turn, share their times.
    """
    moment = _NAIVE_EPOCH + timedelta(milliseconds=instant)
    return moment.isoformat(timespec="milliseconds") + "Z"


def from_instant_or_none(instant: int | None) -> str | None:
    return None if instant is None else from_instant(instant)


def number(milli: int) -> int | float:
    """Thousandths as a number in the way people write it: 1500 is 1.5, 2000 is 2."""
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def milli(amount: float) -> int:
    """Rounds to thousandths; an amount above 0 never becomes 0."""
    return round(amount * 1000) or int(amount > 0)


def dec_hook(kind: type, value: object) -> Any:
    """Decodes the types above for msgspec."""
    if kind is Duration:
        return parse_duration(value)
    if kind is ByteSize:
        return parse_size(value)
    if kind is Deadline:
        return parse_deadline(value)
    raise TypeError(f"no way to read {kind}")


def enc_hook(value: object) -> Any:
    """Encodes the types above for msgspec: durations as seconds, sizes as bytes."""
    if isinstance(value, Duration):
        return number(value.ms)
    if isinstance(value, ByteSize):
        return value.bytes
    if isinstance(value, Deadline):
        return value.at if value.within is None else number(value.within.ms)
    raise TypeError(f"no way to write {type(value)}")


def schema_hook(kind: type) -> dict[str, Any]:
    """Describes the types above for the OpenAPI document."""
    if kind is Duration:
        part = r"\d+(\.\d+)?\s*(ms|s|m|h|d|w)"
        return {
            "description": 'seconds, or text such as "90s", "5m", "1h30m"',
            "examples": ["5m"],
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": DURATION_MS_MAX // 1000},
                _text(rf"^\s*(\d+(\.\d+)?|{part}(\s*{part})*)\s*$"),
            ],
        }
    if kind is ByteSize:
        return {
            "description": 'bytes, or text such as "512MiB", "2GB"',
            "examples": ["256MiB"],
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": BYTES_MAX},
                _text(r"^\s*\d+(\.\d+)?\s*([kKmMgGtTpP][iI]?[bB]?|[bB])?\s*$"),
            ],
        }
    if kind is Deadline:
        seconds, text = schema_hook(Duration)["anyOf"]
        return {
            "description": 'a time, or how long after the submission, such as "2h"',
            "examples": ["2h"],
            "anyOf": [
                {"type": "string", "format": "date-time"},
                {**seconds, "exclusiveMinimum": 0},
                {**text, "pattern": "^(?=.*[1-9])" + text["pattern"].removeprefix("^")},
            ],
        }
    raise NotImplementedError(kind)


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "maxLength": _TEXT_CHARS_MAX, "pattern": pattern}


ENCODER = msgspec.json.Encoder(enc_hook=enc_hook)


def encode(value: object) -> bytes:
    """Encodes a wire record as JSON."""
    return ENCODER.encode(value)


def make_cursor(last: str) -> str:
    """Makes the cursor that continues after the last item of a page."""
    return base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def parse_cursor(cursor: str, chars_max: int) -> str:
    """Reads a cursor: the last item seen; raises ValueError if it is not one of ours."""
    if len(cursor) > chars_max:
        raise ValueError("longer than any cursor")
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except binascii.Error as error:
        raise ValueError(str(error)) from error


NO_TAG = "000"
"""The tag in ids if the cell has no name."""
TAG_AT = slice(15, 18)
"""Where an id carries the tag: the three digits after a UUIDv7's version, which RFC 9562 leaves
free.
"""

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


def is_cell_name(text: str) -> bool:
    return re.match(CELL_NAME, text) is not None


def cell_tag(name: str) -> str:
    """Three hex digits that stand for a cell: the first of its name's SHA-256.

    `rota.new_id()` of PostgreSQL's schema computes the same.
    """
    return hashlib.sha256(name.encode()).hexdigest()[:3] if name else NO_TAG


def tag_in(text: str) -> str | None:
    """The tag that an id carries; None for an id that is not a UUIDv7."""
    text = text.lower()
    return text[TAG_AT] if _UUID7.match(text) else None
