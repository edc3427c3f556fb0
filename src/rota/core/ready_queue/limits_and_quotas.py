"""Limits of queues (pause, max_workers, rate limit: a token bucket) and quotas of tenants.

The counts by state that they are checked against are here too. An exceeded limit blocks the classes
of the queue (one bit operation), never its jobs. Each gives its cause, and decisions and
explanations call the same function.

Why: docs/decisions/0014-gcra-rate-limits-and-concurrency-slots.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rota.core.entries import QueueEntry
from rota.core.info_model import Cause
from rota.core.limits import TENANTS_KEPT
from rota.core.model import ExecutionId, Instant, JobState, Millis, Quota, Resources, Tenant, Terms
from rota.core.ready_queue.classes import EVERY_CLASS, JobClass
from rota.core.resources import minus, plus, total

_QUEUED, _RUNNING = JobState.QUEUED, JobState.RUNNING


class Depth:
    """Depth: live jobs by state. Every job is queued and runs, so these counts are plain fields."""

    __slots__ = ("_others", "queued", "running")

    def __init__(self) -> None:
        self.queued = 0
        self.running = 0
        self._others: dict[JobState, int] = {}

    def count(self, state: JobState, step: int) -> None:
        """Adds to the count of a state."""
        if state is _QUEUED:
            self.queued += step
        elif state is _RUNNING:
            self.running += step
        else:
            self._others[state] = self._others.get(state, 0) + step

    def by_state(self) -> dict[JobState, int]:
        """Counts by state, without zeros."""
        counts = {**self._others, _QUEUED: self.queued, _RUNNING: self.running}
        return {state: counts[state] for state in JobState if counts.get(state)}


def queue_paused(entry: QueueEntry, _now: Instant) -> Cause | None:
    if not entry.queue.paused:
        return None
    name = entry.queue.name
    return Cause("queue_paused", f"queue {name} is paused; resume it to go on", {"queue": name})


def queue_full(entry: QueueEntry, _now: Instant) -> Cause | None:
    limit = entry.queue.max_workers
    if limit is None or entry.running < limit:
        return None
    figures = {"queue": entry.queue.name, "running": entry.running, "max_workers": limit}
    return Cause(
        "queue_full",
        f"queue {entry.queue.name} runs {entry.running} of at most {limit} executions",
        figures,
    )


def rate_limited(entry: QueueEntry, now: Instant) -> Cause | None:
    at = next_start_at(entry)
    if at is None or at <= now:
        return None
    rate = entry.queue.rate_limit
    assert rate is not None
    return Cause(
        "rate_limit",
        f"queue {entry.queue.name} starts at most {rate.count} jobs in {rate.per_ms / 1000:g} s",
        {"queue": entry.queue.name, "count": rate.count, "per_ms": rate.per_ms, "next_at": at},
    )


QUEUE_LIMITS: tuple[Callable[[QueueEntry, Instant], Cause | None], ...] = (
    queue_paused,
    queue_full,
    rate_limited,
)


def exceeded_limits(entry: QueueEntry, now: Instant) -> list[Cause]:
    """Causes of all limits of the queue that are exceeded now."""
    return [cause for limit in QUEUE_LIMITS if (cause := limit(entry, now)) is not None]


def has_limits(entry: QueueEntry) -> bool:
    """Whether what runs could exceed a limit of the queue."""
    return entry.queue.max_workers is not None or entry.queue.rate_limit is not None


def next_start_at(entry: QueueEntry) -> Instant | None:
    """When the rate limit allows the next start; None: no limit."""
    rate = entry.queue.rate_limit
    if rate is None:
        return None
    burst = (rate.count - 1) * rate.per_ms
    return -((burst - entry.next_start) // rate.count)


def spend_start(entry: QueueEntry, now: Instant) -> None:
    """Counts one start against the rate limit."""
    rate = entry.queue.rate_limit
    if rate is not None:
        entry.next_start = max(entry.next_start, now * rate.count) + rate.per_ms


def delay_starts(entry: QueueEntry, by: Millis) -> None:
    """Follows a change of the system clock."""
    if entry.queue.rate_limit is not None:
        entry.next_start += by * entry.queue.rate_limit.count


_WAITING = (JobState.PENDING, JobState.QUEUED)
NO_QUOTA = Quota()


class TenantEntry:
    """Tenant in memory: its settings, live jobs by state, and what its executions hold."""

    __slots__ = ("depth", "held", "is_forgotten", "tenant", "used", "written_at")

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.depth = Depth()
        """Live jobs by state, with spilled ones."""
        self.held: dict[ExecutionId, Resources] = {}
        self.used = Resources()
        """Sum of what is held; up to date only if the tenant has a quota."""
        self.written_at = tenant.used_at
        self.is_forgotten = False
        """Whether the tenant has been forgotten, and may have another entry now."""

    @property
    def waiting(self) -> int:
        """Number of jobs that have not started."""
        depth = self.depth.by_state()
        return sum(depth.get(state, 0) for state in _WAITING)

    def hold(self, execution_id: ExecutionId, amount: Resources) -> None:
        """Counts what an execution holds."""
        self.held[execution_id] = amount
        if self.tenant.quota is not None:
            self.used = plus(self.used, amount)

    def release(self, execution_id: ExecutionId) -> None:
        """Takes it out again; a second time, it does nothing."""
        amount = self.held.pop(execution_id, None)
        if amount is not None and self.tenant.quota is not None:
            self.used = minus(self.used, amount)

    def holds(self) -> Resources:
        """Sum of what its executions hold."""
        return self.used if self.tenant.quota is not None else total(self.held.values())

    def is_idle(self) -> bool:
        """Whether nothing is lost when it is forgotten."""
        tenant = self.tenant
        has_jobs = bool(self.depth.by_state())
        return not has_jobs and tenant.quota is None and tenant.weight == 1.0 and not tenant.used


class Tenants:
    """Tenants that have jobs or settings."""

    def __init__(self, most: int = TENANTS_KEPT) -> None:
        self._most = most
        self.entries: dict[str, TenantEntry] = {}
        self.limited_count = 0
        """Number of those with a quota on what runs."""
        self.capped_count = 0
        """Number of those with a quota on what waits."""

    def entry(self, name: str) -> TenantEntry:
        """Entry of the tenant, created on first use."""
        entry = self.entries.get(name)
        if entry is None:
            if len(self.entries) >= self._most:
                kept = {key: one for key, one in self.entries.items() if not one.is_idle()}
                for key, one in self.entries.items():
                    one.is_forgotten = key not in kept
                # In place, because others keep a reference to the dictionary.
                self.entries.clear()
                self.entries.update(kept)
            entry = self.entries[name] = TenantEntry(Tenant(name))
        return entry

    def put(self, tenant: Tenant) -> TenantEntry:
        """Replaces the tenant's settings."""
        entry = self.entry(tenant.name)
        self.limited_count -= has_quota(entry)
        self.capped_count -= _is_capped(entry)
        entry.tenant = tenant
        self.limited_count += has_quota(entry)
        self.capped_count += _is_capped(entry)
        entry.used = total(entry.held.values())
        return entry

    def weight_of(self, name: str) -> float:
        """Weight of the tenant against others."""
        entry = self.entries.get(name)
        return 1.0 if entry is None else entry.tenant.weight

    def is_plain(self, entry: TenantEntry) -> bool:
        """Whether it has no settings of its own."""
        return entry.tenant.quota is None and entry.tenant.weight == 1.0

    def count_set(self) -> int:
        """Number of tenants with settings of their own."""
        return sum(1 for entry in self.entries.values() if not self.is_plain(entry))

    def limited(self) -> Iterator[TenantEntry]:
        """Tenants with a quota on what runs."""
        if not self.limited_count:
            return iter(())
        return (entry for entry in self.entries.values() if has_quota(entry))


def _is_capped(entry: TenantEntry) -> bool:
    quota = entry.tenant.quota
    return quota is not None and quota.queued is not None


def has_quota(entry: TenantEntry) -> bool:
    """Whether a quota could hold accepted jobs of the tenant back."""
    quota = entry.tenant.quota
    return quota is not None and any(
        limit is not None for limit in (quota.running, quota.cpu_milli, quota.memory)
    )


def over_quota(entry: TenantEntry, need: Resources, starts: int = 1) -> Iterator[Cause]:
    """Causes of all quotas that so many starts of this size would exceed now."""
    quota, name = entry.tenant.quota or NO_QUOTA, entry.tenant.name
    running = len(entry.held)
    if quota.running is not None and running + starts > quota.running:
        figures = {"tenant": name, "running": running, "quota": quota.running}
        text = f"tenant {name} runs {running} of at most {quota.running} executions"
        yield Cause("quota_running", text, figures)
    for kind, asked, used, limit in (
        ("cpu", starts * need.cpu_milli, entry.used.cpu_milli, quota.cpu_milli),
        ("memory", starts * need.memory, entry.used.memory, quota.memory),
    ):
        if limit is not None and asked and used + asked > limit:
            unit = 1000 if kind == "cpu" else 1
            figures = {
                "tenant": name,
                "used": used / unit,
                "asked": asked / unit,
                "quota": limit / unit,
            }
            text = f"tenant {name} uses {used / unit:g} {kind} of at most {limit / unit:g}"
            yield Cause(f"quota_{kind}", f"{text}, and it asks {asked / unit:g}", figures)


def allowed_classes(entry: TenantEntry, classes: Iterable[JobClass]) -> int:
    """Bits of the classes of which the tenant's quota allows one more job.

    Bits of other classes are set: whoever makes a class asks again.
    """
    if not has_quota(entry):
        return EVERY_CLASS
    mask = EVERY_CLASS
    for job_class in classes:
        needs = job_class.needs
        if next(over_quota(entry, needs.resources, needs.copies), None) is not None:
            mask &= ~job_class.bit
    return mask


class Depths:
    """Depths of queues and tenants, which follow every change of a job's state."""

    __slots__ = ("_tenants", "of_queue")

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self.of_queue: dict[str, Depth] = {}

    def count(self, terms: Terms, state: JobState, step: int) -> None:
        """Counts so many more jobs with these terms in this state."""
        self.count_in(terms.queue, terms.tenant, state, step)

    def count_in(self, queue: str, tenant: str, state: JobState, step: int) -> None:
        """Counts so many more jobs of this queue and tenant in this state."""
        self.of(queue).count(state, step)
        (self._tenants.entries.get(tenant) or self._tenants.entry(tenant)).depth.count(state, step)

    def of(self, queue: str) -> Depth:
        depth = self.of_queue.get(queue)
        if depth is None:
            depth = self.of_queue[queue] = Depth()
        return depth

    def move(self, terms: Terms, before: JobState, after: JobState) -> None:
        """Follows a job with these terms from one state to another."""
        for depth in (self.of_queue[terms.queue], self._tenants.entries[terms.tenant].depth):
            depth.count(before, -1)
            depth.count(after, 1)
