"""Members of job groups: updates arrays and gangs whose members ended, and writes their
progress."""

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
    """Updates groups whose members ended; repeats, since that may end other jobs."""
    while t.groups.due:
        due, t.groups.due = t.groups.due, {}
        for parent in due:
            if parent in t.jobs:
                update_group(t, t.jobs[parent], now)


def update_group(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Starts or stops further members, or finishes the group, once it has started."""
    t.groups.due.pop(job.id, None)
    if job.life.state not in (JobState.RUNNING, JobState.CANCELLING):
        return
    if isinstance(job.spec.group, Array):
        arrays.update_array(t, job, now)
    else:
        gangs.update_gang(t, job, now)


def write_all_progress(t: SchedulerState) -> None:
    """Writes the progress of all groups that changed, at the end of a turn."""
    for parent in t.groups.changed:
        job = t.jobs.get(parent)
        if job is not None:
            write_progress(t, job)
    t.groups.changed.clear()


def write_progress(t: SchedulerState, job: JobEntry) -> None:
    group = t.groups.entries[job.id]
    t.set_life(
        job, replace(job.life, group_progress=group.progress(), progress=group.ended / group.size)
    )


def member_order(
    t: SchedulerState, execution: Execution, spec: Spec, limits: JobLimits | None
) -> Order:
    """Order for a member: with the payload of its group, and the context of its group."""
    member = spec.group
    assert isinstance(member, GroupMember)
    parent = t.jobs[JobId(member.parent)]
    group = t.groups.entries[parent.id]
    context = GroupContext(member.parent, member.index, group.size, member.in_gang, group.hosts)
    return Order(execution, replace(spec, payload=parent.spec.payload), limits, context)


def requeue_array(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Puts a started array back in its queue after a restore."""
    if isinstance(job.spec.group, Array):
        arrays.requeue(t, job, now)


def restore_slots(t: SchedulerState) -> None:
    """Gives groups their slots back after a restore, before other jobs queue for them."""
    for job_id in t.groups.entries:
        job = t.jobs[job_id]
        runs = job.life.state in (JobState.RUNNING, JobState.CANCELLING)
        if runs and arrays.holds_slot_itself(job):
            t.concurrency_keys.restore_holder(job)


def is_group(job: JobEntry) -> bool:
    """Whether the job is an array or gang, which stands for its members."""
    return isinstance(job.spec.group, Array | Gang)
