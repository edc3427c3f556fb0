"""Arrays: one job in the queue stands for many members; each becomes a job as it starts.

The array keeps its place in the queue until its last member has started. A member is created when a
worker has free capacity for it, and from then on is a job like any other: with its own attempts,
timeout and slot of a concurrency key (docs/decisions/0017-an-array-or-gang-is-one-entry.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rota.core.entries import NO_CLASS, GroupEntry, JobEntry, bits_of, indices
from rota.core.errors import Conflict, Invalid
from rota.core.ids import member_id
from rota.core.jobs.finish import error_json, finish_job
from rota.core.jobs.wait_states import dequeue, enqueue, enter_wait_state
from rota.core.lifecycle import JOB_WAITING, JobVerb, move_job
from rota.core.limits import FENCES_PER_LIFE
from rota.core.model import (
    Array,
    Gang,
    GroupMember,
    GroupProgress,
    Instant,
    JobRecord,
    JobState,
    Life,
    Spec,
    unsuccessful_count,
)
from rota.core.state import SchedulerState

RESERVED_KEY_PREFIX = "rota."
"""Prefix of the concurrency keys that queue the jobs of a schedule, each array as a whole."""


def start_member(t: SchedulerState, job: JobEntry, now: Instant) -> JobEntry:
    """Creates the next member as a job; the array leaves its queue if no more may start."""
    group, array = t.groups.entries[job.id], job.spec.group
    assert isinstance(array, Array)
    index = group.member_order[group.drawn]
    group.drawn += 1
    t.groups.add_waiting(job, -1)
    if job.life.state is not JobState.RUNNING:
        _begin_array(t, job, now)
    is_new = index >= array.born
    life = Life(
        JobState.QUEUED,
        reason="ready",
        fence=t.fence_floor + (job.life.lives - 1) * FENCES_PER_LIFE,
        lives=1 if is_new else job.life.lives,
        ready_at=job.life.ready_at,
    )
    spec = replace(_member_template(group, job.spec), group=GroupMember(job.id, index))
    member = t.add_job(member_id(job.id, index), spec, life)
    t.recently_finished.returned(member.id)
    t.put_job(member)
    t.changeset.submitted += is_new
    t.groups.changed[job.id] = None
    _stay_queued(t, job, member, now)
    return member


def is_started_array(job: JobEntry) -> bool:
    """Whether the job is a running array, which may have members that wait."""
    return isinstance(job.spec.group, Array) and job.life.state is JobState.RUNNING


def _begin_array(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    life = job.life
    state = move_job(job.id, life.state, JobVerb.CLAIM)
    t.set_life(
        job,
        replace(life, state=state, reason="", attempt=1, started_at=life.started_at or now),
    )


def _member_template(group: GroupEntry, spec: Spec) -> Spec:
    """Spec of every member. The payload stays with the array and is not repeated in each row."""
    if group.template is None:
        group.template = replace(
            spec,
            payload=b"",
            dependencies=(),
            expires_at=None,
            finish_by=None,
            origin=None,
            trigger_origin=None,
            concurrency=None if _shares_one_slot(spec) else spec.concurrency,
            revision=0,
        )
    return group.template


def _shares_one_slot(spec: Spec) -> bool:
    """Whether the array holds one slot of its key for all of its members."""
    key = spec.concurrency
    return spec.origin is not None and key is not None and key.key.startswith(RESERVED_KEY_PREFIX)


def _stay_queued(t: SchedulerState, job: JobEntry, member: JobEntry, now: Instant) -> None:
    if member.spec.concurrency is not None:
        # The member takes the array's slot; the array queues for another one.
        t.ready_queue.remove(job)
        t.concurrency_keys.hand_on(job, member)
        requeue(t, job, now)
    elif not _may_start_member(t, job):
        t.ready_queue.remove(job)


def _may_start_member(t: SchedulerState, job: JobEntry) -> bool:
    group, array = t.groups.entries[job.id], job.spec.group
    assert isinstance(array, Array)
    # A member that waits for a retry counts, otherwise more than the limit might run.
    is_below_limit = array.max_parallel is None or len(group.live) < array.max_parallel
    return group.waiting > 0 and is_below_limit


def requeue(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Puts a started array back in its queue, if another member may start."""
    is_begun = job.life.state is JobState.RUNNING
    if (
        is_begun
        and job.class_index == NO_CLASS
        and _may_start_member(t, job)
        and not t.concurrency_keys.waits(job)
    ):
        enqueue(t, job, now)


def stop_starting(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Takes a started group out of its queue; a slot that it holds for all members is kept."""
    if holds_slot_itself(job):
        t.ready_queue.remove(job)
    else:
        dequeue(t, job, now)


def update_array(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Queues the array for further members after some ended, or finishes it."""
    group = t.groups.entries[job.id]
    t.groups.changed[job.id] = None
    if group.live or group.waiting:
        requeue(t, job, now)
        return
    life = replace(job.life, reason="", progress=None)
    if group.succeeded == group.size:
        finish_job(t, job, JobVerb.SUCCEED, life, now)
    elif job.life.state is JobState.CANCELLING or not group.failed:
        finish_job(t, job, JobVerb.STOP, replace(life, reason="cancelled"), now)
    else:
        error = error_json(f"{group.failed} of its {group.size} members failed")
        finish_job(t, job, JobVerb.FAIL, replace(life, reason="members", error=error), now)


def cancel_unstarted(t: SchedulerState, job: JobEntry, now: Instant) -> int:
    """Cancels the members of a started array that are not jobs yet; returns how many."""
    count = t.groups.cancel_waiting(job)
    stop_starting(t, job, now)
    t.groups.due[job.id] = None
    return count


def restarted(record: JobRecord, failed: Sequence[int] | None) -> tuple[Spec, GroupProgress]:
    """Spec and progress of an ended array that is retried: the members that did not succeed run
    again.

    `failed` are the indices of started members that did not succeed. None: the caller did not look,
    which is enough if all or none of the started ones failed.
    """
    array, progress = record.spec.group, record.life.group_progress
    assert isinstance(array, Array)
    assert progress is not None
    order = indices(array.todo) if array.todo else range(array.count)
    drawn, missing = order[: progress.drawn], unsuccessful_count(progress)
    if failed is None:
        failed = drawn if missing else ()
        if missing not in (0, len(drawn)):
            raise Conflict(f"array {record.id}: its failed members must be read first")
    last = drawn[-1] if drawn else -1
    # Rows of an earlier life may have members that this life did not reach.
    failed = [index for index in failed if index <= last]
    if len(failed) != missing:
        gone = missing - len(failed)
        raise Conflict(f"{gone} failed members of {record.id} were deleted by retention")
    todo = [*failed, *order[progress.drawn :]]
    born = max(array.born, max(drawn, default=-1) + 1)
    is_all = len(todo) == array.count
    again = replace(array, todo=b"" if is_all else bits_of(todo), born=born)
    return replace(record.spec, group=again), GroupProgress(succeeded=progress.succeeded)


def checked_update(job: JobEntry, spec: Spec) -> Spec:
    """Checks an update of an array or gang and returns the spec to use.

    A group never changes its kind. Once an array has started, only terms, labels and max_parallel
    may change.
    """
    before, after = job.spec.group, spec.group
    if isinstance(before, GroupMember):
        raise Conflict(
            f"job {job.id} is member {before.index} of {before.parent}: change that job instead"
        )
    if type(before) is not type(after):
        field = "gang" if isinstance(before, Gang) or isinstance(after, Gang) else "count"
        raise Invalid(
            "a job cannot become or cease to be an array or a gang: submit a new one", field
        )
    if not isinstance(before, Array) or not isinstance(after, Array):
        return spec
    if before.todo and after.count != before.count:
        raise Conflict(f"array {job.id} was retried: its count cannot change any more")
    spec = replace(spec, group=replace(after, todo=before.todo, born=before.born))
    if job.life.state not in JOB_WAITING and not _differs_in_changeable_fields_only(job.spec, spec):
        raise Conflict(
            f"array {job.id} has begun: its priority, requirements, retry, timeout, labels and"
            " max_parallel can still be changed, for the members that have not started"
        )
    return spec


def _differs_in_changeable_fields_only(before: Spec, after: Spec) -> bool:
    assert isinstance(before.group, Array)
    assert isinstance(after.group, Array)
    array = replace(after.group, max_parallel=before.group.max_parallel)
    alike = replace(after, terms=before.terms, labels=before.labels, group=array)
    return replace(alike, revision=before.revision) == before


def apply_update(t: SchedulerState, job: JobEntry, spec: Spec, now: Instant) -> None:
    """Updates a started array and its waiting members; running members keep their spec."""
    stop_starting(t, job, now)
    t.set_spec(job, spec)
    for job_id in list(t.groups.entries[job.id].live):
        member = t.jobs[job_id]
        if member.life.state in JOB_WAITING:
            dequeue(t, member, now)
            t.set_spec(member, replace(member.spec, terms=spec.terms, labels=spec.labels))
            enter_wait_state(t, member, now)
    requeue(t, job, now)


def holds_slot_itself(job: JobEntry) -> bool:
    """Whether the group itself holds a slot of its key while its members run."""
    return not isinstance(job.spec.group, Array) or _shares_one_slot(job.spec)
