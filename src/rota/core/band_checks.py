"""What must always hold of arrays, gangs and their members."""

from __future__ import annotations

from collections.abc import Iterator

from rota.core.band import Array, Gang, GroupMember, copies_of
from rota.core.memory.bands import GroupEntry, counted_state
from rota.core.memory.cells import NO_CLASS, JobEntry
from rota.core.model import JobId, JobState
from rota.core.tables import SchedulerState

_RUNNING_STATES = (JobState.RUNNING, JobState.CANCELLING)


def depth_counts(t: SchedulerState, cell: JobEntry) -> Iterator[tuple[JobState, int]]:
    """What a live job counts as in the depth of its queue and tenant."""
    if cell.id in t.groups.entries:
        yield counted_state(cell.life.state), t.groups.entries[cell.id].waiting
    else:
        yield cell.life.state, 1


def _check_groups(t: SchedulerState) -> None:
    """Raises AssertionError with what is wrong."""
    assert not t.groups.due, "a member's end went unnoticed"
    assert not t.groups.changed, "a tally was not written"
    live: dict[JobId, dict[JobId, None]] = {job_id: {} for job_id in t.groups.entries}
    for job_id, cell in t.jobs.items():
        band = cell.spec.group
        if isinstance(band, GroupMember):
            live[JobId(band.parent)][job_id] = None
        assert (job_id in t.groups.entries) == isinstance(band, Array | Gang)
    assert t.groups.waiting == sum(mine.waiting for mine in t.groups.entries.values())
    for job_id, mine in t.groups.entries.items():
        assert mine.live == live[job_id], f"the members of {job_id} drifted"
        _check_group(t, t.jobs[job_id], mine)


def _check_group(t: SchedulerState, cell: JobEntry, mine: GroupEntry) -> None:
    band, runs = cell.spec.group, cell.life.state in _RUNNING_STATES
    running = sum(t.jobs[job_id].life.state in _RUNNING_STATES for job_id in mine.live)
    assert mine.running == running, f"{cell.id} counts {mine.running} of {running} running"
    assert mine.size == copies_of(band)
    all_of_it = mine.ended + mine.waiting + len(mine.live)
    assert all_of_it == mine.size, f"{cell.id} has {all_of_it} members of {mine.size}"
    assert bool(mine.live) <= runs, f"{cell.id} is {cell.life.state} and has members"
    if isinstance(band, Array):
        limit = band.max_parallel
        assert limit is None or len(mine.live) <= max(limit, mine.running), "too many at once"
        wants = limit is None or len(mine.live) < limit
        if cell.life.state is JobState.RUNNING and mine.waiting and wants:
            stands = cell.class_index != NO_CLASS or t.concurrency_keys.waits(cell)
            assert stands, f"array {cell.id} has members to draw and is in no line"
    elif runs and cell.life.state is JobState.RUNNING and not mine.cause:
        started = len(mine.live) + mine.succeeded
        assert started == mine.size, f"gang {cell.id} runs with {started} of {mine.size}"
