"""Endpoints of dead letters: jobs that used up their attempts, listed and grouped by error.

Errors that differ only in numbers and ids are one group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from rota.api.auth.roles import Permission
from rota.api.endpoints.jobs import job_page
from rota.api.limits import ERROR_GROUP_JOBS, ERROR_GROUP_SAMPLES, ERROR_TEXT_CHARS
from rota.api.pagination import Cursor, Limit, PageSize, read_id_cursor
from rota.api.router import Call, Operation
from rota.core.model import JobRecord, JobState
from rota.store.queries import JobQuery
from rota.wire.formats import from_instant
from rota.wire.jobs import JobPage
from rota.wire.limits import PAGE_ITEMS_DEFAULT
from rota.wire.service import ErrorGroupPage, ErrorGroupView

_VARYING = re.compile(
    r"0x[0-9a-fA-F]+"
    r"|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|\b[0-9a-fA-F]{12,}\b"
    r"|\d+(?:\.\d+)*"
)
"""Addresses, ids, hashes and numbers: they differ from one failure to the next."""
_KEPT = re.compile(r"exit code \d+")
"""Number that is the error itself."""


class ErrorGroupsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the dead letters to group."""

    queue: str | None = None
    tenant: str | None = None
    name: str | None = None


def error_text(job: JobRecord) -> str:
    """Returns one line that says what went wrong."""
    error = _decoded(job.life.error)
    if isinstance(error, dict):
        kind, message = error.get("type"), error.get("message")
        words = [str(word) for word in (kind, message) if word not in (None, "")]
        text = ": ".join(words) or msgspec.json.encode(error).decode()
    else:
        text = "" if error is None else str(error)
    return " ".join(text[: 4 * ERROR_TEXT_CHARS].split())[:ERROR_TEXT_CHARS] or job.life.reason


def fingerprint_of(job: JobRecord) -> str:
    """Returns the same hash for jobs of one name that failed alike."""
    text = error_text(job)
    normalised = text if _KEPT.fullmatch(text) else _VARYING.sub("#", text)
    whole = "\x00".join((job.spec.terms.name, job.life.reason, normalised))
    return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _decoded(error: bytes | None) -> Any:
    return None if error is None else msgspec.json.decode(error)


@dataclass
class ErrorGroup:
    """Group of jobs that failed alike; the first added is the newest."""

    newest: JobRecord
    count: int = 0
    queues: dict[str, None] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)

    def add(self, job: JobRecord) -> None:
        self.count += 1
        self.queues[job.spec.terms.queue] = None
        self.times.append(job.life.finished_at or job.spec.created_at)
        if len(self.job_ids) < ERROR_GROUP_SAMPLES:
            self.job_ids.append(job.id)

    def view(self, fingerprint: str) -> ErrorGroupView:
        return ErrorGroupView(
            fingerprint=fingerprint,
            name=self.newest.spec.terms.name,
            message=error_text(self.newest),
            reason=self.newest.life.reason,
            count=self.count,
            queues=list(self.queues),
            first_at=from_instant(min(self.times)),
            last_at=from_instant(max(self.times)),
            job_ids=self.job_ids,
        )


def group_by_error(jobs: Iterable[JobRecord]) -> list[ErrorGroupView]:
    """Groups jobs by error, the largest group first."""
    groups: dict[str, ErrorGroup] = {}
    for job in jobs:
        fingerprint = fingerprint_of(job)
        if fingerprint not in groups:
            groups[fingerprint] = ErrorGroup(job)
        groups[fingerprint].add(job)
    views = [one.view(fingerprint) for fingerprint, one in groups.items()]
    return sorted(views, key=lambda view: (-view.count, view.name))


async def read_failed(
    call: Call[Any, Any], query: JobQuery, most: int
) -> tuple[list[JobRecord], bool]:
    """Reads the newest dead letters in small parts; also returns whether there may be more."""
    own = call.caller.tenant
    if own is not None:
        if query.tenant not in (None, own):
            return [], False
        query = msgspec.structs.replace(query, tenant=own)
    queries, found = call.deps.queries, []
    asked = msgspec.structs.replace(query, limit=most + 1, look=call.deps.limits.preview_look)
    ids = await queries.find_job_ids(asked)
    page_size, start = PageSize(most, call.deps.limits.read_at_once), 0
    while start < min(len(ids), most):
        end = min(start + page_size.size, most)
        part, start = await queries.jobs(ids[start:end]), end
        page_size.record(part)
        # Payloads may have megabytes, and a group needs none.
        found += [msgspec.structs.replace(one, spec=_without_payload(one)) for one in part]
    # One that was retried meanwhile is no dead letter any more.
    failed = [one for one in found if one.life.state is JobState.FAILED]
    return sorted(failed, key=_id, reverse=True), len(ids) > most or ids.rest is not None


def _id(job: JobRecord) -> str:
    return job.id


def _without_payload(job: JobRecord) -> Any:
    return msgspec.structs.replace(job.spec, payload=b"")


@Operation(
    "GET",
    "/dead-letters/groups",
    "Group dead letters by error",
    tag="Jobs",
    permission=Permission.READ,
    any_server=True,
    query=ErrorGroupsQuery,
    answer=ErrorGroupPage,
    description=(
        "The newest 1,000, by name and error; numbers and ids in an error are ignored. A group's "
        "`fingerprint` goes into the filter of `POST /jobs/bulk`."
    ),
    examples={"answer": "list_error_groups"},
)
async def list_error_groups(call: Call[None, ErrorGroupsQuery]) -> ErrorGroupPage:
    asked = call.query
    query = JobQuery(
        states=(JobState.FAILED,), queue=asked.queue, tenant=asked.tenant, name=asked.name
    )
    found, more = await read_failed(call, query, ERROR_GROUP_JOBS)
    return ErrorGroupPage(items=group_by_error(found), examined=len(found), more=more)


class DeadLettersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the list of dead letters."""

    queue: str | None = None
    tenant: str | None = None
    name: str | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "GET",
    "/dead-letters",
    "List dead letters (jobs that used up their attempts), newest first",
    tag="Jobs",
    permission=Permission.READ,
    any_server=True,
    query=DeadLettersQuery,
    answer=JobPage,
    examples={"answer": "jobs"},
)
async def list_dead_letters(call: Call[None, DeadLettersQuery]) -> JobPage:
    query = JobQuery(
        states=(JobState.FAILED,),
        queue=call.query.queue,
        tenant=call.query.tenant,
        name=call.query.name,
        before=read_id_cursor(call.query.cursor),
        limit=call.query.limit + 1,
    )
    return await job_page(call, query)
