"""A window of time in which more ran than bars can show: counts by worker and stretch.

Each stretch is looked at in some parts, each from its beginning up to a bound. Where that was not
the end of a part, the rest is taken to go on as fast: the answer says that it is estimated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rota.api.limits import (
    TIMELINE_BUCKET_PARTS,
    TIMELINE_BUCKETS,
    TIMELINE_SAMPLE,
    TIMELINE_SAMPLE_OWN,
)
from rota.core.model import ExecutionState, Instant, Millis, WorkerId
from rota.store.protocol import QueryStore
from rota.store.queries import Sampled, SampleQuery
from rota.wire.overview import TimelineBucketsView, WorkerBucketsView

FAILED = (ExecutionState.FAILED, ExecutionState.TIMED_OUT, ExecutionState.LOST)


async def timeline_buckets(
    catalog: QueryStore,
    start: Instant,
    end: Instant,
    worker_id: WorkerId | None,
    tenant: str | None,
) -> TimelineBucketsView:
    """What began within the window, end included: on one worker, of one tenant, or all."""
    step = -(-(end + 1 - start) // (TIMELINE_BUCKETS * TIMELINE_BUCKET_PARTS))
    edges = [*range(start, end + 1, step), end + 1]
    bounds = tuple(map(first_id, edges))
    limit = TIMELINE_SAMPLE if tenant is None else TIMELINE_SAMPLE_OWN
    query = SampleQuery(bounds=bounds, worker_id=worker_id, tenant=tenant, limit=limit)
    return count_buckets(await catalog.sample_executions(query), edges, limit)


def count_buckets(
    found: Sequence[Sampled], edges: Sequence[Instant], limit: int
) -> TimelineBucketsView:
    """The whole of what the samples are the beginning of; `edges` are one more than their parts.

    How fast a part went is seen by all that was looked at; what is counted is the asker's own.
    """
    seen: dict[int, list[Sampled]] = defaultdict(list)
    for one in found:
        seen[one.stretch].append(one)
    factors = {
        stretch: _factor(parts, edges[stretch], edges[stretch + 1]) if _is_cut(parts, limit) else 1
        for stretch, parts in seen.items()
    }
    size = -(-(len(edges) - 1) // TIMELINE_BUCKET_PARTS)
    lanes: dict[WorkerId, WorkerBucketsView] = {}
    for one in (sampled for sampled in found if sampled.is_own):
        if one.worker_id not in lanes:
            lanes[one.worker_id] = WorkerBucketsView(one.worker_id, [0] * size, [0] * size)
        lane, count = lanes[one.worker_id], round(one.count * factors[one.stretch])
        lane.began[one.stretch // TIMELINE_BUCKET_PARTS] += count
        if one.state in FAILED:
            lane.failed[one.stretch // TIMELINE_BUCKET_PARTS] += count
    return TimelineBucketsView(
        step=(edges[1] - edges[0]) * TIMELINE_BUCKET_PARTS / 1000,
        total=sum(sum(lane.began) for lane in lanes.values()),
        estimated=any(_is_cut(parts, limit) for parts in seen.values()),
        lanes=[lanes[worker_id] for worker_id in sorted(lanes)],
    )


def _is_cut(parts: Sequence[Sampled], limit: int) -> bool:
    return sum(one.count for one in parts) >= limit


def _factor(parts: Sequence[Sampled], low: Instant, high: Instant) -> float:
    """How much more a part has than was looked at."""
    looked: Millis = time_of(max(one.last for one in parts)) + 1 - low
    return (high - low) / max(1, looked)


def first_id(at: Instant) -> str:
    """Smaller than every id of that millisecond or later, larger than all before."""
    time = f"{at & 0xFFFF_FFFF_FFFF:012x}"
    return f"{time[:8]}-{time[8:]}-0000-0000-000000000000"


def time_of(execution_id: str) -> Instant:
    """When an id was made."""
    return int(execution_id[:8] + execution_id[9:13], 16)
