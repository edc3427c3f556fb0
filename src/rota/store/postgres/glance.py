"""What a server asks and tells the database again and again: one small statement for all of it."""

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
    """Something to be looked at."""

    rank: int
    """Where one stands in the way of another, those with a low one are looked at first."""
    columns: str
    """As SQL."""
    width: int
    """How many columns those are."""


REVISION = Part(0, "(SELECT revision FROM rota.access)", 1)
"""Another number after every change of the tokens: nothing may keep a revoked one alive."""
HAS_INBOX = Part(1, "(SELECT id FROM rota.inbox ORDER BY id LIMIT 1) IS NOT NULL", 1)
"""Whether submissions wait there."""
_TOLD = Part(9, "set_config('synchronous_commit', 'off', true)", 1)
"""Goes with an announcement: what a crash takes back of those is said again in a second. The last
one, for it changes what the columns behind it would see."""
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
    """What is asked and told in one go."""

    def __init__(self) -> None:
        self.parts: dict[Part, None] = {}
        self.said: dict[str, bytes] = {}
        self.task: asyncio.Task[Outcome] | None = None


class Glance:
    """Those who come in the same moment share a statement; it begins after each of them has come.

    What the database refuses as a whole is asked one by one: a table that somebody has locked is
    trouble for those who look at that one, and for no others.
    """

    def __init__(self, line: DedicatedConnection) -> None:
        self._line = line
        self._next: _Round | None = None

    async def see(self, part: Part) -> Row:
        """As it is now."""
        joined = self._joined()
        joined.parts[part] = None
        return await _outcome_of(joined, part)

    async def tell(self, node: str, body: bytes) -> None:
        """Puts what a server says in the place of what it said before."""
        joined = self._joined()
        joined.parts[_TOLD] = None
        joined.said[node] = body
        await _outcome_of(joined, _TOLD)

    async def close(self) -> None:
        """Looks no more."""
        await self._line.close()

    def _joined(self) -> _Round:
        if self._next is None:
            self._next = _Round()
            self._next.task = asyncio.create_task(self._run(self._next), name="rota-glance")
            self._next.task.add_done_callback(_heard)
        return self._next

    async def _run(self, joined: _Round) -> Outcome:
        self._next = None  # who comes from here on may have come too late
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
    """The connection for this alone: no crowd, and nobody's lock, keeps a look waiting for long."""
    settings = {"synchronous_commit": "on", "lock_timeout": str(LOOK_LOCK_MS)}
    return DedicatedConnection(address, "look", address.limits.follow_deadline_s, settings)


async def _outcome_of(joined: _Round, part: Part) -> Row:
    assert joined.task is not None
    # One who goes away must not take the answer from the others.
    found = (await asyncio.shield(joined.task))[part]
    if isinstance(found, StoreError):
        raise found
    return found


def _is_refusal(error: BaseException | None) -> bool:
    """Whether the database would answer something else."""
    return isinstance(error, asyncpg.PostgresError) and not breaks_connection(error)


def _heard(reading: asyncio.Task[Outcome]) -> None:
    """Whatever went wrong is told to those who wait; perhaps nobody does any more."""
    if not reading.cancelled():
        reading.exception()
