"""Cursors: opaque to clients, the last thing seen to us."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from rota.api.problems import invalid
from rota.api.translate import UUID
from rota.wire.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX

T = TypeVar("T")

_CURSOR_CHARS_MAX = 1000

Limit: TypeAlias = Annotated[
    int, Meta(ge=1, le=PAGE_ITEMS_MAX, description="How many items at most.")
]
Cursor: TypeAlias = Annotated[
    str, Meta(description="`next_cursor` of the page before; leave it out for the first page.")
]


def any_of(words: Iterable[str]) -> Meta:
    """What the document says of a parameter that takes some of these words."""
    known = list(words)
    word = f"\\s*({'|'.join(known)})?\\s*"
    return Meta(
        description="One or more of them, by commas.",
        extra_json_schema={"pattern": f"^{word}(,{word})*$", "examples": [",".join(known[:2])]},
    )


class PageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters that every list takes."""

    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


def make_cursor(last: str) -> str:
    """What leads on from the last item of a page."""
    return base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def read_cursor(cursor: str | None) -> str | None:
    """The last item seen; 422 if it is not a cursor of ours."""
    if cursor is None:
        return None
    try:
        if len(cursor) > _CURSOR_CHARS_MAX:
            raise ValueError
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        last = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise invalid("cursor", "not a cursor: send `next_cursor` of the page before") from None
    return last


def read_id_cursor(cursor: str | None) -> str | None:
    """The same, where items go by UUID."""
    last = read_cursor(cursor)
    if last is not None and not UUID.match(last):
        raise invalid("cursor", "not a cursor of this list: send `next_cursor` of the page before")
    return last


def cut(found: Sequence[T], limit: int, name: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
    """A page out of `limit` + 1 items, and the cursor to the next if there is one."""
    if len(found) <= limit:
        return found, None
    items = found[:limit]
    return items, make_cursor(name(items[-1]))


def page_of(
    items: Sequence[T], query: PageQuery, name: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """A page of what is in memory, already sorted by `name` rising."""
    after = read_cursor(query.cursor)
    rest = items if after is None else [one for one in items if name(one) > after]
    return cut(rest[: query.limit + 1], query.limit, name)
