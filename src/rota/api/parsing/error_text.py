"""Error texts for refused values: what a value may be, and the path of the wrong field.

Rewords the messages of msgspec, and finds the key of an object that msgspec does not name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from rota.api.limits import NAMED_BODY_BYTES, NAMED_ENTRIES
from rota.wire.formats import PATTERN_TEXTS

_PATTERNS = {repr(pattern): text for pattern, text in PATTERN_TEXTS.items()}
_NO_MATCH = "Expected `str` matching regex "
_NO_CHOICE = "Invalid enum value "
_SIZE = re.compile(
    r"Expected `(?P<kind>\w+)`(?P<length> of length)? (?P<sign>[<>]=?) (?P<bound>-?[\d.]+)"
)
_SIGNS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_COUNTED = {"str": "character", "array": "entry", "object": "entry"}
_TIMES = {
    "Invalid RFC3339 encoded datetime": "not a time: write it like 2026-01-31T09:00:00Z",
    "Invalid RFC3339 encoded date": "not a date: write it like 2026-01-31",
    "Expected `datetime` with a timezone component": (
        "a time needs its offset from UTC: write it like 2026-01-31T09:00:00Z or …T09:00:00+01:00"
    ),
}


def reword(text: str, kinds: Iterable[inspect.Type]) -> str:
    """Rewords the decoder's message about a value that should have been one of `kinds`."""
    if text.startswith(_NO_MATCH):
        return _PATTERNS.get(text.removeprefix(_NO_MATCH), text)
    if text.startswith(_NO_CHOICE) and (choices := list(_choices(kinds))):
        return f"{text.removeprefix(_NO_CHOICE)} is none of {', '.join(map(str, choices))}"
    if found := _SIZE.fullmatch(text):
        return _size(found)
    return _TIMES.get(text, text)


def _size(found: re.Match[str]) -> str:
    """Words a bound, such as `takes at most 255 characters` or `takes a number of at least 1`."""
    bound = f"{_SIGNS[found['sign']]} {found['bound']}"
    if not found["length"]:
        return f"takes a number of {bound}"
    counted = _COUNTED.get(found["kind"], found["kind"])
    if found["bound"] != "1":
        counted = f"{counted.removesuffix('y')}ies" if counted.endswith("y") else f"{counted}s"
    return f"takes {bound} {counted}"


def alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yields the types that a value may have, without metadata."""
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from alternatives(one)
    elif isinstance(kind, inspect.Metadata):
        yield from alternatives(kind.type)
    else:
        yield kind


def _choices(kinds: Iterable[inspect.Type]) -> Iterator[Any]:
    for kind in kinds:
        for one in alternatives(kind):
            if isinstance(one, inspect.LiteralType):
                yield from one.values
            elif isinstance(one, inspect.EnumType):
                yield from (member.value for member in one.cls)
            elif isinstance(
                one, inspect.DictType
            ):  # msgspec reports a refused key under its object's path
                yield from _choices([one.key_type])


_ONE_OF = "[...]"
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def entry_path(path: str, message: str, body: bytes, decode: Callable[[bytes], Any]) -> str:
    """Returns the path `.labels[...]` as `.labels.team`, found by decoding fewer and fewer entries.

    Large bodies and objects keep their path: an invalid request must not cost much.
    """
    before, found, after = path.partition(_ONE_OF)
    if not found or len(body) > NAMED_BODY_BYTES:
        return path
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return path  # the rest of the body is not valid JSON
    try:
        entries = _at(document, before)
    except (LookupError, TypeError):
        return path  # a name is there twice, the second time with another type
    if not isinstance(entries, dict) or len(entries) > NAMED_ENTRIES:
        return path
    given = list(entries.items())

    def is_refused(count: int) -> bool:
        """Whether the first `count` entries are refused with the same message."""
        entries.clear()
        entries.update(given[:count])
        return _refusal(decode, document) == message

    # The decoder stops at the first wrong entry: lists without it are not refused.
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
