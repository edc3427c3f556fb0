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
    """How far back."""

    window: Literal["hour", "day"] = "hour"


async def stats_of(parts: AppDeps) -> StatsView:
    """The figures of the whole cell."""
    brain, figures = parts.brain, parts.metrics
    jobs: Counter[str] = Counter(dict.fromkeys((state.value for state in JobState), 0))
    await brain.settled()
    queues = brain.queues()
    for glance in queues:
        jobs.update({state.value: count for state, count in glance.depth.items()})
    for (_, status), count in figures.finished().items():
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
        submitted_total=figures.submitted(),
        version=parts.version,
        started_at=from_instant(parts.started_at),
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
    """What an overview shows; a tenant's token is told of its own jobs."""
    stats = await stats_of(call.deps)
    if call.caller.tenant is not None:
        own = await call.deps.catalog.count_jobs(call.caller.tenant)
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
    """How the figures moved since this server leads."""
    recorder = call.deps.metrics_history
    if call.query.window == "day":
        return HistoryView(HISTORY_LONG_S, [] if recorder is None else recorder.last_day())
    return HistoryView(HISTORY_STEP_S, [] if recorder is None else recorder.last_hour())


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
    """Who asks, and who answers."""
    parts, caller = call.deps, call.caller
    return SessionView(
        name=caller.name,
        role=caller.role.value,
        tenant=caller.tenant,
        node=parts.node,
        cell=parts.cell,
        version=parts.version,
        now=from_instant(parts.brain.clock.now()),
    )


async def digest_of(call: Call[Any, Any], seq: int) -> bytes:
    """A digest's data, made once for all who read digests at the time.

    Only the leader has the figures, and a tenant's reader is told only that something happened.
    """
    if call.caller.tenant is not None or not call.deps.brain.ready:
        return encode(DigestView(seq))
    board, now = call.state.answers, call.deps.brain.clock.steady()
    if board.digest is None or now - board.digest_at >= DIGEST_S * 900:
        recorder = call.deps.metrics_history
        sample = None if recorder is None else recorder.newest()
        board.digest = encode(DigestView(seq, await stats_of(call.deps), sample))
        board.digest_at = now
    return board.digest


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
    """What needs a person; the same answer is good for a few seconds."""
    board, now = call.state.answers, call.deps.brain.clock.steady()
    if call.caller.tenant is not None:
        return await _attention(call)
    if board.attention is None or now - board.attention_at >= ATTENTION_S * 1000:
        board.attention, board.attention_at = await _attention(call), now
    return board.attention


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


def _alerts(parts: AppDeps) -> Iterator[ConcernView]:
    """Rules that fire; one that somebody has silenced is known to need attention."""
    watch, now = parts.alerts, parts.brain.clock.now()
    for rule in watch.firing():
        place = watch.saved.board.state(rule.name)
        if place is not None and not watch.settings.silenced(rule.name, now):
            said = f"fires ({rule.severity.value}): {place.said}"
            since = from_instant(place.since)
            yield ConcernView("alert", rule.name, rule.name, said, since=since)


def _workers(parts: AppDeps) -> Iterator[ConcernView]:
    """Silent ones, and those that went with work in their hands; leaving in peace is no concern."""
    for glance in parts.brain.workers():
        worker, status = glance.worker, worker_status(glance)
        if status == "unhealthy":
            said = "is silent; what it runs goes to others when its lease is over"
        elif status == "offline" and glance.executions:
            said = "is gone, and what it ran is being taken back"
        else:
            continue
        since = worker.gone_at or glance.last_seen
        yield ConcernView(
            "worker",
            worker.id,
            worker.name,
            said,
            since=from_instant_or_none(since),
        )


async def _lost(call: Call[Any, Any]) -> list[ConcernView]:
    """Workers that lost executions lately, newest loss first."""
    query = ExecutionQuery(states=(ExecutionState.LOST,), limit=ATTENTION_JOBS)
    since = call.deps.brain.clock.now() - ATTENTION_LOSS_MS
    losses: dict[str, list[Instant]] = {}
    for one in await call.deps.catalog.find_executions(query):
        if (one.ended_at or one.claimed_at) >= since:
            losses.setdefault(one.worker_id, []).append(one.ended_at or one.claimed_at)
    names = {glance.worker.id: glance.worker.name for glance in call.deps.brain.workers()}
    return [
        ConcernView(
            "worker",
            worker_id,
            names.get(WorkerId(worker_id), worker_id),
            "was lost with work under way, which others ran again",
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


def _queues(parts: AppDeps) -> Iterator[ConcernView]:
    growing = {} if parts.metrics_history is None else parts.metrics_history.growing()
    for glance in parts.brain.queues():
        name, waiting = glance.queue.name, glance.depth.get(JobState.QUEUED, 0)
        if glance.queue.paused and waiting:
            yield ConcernView("queue", name, name, "is paused, and jobs wait in it", count=waiting)
        elif name in growing:
            said = f"grows: {growing[name]:,} more jobs wait than some minutes ago"
            yield ConcernView("queue", name, name, said, count=waiting)


def _schedules(call: Call[Any, Any]) -> Iterator[ConcernView]:
    now = call.deps.brain.clock.now()
    own = call.deps.brain.schedules(lambda one: is_own(call, one.definition.job.terms))
    for glance in own:
        if said := _late(glance, now):
            one = glance.schedule
            since = one.state.last_at
            yield ConcernView(
                "schedule",
                one.id,
                one.definition.name,
                said,
                since=from_instant_or_none(since),
                job_id=one.state.last_job_id,
            )


def _late(glance: ScheduleInfo, now: Instant) -> str:
    if glance.schedule.state.paused:
        return ""
    if glance.problem:
        return glance.problem
    if glance.due_at is not None and now - glance.due_at > SCHEDULE_LATE_MS:
        return f"is overdue by {(now - glance.due_at) // 1000} seconds"
    if glance.schedule.state.last_decision in (
        OccurrenceDecision.LATE,
        OccurrenceDecision.CAUGHT_UP,
    ):
        return "ran late the last time"
    return ""


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


NOW_MS = 60_000
"""A window that ended no longer ago still means now: somebody's clock is late."""
DAY_MS = 24 * 3600 * 1000
WINDOW_MS = 3600 * 1000
"""What is shown where nothing was asked: the last hour."""


class TimelineQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which window, and whose."""

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
    """Executions that ran within the window. Those that began before it are known while they run.

    Ids begin with the time they were made, so a window is a range of ids.
    """
    start, end = _window(call)
    found, more = await _claimed_within(call, start, end)
    live, running = await _running(call)
    crowd = None
    if more:
        whose = (_worker(call), call.caller.tenant)
        crowd, found = await timeline_buckets(call.deps.catalog, start, end, *whose), []
    known = {one.id for one in live}
    # What runs is shown before anything else: on a busy cell the newest are all short ones.
    found = [*live, *(one for one in found if one.id not in known)]
    shown = [one for one in found if one.claimed_at <= end][: call.deps.limits.timeline_bars_max]
    told = await outlines_of(call.deps.catalog, dict.fromkeys(one.job_id for one in shown))
    jobs = {job.id: job for job in told if call.caller.tenant in (None, job.tenant)}
    bars = [_bar(one, jobs[one.job_id]) for one in shown if one.job_id in jobs]
    kept = await _reserved(call, end)
    if call.caller.tenant is not None:
        running = sum(bar.end is None for bar in bars)
    return TimelineView(from_instant(start), from_instant(end), bars, more, kept, running, crowd)


async def _reserved(call: Call[None, TimelineQuery], end: Instant) -> list[ReservedView]:
    brain, wanted, own = call.deps.brain, _worker(call), call.caller.tenant
    if end < brain.clock.now() - NOW_MS:
        return []
    await brain.settled()
    kept = (
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
    return list(islice(kept, call.deps.limits.timeline_bars_max))


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
    before, pace = first_id(end + 1), PageSize(most, call.deps.limits.read_at_once)
    while len(found) < most:
        size = pace.size
        query = ExecutionQuery(worker_id=_worker(call), before=before, limit=size)
        part = await call.deps.catalog.find_executions(query)
        pace.record(part)
        found += [one for one in part if one.claimed_at >= start]
        if len(part) < size or part[-1].claimed_at < start:
            return found, False
        before = part[-1].id
    return found, True


async def _running(call: Call[None, TimelineQuery]) -> tuple[Sequence[Execution], int]:
    """What runs now, however long ago it began: as much as is drawn, and how much there is."""
    brain, wanted = call.deps.brain, _worker(call)
    await brain.settled()
    ids = [
        execution_id
        for glance in brain.workers()
        if wanted in (None, glance.worker.id)
        for execution_id in glance.executions
    ]
    found: list[Execution] = []
    most, step = call.deps.limits.timeline_bars_max, call.deps.limits.read_at_once
    for at in range(0, min(len(ids), most), step):
        found += await call.deps.catalog.executions(ids[at : at + step])
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
