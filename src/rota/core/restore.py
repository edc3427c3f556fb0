"""Restores the state from what was stored, after a start, a failure or a failover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rota.core.entries import ExecutionEntry, JobEntry, QueueEntry
from rota.core.groups.members import requeue_array, restore_slots
from rota.core.jobs import finish
from rota.core.jobs.deadline_watch import watch_deadline
from rota.core.jobs.spill import restore_spill_queues
from rota.core.jobs.start import lease_until_after_failover, occupy
from rota.core.jobs.wait_states import WAITS_FOR_JOBS, due_at, enqueue
from rota.core.limits import STOP_WINDOW_MS
from rota.core.model import (
    Execution,
    ExecutionState,
    Instant,
    JobId,
    JobRecord,
    JobState,
    Queue,
    RuntimeStats,
    Tenant,
    Worker,
    WorkerId,
)
from rota.core.policy import Policy
from rota.core.ready_queue.fair_share import Balance, FairOrder
from rota.core.reservations.reserve import restore_reservation
from rota.core.schedule_model import Calendar, Schedule
from rota.core.state import SchedulerState
from rota.core.timers import TimerKind
from rota.core.trigger_model import BufferedEvent, Trigger
from rota.core.triggers.match import set_window_timers
from rota.core.workers import watch_all_leases


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Live records of a cell, read from a store's tables, or copied from memory for a forecast."""

    jobs: Sequence[JobRecord] = ()
    """In order of arrival."""
    executions: Sequence[Execution] = ()
    workers: Sequence[Worker] = ()
    queues: Sequence[Queue] = ()
    order_next: int = 1
    policy: Policy | None = None
    """None: no policy was set."""
    tenants: Sequence[Tenant] = ()
    runtimes: Sequence[RuntimeStats] = ()
    spill_queues: Sequence[tuple[int, int]] = ()
    """(spill queue, number of its jobs); the first jobs of each are in `jobs`."""
    schedules: Sequence[Schedule] = ()
    """In order of creation."""
    calendars: Sequence[Calendar] = ()
    triggers: Sequence[Trigger] = ()
    """In order of creation."""
    buffered_events: Sequence[BufferedEvent] = ()
    """In order of arrival."""
    fence_floor: int = 0
    """Fences given from now on are higher than this."""
    rates: Sequence[tuple[str, int]] = ()
    """(queue, progress of its rate limit); only in a copy, not in a store."""
    standings: Sequence[Balance] = ()
    """Usage of tenants and their queues; only in a copy."""
    reservations: Sequence[tuple[JobId, WorkerId]] = ()
    """Jobs that do not fit yet, and the workers reserved for them; only in a copy."""
    plan: Mapping[JobId, tuple[WorkerId, Instant]] = {}
    """Where and when each job is to start, under a policy that plans; only in a copy."""


def restore(t: SchedulerState, stored: Stored, now: Instant) -> None:
    """Restores the state. Each lease gets its full length again; nothing is written."""
    t.next_arrival_number = stored.order_next
    t.fence_floor = stored.fence_floor
    _restore_estimates_and_policy(t, stored, now)
    for queue in stored.queues:
        t.queues[queue.name] = QueueEntry(queue)
    _prepare_copy(t, stored)
    for worker in stored.workers:
        # A worker that was offline has not been heard of by this restart.
        t.fleet.add(worker, now if worker.gone_at is None else worker.gone_at)
    for calendar in stored.calendars:
        t.schedule_index.calendars[calendar.name] = calendar
    for schedule in stored.schedules:
        t.schedule_index.restore(schedule)
    _restore_triggers(t, stored, now)
    entries = [t.add_job(record.id, record.spec, record.life) for record in stored.jobs]
    _restore_prefetched(t, stored.executions)
    for execution in stored.executions:
        _resume(t, execution, now)
    restore_slots(t)
    for entry in entries:
        _enter_wait_state(t, entry, now)
    restore_spill_queues(t, dict(stored.spill_queues))
    for queue_entry in t.queues.values():
        t.check_queue_limits(queue_entry, now)
    for tenant_entry in t.tenants.limited():
        t.check_quota(tenant_entry, now)
    _finish_copy(t, stored, now)
    watch_all_leases(t, now)
    t.arrival_rates.start_over(t.ready_queue.classes, now)


def _prepare_copy(t: SchedulerState, stored: Stored) -> None:
    """Restores what only a copy has and is needed before jobs are queued."""
    for name, next_start in stored.rates:
        t.queues[name].next_start = next_start
    for tenant, queue_name, _ in stored.standings:
        if queue_name in t.queues:  # accounts with equal usage go in order of creation
            t.ready_queue.order.account(tenant, t.queues[queue_name])


def _finish_copy(t: SchedulerState, stored: Stored, now: Instant) -> None:
    """Restores what only a copy has and is needed after jobs are queued."""
    if isinstance(t.ready_queue.order, FairOrder):
        t.ready_queue.order.restore_balances(stored.standings, now)
    for job_id, worker_id in stored.reservations:
        restore_reservation(t, job_id, worker_id, now)
    t.conservative_plan = dict(stored.plan)


def _restore_estimates_and_policy(t: SchedulerState, stored: Stored, now: Instant) -> None:
    """Restores tenants, run times and policy before jobs are queued, because it is cheap then."""
    for tenant in stored.tenants:
        t.tenants.put(tenant)
    for runtime in stored.runtimes:
        finish.restore_runtime(t, runtime, now)
    t.use_policy(stored.policy or t.policy, now)


def _restore_triggers(t: SchedulerState, stored: Stored, now: Instant) -> None:
    """Restores triggers, and the events that wait in their windows."""
    for trigger in stored.triggers:
        t.trigger_index.restore(trigger)
    for event in stored.buffered_events:
        t.trigger_index.restore_buffered(t.trigger_index.entries[event.trigger_id], event)
    for entry in t.trigger_index.entries.values():
        set_window_timers(t, entry, now)


def _restore_prefetched(t: SchedulerState, executions: Sequence[Execution]) -> None:
    """Restores which executions wait, prefetched, for the end of another one that is still live."""
    live = {execution.id: None for execution in executions}
    for execution in executions:
        if execution.behind is not None and execution.behind in live:
            needs = t.jobs[execution.job_id].spec.terms.needs
            prefetched = t.fleet.workers[execution.worker_id].prefetched
            prefetched[execution.behind] = (execution.id, needs.resources)


def _resume(t: SchedulerState, execution: Execution, now: Instant) -> None:
    """Restores a live execution; its worker has a full lease to report it again."""
    job = t.jobs[execution.job_id]
    stop_at = execution.stop_at
    entry = t.executions[execution.id] = ExecutionEntry(
        execution,
        lease_until_after_failover(t, now),
        execution.claimed_at if execution.behind is None else now,
        None if stop_at is None else stop_at + STOP_WINDOW_MS,
        progress=job.life.progress,
        message=job.life.message,
    )
    worker = t.fleet.workers[execution.worker_id]
    terms = job.spec.terms
    occupy(t, entry, terms, t.dominant_share_of(terms), now)
    if execution.stop is not None:
        worker.stops[execution.id] = None
    if execution.state is ExecutionState.RUNNING:
        worker.named[execution.id] = None
    t.concurrency_keys.restore_holder(job)


def _enter_wait_state(t: SchedulerState, entry: JobEntry, now: Instant) -> None:
    if entry.spec.expires_at is not None:
        t.timers.set(entry.spec.expires_at, TimerKind.JOB, entry.id)
    watch_deadline(t, entry, now)
    if entry.life.state not in (JobState.PENDING, JobState.QUEUED):
        if entry.spec.group is not None:
            requeue_array(t, entry, now)
        return
    for dependency in entry.spec.dependencies if entry.life.reason == WAITS_FOR_JOBS else ():
        # Upstream jobs that are gone ended in an accepted way, or this job would have been skipped.
        # And a job that does not wait for them any more does not wait for their retry either.
        if dependency.job_id in t.jobs:
            entry.unmet += 1
            t.dependencies.add(dependency.job_id, entry.id, entry.life.lives, dependency.when)
    if entry.life.state is JobState.PENDING and not entry.unmet:
        # A timer releases it: a job whose time has come is released, and written, in a turn.
        when = due_at(entry)
        t.timers.set(now if when is None else when, TimerKind.JOB, entry.id)
    elif entry.life.state is JobState.QUEUED:
        enqueue(t, entry, now)
