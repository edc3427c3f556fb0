"""What ran when and where: executions of a window of time as bars, one line a worker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.api.door.roles import Permission
from rota.api.limits import TIMELINE_WINDOW_MS_MAX
from rota.api.lookup import outlines_of
from rota.api.pace import PageSize
from rota.api.problems import invalid
from rota.api.routes import Call, Operation
from rota.api.watch.crowds import first_id, timeline_buckets
from rota.core.model import Execution, Instant, WorkerId
from rota.store.protocol import Outline
from rota.store.queries import ExecutionQuery
from rota.wire.jobs import Moment
from rota.wire.overview import BarView, ReservedView, TimelineView
from rota.wire.units import from_instant, from_instant_or_none, to_instant

NOW_MS = 60_000
"""A window that ended no longer ago still means now: somebody's clock is late."""
DAY_MS = 24 * 3600 * 1000
WINDOW_MS = 3600 * 1000
"""What is shown where nothing was asked: the last hour."""


class TimelineQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which window, and whose."""

    after: Annotated[Moment | None, Meta(examples=["2026-01-05T08:00:00.000Z"])] = None
    before: Annotated[Moment | None, Meta(examples=["2026-01-05T09:00:00.000Z"])] = None
    worker_id: str | None = None


@Operation(
    "GET",
    "/timeline",
    "What ran when and where",
    tag="Service",
    permission=Permission.READ,
    query=TimelineQuery,
    answer=TimelineView,
    description=(
        "Executions that were claimed within the window, or run now; the last hour "
        "unless asked otherwise, 1,000 at most. `reserved` is what workers are kept free for."
    ),
    examples={"answer": "timeline"},
)
async def show_timeline(call: Call[None, TimelineQuery]) -> TimelineView:
    """Executions that ran within the window. Those that began before it are known while they run.

    Ids begin with the time they were made, so a window is a range of ids.
    """
    start, end = _window(call)
    found, more = await _claimed_within(call, start, end)
    live, running = await _running(call)
    crowd = None
    if more:
        whose = (_worker(call), call.caller.tenant)
        crowd, found = await timeline_buckets(call.deps.catalog, start, end, *whose), []
    known = {one.id for one in live}
    # What runs is shown before anything else: on a busy cell the newest are all short ones.
    found = [*live, *(one for one in found if one.id not in known)]
    shown = [one for one in found if one.claimed_at <= end][: call.deps.limits.timeline_bars_max]
    told = await outlines_of(call.deps.catalog, dict.fromkeys(one.job_id for one in shown))
    jobs = {job.id: job for job in told if call.caller.tenant in (None, job.tenant)}
    bars = [_bar(one, jobs[one.job_id]) for one in shown if one.job_id in jobs]
    kept = await _reserved(call, end)
    if call.caller.tenant is not None:
        running = sum(bar.end is None for bar in bars)
    return TimelineView(from_instant(start), from_instant(end), bars, more, kept, running, crowd)


async def _reserved(call: Call[None, TimelineQuery], end: Instant) -> list[ReservedView]:
    brain, wanted, own = call.deps.brain, _worker(call), call.caller.tenant
    if end < brain.clock.now() - NOW_MS:
        return []
    await brain.settled()
    kept = (
        ReservedView(
            job_id=one.job_id,
            name=one.name,
            worker_id=one.worker_id,
            start=from_instant(one.start),
            end=from_instant(one.end),
        )
        for one in brain.places()
        if wanted in (None, one.worker_id) and own in (None, one.tenant)
    )
    return list(islice(kept, call.deps.limits.timeline_bars_max))


def _window(call: Call[None, TimelineQuery]) -> tuple[Instant, Instant]:
    asked = call.query
    end = call.deps.brain.clock.now() if asked.before is None else to_instant(asked.before)
    start = end - WINDOW_MS if asked.after is None else to_instant(asked.after)
    if start < 0:
        raise invalid("before" if asked.after is None else "after", "not before 1970")
    if start >= end:
        raise invalid("after", "must be earlier than `before`")
    if end - start > TIMELINE_WINDOW_MS_MAX:
        raise invalid("after", f"a timeline shows {TIMELINE_WINDOW_MS_MAX // DAY_MS} days at most")
    return start, end


async def _claimed_within(
    call: Call[None, TimelineQuery], start: Instant, end: Instant
) -> tuple[list[Execution], bool]:
    found: list[Execution] = []
    most = call.deps.limits.timeline_bars_max
    before, pace = first_id(end + 1), PageSize(most, call.deps.limits.read_at_once)
    while len(found) < most:
        size = pace.size
        query = ExecutionQuery(worker_id=_worker(call), before=before, limit=size)
        part = await call.deps.catalog.find_executions(query)
        pace.record(part)
        found += [one for one in part if one.claimed_at >= start]
        if len(part) < size or part[-1].claimed_at < start:
            return found, False
        before = part[-1].id
    return found, True


async def _running(call: Call[None, TimelineQuery]) -> tuple[Sequence[Execution], int]:
    """What runs now, however long ago it began: as much as is drawn, and how much there is."""
    brain, wanted = call.deps.brain, _worker(call)
    await brain.settled()
    ids = [
        execution_id
        for glance in brain.workers()
        if wanted in (None, glance.worker.id)
        for execution_id in glance.executions
    ]
    found: list[Execution] = []
    most, step = call.deps.limits.timeline_bars_max, call.deps.limits.read_at_once
    for at in range(0, min(len(ids), most), step):
        found += await call.deps.catalog.executions(ids[at : at + step])
    return found[:most], len(ids)


def _bar(one: Execution, job: Outline) -> BarView:
    return BarView(
        execution_id=one.id,
        job_id=one.job_id,
        name=job.name,
        worker_id=one.worker_id,
        status=one.state.value,
        job_status=job.state.value,
        start=from_instant(one.claimed_at),
        end=from_instant_or_none(one.ended_at),
    )


def _worker(call: Call[None, TimelineQuery]) -> WorkerId | None:
    return None if call.query.worker_id is None else WorkerId(call.query.worker_id)
