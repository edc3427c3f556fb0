"""What may hold a whole queue back. Each gate says why, and the decision asks the same gate.

A closed gate parks the queue (one bit operation), never its jobs.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.core.memory.cells import QueueEntry
from rota.core.model import Instant, Millis
from rota.core.records.glance import Cause


def queue_paused(cell: QueueEntry, _now: Instant) -> Cause | None:
    """Somebody paused the queue."""
    if not cell.queue.paused:
        return None
    name = cell.queue.name
    return Cause("queue_paused", f"queue {name} is paused; resume it to go on", {"queue": name})


def queue_full(cell: QueueEntry, _now: Instant) -> Cause | None:
    """The queue runs as many executions as it may."""
    limit = cell.queue.max_workers
    if limit is None or cell.running < limit:
        return None
    figures = {"queue": cell.queue.name, "running": cell.running, "max_workers": limit}
    return Cause(
        "queue_full",
        f"queue {cell.queue.name} runs {cell.running} of at most {limit} executions",
        figures,
    )


def rate_limited(cell: QueueEntry, now: Instant) -> Cause | None:
    """The queue's rate limit has no start left."""
    at = next_start_at(cell)
    if at is None or at <= now:
        return None
    rate = cell.queue.rate_limit
    assert rate is not None
    return Cause(
        "rate_limit",
        f"queue {cell.queue.name} starts at most {rate.count} jobs in {rate.per_ms / 1000:g} s",
        {"queue": cell.queue.name, "count": rate.count, "per_ms": rate.per_ms, "next_at": at},
    )


QUEUE_LIMITS: tuple[Callable[[QueueEntry, Instant], Cause | None], ...] = (
    queue_paused,
    queue_full,
    rate_limited,
)


def exceeded_limits(cell: QueueEntry, now: Instant) -> list[Cause]:
    """Every gate of the queue that is closed now."""
    return [cause for gate in QUEUE_LIMITS if (cause := gate(cell, now)) is not None]


def has_limits(cell: QueueEntry) -> bool:
    """Whether any gate of the queue could close by what runs."""
    return cell.queue.max_workers is not None or cell.queue.rate_limit is not None


def next_start_at(cell: QueueEntry) -> Instant | None:
    """When the rate limit allows the next start; None without a limit."""
    rate = cell.queue.rate_limit
    if rate is None:
        return None
    burst = (rate.count - 1) * rate.per_ms
    return -((burst - cell.next_start) // rate.count)


def spend_start(cell: QueueEntry, now: Instant) -> None:
    """One start counts against the rate limit."""
    rate = cell.queue.rate_limit
    if rate is not None:
        cell.next_start = max(cell.next_start, now * rate.count) + rate.per_ms


def delay_starts(cell: QueueEntry, by: Millis) -> None:
    """The next start comes later by so much: the clock was set."""
    if cell.queue.rate_limit is not None:
        cell.next_start += by * cell.queue.rate_limit.count
