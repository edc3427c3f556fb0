"""What a submission would come to: checked and played through by the real code, then forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rota.api.customs.translate import JobBatch
from rota.api.customs.why_views import dry_run_view
from rota.api.limits import RECALL_PAUSE_S, RECALL_TRIES
from rota.api.lookup import check_upstream, set_default_tenant
from rota.api.recall import read_upstream
from rota.api.routes import Call
from rota.core.commands import Preloaded, Submit
from rota.core.errors import Invalid, StalePreload
from rota.engine.ports import Outlook, UnavailableError
from rota.wire.jobs import BatchJobSpec, JobSpec
from rota.wire.why import DryRunView


async def dry_run(call: Call[Any, Any], specs: Sequence[JobSpec]) -> list[DryRunView]:
    """One answer for each job; raises what the submission would be refused for."""
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
    names = {glance.worker.id: glance.worker.name for glance in brain.workers()}
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
        read = tuple(await read_upstream(call.deps.catalog, upstream))
        try:
            return await brain.rehearse(
                Submit(jobs=event.jobs, preloaded=Preloaded(at=at, jobs=read))
            )
        except StalePreload:
            continue
    raise StalePreload("what was read kept changing")
