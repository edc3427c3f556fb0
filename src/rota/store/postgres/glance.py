"""Polls of the database: what a server asks and announces again and again, in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import asyncpg

from rota.store.limits import LOOK_LOCK_MS
from rota.store.postgres.connect import Address, DedicatedConnection
from rota.store.postgres.errors import breaks_connection
from rota.store.protocol import StoreError


class Part(NamedTuple):
    """Part of a poll."""

    rank: int
    """If a part is locked, those with a lower rank are asked first."""
    columns: str
    """SQL of its columns."""
    width: int
    """How many columns it has."""


REVISION = Part(0, "(SELECT revision FROM rota.access)", 1)
"""A number that every change of the tokens changes: nothing may keep a revoked token alive."""
HAS_INBOX = Part(1, "(SELECT id FROM rota.inbox ORDER BY id LIMIT 1) IS NOT NULL", 1)
"""Whether submissions wait there."""
_TOLD = Part(9, "set_config('synchronous_commit', 'off', true)", 1)
"""Comes with an announcement, which is repeated every second, so that a crash may undo it. It is
the last part, for it changes what columns after it would read."""
_ANNOUNCE = """
WITH told AS (
    INSERT INTO rota.nodes (node, body, seen_at)
    SELECT node, body, clock_timestamp() FROM unnest($1::text[], $2::bytea[]) said (node, body)
    ON CONFLICT (node) DO UPDATE SET body = excluded.body, seen_at = excluded.seen_at
)
"""

Row: TypeAlias = tuple[Any, ...]
Outcome: TypeAlias = Mapping[Part, Row | StoreError]


class _Round:
    """Parts that are asked in one statement."""

    def __init__(self) -> None:
        self.parts: dict[Part, None] = {}
        self.said: dict[str, bytes] = {}
        self.task: asyncio.Task[Outcome] | None = None


class Glance:
    """Polls of one server: callers that come at the same moment share a statement.

    If the database refuses the statement, its parts are asked one by one: a locked table fails only
    those who ask for it.
    """

    def __init__(self, line: DedicatedConnection) -> None:
        self._line = line
        self._next: _Round | None = None

    async def see(self, part: Part) -> Row:
        """Returns the part's columns as they are now."""
        joined = self._joined()
        joined.parts[part] = None
        return await _outcome_of(joined, part)

    async def tell(self, node: str, body: bytes) -> None:
        """Replaces the announcement of a server."""
        joined = self._joined()
        joined.parts[_TOLD] = None
        joined.said[node] = body
        await _outcome_of(joined, _TOLD)

    async def close(self) -> None:
        """Closes the connection."""
        await self._line.close()

    def _joined(self) -> _Round:
        if self._next is None:
            self._next = _Round()
            self._next.task = asyncio.create_task(self._run(self._next), name="rota-glance")
            self._next.task.add_done_callback(_heard)
        return self._next

    async def _run(self, joined: _Round) -> Outcome:
        self._next = None  # later callers must not share this one
        parts = sorted(joined.parts)
        try:
            return await self._ask(parts, joined.said)
        except StoreError as error:
            if len(parts) == 1 or not _is_refusal(error.__cause__):
                raise
        outcome: dict[Part, Row | StoreError] = {}
        for part in parts:
            try:
                outcome |= await self._ask([part], joined.said)
            except StoreError as error:
                outcome[part] = error
        return outcome

    async def _ask(self, parts: Sequence[Part], said: Mapping[str, bytes]) -> dict[Part, Row]:
        tells = _TOLD in parts
        columns = ", ".join(part.columns for part in parts)
        statement = f"{_ANNOUNCE if tells else ''} SELECT {columns}"
        given = (list(said), list(said.values())) if tells else ()
        found = await self._line.read(lambda c: c.fetchrow(statement, *given))
        assert found is not None, "a SELECT without FROM has one row"
        row, at, split = tuple(found), 0, {}
        for part in parts:
            split[part] = row[at : at + part.width]
            at += part.width
        return split


def look_line(address: Address) -> DedicatedConnection:
    """Returns the connection for polls alone: neither other work nor a lock delays them for
    long."""
    settings = {"synchronous_commit": "on", "lock_timeout": str(LOOK_LOCK_MS)}
    return DedicatedConnection(address, "look", address.limits.follow_deadline_s, settings)


async def _outcome_of(joined: _Round, part: Part) -> Row:
    assert joined.task is not None
    # A caller that is cancelled must not take the answer from the others.
    found = (await asyncio.shield(joined.task))[part]
    if isinstance(found, StoreError):
        raise found
    return found


def _is_refusal(error: BaseException | None) -> bool:
    """Returns whether the database refused, so that it may answer another statement."""
    return isinstance(error, asyncpg.PostgresError) and not breaks_connection(error)


def _heard(reading: asyncio.Task[Outcome]) -> None:
    # An error is raised in those who wait; perhaps nobody does any more.
    if not reading.cancelled():
        reading.exception()
