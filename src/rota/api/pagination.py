"""Pagination of lists: opaque cursors, page limits, and how many records to read at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from rota.api.convert.jobs import UUID
from rota.api.limits import PAGE_BYTES_MAX
from rota.api.problems import invalid
from rota.core.model import Execution, JobRecord
from rota.store.queries import Page
from rota.wire.formats import make_cursor, parse_cursor
from rota.wire.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX
from rota.wire.problems import ProblemError


class PageSize:
    """Chooses how many records to read at a time: most are small, but each may have megabytes."""

    def __init__(self, most: int, first: int) -> None:
        """`first` are read while their size is not known."""
        self._most = most
        self._first = first
        self._read = 0
        self._bytes = 0

    @property
    def size(self) -> int:
        """Number of records to read next, if they are like those before."""
        if not self._read:
            return min(self._first, self._most)
        fitting = PAGE_BYTES_MAX * self._read // max(self._bytes, 1)
        return max(1, min(fitting, self._most))

    def record(self, records: Iterable[JobRecord | Execution]) -> None:
        """Notes the size of records that were read."""
        for one in records:
            self._read += 1
            self._bytes += job_bytes(one) if isinstance(one, JobRecord) else _execution_bytes(one)


def job_bytes(job: JobRecord) -> int:
    """Returns about how many bytes a job's record has."""
    spec, life = job.spec, job.life
    return len(spec.payload) + len(spec.task) + len(life.result or b"") + len(life.error or b"")


def _execution_bytes(one: Execution) -> int:
    return len(one.result or b"") + len(one.error or b"") + len(one.usage or b"")


T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_CURSOR_CHARS_MAX = 1000

Limit: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        le=PAGE_ITEMS_MAX,
        description="The most items to return. A page may have fewer, or none, and not be the last:"
        " the list ends where `next_cursor` is null.",
    ),
]
Cursor: TypeAlias = Annotated[
    str, Meta(description="`next_cursor` of the previous page; leave it out for the first page.")
]


def comma_list_of(words: Iterable[str]) -> Meta:
    """Describes a parameter that takes some of these words, separated by commas."""
    known = list(words)
    word = f"\\s*({'|'.join(known)})?\\s*"
    return Meta(
        description="One or more of these, separated by commas.",
        extra_json_schema={"pattern": f"^{word}(,{word})*$", "examples": [",".join(known[:2])]},
    )


def read_words(text: str | None) -> list[str]:
    """Splits a comma-separated parameter."""
    return [word for part in (text or "").split(",") if (word := part.strip())]


def read_choices(text: str | None, kind: type[E], field: str) -> tuple[E, ...]:
    """Parses a comma-separated parameter whose words are values of an enumeration."""
    try:
        return tuple(kind(word) for word in read_words(text))
    except ValueError:
        raise invalid(field, f"some of {', '.join(kind)}, by commas") from None


class PageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Query parameters of every list."""

    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


def read_cursor(cursor: str | None) -> str | None:
    """Returns the last item of the page before; refuses a cursor that is not ours."""
    if cursor is None:
        return None
    try:
        return parse_cursor(cursor, _CURSOR_CHARS_MAX)
    except ValueError:
        raise invalid("cursor", "not a cursor: send `next_cursor` of the page before") from None


def read_id_cursor(cursor: str | None) -> str | None:
    """Returns the last id of the page before, in a list ordered by UUID."""
    last = read_cursor(cursor)
    if last is not None and not UUID.match(last):
        raise foreign_cursor()
    return last


def foreign_cursor() -> ProblemError:
    """Refuses a cursor of another list."""
    return invalid("cursor", "not a cursor of this list: send `next_cursor` of the page before")


def cut(found: Sequence[T], limit: int, name: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
    """Returns a page out of `limit` + 1 items, and the cursor of the next page if there is one."""
    if len(found) <= limit:
        return found, None
    items = found[:limit]
    return items, make_cursor(name(items[-1]))


def cut_found(
    found: Page[T], limit: int, name: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """Returns a page of a search that may have ended early, and the cursor of the next page."""
    if found.rest is not None and len(found) <= limit:
        return found, make_cursor(found.rest)
    return cut(found, limit, name)


def page_of(
    items: Sequence[T], query: PageQuery, name: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """Returns a page of items in memory, which are sorted by rising `name`."""
    after = read_cursor(query.cursor)
    rest = items if after is None else [one for one in items if name(one) > after]
    return cut(rest[: query.limit + 1], query.limit, name)
