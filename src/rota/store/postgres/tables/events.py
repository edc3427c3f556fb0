"""Triggers, events and webhook endpoints in PostgreSQL: written by the fold, read in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.core.trigger_model import AcceptedEvent, BufferedEvent, Trigger, TriggerDecision
from rota.store import event_rows
from rota.store.fold_events import EventTableChanges
from rota.store.postgres.connect import Connection, DedicatedConnection
from rota.store.protocols.hooks import Hook, decode_hook, encode_hook
from rota.store.protocols.queries import EventQuery, TriggerDecisionQuery
from rota.store.rows import Row

_PUT_BODIES = """
INSERT INTO rota.{table} SELECT * FROM unnest($1::text[], $2::bytea[])
ON CONFLICT (id) DO UPDATE SET body = excluded.body
"""
_PUT_EVENTS = """
INSERT INTO rota.events
SELECT * FROM unnest($1::text[], $2::int8[], $3::text[], $4::text[], $5::bytea[])
"""
_PUT_TRIGGER_DECISIONS = """
INSERT INTO rota.arrivals SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[])
ON CONFLICT (trigger_id, id) DO UPDATE SET verdict = excluded.verdict, body = excluded.body
"""
_COUNT_REACTED = """
INSERT INTO rota.reacted AS r SELECT * FROM unnest($1::text[], $2::int8[])
ON CONFLICT (word) DO UPDATE SET count = r.count + excluded.count
"""


async def write_events(connection: Connection, folded: EventTableChanges) -> None:
    """What a window came to, inside the fold's transaction."""
    triggers, held = folded.triggers, folded.buffered
    put = [event_rows.trigger_row(one) for one in triggers.values() if one is not None]
    await _run_on_events(connection, _PUT_BODIES.format(table="triggers"), put)
    gone = [(trigger_id,) for trigger_id, one in triggers.items() if one is None]
    await _run_on_events(connection, "DELETE FROM rota.triggers WHERE id = ANY ($1::text[])", gone)
    known = [(key,) for key in folded.accepted]
    await _run_on_events(connection, "DELETE FROM rota.events WHERE key = ANY ($1::text[])", known)
    await _run_on_events(
        connection,
        _PUT_EVENTS,
        [event_rows.accepted_event_row(one) for one in folded.accepted.values()],
    )
    arrivals = [event_rows.trigger_decision_row(one) for one in folded.decisions.values()]
    await _run_on_events(connection, _PUT_TRIGGER_DECISIONS, arrivals)
    waiting = [event_rows.buffered_event_row(one) for one in held.values() if one is not None]
    await _run_on_events(connection, _PUT_BODIES.format(table="held"), waiting)
    released = [(arrival_id,) for arrival_id, one in held.items() if one is None]
    await _run_on_events(connection, "DELETE FROM rota.held WHERE id = ANY ($1::text[])", released)
    await _run_on_events(connection, _COUNT_REACTED, list(folded.reacted.items()))


async def _run_on_events(connection: Connection, sql: str, given: Sequence[Row]) -> None:
    """One statement for all rows, a parameter a column."""
    if given:
        await connection.execute(sql, *(list(column) for column in zip(*given, strict=True)))


async def read_triggers(connection: Connection) -> list[Trigger]:
    """All, in order of creation."""
    found = await connection.fetch("SELECT body FROM rota.triggers ORDER BY id")
    return [event_rows.trigger(tuple(row)) for row in found]


async def read_buffered_events(connection: Connection) -> list[BufferedEvent]:
    """All events that wait, in order of arrival."""
    found = await connection.fetch("SELECT body FROM rota.held")
    held = [event_rows.buffered_event(tuple(row)) for row in found]
    return sorted(held, key=lambda one: (one.at, one.id))


async def read_accepted_events(connection: Connection, keys: Sequence[str]) -> list[AcceptedEvent]:
    """Those that were accepted."""
    found = await connection.fetch(
        "SELECT body FROM rota.events WHERE key = ANY ($1::text[])", list(keys)
    )
    return [event_rows.accepted_event(tuple(row)) for row in found]


async def find_events(connection: Connection, query: EventQuery) -> list[AcceptedEvent]:
    """A page of accepted events, newest first."""
    where = ["true"]
    args: list[Any] = []
    for column, value in (("type", query.type), ("tenant", query.tenant)):
        if value is not None:
            args.append(value)
            where.append(f"{column} = ${len(args)}")
    if query.before is not None:
        args += query.before
        where.append(f"(at, key) < (${len(args) - 1}::int8, ${len(args)}::text)")
    rest = f"at DESC, key DESC LIMIT {query.limit:d}"
    found = await _page(connection, "events", where, args, rest)
    return [event_rows.accepted_event(tuple(row)) for row in found]


async def find_trigger_decisions(
    connection: Connection, query: TriggerDecisionQuery
) -> list[TriggerDecision]:
    """A page of a trigger's ledger, newest first."""
    where, args = ["trigger_id = $1"], [query.trigger_id]
    more: list[Any] = []
    for clause, value in (
        ("id < ${}", query.before),
        ("verdict = ANY (${}::text[])", [one.value for one in query.decisions] or None),
    ):
        if value is not None:
            more.append(value)
            where.append(clause.format(len(args) + len(more)))
    rest = f"id DESC LIMIT {query.limit:d}"
    found = await _page(connection, "arrivals", where, [*args, *more], rest)
    return [event_rows.trigger_decision(tuple(row)) for row in found]


async def _page(
    connection: Connection, table: str, where: Sequence[str], args: Sequence[Any], rest: str
) -> list[Any]:
    sql = f"SELECT body FROM rota.{table} WHERE {' AND '.join(where)} ORDER BY {rest}"
    return await connection.fetch(sql, *args)


class PostgresHooks:
    """Webhook endpoints, shared by all servers of a cell."""

    def __init__(self, line: DedicatedConnection) -> None:
        self._connection = line

    async def put(self, hook: Hook) -> None:
        """As given, in place of one of the same name."""
        sql = (
            "INSERT INTO rota.hooks VALUES ($1, $2)"
            " ON CONFLICT (name) DO UPDATE SET body = excluded.body"
        )
        await self._connection.write(lambda c: c.execute(sql, hook.name, encode_hook(hook)))

    async def get(self, name: str) -> Hook | None:
        """One of them."""
        sql = "SELECT body FROM rota.hooks WHERE name = $1"
        body = await self._connection.read(lambda c: c.fetchval(sql, name))
        return None if body is None else decode_hook(body)

    async def list(self) -> Sequence[Hook]:
        """All, by name."""
        sql = "SELECT body FROM rota.hooks ORDER BY name"
        found = await self._connection.read(lambda c: c.fetch(sql))
        return [decode_hook(row[0]) for row in found]

    async def drop(self, name: str) -> bool:
        """Removes one; False: there was none."""
        sql = "DELETE FROM rota.hooks WHERE name = $1 RETURNING name"
        return await self._connection.write(lambda c: c.fetchval(sql, name)) is not None
