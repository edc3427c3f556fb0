"""Settings: creates and changes queues and tenants, and sets the policy."""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.commands import PutQueueSettings, PutTenantSettings, SetPolicy
from rota.core.errors import TooMuch
from rota.core.limits import TENANTS_MAX
from rota.core.model import ExecutionId, Instant, JobLimits, Queue
from rota.core.outcome import PolicyAnswer, QueueAnswer, TenantAnswer
from rota.core.ready_queue.limits_and_quotas import has_quota
from rota.core.state import SchedulerState


def set_queue(t: SchedulerState, event: PutQueueSettings, now: Instant) -> QueueAnswer:
    """Creates or changes a queue."""
    entry = t.queue(event.name, now)
    before = Queue(event.name, created_at=entry.queue.created_at) if event.replace else entry.queue
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
    if queue.rate_limit != entry.queue.rate_limit:
        entry.next_start = 0
    if (queue.max_workers is None) != (entry.queue.max_workers is None):
        entry.runs = {} if queue.max_workers is None else _executions_of(t, queue.name)
    t.put_queue(entry, queue, now)
    return QueueAnswer(queue)


def _executions_of(t: SchedulerState, queue: str) -> dict[ExecutionId, None]:
    """Executions of a queue, found by a scan of all: only when the queue gets its first limit."""
    jobs = ((one, t.jobs[entry.execution.job_id]) for one, entry in t.executions.items())
    return {one: None for one, job in jobs if job.spec.terms.queue == queue}


def set_policy(t: SchedulerState, event: SetPolicy, now: Instant) -> PolicyAnswer:
    """Sets the policy for all waiting and future jobs."""
    t.set_policy(event.policy, now)
    t.concurrency_keys.reorder()
    return PolicyAnswer(event.policy)


def set_tenant(t: SchedulerState, event: PutTenantSettings, now: Instant) -> TenantAnswer:
    """Creates or changes a tenant; its usage so far still counts."""
    known = t.tenants.entries.get(event.name)
    is_new = known is None or t.tenants.is_plain(known)
    if is_new and t.tenants.count_set() >= TENANTS_MAX:
        raise TooMuch(f"there are {TENANTS_MAX} tenants with settings already")
    t.note_usage(now)
    had_quota = known is not None and has_quota(known)
    before = t.tenants.entry(event.name).tenant
    tenant = t.put_tenant(replace(before, weight=event.weight, quota=event.quota))
    if has_quota(tenant) or had_quota or before.weight != event.weight:
        # A quota or a weight decides whether the tenant has an account of its own.
        t.use_policy(t.policy, now)
    return TenantAnswer(tenant.tenant)
