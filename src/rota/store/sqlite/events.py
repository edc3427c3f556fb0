"""Triggers and events in SQLite: written by the projection, read in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from rota.core.model import Instant
from rota.core.trigger_model import AcceptedEvent, BufferedEvent, Trigger
from rota.store import rows
from rota.store.damage import Damage
from rota.store.limits import EVENT_AGE_MS, PRUNE_MIN, PRUNE_PER_RECORD, TRIGGER_DECISION_AGE_MS
from rota.store.queries import EventQuery, TriggerDecisionQuery, id_at
from rota.store.sqlite.connect import fetch_readable, run_in_bulk
from rota.store.table_changes import EventTableChanges

_json = msgspec.json.Encoder()


def write_events(connection: apsw.Connection, changes: EventTableChanges) -> None:
    """Writes what a window came to, inside the projection's transaction."""
    put = [rows.trigger_row(one) for one in changes.triggers.values() if one is not None]
    run_in_bulk(connection, "INSERT OR REPLACE INTO triggers VALUES", put)
    gone = [(trigger_id,) for trigger_id, one in changes.triggers.items() if one is None]
    run_in_bulk(connection, "DELETE FROM triggers WHERE id IN (VALUES", gone, ")")
    accepted = [rows.accepted_event_row(one) for one in changes.accepted.values()]
    run_in_bulk(connection, "INSERT OR REPLACE INTO events VALUES", accepted)
    decisions = [rows.trigger_decision_row(one) for one in changes.decisions.values()]
    run_in_bulk(connection, "INSERT OR REPLACE INTO arrivals VALUES", decisions)
    buffered = [
        rows.buffered_event_row(one) for one in changes.buffered.values() if one is not None
    ]
    run_in_bulk(connection, "INSERT OR REPLACE INTO held VALUES", buffered)
    released = [(decision_id,) for decision_id, one in changes.buffered.items() if one is None]
    run_in_bulk(connection, "DELETE FROM held WHERE id IN (VALUES", released, ")")
    run_in_bulk(
        connection,
        "INSERT INTO reacted VALUES",
        list(changes.reacted.items()),
        "ON CONFLICT (word) DO UPDATE SET count = count + excluded.count",
    )


def prune_events(connection: apsw.Connection, changes: EventTableChanges, now: Instant) -> None:
    """Deletes a few old rows at each projection, in proportion to what was added."""
    if changes.accepted:
        connection.execute(
            "DELETE FROM events WHERE key IN"
            " (SELECT key FROM events WHERE at < ? ORDER BY at LIMIT ?)",
            (now - EVENT_AGE_MS, PRUNE_MIN + PRUNE_PER_RECORD * len(changes.accepted)),
        )
    if changes.decisions:
        connection.execute(
            "DELETE FROM arrivals WHERE (trigger_id, id) IN"
            " (SELECT trigger_id, id FROM arrivals WHERE id < ? ORDER BY id LIMIT ?)",
            (
                id_at(now - TRIGGER_DECISION_AGE_MS),
                PRUNE_MIN + PRUNE_PER_RECORD * len(changes.decisions),
            ),
        )


def read_triggers(connection: apsw.Connection, damage: Damage) -> list[Trigger]:
    """Returns all, in order of creation."""
    found = fetch_readable(connection, "id, body", "FROM triggers ORDER BY id")
    return damage.whole(rows.trigger, found)


def read_buffered_events(connection: apsw.Connection, damage: Damage) -> list[BufferedEvent]:
    """Returns all buffered events, in order of arrival."""
    found = fetch_readable(connection, "id, body", "FROM held")
    buffered = damage.whole(rows.buffered_event, found)
    return sorted(buffered, key=lambda one: (one.at, one.id))


def read_accepted_events(connection: apsw.Connection, keys: Sequence[str]) -> list[AcceptedEvent]:
    """Returns those that were accepted."""
    sql = "SELECT key, body FROM events WHERE key IN (SELECT value FROM json_each(?))"
    found = connection.execute(sql, (_json.encode(keys).decode(),))
    return [rows.accepted_event(row) for row in found]


def search_events(query: EventQuery) -> tuple[str, tuple[Any, ...]]:
    """Returns the statement for rows of key, body, at; newest first."""
    where = ["true"]
    args: list[Any] = []
    for column, value in (("type", query.type), ("tenant", query.tenant)):
        if value is not None:
            where.append(f"{column} = ?")
            args.append(value)
    if query.before is not None:
        where.append("(at, key) < (?, ?)")
        args += query.before
    page = "ORDER BY at DESC, key DESC LIMIT ?"
    sql = f"SELECT key, body, at FROM events WHERE {' AND '.join(where)} {page}"
    return sql, (*args, query.limit)


def search_trigger_decisions(query: TriggerDecisionQuery) -> tuple[str, tuple[Any, ...]]:
    """Returns the statement for rows of trigger id, id, body, read along the primary key."""
    where, args = ["trigger_id = ?"], [str(query.trigger_id)]
    if query.decisions:
        where.append(f"verdict IN ({', '.join('?' * len(query.decisions))})")
        args += [one.value for one in query.decisions]
    if query.before is not None:
        where.append("id < ?")
        args.append(query.before)
    page = "ORDER BY id DESC LIMIT ?"
    sql = f"SELECT trigger_id, id, body FROM arrivals WHERE {' AND '.join(where)} {page}"
    return sql, (*args, query.limit)
