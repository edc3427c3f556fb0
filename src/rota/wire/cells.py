"""Cells: how one is named, and where an id carries the cell that it is of."""

from __future__ import annotations

import hashlib
import re

from rota.wire.patterns import CELL_NAME

NO_TAG = "000"
"""What ids carry where the cell has no name."""
TAG_AT = slice(15, 18)
"""The three digits after a UUIDv7's version: those that RFC 9562 leaves to the maker."""

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


def is_cell_name(text: str) -> bool:
    """Whether a cell can be called so."""
    return re.match(CELL_NAME, text) is not None


def cell_tag(name: str) -> str:
    """The three hex digits that stand for a cell: the first of its name's SHA-256.

    `rota.new_id()` of PostgreSQL's schema computes the same.
    """
    return hashlib.sha256(name.encode()).hexdigest()[:3] if name else NO_TAG


def tag_in(text: str) -> str | None:
    """The tag that an id carries; None where it is no UUIDv7 and so cannot carry one."""
    text = text.lower()
    return text[TAG_AT] if _UUID7.match(text) else None
