"""Names the entry that a body's decoder refused, where it says only that it is one of an object."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import msgspec

from rota.api.limits import NAMED_BODY_BYTES, NAMED_ENTRIES

_ONE_OF = "[...]"
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def entry_path(path: str, said: str, body: bytes, decode: Callable[[bytes], Any]) -> str:
    """The path `.labels[...]` as `.labels.team`, if reading fewer and fewer of them shows which.

    Large bodies and objects keep the path as it is: whoever sends nonsense pays for little.
    """
    before, found, after = path.partition(_ONE_OF)
    if not found or len(body) > NAMED_BODY_BYTES:
        return path
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return path  # what comes after the fault is no JSON
    try:
        entries = _at(document, before)
    except (LookupError, TypeError):
        return path  # a name stands there twice, and the second time for something else
    if not isinstance(entries, dict) or len(entries) > NAMED_ENTRIES:
        return path
    given = list(entries.items())

    def is_refused(count: int) -> bool:
        """Whether the first so many of them are refused in the same words."""
        entries.clear()
        entries.update(given[:count])
        return _refusal(decode, document) == said

    # The decoder stops at the first entry at fault: it is refused with that one in, and not before.
    first = bisect_left(range(len(given)), 1, key=lambda at: is_refused(at + 1))
    return path if first == len(given) else f"{before}.{given[first][0]}{after}"


def _at(document: Any, path: str) -> Any:
    here = document
    for name, number in _STEP.findall(path):
        here = here[name] if name else here[int(number)]
    return here


def _refusal(decode: Callable[[bytes], Any], document: Any) -> str | None:
    try:
        decode(msgspec.json.encode(document))
    except msgspec.ValidationError as error:
        return str(error)
    except (ValueError, RecursionError):
        return None
    return None
