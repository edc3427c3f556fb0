"""What of the stream of changes a caller may know of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.api.lookup import tenants_of
from rota.api.parts import TenantBook
from rota.api.routes import Call
from rota.core.model import JobId
from rota.core.outcome import DropJob, MoveJob, PutExecution, PutJob
from rota.store.protocol import Change


async def own_changes(call: Call[Any, Any], changes: Sequence[Change]) -> Sequence[Change]:
    """All of them, or those of a tenant's jobs and of the workers and queues everybody shares.

    That a job is gone is told if it was told of before: nobody else knows any more whose it was.
    """
    own, book = call.caller.tenant, call.desk.tenants
    if own is None:
        return changes
    for change in changes:
        if isinstance(change.write, PutJob):
            book.note(change.write.id, change.write.spec.terms.tenant)
    unknown = {job_id: None for job_id in map(_job_of, changes) if _is_unknown(book, job_id)}
    found = await tenants_of(call.parts.catalog, [one for one in unknown if one is not None])
    for job_id, tenant in found.items():
        book.note(job_id, tenant)
    return [one for one in changes if (job := _job_of(one)) is None or book.of(job) == own]


def _is_unknown(book: TenantBook, job_id: JobId | None) -> bool:
    return job_id is not None and book.of(job_id) is None


def _job_of(change: Change) -> JobId | None:
    """The job that a change is about; None: it is about no job."""
    match change.write:
        case PutJob(id=job_id) | MoveJob(id=job_id) | DropJob(id=job_id):
            return job_id
        case PutExecution(execution=execution):
            return execution.job_id
        case _:
            return None
