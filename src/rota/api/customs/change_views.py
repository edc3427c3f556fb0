"""State changes as `/stream` tells them."""

from __future__ import annotations

from typing import TypeAlias

from rota.core.outcome import (
    DropCalendar,
    DropJob,
    DropSchedule,
    DropTrigger,
    DropWorker,
    MoveJob,
    MoveSchedule,
    PutBufferedEvent,
    PutCalendar,
    PutEvent,
    PutExecution,
    PutJob,
    PutKey,
    PutOccurrence,
    PutPolicy,
    PutQueue,
    PutRuntime,
    PutSchedule,
    PutTenant,
    PutTrigger,
    PutTriggerDecision,
    PutWorker,
    ReleaseBufferedEvents,
)
from rota.store.protocol import Change
from rota.wire.service import ChangeView
from rota.wire.units import from_instant

_AboutSchedule: TypeAlias = PutSchedule | DropSchedule | PutOccurrence
_NotStreamed: TypeAlias = (
    PutKey
    | MoveSchedule
    | PutCalendar
    | DropCalendar
    | PutEvent
    | PutBufferedEvent
    | ReleaseBufferedEvents
    | PutTenant
    | PutRuntime
)
"""What is no one's business."""


def change_view(change: Change) -> ChangeView | None:
    """One state change, as the stream tells it; None for what is no one's business."""
    at = from_instant(change.at)
    match change.write:
        case PutJob() | MoveJob():
            return _job_change(change.write, at)
        case DropJob(id=job_id):
            return ChangeView("job", job_id, "deleted", at)
        case PutExecution(execution=one):
            return ChangeView(
                "execution",
                one.id,
                one.state.value,
                at,
                reason=one.reason,
                job_id=one.job_id,
                worker_id=one.worker_id,
            )
        case PutWorker(worker=worker):
            return ChangeView("worker", worker.id, worker.state.value, at, worker.name)
        case DropWorker(id=worker_id):
            return ChangeView("worker", worker_id, "deleted", at)
        case PutQueue(queue=queue):
            return ChangeView("queue", queue.name, "paused" if queue.paused else "open", at)
        case PutPolicy(policy=policy):
            return ChangeView("policy", "policy", policy.order.value, at)
        case PutTrigger() | DropTrigger() | PutTriggerDecision():
            return _trigger_change(change.write, at)
        case _:
            return _schedule_change(change.write, at)


def _job_change(write: PutJob | MoveJob, at: str) -> ChangeView:
    life = write.life
    view = ChangeView("job", write.id, life.state.value, at)
    view.reason, view.deadline = life.reason, life.deadline
    if isinstance(write, PutJob):
        view.name, view.queue = write.spec.terms.name, write.spec.terms.queue
    return view


def _schedule_change(write: _NotStreamed | _AboutSchedule, at: str) -> ChangeView | None:
    if isinstance(write, _NotStreamed):
        return None
    if isinstance(write, PutSchedule):
        status = "paused" if write.schedule.state.paused else "active"
        return ChangeView("schedule", write.schedule.id, status, at, write.schedule.definition.name)
    if isinstance(write, DropSchedule):
        return ChangeView("schedule", write.id, "deleted", at)
    one = write.occurrence
    return ChangeView(
        "occurrence",
        f"{one.schedule_id}/{from_instant(one.nominal)}",
        one.decision.value,
        at,
        reason=one.skip_reason.value,
        job_id=one.job_id or "",
        schedule_id=one.schedule_id,
    )


def _trigger_change(write: PutTrigger | DropTrigger | PutTriggerDecision, at: str) -> ChangeView:
    if isinstance(write, PutTrigger):
        status = "paused" if write.trigger.paused else "active"
        return ChangeView("trigger", write.trigger.id, status, at, write.trigger.definition.name)
    if isinstance(write, DropTrigger):
        return ChangeView("trigger", write.id, "deleted", at)
    one = write.decision
    return ChangeView(
        "arrival",
        one.id,
        one.decision.value,
        at,
        one.type,
        reason=one.detail,
        job_id=one.job_id or "",
        trigger_id=one.trigger_id,
    )
