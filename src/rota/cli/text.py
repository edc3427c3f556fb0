"""Writes values as people read them: safe, short, and in units that fit."""

from __future__ import annotations

import re
from datetime import UTC, datetime

ID_SHOWN_CHARS = 8
"""Ids rise with time, so their ends tell them apart and their beginnings do not."""

_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
"""Colour and weight: what a terminal does with these harms nobody."""
_UNFINISHED = re.compile(r"(\x1b(\[[0-9;:]{0,64})?|\r)\Z")

_AGES = ((86_400, "d"), (3_600, "h"), (60, "m"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def plain(text: str, *, keep: str = "") -> str:
    """With everything a terminal might act on written out, so that data cannot give it orders."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def plain_log(text: str, *, colours: bool = False) -> str:
    """The same for a log: its lines and tabs stay, and its colours if wanted."""
    text = text.replace("\r\n", "\n")
    if not colours:
        return plain(text, keep="\n\t")
    # Splitting by a pattern with a group keeps what it matched: every second piece is a colour.
    pieces = enumerate(_COLOUR.split(text))
    return "".join(piece if n % 2 else plain(piece, keep="\n\t") for n, piece in pieces)


def unfinished(text: str) -> int:
    """How many characters at the end may be the beginning of a colour or of a line's end."""
    found = _UNFINISHED.search(text)
    return len(text) - found.start() if found else 0


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def short(uuid: str | None) -> str:
    """The end of an id, which can be given back to any command."""
    return uuid[-ID_SHOWN_CHARS:] if uuid else "-"


def moment(text: str) -> datetime:
    """A time of the API."""
    return datetime.fromisoformat(text)


def local(text: str | None) -> str:
    """A time of the API on the clock of who reads it."""
    return f"{moment(text).astimezone():%Y-%m-%d %H:%M:%S}" if text else "-"


def since_s(text: str, now_ms: int) -> float:
    """Seconds from a time of the API to now."""
    return (datetime.fromtimestamp(now_ms / 1000, UTC) - moment(text)).total_seconds()


def age(text: str | None, now_ms: int) -> str:
    """How long ago, or in how long."""
    if text is None:
        return "-"
    seconds = since_s(text, now_ms)
    return f"in {span(-seconds)}" if seconds <= -1 else span(max(0.0, seconds))


def between(start: str | None, end: str | None, now_ms: int) -> str:
    """How long something took, or has taken so far."""
    if start is None:
        return "-"
    done_s = since_s(start, now_ms) - (since_s(end, now_ms) if end else 0.0)
    return span(max(0.0, done_s))


def span(seconds: float) -> str:
    """A length of time in its largest two units at most."""
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


def size(amount: float) -> str:
    """An amount of bytes."""
    value = float(amount)
    for unit in _SIZES[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if value % 1 == 0 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_SIZES[-1]}"


def count(number: float) -> str:
    """A figure with its thousands apart."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"


def plural(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def amount(value: float) -> str:
    """Cpus, gpus: whole if they are."""
    return f"{value:g}"


def percent(fraction: float | None) -> str:
    """How far."""
    return "-" if fraction is None else f"{fraction * 100:.0f}%"
