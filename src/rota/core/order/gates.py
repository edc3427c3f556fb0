"""What may hold a whole queue back. Each gate says why, and the decision asks the same gate.

A closed gate parks the queue (one bit operation), never its jobs.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.core.memory.cells import QueueCell
from rota.core.model import Instant, Millis
from rota.core.records.glance import Cause


def paused(cell: QueueCell, _now: Instant) -> Cause | None:
    """Somebody paused the queue."""
    if not cell.queue.paused:
        return None
    name = cell.queue.name
    return Cause("queue_paused", f"queue {name} is paused; resume it to go on", {"queue": name})


def full(cell: QueueCell, _now: Instant) -> Cause | None:
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


def too_fast(cell: QueueCell, now: Instant) -> Cause | None:
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


GATES: tuple[Callable[[QueueCell, Instant], Cause | None], ...] = (paused, full, too_fast)


def closed(cell: QueueCell, now: Instant) -> list[Cause]:
    """Every gate of the queue that is closed now."""
    return [cause for gate in GATES if (cause := gate(cell, now)) is not None]


def is_limited(cell: QueueCell) -> bool:
    """Whether any gate of the queue could close by what runs."""
    return cell.queue.max_workers is not None or cell.queue.rate_limit is not None


def next_start_at(cell: QueueCell) -> Instant | None:
    """When the rate limit allows the next start; None without a limit."""
    rate = cell.queue.rate_limit
    if rate is None:
        return None
    burst = (rate.count - 1) * rate.per_ms
    return -((burst - cell.next_start) // rate.count)


def spend_start(cell: QueueCell, now: Instant) -> None:
    """One start counts against the rate limit."""
    rate = cell.queue.rate_limit
    if rate is not None:
        cell.next_start = max(cell.next_start, now * rate.count) + rate.per_ms


def delay_starts(cell: QueueCell, by: Millis) -> None:
    """The next start comes later by so much: the clock was set."""
    if cell.queue.rate_limit is not None:
        cell.next_start += by * cell.queue.rate_limit.count
