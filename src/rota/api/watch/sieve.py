"""What of the stream of changes a caller may know of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.api.lookup import tenants_of
from rota.api.parts import TenantCache
from rota.api.routes import Call
from rota.core.model import JobId
from rota.core.outcome import (
    DropJob,
    DropSchedule,
    DropTrigger,
    MoveJob,
    PutExecution,
    PutJob,
    PutOccurrence,
    PutSchedule,
    PutTrigger,
    PutTriggerDecision,
)
from rota.store.protocol import Change


async def visible_changes(call: Call[Any, Any], changes: Sequence[Change]) -> Sequence[Change]:
    """All of them, or those of a tenant's own and of the workers and queues everybody shares.

    That something is gone is told if it was told of before: nobody else knows any more whose it
    was. The same goes for instants and events that made no job.
    """
    own, book = call.caller.tenant, call.state.tenants
    if own is None:
        return changes
    for change in changes:
        _note_tenant(book, change)
    unknown = {job_id: None for job_id in map(_job_of, changes) if _is_unknown(book, job_id)}
    found = await tenants_of(call.deps.catalog, [one for one in unknown if one is not None])
    for job_id, tenant in found.items():
        book.record(job_id, tenant)
    return [one for one in changes if (thing := _owned_id(one)) is None or book.of(thing) == own]


def _note_tenant(book: TenantCache, change: Change) -> None:
    match change.write:
        case PutJob(id=job_id, spec=spec):
            book.record(job_id, spec.terms.tenant)
        case PutSchedule(schedule=schedule):
            book.record(schedule.id, schedule.definition.job.terms.tenant)
        case PutTrigger(trigger=trigger):
            book.record(trigger.id, trigger.definition.job.terms.tenant)
        case _:
            pass


def _is_unknown(book: TenantCache, job_id: JobId | None) -> bool:
    return job_id is not None and book.of(job_id) is None


def _owned_id(change: Change) -> str | None:
    """What a change is about, if that is somebody's; None: it is everybody's."""
    match change.write:
        case PutSchedule(schedule=schedule):
            return schedule.id
        case PutTrigger(trigger=trigger):
            return trigger.id
        case DropSchedule(id=thing_id) | DropTrigger(id=thing_id):
            return thing_id
        case PutOccurrence(occurrence=occurrence):
            return occurrence.job_id or occurrence.schedule_id
        case PutTriggerDecision(decision=arrival):
            return arrival.job_id or arrival.trigger_id
        case _:
            return _job_of(change)


def _job_of(change: Change) -> JobId | None:
    """The job that a change is about; None: it is about no job."""
    match change.write:
        case PutJob(id=job_id) | MoveJob(id=job_id) | DropJob(id=job_id):
            return job_id
        case PutExecution(execution=execution):
            return execution.job_id
        case PutOccurrence(occurrence=occurrence):
            return occurrence.job_id
        case PutTriggerDecision(decision=arrival):
            return arrival.job_id
        case _:
            return None
