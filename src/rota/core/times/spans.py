"""Says how long something is, for people."""

from __future__ import annotations

from rota.core.model import Millis

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def duration_text(ms: Millis) -> str:
    """Seconds below a minute, else the two largest units: 1 h 30 min."""
    if ms < 60_000:
        return f"{ms / 1000:g} s"
    parts: list[str] = []
    for size, name in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])
