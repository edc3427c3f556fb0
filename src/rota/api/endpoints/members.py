"""The members of arrays and gangs that have ended: found by their ids, which are a range."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace as with_changes
from typing import Any

from msgspec.structs import replace

from rota.api.limits import BULK_AT_ONCE
from rota.api.recall import post_about
from rota.api.router import Call
from rota.api.tenant_scope import is_own
from rota.core.commands import AnyInput, Delete, Preloaded
from rota.core.errors import NotFound
from rota.core.ids import members_between
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import Array, Gang, GroupMember, JobId, JobRecord, JobState, unsuccessful_count
from rota.core.outcome import AnyReceipt
from rota.store.queries import JobQuery
from rota.wire.problems import ProblemError

_UNLUCKY = tuple(state for state in JOB_FINAL if state is not JobState.SUCCEEDED)


def within(query: JobQuery, band_id: JobId) -> JobQuery:
    """The same, but of the members of one band only."""
    first, last = members_between(band_id)
    before = last if query.before is None else min(last, query.before)
    return replace(query, after=first, before=before)


async def failed_members(call: Call[Any, Any], job_id: JobId) -> tuple[int, ...] | None:
    """The indices of an ended array's members that ran and did not succeed.

    None: it is no array, or nobody need look, for it is all that ran or none.
    """
    found = await call.deps.queries.jobs([job_id])
    tally = found[0].life.group_progress if found else None
    if tally is None or not isinstance(found[0].spec.group, Array):
        return None
    if unsuccessful_count(tally) in (0, tally.drawn):
        return None
    failed: list[int] = []
    async for page in _pages(call, job_id, _UNLUCKY):
        failed += [job.spec.group.index for job in page if isinstance(job.spec.group, GroupMember)]
    return tuple(sorted(failed))


async def with_members(
    call: Call[Any, Any], job_id: JobId, post_delete: Callable[[], Awaitable[AnyReceipt]]
) -> AnyReceipt:
    """Deletes a job, and with an array or gang its members: first or last of all the band itself.

    Of an ended band the members go first: should this be broken off, the rest can still be found.
    Of a live one those go that have ended; the others go by themselves as they stop.
    """
    found = await call.deps.queries.jobs([job_id])
    return await take_along(call, found[0], post_delete) if found else await post_delete()


async def take_along(
    call: Call[Any, Any], job: JobRecord, post_delete: Callable[[], Awaitable[AnyReceipt]]
) -> AnyReceipt:
    """The same of a job that has just been read."""
    if not isinstance(job.spec.group, Array | Gang) or not is_own(call, job.spec.terms):
        return await post_delete()
    has_ended = job.life.state in JOB_FINAL
    if has_ended:
        await _delete_ended(call, job.id)
    receipt = await post_delete()
    if not has_ended:
        await _delete_ended(call, job.id)
    return receipt


async def _delete_ended(call: Call[Any, Any], band_id: JobId) -> None:
    single = with_changes(call, key=None)  # the key is for the band as a whole
    async for page in _pages(call, band_id, JOB_FINAL):
        for start in range(0, len(page), BULK_AT_ONCE):
            part = page[start : start + BULK_AT_ONCE]
            await asyncio.gather(*(_delete_one(single, job.id) for job in part))


async def _delete_one(call: Call[Any, Any], job_id: JobId) -> None:
    def build(recall: Preloaded | None) -> AnyInput:
        return Delete(job_id=job_id, preloaded=recall)

    try:
        await post_about(call, job_id, build)
    except NotFound:
        return  # somebody else was quicker
    except ProblemError as error:
        if error.status != 404:
            raise


async def _pages(
    call: Call[Any, Any], band_id: JobId, states: tuple[JobState, ...]
) -> AsyncIterator[list[JobRecord]]:
    queries, size = call.deps.queries, call.deps.limits.bulk_page
    query = within(JobQuery(states=states, limit=size), band_id)
    while True:
        page = await queries.find_jobs(query)
        yield page
        if len(page) < size:
            return
        query = replace(query, before=page[-1].id)
