"""Commands on existing jobs: cancel, delete, execute on a worker, purge.

Also sets queues, tenants and the policy.
"""

from __future__ import annotations

import sys

from msgspec.structs import replace

from rota.core.commands import (
    Cancel,
    Delete,
    Execute,
    Purge,
    PutQueueSettings,
    PutTenantSettings,
    SetPolicy,
)
from rota.core.dispatch.dispatcher import add_order
from rota.core.entries import JobEntry, QueueEntry, WorkerEntry
from rota.core.errors import (
    Conflict,
    IllegalTransition,
    NoFreeCapacity,
    NotFound,
    StalePreload,
    TooMuch,
)
from rota.core.groups import arrays, members
from rota.core.jobs.finish import finish_job, group_id_of, is_in_gang, lose_execution, request_stop
from rota.core.jobs.spill import JobLookup
from rota.core.jobs.start import claim
from rota.core.lifecycle import JOB_WAITING, JobVerb, move_job
from rota.core.limits import TENANTS_MAX
from rota.core.model import (
    Array,
    ExecutionId,
    GroupMember,
    Instant,
    JobId,
    JobLimits,
    JobRecord,
    JobState,
    Queue,
    Stop,
    WorkerState,
    member_delete_refusal,
)
from rota.core.outcome import (
    CountReceipt,
    ExecutionAnswer,
    JobAnswer,
    JobGone,
    PolicyAnswer,
    QueueAnswer,
    TenantAnswer,
)
from rota.core.placement.feasibility import infeasible_reasons
from rota.core.ready_queue.limits_and_quotas import has_quota, over_quota, queue_full
from rota.core.resources import Shortfall, shortfall_text, shortfalls
from rota.core.state import SchedulerState


def cancel(t: SchedulerState, event: Cancel, now: Instant) -> JobAnswer:
    """A waiting job ends at once; a running one when its worker has stopped it."""
    memory = JobLookup(t, event.preloaded, now)
    cell = memory.live(event.job_id)
    if cell is None:
        record = memory.require_ended(event.job_id)
        raise IllegalTransition("job", record.id, record.life.state, JobVerb.CANCEL)
    cancel_job(t, cell, now)
    return JobAnswer(cell.record())


def cancel_job(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """The job is cancelled, or on the way to it; a gang as a whole, whichever member is meant."""
    if cell.spec.group is not None:
        if is_in_gang(cell):
            cell = t.jobs[group_id_of(cell)]
        if members.is_group(cell):
            _cancel_group(t, cell, now)
            return
    state = move_job(cell.id, cell.life.state, JobVerb.CANCEL)
    if state is JobState.CANCELLED:
        finish_job(t, cell, JobVerb.CANCEL, replace(cell.life, reason="cancelled"), now)
        return
    if cell.life.state is not JobState.CANCELLING:
        _stop_running(t, cell, now)


def _stop_running(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """A running job is to be stopped by its worker, or at once where no worker has it yet."""
    assert cell.life.execution_id is not None
    execution = t.executions[cell.life.execution_id]
    state = move_job(cell.id, cell.life.state, JobVerb.CANCEL)
    t.set_life(cell, replace(cell.life, state=state, reason="cancelled"))
    request_stop(t, execution, Stop.CANCEL, now)
    if not execution.delivered:
        lose_execution(t, execution, now, "called off before its worker collected it")


def _cancel_group(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """A band with all its members: those that wait end at once, the others are stopped."""
    state = move_job(cell.id, cell.life.state, JobVerb.CANCEL)
    if state is JobState.CANCELLED:
        finish_job(t, cell, JobVerb.CANCEL, replace(cell.life, reason="cancelled"), now)
        return
    if cell.life.state is JobState.CANCELLING:
        return
    t.set_life(cell, replace(cell.life, state=state, reason="cancelled"))
    arrays.stop_starting(t, cell, now)
    t.groups.cancel_waiting(cell)
    for job_id in list(t.groups.entries[cell.id].live):
        member = t.jobs[job_id]
        if cell.life.delete_when_finished:
            t.set_life(member, replace(member.life, delete_when_finished=True))
        if member.life.state is JobState.RUNNING:
            _stop_running(t, member, now)
        elif member.life.state is not JobState.CANCELLING:
            finish_job(t, member, JobVerb.CANCEL, replace(member.life, reason="cancelled"), now)
    members.update_group(t, cell, now)
    if cell.id in t.jobs:
        members.write_progress(t, cell)


def delete(t: SchedulerState, event: Delete, now: Instant) -> JobGone | JobAnswer:
    """An ended job is removed; a live one only by force, which cancels it first."""
    memory = JobLookup(t, event.preloaded, now)
    cell = memory.live(event.job_id)
    if cell is None:
        record = memory.require_ended(event.job_id)
        _refuse_member(t, record)
        t.changeset.dropped[record.id] = None
        t.recently_finished.remember_job(record.id, now)
        return JobGone(record.id)
    if not event.force:
        raise Conflict(
            f"job {cell.id} is {cell.life.state}: cancel it first, or delete it with force"
        )
    _refuse_member(t, cell.record())
    cell.life = replace(cell.life, delete_when_finished=True)
    cancel_job(t, cell, now)
    if cell.id in t.jobs:
        t.set_life(cell, replace(cell.life, delete_when_finished=True))
        return JobAnswer(cell.record())
    return JobGone(cell.id)


def _refuse_member(t: SchedulerState, record: JobRecord) -> None:
    """A member of a live array or gang goes with it, or that could not say what became of it."""
    band = record.spec.group
    parent = t.jobs.get(JobId(band.parent)) if isinstance(band, GroupMember) else None
    if parent is not None and not parent.life.delete_when_finished:
        raise Conflict(member_delete_refusal(record.id, parent.id, parent.life.state))


def execute(t: SchedulerState, event: Execute, now: Instant) -> ExecutionAnswer:
    """This job on that worker now: past time, order and pause, but not past limits or room."""
    memory = JobLookup(t, event.preloaded, now)
    job = memory.live(event.job_id)
    if job is None:
        record = memory.require_ended(event.job_id)
        raise IllegalTransition("job", record.id, record.life.state, "run")
    if job.life.state not in JOB_WAITING:
        raise IllegalTransition("job", job.id, job.life.state, "run")
    if members.is_group(job):
        raise Conflict(f"job {job.id} stands for {t.groups.of(job).size} jobs: it starts by itself")
    if job.unmet:
        raise Conflict(f"job {job.id} waits for {job.unmet} other jobs")
    worker = t.worker(event.worker_id)
    _refuse_unfit(job, worker)
    blocked = queue_full(t.queue(job.spec.terms.queue, now), now)
    if blocked is not None:
        raise Conflict(blocked.message)
    terms = job.spec.terms
    for exceeded in over_quota(t.tenants.entry(terms.tenant), terms.needs.resources):
        raise Conflict(exceeded.message)
    has_slot, weaker = t.concurrency_keys.force(job)
    if not has_slot:
        raise Conflict("as many jobs of its concurrency key as may are running")
    if weaker is not None:
        t.ready_queue.remove(weaker)
    t.ready_queue.remove(job)
    cell = claim(t, job, worker, now)
    if worker.poll is not None and worker.poll.free_slots > 0:
        add_order(t, worker, cell)
    else:
        cell.delivered = False
        cell.lease_until = now + t.timing.lease_ttl_ms
        worker.undelivered[cell.execution.id] = None
    return ExecutionAnswer(cell.execution)


def _refuse_unfit(job: JobEntry, worker: WorkerEntry) -> None:
    """The same filters that placement asks, for one worker."""
    name, terms = worker.worker.id, job.spec.terms
    if worker.worker.state is not WorkerState.ONLINE:
        raise NoFreeCapacity(f"worker {name} is {worker.worker.state}")
    reasons = infeasible_reasons(terms.queue, terms.needs, worker.machine)
    if reasons:
        raise NoFreeCapacity(f"worker {name} cannot run it: {_text(reasons[0])}")
    short = shortfalls(terms.needs.resources, worker.free)
    if short:
        raise NoFreeCapacity(f"worker {name} has too little free: {_text(short[0])}")


def _text(reason: str | Shortfall) -> str:
    if isinstance(reason, Shortfall):
        return shortfall_text(reason)
    return f"it does not have {reason}" if reason != "queue" else "it does not serve the queue"


def purge(t: SchedulerState, event: Purge, now: Instant) -> CountReceipt:
    """All that waits in the queue, or the jobs brought along, are cancelled, or `most` of them.

    Without any brought along it costs the number of live jobs; it is rare.
    """
    if event.name not in t.queues:
        raise NotFound("queue", event.name)
    brought = () if event.preloaded is None else event.preloaded.jobs
    memory = JobLookup(t, event.preloaded, now)
    count = event.before
    end = sys.maxsize if event.most is None else count + event.most
    for job_id in [record.id for record in brought] or list(t.jobs):
        try:
            cell = memory.live(job_id)
        except StalePreload:
            continue  # it has moved on: one of those in memory, or ended
        if (
            cell is not None
            and cell.spec.terms.queue == event.name
            and cell.life.state in JOB_WAITING
        ):
            count += t.groups.of(cell).waiting if members.is_group(cell) else 1
            cancel_job(t, cell, now)
        elif cell is not None and _is_begun_array(cell, event.name):
            count += arrays.cancel_unstarted(t, cell, now)
        if count >= end:
            break
    return CountReceipt(count)


def _is_begun_array(cell: JobEntry, queue: str) -> bool:
    """Whether it may have members that wait, though it runs itself."""
    is_array = isinstance(cell.spec.group, Array) and cell.life.state is JobState.RUNNING
    return is_array and cell.spec.terms.queue == queue


def set_queue(t: SchedulerState, event: PutQueueSettings, now: Instant) -> QueueAnswer:
    """The queue's settings, made if it is new."""
    cell = t.queue(event.name, now)
    before = Queue(event.name, created_at=cell.queue.created_at) if event.replace else cell.queue
    default = Queue(event.name)
    changes = {name: getattr(default, name) for name in event.cleared}
    for name in ("priority", "weight", "max_workers", "rate_limit", "paused"):
        value = getattr(event, name)
        if value is not None:
            changes[name] = value
    if event.limits:
        limits = replace(before.limits or JobLimits(), **dict(event.limits))
        changes["limits"] = None if limits == JobLimits() else limits
    queue = replace(before, **changes)
    if queue.rate_limit != cell.queue.rate_limit:
        _restart_rate(cell)
    if (queue.max_workers is None) != (cell.queue.max_workers is None):
        cell.runs = {} if queue.max_workers is None else _executions_of(t, queue.name)
    t.put_queue(cell, queue, now)
    return QueueAnswer(queue)


def _executions_of(t: SchedulerState, queue: str) -> dict[ExecutionId, None]:
    """Executions of the queue, looked for among all: once, when it gets a limit."""
    jobs = ((one, t.jobs[cell.execution.job_id]) for one, cell in t.executions.items())
    return {one: None for one, job in jobs if job.spec.terms.queue == queue}


def set_policy(t: SchedulerState, event: SetPolicy, now: Instant) -> PolicyAnswer:
    """Another policy for all that waits and all that comes."""
    t.set_policy(event.policy, now)
    t.concurrency_keys.reorder()
    return PolicyAnswer(event.policy)


def set_tenant(t: SchedulerState, event: PutTenantSettings, now: Instant) -> TenantAnswer:
    """The tenant's settings; what it has used counts on."""
    known = t.tenants.entries.get(event.name)
    is_new = known is None or t.tenants.is_plain(known)
    if is_new and t.tenants.count_set() >= TENANTS_MAX:
        raise TooMuch(f"there are {TENANTS_MAX} tenants with settings already")
    t.note_usage(now)
    had_quota = known is not None and has_quota(known)
    before = t.tenants.entry(event.name).tenant
    cell = t.put_tenant(replace(before, weight=event.weight, quota=event.quota))
    if has_quota(cell) or had_quota or before.weight != event.weight:
        # Another quota may make it a party of its own, or make it one no longer.
        t.use_policy(t.policy, now)
    return TenantAnswer(cell.tenant)


def _restart_rate(cell: QueueEntry) -> None:
    cell.next_start = 0
