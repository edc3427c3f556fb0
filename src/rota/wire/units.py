"""Durations, byte sizes and times as people write them, and the codec hooks that read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.limits import BYTES_MAX, DURATION_MS_MAX

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
        """As a number of seconds."""
        return self.ms / 1000


SomeTime: TypeAlias = Annotated[
    Duration, Meta(extra_json_schema={"exclusiveMinimum": 0, "pattern": "[1-9]"})
]
"""One that is not nothing; the types that have it see to that, this only says so."""


class ByteSize:
    """An amount of bytes: a number, or text such as "512MiB", "2GB"."""

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
    """A time, or how long after it is submitted: text such as "2h", or RFC 3339."""

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
    """The default of an amount that is not given; one object for all."""
    return _NO_BYTES


def parse_duration(value: object) -> Duration:
    """Raises ValueError with what would have been right."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('a duration is seconds as a number, or text such as "90s", "5m", "2h"')
    ms = _duration_text_ms(value) if isinstance(value, str) else value * 1000
    if not 0 <= ms <= DURATION_MS_MAX:
        raise ValueError("a duration is between 0 and ten years")
    return Duration(round(ms))


def _duration_text_ms(text: str) -> float:
    if len(text) > _TEXT_CHARS_MAX:
        raise ValueError("that is too long for a duration")
    text = text.strip()
    if re.fullmatch(r"\d+(?:\.\d+)?", text, re.ASCII):
        return float(text) * 1000
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise ValueError(f'{text!r} is not a duration: write "90s", "5m", "2h" or "1h30m"')
    return sum(float(number) * _DURATION_MS[unit] for number, unit in parts)


def parse_size(value: object) -> ByteSize:
    """Raises ValueError with what would have been right."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('a size is bytes as a number, or text such as "512MiB", "2GB"')
    size = _size_text_bytes(value) if isinstance(value, str) else value
    if not 0 <= size <= BYTES_MAX:
        raise ValueError("a size is between 0 and 1 EiB")
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
    """Raises ValueError with what would have been right."""
    if not (isinstance(value, str) and _DATED.match(value)):
        length = parse_duration(value)
        if not length.ms:
            raise ValueError("a deadline is later than now")
        return Deadline(within=length)
    try:
        at = msgspec.convert(value, Annotated[datetime, Meta(tz=True)])
    except msgspec.ValidationError:
        raise ValueError(
            f'{value[:40]!r} is no time: write "2026-01-31T09:00:00Z", or a duration like "2h"'
        ) from None
    return Deadline(at=at)


def to_instant(moment: datetime) -> int:
    """Milliseconds since 1970 of an aware time."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(maxsize=1024)
def from_instant(instant: int) -> str:
    """RFC 3339 in UTC with milliseconds.

    Those asked for last are remembered: jobs of a batch, and orders of a turn, share theirs.
    """
    moment = _NAIVE_EPOCH + timedelta(milliseconds=instant)
    return moment.isoformat(timespec="milliseconds") + "Z"


def from_instant_or_none(instant: int | None) -> str | None:
    """The same, or None where there is none."""
    return None if instant is None else from_instant(instant)


def number(milli: int) -> int | float:
    """Thousandths as the number people wrote: 1500 is 1.5, 2000 is 2."""
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def milli(amount: float) -> int:
    """The nearest thousandth; what is more than nothing is not rounded to nothing."""
    return round(amount * 1000) or int(amount > 0)


def dec_hook(kind: type, value: object) -> Any:
    """What msgspec asks for the types above."""
    if kind is Duration:
        return parse_duration(value)
    if kind is ByteSize:
        return parse_size(value)
    if kind is Deadline:
        return parse_deadline(value)
    raise TypeError(f"no way to read {kind}")


def enc_hook(value: object) -> Any:
    """Durations leave as seconds, sizes as bytes."""
    if isinstance(value, Duration):
        return number(value.ms)
    if isinstance(value, ByteSize):
        return value.bytes
    if isinstance(value, Deadline):
        return value.at if value.within is None else number(value.within.ms)
    raise TypeError(f"no way to write {type(value)}")


def schema_hook(kind: type) -> dict[str, Any]:
    """What the OpenAPI document says of the types above."""
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
            "description": 'a time, or how long after it is submitted: "2h"',
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
    """A wire record as JSON."""
    return ENCODER.encode(value)
