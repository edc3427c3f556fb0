"""Changes a job that has not started, by a merge patch of what was submitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.api.customs.translate import add_dependency, job_id_of, parse_dependency, spec_of
from rota.api.customs.views import submitted_form
from rota.api.door.roles import Permission
from rota.api.jobs.jobs import job_id_in, live_view
from rota.api.lookup import check_tenant, check_upstream, find_job
from rota.api.reading.bodies import check_depth
from rota.api.reading.patching import drop_conflicting_fields, read_merged
from rota.api.recall import expect, post_recalling, read_upstream
from rota.api.routes import Call, NoQuery, Operation
from rota.core.commands import AnyInput, Preloaded, Update
from rota.core.model import Dependency, JobId, JobRecord, Spec, When
from rota.core.outcome import AnyReceipt, JobAnswer
from rota.wire.jobs import JobSpec, JobView
from rota.wire.units import dec_hook

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
    description="JSON Merge Patch (RFC 7396) on what was submitted: null restores a default.",
    examples={"body": "patch_job_body", "answer": "job"},
)
async def patch_job(call: Call[dict[str, Any], NoQuery]) -> JobView:
    """Merges, checks as if submitted, and puts it in place if nobody was quicker."""
    job_id = job_id_in(call)
    check_depth("", call.raw, call.body)
    patch = call.body
    if call.caller.tenant is not None:
        check_tenant(call, patch.get("tenant"))
        patch = {**patch, "tenant": call.caller.tenant}

    def amend(job: JobRecord) -> Spec:
        return patched(job, patch)

    job = expect(await post_update(call, job_id, amend), JobAnswer).job
    return live_view(call.deps.brain, job)


async def post_update(
    call: Call[Any, Any], job_id: JobId, amend: Callable[[JobRecord], Spec]
) -> AnyReceipt:
    """Reads the job, changes its spec by `amend`, and asks again if it moved meanwhile."""
    amended: list[Spec] = []

    async def read() -> list[JobRecord]:
        job = await find_job(call, job_id)
        spec = amend(job)
        amended[:] = [spec]
        if spec.dependencies == job.spec.dependencies:
            return [job]
        needed = [one.job_id for one in spec.dependencies if one.job_id != job_id]
        await check_upstream(call, dict.fromkeys(needed, "dependencies"))
        return [job, *await read_upstream(call.deps.catalog, needed)]

    def build(recall: Preloaded | None) -> AnyInput:
        return Update(job_id=job_id, spec=amended[0], key=call.key, preloaded=recall)

    return await post_recalling(call, read, build)


def patched(job: JobRecord, patch: dict[str, Any]) -> Spec:
    """The job's spec with the patch in it; its place in line and its revision stay."""
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
