"""Members of arrays and gangs: updates groups whose members ended, and writes their progress."""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.entries import JobEntry
from rota.core.groups import arrays, gangs
from rota.core.model import (
    Array,
    Execution,
    Gang,
    GroupContext,
    GroupMember,
    Instant,
    JobId,
    JobLimits,
    JobState,
    Spec,
)
from rota.core.outcome import Order
from rota.core.state import SchedulerState


def update_groups(t: SchedulerState, now: Instant) -> None:
    """Bands whose members have ended go on, or end too. That may end others: until all is quiet."""
    while t.groups.due:
        due, t.groups.due = t.groups.due, {}
        for parent in due:
            if parent in t.jobs:
                update_group(t, t.jobs[parent], now)


def update_group(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """The band goes on, or ends, as its members say; one that has not begun has none."""
    t.groups.due.pop(cell.id, None)
    if cell.life.state not in (JobState.RUNNING, JobState.CANCELLING):
        return
    if isinstance(cell.spec.group, Array):
        arrays.update_array(t, cell, now)
    else:
        gangs.update_gang(t, cell, now)


def write_all_progress(t: SchedulerState) -> None:
    """At a turn's end: how far each band is that has come further goes into its row."""
    for parent in t.groups.changed:
        cell = t.jobs.get(parent)
        if cell is not None:
            write_progress(t, cell)
    t.groups.changed.clear()


def write_progress(t: SchedulerState, cell: JobEntry) -> None:
    """How far the band is goes into its row."""
    mine = t.groups.entries[cell.id]
    t.set_life(
        cell, replace(cell.life, group_progress=mine.progress(), progress=mine.ended / mine.size)
    )


def member_order(
    t: SchedulerState, execution: Execution, spec: Spec, limits: JobLimits | None
) -> Order:
    """What a member's worker is told: the band's own payload, and whom it runs with."""
    band = spec.group
    assert isinstance(band, GroupMember)
    parent = t.jobs[JobId(band.parent)]
    mine = t.groups.entries[parent.id]
    company = GroupContext(band.parent, band.index, mine.size, band.in_gang, mine.hosts)
    return Order(execution, replace(spec, payload=parent.spec.payload), limits, company)


def requeue_array(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """After a load: an array that has begun stands in line for its next member."""
    if isinstance(cell.spec.group, Array):
        arrays.requeue(t, cell, now)


def restore_slots(t: SchedulerState) -> None:
    """After a load: bands that hold a slot of a key as a whole have it before others line up."""
    for job_id in t.groups.entries:
        cell = t.jobs[job_id]
        runs = cell.life.state in (JobState.RUNNING, JobState.CANCELLING)
        if runs and arrays.holds_slot_itself(cell):
            t.concurrency_keys.restore_holder(cell)


def is_group(cell: JobEntry) -> bool:
    """Whether the job stands for others."""
    return isinstance(cell.spec.group, Array | Gang)
