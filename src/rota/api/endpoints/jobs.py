"""Endpoints of jobs: submit one or many, dry run, show, list, change, cancel, retry, delete.

Actions on many jobs are in `bulk.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from rota.api.auth.forwarded import minted_at
from rota.api.auth.roles import Permission
from rota.api.convert.explain import dry_run_view
from rota.api.convert.jobs import (
    JobBatch,
    add_deadline,
    add_dependency,
    deadline_view,
    execution_view,
    job_id_of,
    job_view,
    parse_dependency,
    spec_of,
    submitted_form,
)
from rota.api.endpoints.bundles import check_bundles
from rota.api.endpoints.members import failed_members, with_members, within
from rota.api.ids import IdMint, KeyedMint, determines_ids, key_time
from rota.api.limits import (
    PAGE_BYTES_MAX,
    PAGE_FIRST_ITEMS,
    READ_AT_ONCE,
    RECALL_PAUSE_S,
    RECALL_TRIES,
)
from rota.api.pagination import (
    Cursor,
    Limit,
    comma_list_of,
    cut_found,
    job_bytes,
    read_choices,
    read_id_cursor,
)
from rota.api.parsing.merge_patch import drop_conflicting_fields, read_merged
from rota.api.parsing.request import check_depth, header, read_batch
from rota.api.problems import invalid
from rota.api.recall import (
    expect,
    make_known,
    post,
    post_about,
    post_recalling,
    post_start_over,
    promised_to,
    read_upstream,
)
from rota.api.router import Call, NoQuery, Operation, Reply
from rota.api.tenant_scope import check_tenant, check_upstream, find_job, id_in, set_default_tenant
from rota.core.commands import AnyInput, Cancel, Delete, Execute, Preloaded, Retry, Submit, Update
from rota.core.errors import Invalid, StalePreload
from rota.core.model import Dependency, JobId, JobRecord, JobState, Spec, When, WorkerId
from rota.core.outcome import AnyReceipt, ExecutionAnswer, JobAnswer, JobGone, JobsAccepted
from rota.engine.durability import DurabilityMonitor
from rota.engine.ports import Brain, Outlook, UnavailableError
from rota.store.protocol import QueryStore
from rota.store.queries import JobQuery, Page
from rota.wire.formats import dec_hook, to_instant
from rota.wire.jobs import (
    BatchAnswer,
    BatchJobSpec,
    BatchSpec,
    ExecuteSpec,
    JobIdText,
    JobPage,
    JobSpec,
    JobView,
    LabelText,
    Moment,
    Priority,
)
from rota.wire.limits import PAGE_ITEMS_DEFAULT
from rota.wire.problems import ProblemError
from rota.wire.traces import parse_traceparent
from rota.wire.why import DryRunBatchView, DryRunView
from rota.wire.workers import ExecutionView


async def dry_run(call: Call[Any, Any], specs: Sequence[JobSpec]) -> list[DryRunView]:
    """Says what would become of each job; raises what the submission would be refused for."""
    brain = call.deps.brain
    if not brain.ready:
        raise UnavailableError(f"not ready: {brain.trouble or 'no server leads just now'}")
    set_default_tenant(call, specs)
    batch = JobBatch(specs, call.state.ids, brain.clock.now())
    jobs = batch.new_jobs()
    try:
        if batch.outside_dependencies:
            await check_upstream(call, batch.outside_dependencies)
        outlooks = await _forecasts(call, batch, Submit(jobs=jobs))
    except Invalid as refusal:
        raise batch.with_sender_names(refusal) from None
    names = {info.worker.id: info.worker.name for info in brain.workers()}
    return [
        dry_run_view(outlook, spec.ref if isinstance(spec, BatchJobSpec) else None, names)
        for outlook, spec in zip(outlooks, specs, strict=True)
    ]


async def _forecasts(call: Call[Any, Any], batch: JobBatch, event: Submit) -> Sequence[Outlook]:
    brain, upstream = call.deps.brain, list(batch.outside_dependencies)
    for number in range(RECALL_TRIES if upstream else 1):
        if number:
            await asyncio.sleep(RECALL_PAUSE_S * number)
        at = brain.clock.now()
        read = tuple(await read_upstream(call.deps.queries, upstream))
        try:
            return await brain.rehearse(
                Submit(jobs=event.jobs, preloaded=Preloaded(at=at, jobs=read))
            )
        except StalePreload:
            continue
    raise StalePreload("what was read kept changing")


class JobsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the list of jobs."""

    status: Annotated[str, comma_list_of(JobState)] | None = None
    priority: Priority | None = None
    queue: str | None = None
    tenant: str | None = None
    name: str | None = None
    label: Annotated[
        list[LabelText],
        Meta(description="`key:value`; may be repeated: a job must have all of them."),
    ] = []
    created_after: Moment | None = None
    created_before: Moment | None = None
    array: Annotated[
        JobIdText | None, Meta(description="Members of this array or gang, the last index first.")
    ] = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


class DeleteQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Options of deleting a job."""

    force: Annotated[bool, Meta(description="Cancels a live job first.")] = False


class SubmitQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Options of submitting jobs."""

    dry_run: Annotated[
        bool, Meta(description="Says when the job would start, and submits nothing.")
    ] = False


@Operation(
    "POST",
    "/jobs",
    "Submit a job",
    tag="Jobs",
    permission=Permission.SUBMIT,
    without_leader=True,
    body=JobSpec,
    query=SubmitQuery,
    answer=JobView,
    status=201,
    also={200: DryRunView},
    description=(
        "With `dry_run` nothing is submitted: the answer says when the job would start. A W3C "
        "`traceparent` header makes the job part of the caller's trace; an invalid one is "
        "ignored."
    ),
    examples={"body": "job_spec", "answer": "job", "answer 200": "dry_run"},
)
async def submit_job(call: Call[JobSpec, SubmitQuery]) -> Reply:
    if call.query.dry_run:
        (forecast,) = await dry_run(call, [call.body])
        return Reply(forecast, {}, status=200)
    accepted = await _submit(call, [call.body])
    if accepted.first is None:
        first = await find_job(call, accepted.job_ids[0])
    else:
        first = accepted.first
    view = live_view(call.deps.brain, first)
    if first.spec.finish_by is not None and call.deps.brain.ready:
        outlook = await call.deps.brain.outlook(first)
        if outlook is not None:
            view.deadline = deadline_view(outlook.deadline)
    return Reply(view, {"Location": f"/jobs/{first.id}"})


@Operation(
    "POST",
    "/jobs/batch",
    "Submit many jobs, all or none",
    tag="Jobs",
    permission=Permission.SUBMIT,
    without_leader=True,
    body=BatchSpec,
    decode=read_batch,
    query=SubmitQuery,
    answer=BatchAnswer,
    status=201,
    also={200: DryRunBatchView},
    description=(
        "`ref` names a job within the batch; other jobs depend on it by `ref:NAME`. With "
        "`dry_run` nothing is submitted: the answer says when each job would start."
    ),
    examples={"body": "batch_spec", "answer": "batch", "answer 200": "dry_run_batch"},
)
async def submit_batch(call: Call[BatchSpec, SubmitQuery]) -> BatchAnswer | Reply:
    if call.query.dry_run:
        return Reply(DryRunBatchView(await dry_run(call, call.body.jobs)), {}, status=200)
    accepted = await _submit(call, call.body.jobs)
    return BatchAnswer(job_ids=list(accepted.job_ids))


async def _submit(
    call: Call[JobSpec, SubmitQuery] | Call[BatchSpec, SubmitQuery], specs: Sequence[JobSpec]
) -> JobsAccepted:
    check_durability(call.deps.durability)
    set_default_tenant(call, specs)
    await check_bundles(call, specs, "" if call.body is specs[0] else "jobs[{}].")
    batch = JobBatch(specs, _mint_for(call), call.deps.brain.clock.now(), trace_in(call))
    jobs = batch.new_jobs()

    def build(preloaded: Preloaded | None) -> Submit:
        return Submit(jobs=jobs, key=call.key, preloaded=preloaded)

    async def read() -> Sequence[JobRecord]:
        return await read_upstream(call.deps.queries, list(batch.outside_dependencies))

    inbox = call.deps.leaderless_inbox
    # With nothing else to read, `post` looks the key up itself: one query, not two.
    alone = not batch.outside_dependencies and call.deps.brain.ready
    if call.key and not alone and (answered := await promised_to(call, call.key)):
        return answered
    try:
        if batch.outside_dependencies:
            await check_upstream(call, batch.outside_dependencies)
        if inbox is not None and not call.deps.brain.ready:
            if call.key:
                settles_ids = determines_ids(_key_as_given(call), call.deps.brain.clock.now())
                await make_known(call.deps, call.key, settles_ids=settles_ids)
            await inbox.check(jobs, await read())
            return await inbox.submit(build(None))
        if batch.outside_dependencies:
            receipt = await post_recalling(call, read, build)
        else:
            receipt = await post(call, build)
    except Invalid as refusal:
        raise batch.with_sender_names(refusal) from None
    return expect(receipt, JobsAccepted)


def _mint_for(call: Call[Any, Any]) -> IdMint:
    """Returns the mint for submitted ids: of the key, if two servers may accept the same request.

    That is so when a server could not wait for the leader's answer, or a client for a server's.
    """
    if call.key is None:
        return call.state.ids
    scope, now = call.request.scope, call.deps.brain.clock.now()
    at = minted_at(scope, call.deps.access.tokens.secret) or key_time(_key_as_given(call), now)
    return call.state.ids if at is None else KeyedMint(call.deps.cell, call.key, at)


def _key_as_given(call: Call[Any, Any]) -> str:
    return (header(call.request.scope, b"idempotency-key") or b"").decode("latin-1")


def trace_in(call: Call[Any, Any]) -> str:
    """Returns the caller's `traceparent`, if it sent a valid one."""
    given = header(call.request.scope, b"traceparent")
    found = None if given is None else parse_traceparent(given.decode("latin-1"))
    return "" if found is None else str(found)


def check_durability(monitor: DurabilityMonitor) -> None:
    """Refuses new jobs while the store's durability is below what the operator requires."""
    if monitor.refusal:
        raise ProblemError(503, "durability", monitor.refusal, headers={"Retry-After": "5"})


@Operation(
    "GET",
    "/jobs/{job_id}",
    "Show a job",
    tag="Jobs",
    permission=Permission.READ,
    any_server=True,
    answer=JobView,
    errors=(404,),
    examples={"answer": "job"},
)
async def show_job(call: Call[None, NoQuery]) -> JobView:
    return live_view(call.deps.brain, await find_job(call, job_id_in(call)))


@Operation(
    "GET",
    "/jobs",
    "List jobs, newest first",
    tag="Jobs",
    permission=Permission.READ,
    any_server=True,
    query=JobsQuery,
    answer=JobPage,
    examples={"answer": "jobs"},
)
async def list_jobs(call: Call[None, JobsQuery]) -> JobPage:
    asked = call.query
    query = JobQuery(
        states=read_choices(asked.status, JobState, "status"),
        priority=asked.priority,
        queue=asked.queue,
        tenant=asked.tenant,
        name=asked.name,
        labels=tuple(label_in(text) for text in asked.label),
        created_after=to_instant(asked.created_after) if asked.created_after else None,
        created_before=to_instant(asked.created_before) if asked.created_before else None,
        before=read_id_cursor(asked.cursor),
        limit=asked.limit + 1,
    )
    if asked.array is not None:
        query = within(query, JobId(asked.array.lower()))
    return await job_page(call, query)


async def job_page(call: Call[Any, Any], query: JobQuery) -> JobPage:
    """Returns a page; the query asks for one more than is shown, to know whether there is a
    next."""
    deps, own = call.deps, call.caller.tenant
    if own is not None:
        if query.tenant not in (None, own):
            return JobPage([], None)
        query = replace(query, tenant=own)
    turn = call.state.long_pages if query.limit > PAGE_FIRST_ITEMS else nullcontext()
    async with turn:
        found = await _read_page(deps.queries, replace(query, look=deps.limits.page_look))
        items, next_cursor = cut_found(found, query.limit - 1, lambda job: job.id)
        return JobPage(await _views(deps.brain, items), next_cursor)


async def _views(brain: Brain, jobs: Sequence[JobRecord]) -> list[JobView]:
    """Converts jobs in small parts, so that other requests are served in between."""
    views: list[JobView] = []
    for start in range(0, len(jobs), READ_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        views += [live_view(brain, job) for job in jobs[start : start + READ_AT_ONCE]]
    return views


async def _read_page(queries: QueryStore, query: JobQuery) -> Page[JobRecord]:
    """Reads a page, or as much of it as the limits on memory and search work allow."""
    found: Page[JobRecord] = Page()
    size, part = 0, min(query.limit, PAGE_FIRST_ITEMS)
    while True:
        jobs = await queries.find_jobs(replace(query, limit=part))
        found += jobs
        size += sum(job_bytes(job) for job in jobs)
        if len(jobs) < part or len(found) == query.limit:
            found.rest = jobs.rest
            return found
        if size >= PAGE_BYTES_MAX:
            found.rest = found[-1].id
            return found
        # As many more as fit if they are like those before.
        fitting = (PAGE_BYTES_MAX - size) * len(found) // max(size, 1) + 1
        part = min(query.limit - len(found), fitting)
        query = replace(query, before=found[-1].id)


def live_view(brain: Brain, job: JobRecord) -> JobView:
    """Converts a job, with progress and deadline from memory, which is newer than the store."""
    view = job_view(job)
    add_deadline(view, job, brain)
    if job.life.state is JobState.RUNNING and brain.ready:
        newest = brain.progress_of(job.id)
        if newest is not None:
            view.progress, view.message = newest[0], newest[1] or None
    return view


@Operation(
    "DELETE",
    "/jobs/{job_id}",
    "Delete a finished job",
    tag="Jobs",
    permission=Permission.SUBMIT,
    query=DeleteQuery,
    status=204,
    also={202: JobView},
    errors=(404, 409),
    description=(
        "With `force` a running job is cancelled first, and deleted when it has stopped: 202 with "
        "the job."
    ),
    examples={"answer": "job"},
)
async def delete_job(call: Call[None, DeleteQuery]) -> Reply | None:
    job_id, force = job_id_in(call), call.query.force

    def build(preloaded: Preloaded | None) -> AnyInput:
        return Delete(job_id=job_id, force=force, key=call.key, preloaded=preloaded)

    async def post_delete() -> AnyReceipt:
        return await post_about(call, job_id, build)

    receipt = await with_members(call, job_id, post_delete)
    if isinstance(receipt, JobGone):
        return None
    return Reply(job_view(expect(receipt, JobAnswer).job), {}, status=202)


@Operation(
    "PUT",
    "/jobs/{job_id}/cancel",
    "Cancel a job",
    tag="Jobs",
    permission=Permission.SUBMIT,
    answer=JobView,
    errors=(404, 409),
    description=(
        "A waiting job is cancelled at once; a running one becomes `cancelling` until it has "
        "stopped."
    ),
    examples={"answer": "job"},
)
async def cancel_job(call: Call[None, NoQuery]) -> JobView:
    job_id = job_id_in(call)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return Cancel(job_id=job_id, key=call.key, preloaded=preloaded)

    job = expect(await post_about(call, job_id, build), JobAnswer).job
    return live_view(call.deps.brain, job)


@Operation(
    "POST",
    "/jobs/{job_id}/retry",
    "Retry a finished job",
    tag="Jobs",
    permission=Permission.SUBMIT,
    answer=JobView,
    errors=(404, 409),
    description="Jobs that were skipped because of it go back to `pending`.",
    examples={"answer": "job"},
)
async def retry_job(call: Call[None, NoQuery]) -> JobView:
    job = expect(await post_retry(call, job_id_in(call)), JobAnswer).job
    return live_view(call.deps.brain, job)


async def post_retry(call: Call[Any, Any], job_id: JobId) -> AnyReceipt:
    """Posts a retry, with the job and what was skipped because of it."""
    failed = await failed_members(call, job_id)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return Retry(job_id=job_id, failed=failed, key=call.key, preloaded=preloaded)

    return await post_start_over(call, job_id, build)


@Operation(
    "POST",
    "/jobs/{job_id}/execute",
    "Run a job on a named worker",
    tag="Jobs",
    permission=Permission.OPERATE,
    body=ExecuteSpec,
    answer=ExecutionView,
    status=201,
    errors=(404, 409),
    examples={"body": "execute_job_body", "answer": "execution"},
)
async def execute_job(call: Call[ExecuteSpec, NoQuery]) -> Reply:
    """Runs the job on that worker, even if it is early, not next, or its queue is paused."""
    job_id, worker_id = job_id_in(call), WorkerId(call.body.worker_id)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return Execute(job_id=job_id, worker_id=worker_id, key=call.key, preloaded=preloaded)

    execution = expect(await post_about(call, job_id, build), ExecutionAnswer).execution
    return Reply(execution_view(execution), {"Location": f"/executions/{execution.id}"})


def job_id_in(call: Call[Any, Any]) -> JobId:
    return JobId(id_in(call, "job_id", "job"))


def label_in(text: str, field: str = "label") -> tuple[str, str]:
    """Parses `key:value`."""
    key, colon, value = text.partition(":")
    if not colon or not key:
        raise invalid(field, f"{text[:100]!r} is not `key:value`")
    return key, value


_decoder = msgspec.json.Decoder(JobSpec, dec_hook=dec_hook)


@Operation(
    "PATCH",
    "/jobs/{job_id}",
    "Change a job that has not started",
    tag="Jobs",
    permission=Permission.SUBMIT,
    body=dict[str, Any],
    patch_of=JobSpec,
    takes="application/merge-patch+json",
    answer=JobView,
    errors=(404, 409),
    description="JSON Merge Patch (RFC 7396) on the submitted job: null restores a default.",
    examples={"body": "patch_job_body", "answer": "job"},
)
async def patch_job(call: Call[dict[str, Any], NoQuery]) -> JobView:
    """Merges the patch, validates the result and replaces the spec unless the job changed
    meanwhile."""
    job_id = job_id_in(call)
    check_depth("", call.raw, call.body)
    patch = call.body
    if call.caller.tenant is not None:
        check_tenant(call, patch.get("tenant"))
        patch = {**patch, "tenant": call.caller.tenant}

    def change(job: JobRecord) -> Spec:
        return patched(job, patch)

    job = expect(await post_update(call, job_id, change), JobAnswer).job
    return live_view(call.deps.brain, job)


async def post_update(
    call: Call[Any, Any], job_id: JobId, change: Callable[[JobRecord], Spec]
) -> AnyReceipt:
    """Reads the job, changes its spec by `change`, and tries again if the job changed meanwhile."""
    changed: list[Spec] = []

    async def read() -> list[JobRecord]:
        job = await find_job(call, job_id)
        spec = change(job)
        changed[:] = [spec]
        if spec.dependencies == job.spec.dependencies:
            return [job]
        needed = [one.job_id for one in spec.dependencies if one.job_id != job_id]
        await check_upstream(call, dict.fromkeys(needed, "dependencies"))
        return [job, *await read_upstream(call.deps.queries, needed)]

    def build(preloaded: Preloaded | None) -> AnyInput:
        return Update(job_id=job_id, spec=changed[0], key=call.key, preloaded=preloaded)

    return await post_recalling(call, read, build)


def patched(job: JobRecord, patch: dict[str, Any]) -> Spec:
    """Returns the job's spec with the patch in it; its place in the queue and its revision stay."""
    form = submitted_form(job)
    if "payload" in patch:
        form["payload"] = msgspec.json.decode(job.spec.payload or b"{}")
    drop_conflicting_fields(form, patch)
    wanted = read_merged(form, patch, JobSpec, _decoder.decode)
    spec = spec_of(wanted, job.spec.created_at, _patched_dependencies(wanted))
    return msgspec.structs.replace(
        spec,
        arrival_number=job.spec.arrival_number,
        revision=job.spec.revision,
        origin=job.spec.origin,
        trigger_origin=job.spec.trigger_origin,
        trace=job.spec.trace,
    )


def _patched_dependencies(wanted: JobSpec) -> tuple[Dependency, ...]:
    found: dict[JobId, When] = {}
    for number, one in enumerate(wanted.dependencies):
        text, when = parse_dependency(one)
        field = f"dependencies[{number}]"
        add_dependency(found, job_id_of(text, field), when, field, text)
    return tuple(Dependency(job_id, when) for job_id, when in sorted(found.items()))
