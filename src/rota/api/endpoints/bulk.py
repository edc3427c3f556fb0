"""One action on all jobs that match a filter, page by page, with a bounded number under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from rota.api.auth.roles import Permission
from rota.api.endpoints.bulk_order import Heads, Latecomers
from rota.api.endpoints.bulk_refusals import GONE, Bound, Refusals
from rota.api.endpoints.dead_letters import fingerprint_of, read_failed
from rota.api.endpoints.jobs import label_in, post_retry, post_update
from rota.api.endpoints.members import take_along
from rota.api.limits import BULK_AT_ONCE
from rota.api.pagination import read_choices
from rota.api.problems import invalid
from rota.api.recall import post_about
from rota.api.router import Call, NoQuery, Operation
from rota.core.commands import AnyInput, Cancel, Delete, Preloaded
from rota.core.errors import Refusal, StalePreload, TooMuch
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import Array, Gang, JobId, JobRecord, JobState, Spec
from rota.engine.ports import UnavailableError
from rota.store.queries import JobQuery
from rota.wire.formats import to_instant
from rota.wire.jobs import BulkAnswer, BulkSpec, JobFilter
from rota.wire.problems import ProblemError

Act = Callable[[JobRecord], Awaitable[Any]]

_MEANT = {
    "cancel": (JobState.PENDING, JobState.QUEUED, JobState.RUNNING),
    "retry": (JobState.FAILED, JobState.CANCELLED, JobState.SKIPPED, JobState.EXPIRED),
    "delete": (
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.SKIPPED,
        JobState.EXPIRED,
    ),
    "reprioritise": (JobState.PENDING, JobState.QUEUED),
}
"""Where a filter names no status, an action is for the jobs it can be done to."""


@Operation(
    "POST",
    "/jobs/bulk",
    "Act on all jobs that match",
    tag="Jobs",
    permission=Permission.OPERATE,
    body=BulkSpec,
    answer=BulkAnswer,
    description=(
        "Without a status in the filter, the action applies to the jobs it is possible for. "
        "`refused` counts jobs for which it was not possible, `reasons` says why. Members of an "
        "array or gang are retried with it, once it has finished: it counts as one; they are "
        "deleted with it, or once it has finished. With `dry_run` jobs are only counted. A repeat "
        "with the same Idempotency-Key gets the first answer while this server runs."
    ),
    examples={"body": "bulk_spec", "answer": "bulk"},
)
async def bulk_action(call: Call[BulkSpec, NoQuery]) -> BulkAnswer:
    spec = call.body
    if (spec.action == "reprioritise") != (spec.priority is not None):
        raise invalid("priority", "goes with the action `reprioritise`, and only with that")
    if call.key is not None and (known := call.state.bulk.recall(call.key)) is not None:
        return known
    answer = await _preview(call) if spec.dry_run else await _carry_out(call)
    if call.key is not None:
        call.state.bulk.keep(call.key, answer)
    return answer


async def _carry_out(call: Call[BulkSpec, NoQuery]) -> BulkAnswer:
    spec, act, refusals = call.body, _act(call), Refusals()
    meant, late = _sieve(call, refusals), _Late(call, refusals)
    count, more, left = 0, False, spec.limit
    async for found in _pages(call):
        page = await meant(found)
        while page and left != 0:
            part, page = page[:left], [] if left is None else page[left:]
            others = await late.without(part)
            done = len(part) - len(others) + await _act_on(act, others, refusals)
            count += done
            left = None if left is None else left - done
        if page or (left is not None and len(refusals) >= call.deps.limits.bulk_refused_max):
            more = True
            break

    async def act_late(jobs: Sequence[JobRecord]) -> int:
        _check_open(call)
        return await _act_on(act, jobs, refusals)

    count -= len(late) - await late.act(act_late)
    return BulkAnswer(count=count, refused=len(refusals), more=more, reasons=refusals.reasons)


class _Late:
    """Those that are acted on after all others, though they may be on the first page."""

    def __init__(self, call: Call[BulkSpec, NoQuery], refusals: Refusals) -> None:
        queries, since = call.deps.queries, call.deps.brain.clock.now()
        self._page = call.deps.limits.bulk_page
        self._action = call.body.action
        self._queries = queries
        self._refusals = refusals
        self._linked = Latecomers(queries, since, refusals, self._page)
        self._bands: list[JobId] = []
        """Arrays and gangs take their members along, which may be meant themselves."""

    def __len__(self) -> int:
        return len(self._linked) + len(self._bands)

    async def without(self, jobs: Sequence[JobRecord]) -> list[JobRecord]:
        """The others; these are kept for the end."""
        if self._action == "retry":
            return await self._linked.without(jobs)
        if self._action != "delete":
            return list(jobs)
        late = {job.id: None for job in jobs if _takes_along(job)}
        self._bands += late
        return [job for job in jobs if job.id not in late]

    async def act(self, act: Callable[[Sequence[JobRecord]], Awaitable[int]]) -> int:
        """How many of them it could be done to."""
        count = await self._linked.start(act)
        for start in range(0, len(self._bands), self._page):
            part = self._bands[start : start + self._page]
            found = await self._queries.jobs(part)
            self._refusals.add(GONE, len(part) - len(found))
            count += await act(found)
        return count


def _takes_along(job: JobRecord) -> bool:
    """One that goes on is refused at once, and must not count as done until the end."""
    return isinstance(job.spec.group, Array | Gang) and job.life.state in JOB_FINAL


async def _preview(call: Call[BulkSpec, NoQuery]) -> BulkAnswer:
    """How many it would be; with a limit no more than that are counted."""
    spec = call.body
    refusals = Refusals()
    if spec.filter.fingerprint is None and spec.filter.job_ids is None:
        count, more = await _count(call)
    else:
        count, more = await _examine(call, refusals)
    if spec.limit is not None and count > spec.limit:
        count, more = spec.limit, True
    return BulkAnswer(
        count=count, refused=len(refusals), dry_run=True, more=more, reasons=refusals.reasons
    )


async def _count(call: Call[BulkSpec, NoQuery]) -> tuple[int, bool]:
    """By their ids alone: no job is read. Whoever gives a limit wants an idea, and soon."""
    limit, count, limits = call.body.limit, 0, call.deps.limits
    if limit is not None:
        query = msgspec.structs.replace(_query(call), limit=limit + 1, look=limits.preview_look)
        ids = await call.deps.queries.find_job_ids(query)
        return len(ids), ids.rest is not None
    query = msgspec.structs.replace(_query(call), limit=limits.bulk_counted_at_once)
    while True:
        ids = await call.deps.queries.find_job_ids(query)
        count += len(ids)
        if len(ids) < limits.bulk_counted_at_once:
            return count, False
        query = msgspec.structs.replace(query, before=ids[-1])


async def _examine(call: Call[BulkSpec, NoQuery], refusals: Refusals) -> tuple[int, bool]:
    """One by one: the queries cannot be asked how a job failed.

    Whoever gives a limit wants an idea, and soon.
    """
    spec, meant, count = call.body, _sieve(call, refusals), 0
    if spec.limit is not None and spec.filter.job_ids is None:
        dead, more = await read_failed(call, _query(call), call.deps.limits.bulk_examined_max)
        return len(await meant(dead)), more
    async for found in _pages(call):
        count += len(await meant(found))
    return count, False


async def _act_on(act: Act, jobs: Sequence[JobRecord], refusals: Refusals) -> int:
    """How many of them it could be done to."""
    count = 0
    for start in range(0, len(jobs), BULK_AT_ONCE):
        part = jobs[start : start + BULK_AT_ONCE]
        count += sum(await asyncio.gather(*(_try(act, job, refusals) for job in part)))
    return count


def _sieve(
    call: Call[BulkSpec, NoQuery], refusals: Refusals
) -> Callable[[Sequence[JobRecord]], Awaitable[list[JobRecord]]]:
    """Leaves of each page what is to be acted on."""
    spec = call.body
    heads = Heads(call.deps.queries, _query(call).states)
    bound = Bound(call.deps.queries, refusals)

    async def meant(page: Sequence[JobRecord]) -> list[JobRecord]:
        found = [job for job in page if _is_meant(spec, job)]
        if spec.action == "delete":
            return await bound.without(found)
        return await heads.of(found) if spec.action == "retry" else found

    return meant


def _is_meant(spec: BulkSpec, job: JobRecord) -> bool:
    """What the queries cannot be asked: how a job failed, and whether anything is left to do."""
    mark = spec.filter.fingerprint
    if mark is not None and (job.life.state is not JobState.FAILED or fingerprint_of(job) != mark):
        return False
    return spec.priority is None or job.spec.terms.priority != spec.priority


async def _try(act: Act, job: JobRecord, refusals: Refusals) -> bool:
    try:
        await act(job)
    except (StalePreload, TooMuch):
        raise
    except Refusal as error:
        refusals.add(error.detail)
        return False
    except ProblemError as error:
        if error.status != 404:
            raise
        refusals.add(error.detail)
        return False
    return True


def _act(call: Call[BulkSpec, NoQuery]) -> Act:
    # Each job's step would answer to the same key; the key is for the action as a whole.
    single = replace(call, key=None)
    match call.body.action:
        case "cancel":
            return _poster(single, lambda job_id, recall: Cancel(job_id=job_id, preloaded=recall))
        case "delete":
            delete = _poster(single, lambda job_id, recall: Delete(job_id=job_id, preloaded=recall))
            return lambda job: take_along(single, job, lambda: delete(job))
        case "retry":
            return lambda job: post_retry(single, job.id)
        case "reprioritise":
            return lambda job: post_update(single, job.id, lambda job: _moved(call, job))


def _poster(
    call: Call[BulkSpec, NoQuery], build: Callable[[JobId, Preloaded | None], AnyInput]
) -> Act:
    return lambda job: post_about(call, job.id, lambda recall: build(job.id, recall))


def _moved(call: Call[BulkSpec, NoQuery], job: JobRecord) -> Spec:
    assert call.body.priority is not None
    terms = msgspec.structs.replace(job.spec.terms, priority=call.body.priority)
    return msgspec.structs.replace(job.spec, terms=terms)


async def _pages(call: Call[BulkSpec, NoQuery]) -> AsyncIterator[list[JobRecord]]:
    """All that match, newest first; jobs submitted after the start are not among them."""
    queries, asked = call.deps.queries, call.body.filter
    query, size = _query(call), call.deps.limits.bulk_page
    if asked.job_ids is not None:
        ids = sorted({JobId(one.lower()) for one in asked.job_ids}, reverse=True)
        for start in range(0, len(ids), size):
            found = await queries.jobs(ids[start : start + size])
            yield [job for job in found if _matches(job, query)]
        return
    query = msgspec.structs.replace(query, look=call.deps.limits.page_look)
    while True:
        page = await queries.find_jobs(query)
        yield page
        _check_open(call)
        if page.rest is None and len(page) < size:
            return
        last = page[-1].id if page.rest is None else page.rest
        query = msgspec.structs.replace(query, before=last)


def _check_open(call: Call[BulkSpec, NoQuery]) -> None:
    """A server that stops waits for nobody who has much to do still."""
    if call.deps.closing.is_set():
        raise UnavailableError("the server is stopping; part of the jobs were done")


def _query(call: Call[BulkSpec, NoQuery]) -> JobQuery:
    spec = call.body
    asked: JobFilter = spec.filter
    states = _states(asked) or _MEANT[spec.action]
    if asked.fingerprint is not None and JobState.FAILED in states:
        states = (JobState.FAILED,)
    return JobQuery(
        states=states,
        priority=asked.priority,
        queue=asked.queue,
        tenant=asked.tenant,
        name=asked.name,
        not_priority=spec.priority,
        labels=_labels(asked),
        created_after=to_instant(asked.created_after) if asked.created_after else None,
        created_before=to_instant(asked.created_before) if asked.created_before else None,
        limit=call.deps.limits.bulk_page,
    )


def _states(asked: JobFilter) -> tuple[JobState, ...]:
    words = asked.status if isinstance(asked.status, str) else ",".join(asked.status or ())
    states = read_choices(words, JobState, "filter.status")
    if asked.status is not None and not states:
        # An empty variable of a script, more often than not; it must not come to mean all of them.
        raise invalid("filter.status", "names no status: leave it out, or say which")
    return states


def _labels(asked: JobFilter) -> tuple[tuple[str, str], ...]:
    texts = [asked.label] if isinstance(asked.label, str) else asked.label or []
    wanted = {*(asked.labels or {}).items(), *(label_in(text, "filter.label") for text in texts)}
    return tuple(sorted(wanted))


def _matches(job: JobRecord, query: JobQuery) -> bool:
    """The same question as the queries answers, of jobs that were named one by one."""
    terms, created = job.spec.terms, job.spec.created_at
    wanted = (
        (query.priority, terms.priority),
        (query.queue, terms.queue),
        (query.tenant, terms.tenant),
        (query.name, terms.name),
    )
    return (
        job.life.state in query.states
        and all(want is None or want == have for want, have in wanted)
        and all(label in job.spec.labels for label in query.labels)
        and (query.created_after is None or created > query.created_after)
        and (query.created_before is None or created < query.created_before)
    )
