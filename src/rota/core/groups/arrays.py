"""Arrays: one job in the queue stands for many members, each of which becomes a job as it starts.

The array keeps its place in the queue until its last member has started. A member is created when a
worker has free capacity for it, and from then on is a job like any other: with its own attempts,
timeout and slot of a concurrency key.
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
"""Concurrency keys that begin so line up the runs of a schedule, each of them as a whole."""


def start_member(t: SchedulerState, cell: JobEntry, now: Instant) -> JobEntry:
    """The next member becomes a job, for a worker that has room; the array stays while it may."""
    mine, band = t.groups.entries[cell.id], cell.spec.group
    assert isinstance(band, Array)
    index = mine.member_order[mine.drawn]
    mine.drawn += 1
    t.groups.add_waiting(cell, -1)
    if cell.life.state is not JobState.RUNNING:
        _begin_array(t, cell, now)
    is_new = index >= band.born
    life = Life(
        JobState.QUEUED,
        reason="ready",
        fence=(cell.life.lives - 1) * FENCES_PER_LIFE,
        lives=1 if is_new else cell.life.lives,
        ready_at=cell.life.ready_at,
    )
    spec = replace(_member_template(mine, cell.spec), group=GroupMember(cell.id, index))
    member = t.add_job(member_id(cell.id, index), spec, life)
    t.recently_finished.returned(member.id)
    t.put_job(member)
    t.changeset.submitted += is_new
    t.groups.changed[cell.id] = None
    _stay_queued(t, cell, member, now)
    return member


def _begin_array(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    life = cell.life
    state = move_job(cell.id, life.state, JobVerb.CLAIM)
    t.set_life(
        cell,
        replace(life, state=state, reason="", attempt=1, started_at=life.started_at or now),
    )


def _member_template(mine: GroupEntry, spec: Spec) -> Spec:
    """What every member asks for; the payload is the array's and is not repeated in each row."""
    if mine.template is None:
        mine.template = replace(
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
    return mine.template


def _shares_one_slot(spec: Spec) -> bool:
    """Whether the array holds one slot of its key for all of its members."""
    key = spec.concurrency
    return spec.origin is not None and key is not None and key.key.startswith(RESERVED_KEY_PREFIX)


def _stay_queued(t: SchedulerState, cell: JobEntry, member: JobEntry, now: Instant) -> None:
    if member.spec.concurrency is not None:
        # The slot that the array had goes to the member; for the next it lines up again.
        t.ready_queue.remove(cell)
        t.concurrency_keys.hand_on(cell, member)
        requeue(t, cell, now)
    elif not _may_start_member(t, cell):
        t.ready_queue.remove(cell)


def _may_start_member(t: SchedulerState, cell: JobEntry) -> bool:
    mine, band = t.groups.entries[cell.id], cell.spec.group
    assert isinstance(band, Array)
    # A member that waits for another try is under way: or else more than the limit might run.
    has_room = band.max_parallel is None or len(mine.live) < band.max_parallel
    return mine.waiting > 0 and has_room


def requeue(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """An array that has begun stands in line again, if it has members to draw and may."""
    is_begun = cell.life.state is JobState.RUNNING
    if (
        is_begun
        and cell.class_index == NO_CLASS
        and _may_start_member(t, cell)
        and not t.concurrency_keys.waits(cell)
    ):
        enqueue(t, cell, now)


def stop_starting(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """A band that has begun draws no more for now; a slot it has for all its members it keeps."""
    if holds_slot_itself(cell):
        t.ready_queue.remove(cell)
    else:
        dequeue(t, cell, now)


def update_array(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """Members have ended: others may be drawn, or the array has ended too."""
    mine = t.groups.entries[cell.id]
    t.groups.changed[cell.id] = None
    if mine.live or mine.waiting:
        requeue(t, cell, now)
        return
    life = replace(cell.life, reason="", progress=None)
    if mine.succeeded == mine.size:
        finish_job(t, cell, JobVerb.SUCCEED, life, now)
    elif cell.life.state is JobState.CANCELLING or not mine.failed:
        finish_job(t, cell, JobVerb.STOP, replace(life, reason="cancelled"), now)
    else:
        error = error_json(f"{mine.failed} of its {mine.size} members failed")
        finish_job(t, cell, JobVerb.FAIL, replace(life, reason="members", error=error), now)


def cancel_unstarted(t: SchedulerState, cell: JobEntry, now: Instant) -> int:
    """Members of an array that has begun and that are no jobs yet are called off."""
    count = t.groups.cancel_waiting(cell)
    stop_starting(t, cell, now)
    t.groups.due[cell.id] = None
    return count


def restarted(record: JobRecord, failed: Sequence[int] | None) -> tuple[Spec, GroupProgress]:
    """An ended array that starts over: those of its members that did not succeed are to run.

    `failed` are the indices of those that ran; None: nobody has looked, which will do where it is
    all that ran, or none.
    """
    band, tally = record.spec.group, record.life.group_progress
    assert isinstance(band, Array)
    assert tally is not None
    order = indices(band.todo) if band.todo else range(band.count)
    drawn, missing = order[: tally.drawn], unsuccessful_count(tally)
    if failed is None:
        failed = drawn if missing else ()
        if missing not in (0, len(drawn)):
            raise Conflict(f"array {record.id}: nobody has looked which of its members failed")
    last = drawn[-1] if drawn else -1
    # Of an earlier life there may be rows of members that this one has not come to.
    failed = [index for index in failed if index <= last]
    if len(failed) != missing:
        gone = missing - len(failed)
        raise Conflict(f"{gone} of the members of {record.id} that failed are not kept any more")
    todo = [*failed, *order[tally.drawn :]]
    born = max(band.born, max(drawn, default=-1) + 1)
    is_all = len(todo) == band.count
    again = replace(band, todo=b"" if is_all else bits_of(todo), born=born)
    return replace(record.spec, group=again), GroupProgress(succeeded=tally.succeeded)


def checked_update(cell: JobEntry, spec: Spec) -> Spec:
    """The spec as it may be: before a band begins all but its kind, afterwards how it goes on."""
    before, after = cell.spec.group, spec.group
    if isinstance(before, GroupMember):
        raise Conflict(f"job {cell.id} is member {before.index} of {before.parent}: change that")
    if type(before) is not type(after):
        field = "gang" if isinstance(before, Gang) or isinstance(after, Gang) else "count"
        raise Invalid("a job does not become another kind of one: submit a new one", field)
    if not isinstance(before, Array) or not isinstance(after, Array):
        return spec
    if before.todo and after.count != before.count:
        raise Conflict(f"array {cell.id} was started over: its count is what it is")
    spec = replace(spec, group=replace(after, todo=before.todo, born=before.born))
    if cell.life.state not in JOB_WAITING and not _differs_in_changeable_fields_only(
        cell.spec, spec
    ):
        raise Conflict(
            f"array {cell.id} has begun: its priority, requirements, retry, timeout, labels and"
            " max_parallel can still be changed, for the members that have not started"
        )
    return spec


def _differs_in_changeable_fields_only(before: Spec, after: Spec) -> bool:
    """Whether they differ in nothing but what can be another for each member."""
    assert isinstance(before.group, Array)
    assert isinstance(after.group, Array)
    band = replace(after.group, max_parallel=before.group.max_parallel)
    alike = replace(after, terms=before.terms, labels=before.labels, group=band)
    return replace(alike, revision=before.revision) == before


def apply_update(t: SchedulerState, cell: JobEntry, spec: Spec, now: Instant) -> None:
    """An array that has begun goes on as `spec` says; what has started stays as it is."""
    stop_starting(t, cell, now)
    t.set_spec(cell, spec)
    for job_id in list(t.groups.entries[cell.id].live):
        member = t.jobs[job_id]
        if member.life.state in JOB_WAITING:
            dequeue(t, member, now)
            t.set_spec(member, replace(member.spec, terms=spec.terms, labels=spec.labels))
            enter_wait_state(t, member, now)
    requeue(t, cell, now)


def holds_slot_itself(cell: JobEntry) -> bool:
    """Whether the band itself has a slot of its key while members of it run."""
    return not isinstance(cell.spec.group, Array) or _shares_one_slot(cell.spec)
