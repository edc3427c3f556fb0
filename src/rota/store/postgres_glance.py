"""Looks whether others left something new in the database: one small read for all who wonder."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from rota.store.postgres_connect import Line

_LOOK = """
SELECT revision, (SELECT id FROM rota.inbox ORDER BY id LIMIT 1) IS NOT NULL FROM rota.access
"""


class Seen(NamedTuple):
    """What there was."""

    access_revision: int
    """Another number after every change of the tokens."""
    has_inbox: bool
    """Whether submissions wait there."""


class Glance:
    """Those who ask in the same moment share a read; it begins after each of them has asked."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._next: asyncio.Task[Seen] | None = None

    async def look(self) -> Seen:
        """As it is now."""
        if self._next is None:
            self._next = asyncio.create_task(self._read(), name="rota-glance")
            self._next.add_done_callback(_heard)
        # One who goes away must not take the answer from the others.
        return await asyncio.shield(self._next)

    async def _read(self) -> Seen:
        self._next = None  # who comes from here on may have come too late
        row = await self._line.read(lambda c: c.fetchrow(_LOOK))
        assert row is not None, "the table has one row from its beginning"
        return Seen(*row)


def _heard(reading: asyncio.Task[Seen]) -> None:
    """Whatever went wrong is told to those who wait; perhaps nobody does any more."""
    if not reading.cancelled():
        reading.exception()
