"""Schedules, calendars, triggers and events in PostgreSQL, written and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.core.trigger_model import AcceptedEvent, BufferedEvent, Trigger
from rota.store import rows
from rota.store.damage import Damage
from rota.store.postgres.connect import Connection
from rota.store.queries import EventQuery, OccurrenceQuery, TriggerDecisionQuery
from rota.store.rows import Row
from rota.store.table_changes import EventTableChanges, TableChanges

_PUT_SCHEDULES = """
INSERT INTO rota.schedules SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[])
ON CONFLICT (id) DO UPDATE SET course = excluded.course, body = excluded.body
"""
_MOVE_SCHEDULES = """
UPDATE rota.schedules s SET course = v.course
FROM unnest($1::text[], $2::bytea[]) AS v (id, course) WHERE s.id = v.id
"""
_PUT_OCCURRENCES = """
INSERT INTO rota.occurrences
SELECT * FROM unnest($1::text[], $2::int8[], $3::text[], $4::bytea[])
ON CONFLICT (schedule_id, nominal) DO UPDATE
SET decision = excluded.decision, body = excluded.body
"""
_COUNT_DECIDED = """
INSERT INTO rota.decided AS d SELECT * FROM unnest($1::text[], $2::text[], $3::int8[])
ON CONFLICT (decision, why) DO UPDATE SET count = d.count + excluded.count
"""
_PUT_CALENDARS = """
INSERT INTO rota.calendars SELECT * FROM unnest($1::text[], $2::bytea[])
ON CONFLICT (name) DO UPDATE SET body = excluded.body
"""


async def write_schedules(connection: Connection, changes: TableChanges) -> None:
    """Writes what a window came to, inside the projection's transaction."""
    schedules = changes.schedules
    await _write_rows(
        connection, _PUT_SCHEDULES, [rows.schedule_row(one) for one in schedules.values() if one]
    )
    await _write_rows(
        connection,
        _MOVE_SCHEDULES,
        [rows.schedule_state_row(*one) for one in changes.schedule_states.items()],
    )
    gone = [(schedule_id,) for schedule_id, one in schedules.items() if one is None]
    await _write_rows(connection, "DELETE FROM rota.schedules WHERE id = ANY ($1::text[])", gone)
    await _write_rows(
        connection,
        _PUT_OCCURRENCES,
        [rows.occurrence_row(one) for one in changes.occurrences.values()],
    )
    await _write_rows(
        connection, _COUNT_DECIDED, [(*word, count) for word, count in changes.decided.items()]
    )
    calendars = changes.calendars
    await _write_rows(
        connection, _PUT_CALENDARS, [rows.calendar_row(one) for one in calendars.values() if one]
    )
    dropped = [(name,) for name, one in calendars.items() if one is None]
    await _write_rows(
        connection, "DELETE FROM rota.calendars WHERE name = ANY ($1::text[])", dropped
    )


async def _write_rows(connection: Connection, sql: str, given: Sequence[Row]) -> None:
    """Runs one statement for all rows, with one parameter per column."""
    if given:
        await connection.execute(sql, *(list(column) for column in zip(*given, strict=True)))


async def find_occurrences(connection: Connection, query: OccurrenceQuery) -> Sequence[Any]:
    """Returns rows of schedule id, nominal, body; newest first."""
    where, args = ["schedule_id = $1"], [query.schedule_id]
    bounds: list[Any] = [query.limit]
    for clause, bound in (
        ("nominal > ${}", query.after),
        ("nominal < ${}", query.before),
        ("decision = ANY (${}::text[])", [one.value for one in query.decisions] or None),
    ):
        if bound is not None:
            bounds.append(bound)
            where.append(clause.format(len(args) + len(bounds)))
    found: Sequence[Any] = await connection.fetch(
        f"SELECT schedule_id, nominal, body FROM rota.occurrences WHERE {' AND '.join(where)}"
        " ORDER BY nominal DESC LIMIT $2",
        *args,
        *bounds,
    )
    return found


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


async def write_events(connection: Connection, changes: EventTableChanges) -> None:
    """Writes what a window came to, inside the projection's transaction."""
    triggers, buffered = changes.triggers, changes.buffered
    put = [rows.trigger_row(one) for one in triggers.values() if one is not None]
    await _write_rows(connection, _PUT_BODIES.format(table="triggers"), put)
    gone = [(trigger_id,) for trigger_id, one in triggers.items() if one is None]
    await _write_rows(connection, "DELETE FROM rota.triggers WHERE id = ANY ($1::text[])", gone)
    known = [(key,) for key in changes.accepted]
    await _write_rows(connection, "DELETE FROM rota.events WHERE key = ANY ($1::text[])", known)
    await _write_rows(
        connection,
        _PUT_EVENTS,
        [rows.accepted_event_row(one) for one in changes.accepted.values()],
    )
    decisions = [rows.trigger_decision_row(one) for one in changes.decisions.values()]
    await _write_rows(connection, _PUT_TRIGGER_DECISIONS, decisions)
    waiting = [rows.buffered_event_row(one) for one in buffered.values() if one is not None]
    await _write_rows(connection, _PUT_BODIES.format(table="held"), waiting)
    released = [(decision_id,) for decision_id, one in buffered.items() if one is None]
    await _write_rows(connection, "DELETE FROM rota.held WHERE id = ANY ($1::text[])", released)
    await _write_rows(connection, _COUNT_REACTED, list(changes.reacted.items()))


async def read_triggers(connection: Connection, damage: Damage) -> list[Trigger]:
    """Returns all, in order of creation."""
    found = await connection.fetch("SELECT id, body FROM rota.triggers ORDER BY id")
    return damage.whole(rows.trigger, found)


async def read_buffered_events(connection: Connection, damage: Damage) -> list[BufferedEvent]:
    """Returns all buffered events, in order of arrival."""
    found = await connection.fetch("SELECT id, body FROM rota.held")
    buffered = damage.whole(rows.buffered_event, found)
    return sorted(buffered, key=lambda one: (one.at, one.id))


async def read_accepted_events(connection: Connection, keys: Sequence[str]) -> list[AcceptedEvent]:
    """Returns those that were accepted."""
    found = await connection.fetch(
        "SELECT key, body FROM rota.events WHERE key = ANY ($1::text[])", list(keys)
    )
    return [rows.accepted_event(tuple(row)) for row in found]


async def find_events(connection: Connection, query: EventQuery) -> Sequence[Any]:
    """Returns rows of key, body, at; newest first."""
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
    return await _page(connection, "key, body, at FROM rota.events", where, args, rest)


async def find_trigger_decisions(
    connection: Connection, query: TriggerDecisionQuery
) -> Sequence[Any]:
    """Returns rows of trigger id, id, body; newest first."""
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
    columns = "trigger_id, id, body FROM rota.arrivals"
    return await _page(connection, columns, where, [*args, *more], rest)


async def _page(
    connection: Connection, columns: str, where: Sequence[str], args: Sequence[Any], rest: str
) -> Sequence[Any]:
    sql = f"SELECT {columns} WHERE {' AND '.join(where)} ORDER BY {rest}"
    found: Sequence[Any] = await connection.fetch(sql, *args)
    return found
