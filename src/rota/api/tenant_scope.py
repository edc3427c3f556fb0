"""Tenant scope: finds jobs and executions of the caller's tenant; others do not exist for it.

A caller without a tenant sees all, at no extra cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rota.api.convert.jobs import UUID
from rota.api.deps import AppDeps
from rota.api.limits import OUTLINES_AT_ONCE
from rota.api.pagination import PageSize, cut, cut_found
from rota.api.parsing.error_text import reword
from rota.api.problems import invalid, not_found
from rota.api.router import Call
from rota.core.errors import UnknownDependency
from rota.core.model import Execution, ExecutionId, JobId, JobRecord, Terms
from rota.engine.ports import UnavailableError
from rota.store.protocol import Outline, QueryStore
from rota.store.queries import ExecutionQuery
from rota.wire.formats import make_cursor
from rota.wire.jobs import JobSpec, QueueName
from rota.wire.problems import ProblemError


def name_in(call: Call[Any, Any]) -> str:
    """Returns the name in the path, of a queue, tenant, calendar, endpoint, rule or channel."""
    try:
        return msgspec.convert(call.path["name"], QueueName)
    except msgspec.ValidationError as error:
        raise invalid("name", reword(str(error), ())) from None


def id_in(call: Call[Any, Any], parameter: str, kind: str) -> str:
    """Returns the UUID in the path; a text that cannot be one is not found."""
    text = call.path[parameter]
    if not UUID.match(text.lower()):
        raise not_found(kind, text[:100])
    return text.lower()


class _WithTenant(msgspec.Struct):
    """Job of which only the tenant is read: a parsed one has a default in its place."""

    tenant: str | None = None


class _WithJob(msgspec.Struct):
    """Schedule or trigger of which only the job's tenant is read."""

    job: _WithTenant | None = None


class _Body(_WithTenant):
    """Body that brings jobs: one, many, or templates of jobs."""

    job: _WithTenant | None = None
    jobs: list[_WithTenant] = []
    schedules: list[_WithJob] = []
    triggers: list[_WithJob] = []
    trigger: _WithJob | None = None

    def all_named(self) -> Iterator[_WithTenant | None]:
        yield self
        yield self.job
        yield from self.jobs
        for definition in (*self.schedules, *self.triggers, self.trigger):
            yield None if definition is None else definition.job


def is_own(call: Call[Any, Any], terms: Terms) -> bool:
    """Whether the caller may see what has these terms: a job, or a template of jobs."""
    return call.caller.tenant in (None, terms.tenant)


async def find_job(call: Call[Any, Any], job_id: JobId) -> JobRecord:
    """Returns a job in any state; 404 if it does not exist for the caller."""
    found = await call.deps.queries.jobs([job_id])
    job = found[0] if found else await _waiting_for_leader(call.deps, job_id)
    if job is None or not is_own(call, job.spec.terms):
        raise not_found("job", job_id)
    return job


async def check_not_waiting_for_leader(call: Call[Any, Any], job_id: JobId) -> None:
    """Refuses an action on a job that was accepted without a leader: it is not unknown."""
    if (
        call.deps.leaderless_inbox is not None
        and await call.deps.leaderless_inbox.find(job_id) is not None
    ):
        raise UnavailableError(f"the job {job_id} was accepted and waits for a leader: try again")


async def _waiting_for_leader(deps: AppDeps, job_id: JobId) -> JobRecord | None:
    """Returns a job accepted without a leader, or by an application's own transaction."""
    if deps.leaderless_inbox is None:
        return None
    entry = await deps.leaderless_inbox.find(job_id)
    if entry is not None:
        return entry
    # A leader may have taken it between the two reads.
    found = await deps.queries.jobs([job_id])
    return found[0] if found else None


async def check_own(call: Call[Any, Any], job_id: JobId) -> None:
    """Refuses the jobs of other tenants like jobs that do not exist."""
    if call.caller.tenant is not None:
        await find_job(call, job_id)


async def find_execution(call: Call[Any, Any], execution_id: ExecutionId) -> Execution:
    """Returns an execution in any state; 404 if it does not exist for the caller."""
    found = await call.deps.queries.executions([execution_id])
    if not found or not await own_executions(call, found):
        raise not_found("execution", execution_id)
    return found[0]


async def own_executions(call: Call[Any, Any], found: Sequence[Execution]) -> Sequence[Execution]:
    """Returns those whose jobs the caller may see."""
    own = call.caller.tenant
    if own is None:
        return found
    tenants = await tenants_of(call.deps.queries, {one.job_id: None for one in found})
    return [one for one in found if tenants.get(one.job_id) == own]


async def tenants_of(queries: QueryStore, job_ids: Iterable[JobId]) -> dict[JobId, str]:
    return {one.id: one.tenant for one in await outlines_of(queries, job_ids)}


async def outlines_of(queries: QueryStore, job_ids: Iterable[JobId]) -> list[Outline]:
    """Returns outlines of jobs (name, state, tenant), read a limited number at a time."""
    wanted, found = list(job_ids), []
    for start in range(0, len(wanted), OUTLINES_AT_ONCE):
        found += await queries.outlines(wanted[start : start + OUTLINES_AT_ONCE])
    return found


async def find_executions(
    call: Call[Any, Any], query: ExecutionQuery
) -> tuple[Sequence[Execution], str | None]:
    """Returns a page; the query asks for one more than is shown. It may end early."""
    queries, limit, limits = call.deps.queries, query.limit - 1, call.deps.limits
    query = msgspec.structs.replace(query, look=limits.page_look)
    if call.caller.tenant is None:
        return cut_found(await queries.find_executions(query), limit, _id)
    own: list[Execution] = []
    page_size, scanned = PageSize(limits.executions_at_once, limits.read_at_once), 0
    while scanned < limits.executions_scanned_max:
        size = page_size.size
        part = await queries.find_executions(msgspec.structs.replace(query, limit=size))
        own += await own_executions(call, part)
        if len(own) > limit:
            return cut(own, limit, _id)
        if part.rest is not None:
            return own, make_cursor(part.rest)
        if len(part) < size:
            return own, None
        query = msgspec.structs.replace(query, before=part[-1].id)
        page_size.record(part)
        scanned += size
    return own, make_cursor(query.before or "")


def _id(execution: Execution) -> str:
    return execution.id


def set_default_tenant(call: Call[Any, Any], specs: Sequence[JobSpec]) -> None:
    """Sets the tenant of jobs submitted with a tenant's token; refuses another tenant."""
    own = call.caller.tenant
    if own is None:
        return
    for one in msgspec.json.decode(call.raw, type=_Body).all_named():
        check_tenant(call, one.tenant if one else None)
    for spec in specs:
        spec.tenant = own


def with_default_tenant(call: Call[Any, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Sets the tenant in a patch of a schedule or trigger; refuses another tenant."""
    own, job = call.caller.tenant, patch.get("job", {})
    if own is None or not isinstance(job, dict):
        return patch
    check_tenant(call, job.get("tenant"))
    return {**patch, "job": {**job, "tenant": own}}


def check_tenant(call: Call[Any, Any], named: str | None) -> None:
    """Refuses another tenant than the caller's."""
    own = call.caller.tenant
    if own is not None and named not in (None, own):
        detail = (
            f"the token {call.caller.name!r} is for the tenant {own!r}: leave `tenant` out, or use"
            " a token without a tenant"
        )
        raise ProblemError(403, "other_tenant", detail)


async def check_upstream(call: Call[Any, Any], outside: Mapping[JobId, str]) -> None:
    """Refuses dependencies on jobs that the caller does not see."""
    own = call.caller.tenant
    if own is None:
        return
    tenants = await tenants_of(call.deps.queries, outside)
    for job_id, field in outside.items():
        if (
            job_id not in tenants
            and (job := await _waiting_for_leader(call.deps, job_id)) is not None
        ):
            tenants[job_id] = job.spec.terms.tenant
        if tenants.get(job_id) != own:
            raise UnknownDependency(f"there is no job {job_id} to depend on", field)
