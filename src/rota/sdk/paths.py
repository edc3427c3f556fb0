"""Where a call goes: its path and its query, of what it names."""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import quote

Params: TypeAlias = tuple[tuple[str, str], ...]


def path_of(*segments: str) -> str:
    """A path; whatever is in a segment stays within it."""
    return "".join("/" + quote(segment, safe="") for segment in segments)


def params_of(**given: object) -> Params:
    """A query string's pairs; what is None is left out."""
    return tuple((name, _text(value)) for name, value in given.items() if value is not None)


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
