"""Writes values as people read them: safe, short, and in units that fit."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from rota.sdk.clock import SystemClock

ID_SHOWN_CHARS = 8
"""Ids rise with time, so their ends tell them apart and their beginnings do not."""

_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
"""Colour and weight, which are harmless on a terminal."""
_UNFINISHED = re.compile(r"(\x1b(\[[0-9;:]{0,64})?|\r)\Z")

_AGES = ((86_400, "d"), (3_600, "h"), (60, "m"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def plain(text: str, *, keep: str = "") -> str:
    """Escapes every character that a terminal might act on, so that data cannot control it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def plain_log(text: str, *, colours: bool = False) -> str:
    """Escapes a log the same way, but keeps its lines and tabs, and its colours if wanted."""
    text = text.replace("\r\n", "\n")
    if not colours:
        return plain(text, keep="\n\t")
    # Splitting by a pattern with a group keeps what it matched: every second piece is a colour.
    pieces = enumerate(_COLOUR.split(text))
    return "".join(piece if n % 2 else plain(piece, keep="\n\t") for n, piece in pieces)


def unfinished(text: str) -> int:
    """Counts the characters at the end that may begin a colour or a line's end."""
    found = _UNFINISHED.search(text)
    return len(text) - found.start() if found else 0


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def short(uuid: str | None) -> str:
    """Shortens an id to its end, which every command takes."""
    return uuid[-ID_SHOWN_CHARS:] if uuid else "-"


def moment(text: str) -> datetime:
    """Parses a time of the API."""
    return datetime.fromisoformat(text)


def local(text: str | None) -> str:
    """Writes a time of the API on the local clock."""
    return f"{moment(text).astimezone():%Y-%m-%d %H:%M:%S}" if text else "-"


def now_ms() -> int:
    """Returns the time of this machine, in milliseconds since 1970."""
    return SystemClock().now_ms()


def since_s(text: str, now: int) -> float:
    """Counts the seconds from a time of the API to now."""
    return (datetime.fromtimestamp(now / 1000, UTC) - moment(text)).total_seconds()


def age(text: str | None, now: int | None = None) -> str:
    """Tells how long ago, or in how long."""
    if text is None:
        return "-"
    seconds = since_s(text, now_ms() if now is None else now)
    return f"in {span(-seconds)}" if seconds <= -1 else span(max(0.0, seconds))


def between(start: str | None, end: str | None, now: int | None = None) -> str:
    """Tells how long something took, or has taken so far."""
    if start is None:
        return "-"
    now = now_ms() if now is None else now
    done_s = since_s(start, now) - (since_s(end, now) if end else 0.0)
    return span(max(0.0, done_s))


def span(seconds: float) -> str:
    """Writes a length of time in its largest two units at most."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for size, unit in _AGES:
        if whole >= size:
            rest = (whole % size) // (size // (24 if unit == "d" else 60))
            smaller = {"d": "h", "h": "m", "m": "s"}[unit]
            return f"{whole // size}{unit}{rest}{smaller}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def size_text(amount: float) -> str:
    """Writes an amount of bytes."""
    value = float(amount)
    for unit in _SIZES[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if value % 1 == 0 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_SIZES[-1]}"


def count(number: float) -> str:
    """Writes a number with separated thousands."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"


def plural(number: int, noun: str) -> str:
    """Writes `1 job`, `2 jobs`."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def amount(value: float) -> str:
    """Writes a number of cpus or gpus, without decimals if it has none."""
    return f"{value:g}"


def percent(fraction: float | None) -> str:
    """Writes a fraction as a percentage."""
    return "-" if fraction is None else f"{fraction * 100:.0f}%"
