"""The overview: its figures, how they moved, the digests of the stream, what needs a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from rota.api.cell.cluster import show_cluster
from rota.api.door.roles import Permission
from rota.api.jobs.error_groups import group_by_error, read_failed
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
)
from rota.api.lookup import is_own
from rota.api.metrics import amounts, worker_status
from rota.api.parts import AppDeps
from rota.api.routes import Call, NoQuery, Operation
from rota.core.info_model import ScheduleInfo
from rota.core.model import ExecutionState, Instant, JobState, WorkerId, WorkerState
from rota.core.schedule_model import OccurrenceDecision
from rota.store.queries import ExecutionQuery, JobQuery
from rota.wire.overview import (
    AttentionView,
    ConcernView,
    DigestView,
    HistoryView,
    SessionView,
)
from rota.wire.service import StatsView
from rota.wire.units import encode, from_instant, from_instant_or_none


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
    "The figures of an overview",
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
    "How the figures moved",
    tag="Service",
    permission=Permission.READ_ALL,
    query=HistoryQuery,
    answer=HistoryView,
    description=(
        "An hour in steps of 5 s or a day in steps of 2 min, since this leader began. "
        "Kept in memory only: `/metrics` is for the longer view."
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
    "Who is signed in",
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
    "What needs a person now",
    tag="Service",
    permission=Permission.READ,
    answer=AttentionView,
    description=(
        "Worries of the cluster, silent workers, jobs that fail alike, queues that "
        "grow or are paused, schedules that are late. Looked up every five seconds at most."
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
