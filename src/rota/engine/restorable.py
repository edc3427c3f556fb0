"""Leaves out of a snapshot what cannot be restored because rows of the store are damaged.

A server starts although rows are damaged or lost. The jobs that are left out stay in the store as
they are, and do not run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rota.core.jobs.wait_states import WAITS_FOR_JOBS
from rota.core.model import GroupMember, JobId, JobRecord, JobState, Queue
from rota.store.protocol import Snapshot

_RUNS = (JobState.RUNNING, JobState.CANCELLING)


def restorable(snapshot: Snapshot) -> tuple[Snapshot, list[str]]:
    """Returns what can be restored, and a line about each damaged row and each job left out."""
    damaged = [f"the {what} {key} is damaged" for what, key in snapshot.damaged]
    gone = _jobs_to_leave_out(snapshot)
    jobs = [job for job in snapshot.jobs if job.id not in gone] if gone else snapshot.jobs
    there = {job.id: None for job in jobs}
    executions = [one for one in snapshot.executions if one.job_id in there]
    if not damaged and not gone and len(executions) == len(snapshot.executions):
        return snapshot, []
    alone = [one for one in snapshot.executions if one.job_id not in there]
    spilled = Counter(job.life.line for job in snapshot.jobs if job.id in gone)
    triggers = {one.id: None for one in snapshot.triggers}
    whole = replace(
        snapshot,
        jobs=jobs,
        executions=executions,
        spill_counts=[(one, count - spilled[one]) for one, count in snapshot.spill_counts],
        # Nobody knows its limits: unless it is paused, it might start more than it may.
        queues=[
            *snapshot.queues,
            *(Queue(key, paused=True) for what, key in snapshot.damaged if what == "queue"),
        ],
        buffered_events=[one for one in snapshot.buffered_events if one.trigger_id in triggers],
    )
    left_out = [f"job {job_id} is left out: {why}" for job_id, why in gone.items()]
    left_out += [
        f"execution {one.id} is left out: so is its job {one.job_id}"
        for one in alone
        if one.job_id not in gone
    ]
    return whole, damaged + left_out


def _jobs_to_leave_out(snapshot: Snapshot) -> dict[JobId, str]:
    """Returns jobs that were read but must not be restored, with the reason."""
    gone: dict[JobId, str] = {}
    workers = {one.id: None for one in snapshot.workers}
    executions = {one.id: None for one in snapshot.executions}
    for execution in snapshot.executions:
        if execution.worker_id not in workers:
            gone[execution.job_id] = f"its worker {execution.worker_id} cannot be read"
    for job in snapshot.jobs:
        life = job.life
        runs = life.execution_id is not None and life.state in _RUNS
        if runs and life.execution_id not in executions:
            gone[job.id] = f"its execution {life.execution_id} cannot be read"
    lost = {JobId(key): None for what, key in snapshot.damaged if what == "job"}
    left = -1
    while left != len(gone) and (gone or lost):
        left = len(gone)
        gone |= dict(_drawn_along(snapshot.jobs, {**lost, **dict.fromkeys(gone)}))
    return gone


def _drawn_along(jobs: Sequence[JobRecord], gone: dict[JobId, None]) -> Iterator[tuple[JobId, str]]:
    """Yields jobs that are in a group with one of these, or wait for one.

    A job that waits for one that is not there would start: the scheduler takes that one for ended.
    """
    groups: dict[str, None] = dict.fromkeys(gone)
    for job in jobs:
        if job.id in gone and isinstance(job.spec.group, GroupMember):
            groups[job.spec.group.parent] = None
    for job in jobs:
        if job.id in gone:
            continue
        group = job.spec.group
        if (group.parent if isinstance(group, GroupMember) else job.id) in groups:
            yield job.id, "another job of its group is"
        elif job.life.reason == WAITS_FOR_JOBS:
            for dependency in job.spec.dependencies:
                if dependency.job_id in gone:
                    yield job.id, f"it waits for job {dependency.job_id}, which is"
                    break
