"""Leaves out of a snapshot what a scheduler cannot restore without rows that are damaged.

A server starts although rows are damaged. The jobs that are left out stay in the store as they are,
and do not run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from rota.core.jobs.wait_states import WAITS_FOR_JOBS
from rota.core.model import Execution, GroupMember, JobId, JobRecord, JobState, Queue
from rota.store import rows
from rota.store.damage import Damage
from rota.store.errors import DamagedRowError
from rota.store.protocol import Snapshot


def restorable(snapshot: Snapshot, damage: Damage, without: Iterable[str]) -> Snapshot:
    """Returns the snapshot without what needs a damaged row, and with a list of all that it lacks.

    `without` are the jobs whose executions are damaged.
    """
    if not damage.rows:
        return snapshot
    named = [f"{one.what} {one.key}" for one in damage.rows]
    gone = _jobs_to_leave_out(snapshot, damage, without)
    triggers = {one.id: None for one in snapshot.triggers}
    spilled = Counter(job.life.line for job in snapshot.jobs if job.id in gone and job.life.line)
    return replace(
        snapshot,
        spill_counts=[(one, count - spilled[one]) for one, count in snapshot.spill_counts],
        jobs=[job for job in snapshot.jobs if job.id not in gone],
        executions=[
            one
            for one in snapshot.executions
            if one.job_id not in gone and one.job_id not in damage.keys("job")
        ],
        # Nobody knows its limits: without them it might start more than it may.
        queues=[
            *snapshot.queues,
            *(Queue(name, paused=True) for name in damage.keys("queue")),
        ],
        buffered_events=[one for one in snapshot.buffered_events if one.trigger_id in triggers],
        damaged=[*named, *(f"job {job_id}: {why}" for job_id, why in gone.items())],
    )


def _jobs_to_leave_out(
    snapshot: Snapshot, damage: Damage, without: Iterable[str]
) -> dict[JobId, str]:
    """Returns whole jobs that must not be restored, with the reason."""
    lost = damage.keys("job")
    gone = {JobId(one): "its execution is damaged" for one in without}
    workers = {one.id: None for one in snapshot.workers}
    executions = {one.id: one for one in snapshot.executions}
    for execution in snapshot.executions:
        if execution.worker_id not in workers:
            gone[execution.job_id] = f"its worker {execution.worker_id} is damaged"
    for job in snapshot.jobs:
        runs = job.life.state in (JobState.RUNNING, JobState.CANCELLING)
        if runs and job.life.execution_id is not None and job.life.execution_id not in executions:
            gone[job.id] = "its execution is damaged"
    left = len(gone) + 1
    while left != len(gone):
        left = len(gone)
        gone |= dict(_drawn_along(snapshot.jobs, {**dict.fromkeys(lost), **dict.fromkeys(gone)}))
    return {job_id: why for job_id, why in gone.items() if job_id not in lost}


def _drawn_along(jobs: Sequence[JobRecord], gone: dict[str, None]) -> Iterator[tuple[JobId, str]]:
    """Yields jobs that are in a group with one of these, or wait for one.

    A job that waits for one that is not there would start: its scheduler takes that one for ended.
    """
    groups = dict(gone)
    for job in jobs:
        if job.id in gone and isinstance(job.spec.group, GroupMember):
            groups[job.spec.group.parent] = None
    for job in jobs:
        if job.id in gone:
            continue
        group = job.spec.group
        parent = group.parent if isinstance(group, GroupMember) else job.id
        if parent in groups:
            yield job.id, "a job of its group is left out"
        elif job.life.reason == WAITS_FOR_JOBS:
            for dependency in job.spec.dependencies:
                if dependency.job_id in gone:
                    yield job.id, f"it waits for job {dependency.job_id}, which is left out"
                    break


def read_executions(found: Iterable[Any], damage: Damage) -> tuple[list[Execution], list[str]]:
    """Reads rows of id, body, job id; returns the jobs of damaged ones too."""
    executions: list[Execution] = []
    without: list[str] = []
    for execution_id, body, job_id in found:
        try:
            executions.append(rows.execution((execution_id, body)))
        except DamagedRowError as error:
            damage.note(error)
            without.append(job_id)
    return executions, without
