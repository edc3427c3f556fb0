"""Carries schedules, their ledger and calendars into PostgreSQL's tables, and reads the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.core.schedule_model import Occurrence
from rota.store import rows
from rota.store.fold import TableChanges
from rota.store.postgres.connect import Connection
from rota.store.protocol import OccurrenceQuery
from rota.store.rows import Row

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


async def write_schedules(connection: Connection, folded: TableChanges) -> None:
    """What a window came to, inside the fold's transaction."""
    schedules = folded.schedules
    await _run_on_schedules(
        connection, _PUT_SCHEDULES, [rows.schedule_row(one) for one in schedules.values() if one]
    )
    await _run_on_schedules(
        connection,
        _MOVE_SCHEDULES,
        [rows.schedule_state_row(*one) for one in folded.schedule_states.items()],
    )
    gone = [(schedule_id,) for schedule_id, one in schedules.items() if one is None]
    await _run_on_schedules(
        connection, "DELETE FROM rota.schedules WHERE id = ANY ($1::text[])", gone
    )
    await _run_on_schedules(
        connection,
        _PUT_OCCURRENCES,
        [rows.occurrence_row(one) for one in folded.occurrences.values()],
    )
    await _run_on_schedules(
        connection, _COUNT_DECIDED, [(*word, count) for word, count in folded.decided.items()]
    )
    calendars = folded.calendars
    await _run_on_schedules(
        connection, _PUT_CALENDARS, [rows.calendar_row(one) for one in calendars.values() if one]
    )
    dropped = [(name,) for name, one in calendars.items() if one is None]
    await _run_on_schedules(
        connection, "DELETE FROM rota.calendars WHERE name = ANY ($1::text[])", dropped
    )


async def _run_on_schedules(connection: Connection, sql: str, given: Sequence[Row]) -> None:
    """One statement for all rows, a parameter a column."""
    if given:
        await connection.execute(sql, *(list(column) for column in zip(*given, strict=True)))


async def find_occurrences(connection: Connection, query: OccurrenceQuery) -> list[Occurrence]:
    """A page of a schedule's ledger, newest first."""
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
    found = await connection.fetch(
        f"SELECT body FROM rota.occurrences WHERE {' AND '.join(where)}"
        " ORDER BY nominal DESC LIMIT $2",
        *args,
        *bounds,
    )
    return [rows.occurrence(tuple(row)) for row in found]
