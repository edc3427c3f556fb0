"""What a submission would come to: checked and played through by the real code, then forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rota.api.customs.translate import Batch
from rota.api.customs.why_views import dry_run_view
from rota.api.limits import RECALL_PAUSE_S, RECALL_TRIES
from rota.api.lookup import adopt, check_upstream
from rota.api.recall import read_upstream
from rota.api.routes import Call
from rota.core.errors import Invalid, StalePreload
from rota.core.inputs import Preloaded, Submit
from rota.engine.estimates import Outlook
from rota.engine.ports import UnavailableError
from rota.wire.jobs import BatchJobSpec, JobSpec
from rota.wire.why import DryRunView


async def rehearse(call: Call[Any, Any], specs: Sequence[JobSpec]) -> list[DryRunView]:
    """One answer for each job; raises what the submission would be refused for."""
    brain = call.parts.brain
    if not brain.ready:
        raise UnavailableError(f"not ready: {brain.trouble or 'no server leads just now'}")
    adopt(call, specs)
    batch = Batch(specs, call.desk.ids, brain.clock.now())
    jobs = batch.new_jobs()
    try:
        if batch.outside:
            await check_upstream(call, batch.outside)
        outlooks = await _outlooks(call, batch, Submit(jobs=jobs))
    except Invalid as refusal:
        raise batch.in_its_words(refusal) from None
    names = {glance.worker.id: glance.worker.name for glance in brain.workers()}
    return [
        dry_run_view(outlook, spec.ref if isinstance(spec, BatchJobSpec) else None, names)
        for outlook, spec in zip(outlooks, specs, strict=True)
    ]


async def _outlooks(call: Call[Any, Any], batch: Batch, event: Submit) -> Sequence[Outlook]:
    brain, upstream = call.parts.brain, list(batch.outside)
    for number in range(RECALL_TRIES if upstream else 1):
        if number:
            await asyncio.sleep(RECALL_PAUSE_S * number)
        at = brain.clock.now()
        read = tuple(await read_upstream(call.parts.catalog, upstream))
        try:
            return await brain.rehearse(
                Submit(jobs=event.jobs, preloaded=Preloaded(at=at, jobs=read))
            )
        except StalePreload:
            continue
    raise StalePreload("what was read kept changing")
