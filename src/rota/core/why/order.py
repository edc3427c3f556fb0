"""Why a job that has room somewhere waits all the same: places kept for others, shares, order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rota.core.memory.cells import NO_CLASS, JobEntry, WorkerEntry
from rota.core.model import Instant, JobState
from rota.core.order.fair import FairOrder
from rota.core.order.ordering import is_spill_marker
from rota.core.order.sharing import dominant_share
from rota.core.place.places import Reservation
from rota.core.records.glance import Cause
from rota.core.records.policy import BackfillKind
from rota.core.tables import SchedulerState
from rota.core.why.views import entitlement


def promised_start(t: SchedulerState, cell: JobEntry, now: Instant) -> tuple[Instant, str] | None:
    """When a place that is kept for the job comes free, and how that is known."""
    if cell.class_index == NO_CLASS:
        return None
    place = t.reservations.get(cell.class_index)
    if place is not None and place.job_id == cell.id and t.policy.backfill is BackfillKind.EASY:
        return max(now, place.at), f"a place is kept on worker {place.worker_id}"
    planned = t.conservative_plan.get(cell.id)
    if planned is not None and t.policy.backfill is BackfillKind.CONSERVATIVE:
        return max(now, planned[1]), f"the plan has it start on worker {planned[0]}"
    return None


def held_back_by_reservations(
    t: SchedulerState, cell: JobEntry, with_room: Sequence[WorkerEntry], now: Instant
) -> Iterator[Cause]:
    """Whose places keep it off the workers that have room for it."""
    planned = t.conservative_plan.get(cell.id)
    if t.policy.backfill is BackfillKind.GREEDY:
        return
    if t.policy.backfill is BackfillKind.CONSERVATIVE:
        if planned is not None and with_room:
            worker_id, at = planned
            text = f"it would delay jobs before it; the plan has it start on worker {worker_id}"
            yield Cause("planned", text, {"worker_id": worker_id, "until": at})
        return
    by_worker = {
        place.worker_id: place for place in t.reservations.values() if _is_current(t, place)
    }
    kept = [by_worker[w.worker.id] for w in with_room if w.worker.id in by_worker]
    kept = [place for place in kept if place.job_id != cell.id]
    for place in kept[:1]:
        yield Cause(
            "reserved",
            f"worker {place.worker_id} keeps a place for job {place.job_id},"
            f" which starts in about {max(0, place.at - now) / 1000:g} s",
            {
                "job_id": place.job_id,
                "worker_id": place.worker_id,
                "until": place.at,
                "expected_runtime": cell.estimate / 1000,
                "places": len(kept),
            },
        )
    if not kept and with_room:
        yield from _behind_first(t, cell)


def _is_current(t: SchedulerState, place: Reservation) -> bool:
    job = t.jobs.get(place.job_id)
    return job is not None and job.life.state is JobState.QUEUED


def _behind_first(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    """Who comes first and holds up those behind it."""
    line = t.ready_queue.first(~t.blocked_classes)
    head = None if line is None else t.ready_queue.head(line)
    if head is None or is_spill_marker(head) or head[2] == cell.id:
        return
    first = t.jobs[head[2]]
    if not t.fleet.machines_for(t.ready_queue.classes[first.class_index]).indexes:
        return  # no worker there could run it, so nobody waits for it
    yield Cause(
        "behind",
        f"job {head[2]} ({first.spec.terms.name}) goes first and does not fit yet;"
        " it is not passed",
        {"job_id": head[2]},
    )


def fair_share(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    """How the tenant stands with the others, if any of them goes before it."""
    order, name = t.ready_queue.order, cell.spec.terms.tenant
    tenant = t.tenants.entries.get(name)
    if not isinstance(order, FairOrder) or tenant is None:
        return
    ahead = order.ahead_of(name)
    if not ahead:
        return
    share = dominant_share(tenant.holds(), t.fleet.capacity)
    entitled = entitlement(t, tenant)
    who = f"{ahead} tenants go" if ahead > 1 else f"tenant {order.rival(name)} goes"
    yield Cause(
        "fair_share",
        f"tenant {name} holds {share:.0%} of the fleet, its part is {entitled:.0%};"
        f" {who} before it",
        {
            "tenant": name,
            "share": round(share, 4),
            "entitlement": round(entitled, 4),
            "tenants_ahead": ahead,
            "first": order.rival(name),
        },
    )
