"""Endpoints of the overview: current figures, their history, what needs attention, the timeline.

A window with more executions than bars can show is answered with counts by worker and time bucket,
estimated from samples where a bucket is large.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rota.api.auth.roles import Permission
from rota.api.deps import AppDeps
from rota.api.endpoints.dead_letters import group_by_error, read_failed
from rota.api.endpoints.service import show_cluster
from rota.api.limits import (
    ATTENTION_FAILED_MS,
    ATTENTION_ITEMS,
    ATTENTION_JOBS,
    ATTENTION_LOSS_MS,
    ATTENTION_S,
    DIGEST_S,
    HISTORY_LONG_S,
    HISTORY_STEP_S,
    SCHEDULE_LATE_MS,
    TIMELINE_BUCKET_PARTS,
    TIMELINE_BUCKETS,
    TIMELINE_SAMPLE,
    TIMELINE_SAMPLE_OWN,
    TIMELINE_WINDOW_MS_MAX,
)
from rota.api.metrics import amounts, worker_status
from rota.api.pagination import PageSize
from rota.api.problems import invalid
from rota.api.router import Call, NoQuery, Operation
from rota.api.tenant_scope import is_own, outlines_of
from rota.core.info_model import ScheduleInfo
from rota.core.model import (
    Execution,
    ExecutionState,
    Instant,
    JobState,
    Millis,
    WorkerId,
    WorkerState,
)
from rota.core.schedule_model import OccurrenceDecision
from rota.store.protocol import Outline, QueryStore
from rota.store.queries import ExecutionQuery, JobQuery, Sampled, SampleQuery
from rota.wire.formats import encode, from_instant, from_instant_or_none, to_instant
from rota.wire.jobs import Moment
from rota.wire.service import (
    AttentionView,
    BarView,
    ConcernView,
    DigestView,
    HistoryView,
    ReservedView,
    SessionView,
    StatsView,
    TimelineBucketsView,
    TimelineView,
    WorkerBucketsView,
)


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Length of the history."""

    window: Literal["hour", "day"] = "hour"


async def stats_of(deps: AppDeps) -> StatsView:
    """Returns the figures of the whole cell."""
    brain, metrics = deps.brain, deps.metrics
    jobs: Counter[str] = Counter(dict.fromkeys((state.value for state in JobState), 0))
    await brain.settled()
    queues = brain.queues()
    for info in queues:
        jobs.update({state.value: count for state, count in info.depth.items()})
    for (_, status), count in metrics.finished().items():
        jobs[status] += count
    workers = Counter(dict.fromkeys(("online", "draining", "unhealthy", "offline"), 0))
    capacity: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for worker in brain.workers():
        workers[worker_status(worker)] += 1
        if worker.worker.state is not WorkerState.OFFLINE:
            capacity.update(amounts(worker.worker.capacity))
            used.update(amounts(worker.used))
    return StatsView(
        jobs=dict(jobs),
        queues=len(queues),
        workers=dict(workers),
        resources={
            kind: {"capacity": total, "used": used.get(kind, 0)} for kind, total in capacity.items()
        },
        submitted_total=metrics.submitted(),
        version=deps.version,
        started_at=from_instant(deps.started_at),
    )


@Operation(
    "GET",
    "/stats",
    "Show current figures of the cell",
    tag="Service",
    permission=Permission.READ,
    answer=StatsView,
    examples={"answer": "stats"},
)
async def show_stats(call: Call[None, NoQuery]) -> StatsView:
    """Returns the figures of the cell; a tenant's token gets the counts of its own jobs."""
    stats = await stats_of(call.deps)
    if call.caller.tenant is not None:
        own = await call.deps.queries.count_jobs(call.caller.tenant)
        stats.jobs = {state.value: own.get(state, 0) for state in JobState}
        stats.submitted_total = sum(stats.jobs.values())
    return stats


@Operation(
    "GET",
    "/stats/history",
    "Show the history of the figures",
    tag="Service",
    permission=Permission.READ_ALL,
    query=HistoryQuery,
    answer=HistoryView,
    description=(
        "An hour in steps of 5 s or a day in steps of 2 min, since this leader began. Kept in "
        "memory only: use `/metrics` for longer."
    ),
    examples={"answer": "show_history"},
)
async def show_history(call: Call[None, HistoryQuery]) -> HistoryView:
    history = call.deps.metrics_history
    if call.query.window == "day":
        return HistoryView(HISTORY_LONG_S, [] if history is None else history.last_day())
    return HistoryView(HISTORY_STEP_S, [] if history is None else history.last_hour())


@Operation(
    "GET",
    "/session",
    "Show who is signed in",
    tag="Service",
    permission=Permission.KNOWN,
    any_server=True,
    answer=SessionView,
    examples={"answer": "session"},
)
async def show_session(call: Call[None, NoQuery]) -> SessionView:
    deps, caller = call.deps, call.caller
    return SessionView(
        name=caller.name,
        role=caller.role.value,
        tenant=caller.tenant,
        node=deps.node,
        cell=deps.cell,
        version=deps.version,
        now=from_instant(deps.brain.clock.now()),
    )


async def digest_of(call: Call[Any, Any], seq: int) -> bytes:
    """Returns the data of a digest, encoded once for all readers.

    Only the leader has the figures, and a tenant's reader gets only the sequence number.
    """
    if call.caller.tenant is not None or not call.deps.brain.ready:
        return encode(DigestView(seq))
    cache, now = call.state.answers, call.deps.brain.clock.steady()
    if cache.digest is None or now - cache.digest_at >= DIGEST_S * 900:
        history = call.deps.metrics_history
        sample = None if history is None else history.newest()
        cache.digest = encode(DigestView(seq, await stats_of(call.deps), sample))
        cache.digest_at = now
    return cache.digest


@Operation(
    "GET",
    "/attention",
    "Show what needs attention",
    tag="Service",
    permission=Permission.READ,
    answer=AttentionView,
    description=(
        "Warnings of the cluster, silent workers, jobs that fail alike, queues that grow or are "
        "paused, late schedules. Updated at most every five seconds."
    ),
    examples={"answer": "show_attention"},
)
async def show_attention(call: Call[None, NoQuery]) -> AttentionView:
    """Returns what needs attention; one answer is reused for a few seconds."""
    cache, now = call.state.answers, call.deps.brain.clock.steady()
    if call.caller.tenant is not None:
        return await _attention(call)
    if cache.attention is None or now - cache.attention_at >= ATTENTION_S * 1000:
        cache.attention, cache.attention_at = await _attention(call), now
    return cache.attention


async def _attention(call: Call[Any, NoQuery]) -> AttentionView:
    items: list[ConcernView] = []
    if call.caller.tenant is None:
        cluster = await show_cluster(call)
        items += [ConcernView("cluster", "", "cluster", text) for text in cluster.warnings]
        await call.deps.alerts.open()
        items += _alerts(call.deps)
        await call.deps.brain.settled()
        items += _workers(call.deps)
        items += await _lost(call)
    items += await _failing(call)
    if call.caller.tenant is None:
        items += _queues(call.deps)
    items += _schedules(call)
    return AttentionView(items[:ATTENTION_ITEMS])


def _alerts(deps: AppDeps) -> Iterator[ConcernView]:
    """Yields rules that fire; a silenced one does not need attention."""
    alerts, now = deps.alerts, deps.brain.clock.now()
    for rule in alerts.firing():
        state = alerts.saved.board.state(rule.name)
        if state is not None and not alerts.settings.silenced(rule.name, now):
            message = f"fires ({rule.severity.value}): {state.said}"
            since = from_instant(state.since)
            yield ConcernView("alert", rule.name, rule.name, message, since=since)


def _workers(deps: AppDeps) -> Iterator[ConcernView]:
    """Yields silent workers, and those that left with executions; a clean stop needs no
    attention."""
    for info in deps.brain.workers():
        worker, status = info.worker, worker_status(info)
        if status == "unhealthy":
            message = "is silent; its jobs run elsewhere when its leases expire"
        elif status == "offline" and info.executions:
            message = "is offline; its executions are being ended"
        else:
            continue
        since = worker.gone_at or info.last_seen
        yield ConcernView(
            "worker",
            worker.id,
            worker.name,
            message,
            since=from_instant_or_none(since),
        )


async def _lost(call: Call[Any, Any]) -> list[ConcernView]:
    """Returns workers that lost executions lately."""
    query = ExecutionQuery(states=(ExecutionState.LOST,), limit=ATTENTION_JOBS)
    since = call.deps.brain.clock.now() - ATTENTION_LOSS_MS
    losses: dict[str, list[Instant]] = {}
    for one in await call.deps.queries.find_executions(query):
        if (one.ended_at or one.claimed_at) >= since:
            losses.setdefault(one.worker_id, []).append(one.ended_at or one.claimed_at)
    names = {info.worker.id: info.worker.name for info in call.deps.brain.workers()}
    return [
        ConcernView(
            "worker",
            worker_id,
            names.get(WorkerId(worker_id), worker_id),
            "was lost with executions running; their jobs were started again",
            count=len(times),
            since=from_instant(max(times)),
        )
        for worker_id, times in losses.items()
    ]


async def _failing(call: Call[Any, Any]) -> list[ConcernView]:
    query = JobQuery(
        states=(JobState.FAILED,),
        created_after=call.deps.brain.clock.now() - ATTENTION_FAILED_MS,
    )
    found, _ = await read_failed(call, query, ATTENTION_JOBS)
    return [
        ConcernView(
            "failing",
            one.fingerprint,
            one.name,
            one.message,
            count=one.count,
            since=one.last_at,
            job_id=one.job_ids[0],
        )
        for one in group_by_error(found)[:10]
    ]


def _queues(deps: AppDeps) -> Iterator[ConcernView]:
    growing = {} if deps.metrics_history is None else deps.metrics_history.growing()
    for info in deps.brain.queues():
        name, waiting = info.queue.name, info.depth.get(JobState.QUEUED, 0)
        if info.queue.paused and waiting:
            yield ConcernView("queue", name, name, "is paused, and jobs wait in it", count=waiting)
        elif name in growing:
            message = f"grows: {growing[name]:,} more jobs wait than a few minutes ago"
            yield ConcernView("queue", name, name, message, count=waiting)


def _schedules(call: Call[Any, Any]) -> Iterator[ConcernView]:
    now = call.deps.brain.clock.now()
    own = call.deps.brain.schedules(lambda one: is_own(call, one.definition.job.terms))
    for info in own:
        if message := _late(info, now):
            one = info.schedule
            since = one.state.last_at
            yield ConcernView(
                "schedule",
                one.id,
                one.definition.name,
                message,
                since=from_instant_or_none(since),
                job_id=one.state.last_job_id,
            )


def _late(info: ScheduleInfo, now: Instant) -> str:
    if info.schedule.state.paused:
        return ""
    if info.problem:
        return info.problem
    if info.due_at is not None and now - info.due_at > SCHEDULE_LATE_MS:
        return f"is overdue by {(now - info.due_at) // 1000} seconds"
    if info.schedule.state.last_decision in (
        OccurrenceDecision.LATE,
        OccurrenceDecision.CAUGHT_UP,
    ):
        return "ran late the last time"
    return ""


FAILED = (ExecutionState.FAILED, ExecutionState.TIMED_OUT, ExecutionState.LOST)


async def timeline_buckets(
    queries: QueryStore,
    start: Instant,
    end: Instant,
    worker_id: WorkerId | None,
    tenant: str | None,
) -> TimelineBucketsView:
    """Counts the executions that started in the window, end included, by worker and time bucket."""
    step = -(-(end + 1 - start) // (TIMELINE_BUCKETS * TIMELINE_BUCKET_PARTS))
    edges = [*range(start, end + 1, step), end + 1]
    bounds = tuple(map(first_id, edges))
    limit = TIMELINE_SAMPLE if tenant is None else TIMELINE_SAMPLE_OWN
    query = SampleQuery(bounds=bounds, worker_id=worker_id, tenant=tenant, limit=limit)
    return count_buckets(await queries.sample_executions(query), edges, limit)


def count_buckets(
    found: Sequence[Sampled], edges: Sequence[Instant], limit: int
) -> TimelineBucketsView:
    """Estimates counts from samples; `edges` has one more than there are parts.

    The rate in a part is estimated from all samples; only the caller's own are counted.
    """
    seen: dict[int, list[Sampled]] = defaultdict(list)
    for one in found:
        seen[one.stretch].append(one)
    factors = {
        stretch: _factor(samples, edges[stretch], edges[stretch + 1])
        if _is_cut(samples, limit)
        else 1
        for stretch, samples in seen.items()
    }
    size = -(-(len(edges) - 1) // TIMELINE_BUCKET_PARTS)
    lanes: dict[WorkerId, WorkerBucketsView] = {}
    for one in (sampled for sampled in found if sampled.is_own):
        if one.worker_id not in lanes:
            lanes[one.worker_id] = WorkerBucketsView(one.worker_id, [0] * size, [0] * size)
        worker_buckets, count = lanes[one.worker_id], round(one.count * factors[one.stretch])
        worker_buckets.began[one.stretch // TIMELINE_BUCKET_PARTS] += count
        if one.state in FAILED:
            worker_buckets.failed[one.stretch // TIMELINE_BUCKET_PARTS] += count
    return TimelineBucketsView(
        step=(edges[1] - edges[0]) * TIMELINE_BUCKET_PARTS / 1000,
        total=sum(sum(worker_buckets.began) for worker_buckets in lanes.values()),
        estimated=any(_is_cut(samples, limit) for samples in seen.values()),
        lanes=[lanes[worker_id] for worker_id in sorted(lanes)],
    )


def _is_cut(samples: Sequence[Sampled], limit: int) -> bool:
    return sum(one.count for one in samples) >= limit


def _factor(samples: Sequence[Sampled], low: Instant, high: Instant) -> float:
    """Returns by how much the whole part exceeds what was sampled of it."""
    looked: Millis = time_of(max(one.last for one in samples)) + 1 - low
    return (high - low) / max(1, looked)


def first_id(at: Instant) -> str:
    """Returns an id smaller than every one of that millisecond or later, larger than all before."""
    time = f"{at & 0xFFFF_FFFF_FFFF:012x}"
    return f"{time[:8]}-{time[8:]}-0000-0000-000000000000"


def time_of(execution_id: str) -> Instant:
    """Returns when an id was made."""
    return int(execution_id[:8] + execution_id[9:13], 16)


NOW_MS = 60_000
"""A window that ended no longer ago still means now: clocks differ."""
DAY_MS = 24 * 3600 * 1000
WINDOW_MS = 3600 * 1000
"""Default window: the last hour."""


class TimelineQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Window of the timeline, and its worker."""

    after: Annotated[Moment | None, Meta(examples=["2026-01-05T08:00:00.000Z"])] = None
    before: Annotated[Moment | None, Meta(examples=["2026-01-05T09:00:00.000Z"])] = None
    worker_id: str | None = None


@Operation(
    "GET",
    "/timeline",
    "Show which executions ran when and where",
    tag="Service",
    permission=Permission.READ,
    query=TimelineQuery,
    answer=TimelineView,
    description=(
        "Executions that were claimed in the window, or run now: by default the last hour, 1,000 "
        "at most. `reserved` lists reservations of workers."
    ),
    examples={"answer": "timeline"},
)
async def show_timeline(call: Call[None, TimelineQuery]) -> TimelineView:
    """Returns executions that ran in the window; those that started before it only while they run.

    Ids begin with the time they were made, so a window is a range of ids.
    """
    start, end = _window(call)
    found, more = await _claimed_within(call, start, end)
    live, running = await _running(call)
    buckets = None
    if more:
        whose = (_worker(call), call.caller.tenant)
        buckets, found = await timeline_buckets(call.deps.queries, start, end, *whose), []
    known = {one.id for one in live}
    # Running executions come first: on a busy cell the newest are all short ones.
    found = [*live, *(one for one in found if one.id not in known)]
    shown = [one for one in found if one.claimed_at <= end][: call.deps.limits.timeline_bars_max]
    outlines = await outlines_of(call.deps.queries, dict.fromkeys(one.job_id for one in shown))
    jobs = {job.id: job for job in outlines if call.caller.tenant in (None, job.tenant)}
    bars = [_bar(one, jobs[one.job_id]) for one in shown if one.job_id in jobs]
    reserved = await _reserved(call, end)
    if call.caller.tenant is not None:
        running = sum(bar.end is None for bar in bars)
    return TimelineView(
        from_instant(start), from_instant(end), bars, more, reserved, running, buckets
    )


async def _reserved(call: Call[None, TimelineQuery], end: Instant) -> list[ReservedView]:
    brain, wanted, own = call.deps.brain, _worker(call), call.caller.tenant
    if end < brain.clock.now() - NOW_MS:
        return []
    await brain.settled()
    reserved = (
        ReservedView(
            job_id=one.job_id,
            name=one.name,
            worker_id=one.worker_id,
            start=from_instant(one.start),
            end=from_instant(one.end),
        )
        for one in brain.places()
        if wanted in (None, one.worker_id) and own in (None, one.tenant)
    )
    return list(islice(reserved, call.deps.limits.timeline_bars_max))


def _window(call: Call[None, TimelineQuery]) -> tuple[Instant, Instant]:
    asked = call.query
    end = call.deps.brain.clock.now() if asked.before is None else to_instant(asked.before)
    start = end - WINDOW_MS if asked.after is None else to_instant(asked.after)
    if start < 0:
        raise invalid("before" if asked.after is None else "after", "not before 1970")
    if start >= end:
        raise invalid("after", "must be earlier than `before`")
    if end - start > TIMELINE_WINDOW_MS_MAX:
        raise invalid("after", f"a timeline shows {TIMELINE_WINDOW_MS_MAX // DAY_MS} days at most")
    return start, end


async def _claimed_within(
    call: Call[None, TimelineQuery], start: Instant, end: Instant
) -> tuple[list[Execution], bool]:
    found: list[Execution] = []
    most = call.deps.limits.timeline_bars_max
    before, page_size = first_id(end + 1), PageSize(most, call.deps.limits.read_at_once)
    while len(found) < most:
        size = page_size.size
        query = ExecutionQuery(worker_id=_worker(call), before=before, limit=size)
        part = await call.deps.queries.find_executions(query)
        page_size.record(part)
        found += [one for one in part if one.claimed_at >= start]
        if len(part) < size or part[-1].claimed_at < start:
            return found, False
        before = part[-1].id
    return found, True


async def _running(call: Call[None, TimelineQuery]) -> tuple[Sequence[Execution], int]:
    """Returns running executions, as many as are drawn, and the number of all."""
    brain, wanted = call.deps.brain, _worker(call)
    await brain.settled()
    ids = [
        execution_id
        for info in brain.workers()
        if wanted in (None, info.worker.id)
        for execution_id in info.executions
    ]
    found: list[Execution] = []
    most, step = call.deps.limits.timeline_bars_max, call.deps.limits.read_at_once
    for at in range(0, min(len(ids), most), step):
        found += await call.deps.queries.executions(ids[at : at + step])
    return found[:most], len(ids)


def _bar(one: Execution, job: Outline) -> BarView:
    return BarView(
        execution_id=one.id,
        job_id=one.job_id,
        name=job.name,
        worker_id=one.worker_id,
        status=one.state.value,
        job_status=job.state.value,
        start=from_instant(one.claimed_at),
        end=from_instant_or_none(one.ended_at),
    )


def _worker(call: Call[None, TimelineQuery]) -> WorkerId | None:
    return None if call.query.worker_id is None else WorkerId(call.query.worker_id)
