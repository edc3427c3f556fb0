"""Reads all that a store remembers, as plain values without names of fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from rota.alerts.evaluator import SETTINGS_KEY, STATE_KEY
from rota.store.object_index import BundleQuery
from rota.store.protocol import Direction, Snapshot, Store
from rota.store.queries import (
    EventQuery,
    ExecutionQuery,
    JobQuery,
    OccurrenceQuery,
    TriggerDecisionQuery,
)
from rota.store.tokens import AuditQuery

ALL = 10_000


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes are text in Latin 1, a struct is the list of its fields.

    Fields at the end that are as by default are left out: those that a later program adds, too.
    """
    match value:
        case msgspec.Struct():
            tag = value.__struct_config__.tag
            return [*([] if tag is None else [tag]), *map(plain, _fields(value))]
        case bytes():
            return value.decode("latin-1")
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case str() | bool() | int() | float() | None:
            return value
    return [plain(one) for one in value]


def _fields(value: msgspec.Struct) -> list[Any]:
    fields = [getattr(value, name) for name in value.__struct_fields__]
    for default in reversed(value.__struct_defaults__):
        if fields[-1] is not default and fields[-1] != default:
            break
        fields.pop()
    return fields


async def contents(store: Store) -> dict[str, Any]:
    """Returns all contents by kind and id; lists keep the order of the store."""
    found: dict[str, Any] = {}
    for read in (_journal, _live, _jobs, _schedules_and_triggers, _files, _settings, _access):
        found |= await read(store)
    return found


def _by_id(found: Iterable[Any]) -> dict[str, Any]:
    return {one.id: plain(one) for one in found}


async def _journal(store: Store) -> dict[str, Any]:
    return {
        "head": list(await store.queries.head()),
        "inbox": [plain(one)[:3] for one in await store.journal.take_inbox(ALL)],
        "cell": await store.name_cell(""),
    }


async def _live(store: Store) -> dict[str, Any]:
    """Reads what a leader loads; of jobs and executions the ids, as `_jobs` has them whole."""
    snapshot: Snapshot = await store.journal.load(ALL)
    return {
        "live_jobs": [one.id for one in snapshot.jobs],
        "live_executions": sorted(one.id for one in snapshot.executions),
        "next_arrival_number": snapshot.next_arrival_number,
        "totals": [
            snapshot.totals.submitted,
            *(sorted(map(list, plain(snapshot.totals)[number])) for number in (1, 2, 3)),
        ],
        "spilled": sorted(map(list, snapshot.spill_counts)),
        "workers": _by_id(snapshot.workers),
        "queues": {one.name: plain(one) for one in snapshot.queues},
        "policy": plain(snapshot.settings.policy),
        "tenants": [plain(one) for one in snapshot.settings.tenants],
        "runtimes": [plain(one) for one in snapshot.settings.runtimes],
        "schedules": [plain(one) for one in snapshot.schedules],
        "calendars": {one.name: plain(one) for one in snapshot.calendars},
        "triggers": [plain(one) for one in snapshot.triggers],
        "buffered_events": [plain(one) for one in snapshot.buffered_events],
    }


async def _jobs(store: Store) -> dict[str, Any]:
    jobs = await store.queries.find_jobs(JobQuery(limit=ALL))
    executions = await store.queries.find_executions(ExecutionQuery(limit=ALL))
    edges = await store.queries.edges([one.id for one in jobs], Direction.DOWNSTREAM)
    return {
        "jobs": _by_id(jobs),
        "executions": _by_id(executions),
        "edges": sorted(plain(one) for one in edges),
        "labels": {
            number: [one.id for one in found]
            for number in ("0", "11")
            if (found := await store.queries.find_jobs(JobQuery(labels=(("number", number),))))
        },
        "keys": {key: plain(await store.queries.key(key)) for key in ("key-1", "left-key")},
    }


async def _schedules_and_triggers(store: Store) -> dict[str, Any]:
    snapshot = await store.journal.load()
    find = store.queries
    return {
        "occurrences": await _each(
            (one.id for one in snapshot.schedules),
            lambda one: find.find_occurrences(OccurrenceQuery(schedule_id=one, limit=ALL)),
        ),
        "decisions": await _each(
            (one.id for one in snapshot.triggers),
            lambda one: find.find_trigger_decisions(
                TriggerDecisionQuery(trigger_id=one, limit=ALL)
            ),
        ),
        "events": [plain(one) for one in await find.find_events(EventQuery(limit=ALL))],
    }


async def _each(
    ids: Iterable[Any], read: Callable[[Any], Awaitable[Iterable[Any]]]
) -> dict[str, Any]:
    return {one: [plain(row) for row in await read(one)] for one in ids}


async def _files(store: Store) -> dict[str, Any]:
    executions = await store.queries.find_executions(ExecutionQuery(limit=ALL))
    ids = [one.id for one in executions]
    outputs = await store.artifacts.list_each(ids)
    return {
        "logs": {
            one: plain(page) for one in ids if (page := await store.logs.read(one, 0, ALL)).size
        },
        "artifacts": {
            one: [plain(artifact) for artifact in found]
            for one, found in zip(ids, outputs, strict=True)
            if found
        },
        "large_outputs": [plain(one) for one in await store.objects.large_outputs(ids)],
        "bundles": [plain(one) for one in await store.objects.find_bundles(BundleQuery(limit=ALL))],
        "deletions_due": sorted(await store.objects.deletions_due(2**60, ALL)),
    }


async def _settings(store: Store) -> dict[str, Any]:
    notes = (SETTINGS_KEY, STATE_KEY)
    return {
        "hooks": [plain(one) for one in await store.hooks.list()],
        "notes": {one: plain(await store.notes.get(one)) for one in notes},
    }


async def _access(store: Store) -> dict[str, Any]:
    known = await store.tokens.load(b"")
    return {
        "tokens": _by_id(known.tokens),
        "secret": plain(known.secret),
        "audit": [plain(one) for one in await store.tokens.audit(AuditQuery(limit=ALL))],
    }
