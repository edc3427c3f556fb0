"""Endpoint of the live stream: state changes as server-sent events, read from the journal.

Leaves out what a caller's tenant may not see; a client continues with `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from rota.api.auth.roles import Permission
from rota.api.deps import TenantCache
from rota.api.endpoints.overview import digest_of
from rota.api.limits import DIGEST_S, STREAM_EVENTS_PER_SEND, STREAM_KEEPALIVE_S, STREAM_RECORDS
from rota.api.problems import invalid
from rota.api.router import Call, HeaderSpec, Operation
from rota.api.streaming import Stream
from rota.api.tenant_scope import tenants_of
from rota.core.model import JobId
from rota.core.outcome import (
    DropCalendar,
    DropJob,
    DropSchedule,
    DropTrigger,
    DropWorker,
    MoveJob,
    MoveSchedule,
    PutBufferedEvent,
    PutCalendar,
    PutEvent,
    PutExecution,
    PutJob,
    PutKey,
    PutOccurrence,
    PutPolicy,
    PutQueue,
    PutRuntime,
    PutSchedule,
    PutTenant,
    PutTrigger,
    PutTriggerDecision,
    PutWorker,
    ReleaseBufferedEvents,
)
from rota.store.protocol import Change, Seq
from rota.wire.formats import encode, from_instant
from rota.wire.service import ChangeView

_AboutSchedule: TypeAlias = PutSchedule | DropSchedule | PutOccurrence
_NotStreamed: TypeAlias = (
    PutKey
    | MoveSchedule
    | PutCalendar
    | DropCalendar
    | PutEvent
    | PutBufferedEvent
    | ReleaseBufferedEvents
    | PutTenant
    | PutRuntime
)
"""Writes that the stream leaves out."""


def change_view(change: Change) -> ChangeView | None:
    """Converts one state change; None for a write that the stream leaves out."""
    at = from_instant(change.at)
    match change.write:
        case PutJob() | MoveJob():
            return _job_change(change.write, at)
        case DropJob(id=job_id):
            return ChangeView("job", job_id, "deleted", at)
        case PutExecution(execution=one):
            return ChangeView(
                "execution",
                one.id,
                one.state.value,
                at,
                reason=one.reason,
                job_id=one.job_id,
                worker_id=one.worker_id,
            )
        case PutWorker(worker=worker):
            return ChangeView("worker", worker.id, worker.state.value, at, worker.name)
        case DropWorker(id=worker_id):
            return ChangeView("worker", worker_id, "deleted", at)
        case PutQueue(queue=queue):
            return ChangeView("queue", queue.name, "paused" if queue.paused else "open", at)
        case PutPolicy(policy=policy):
            return ChangeView("policy", "policy", policy.order.value, at)
        case PutTrigger() | DropTrigger() | PutTriggerDecision():
            return _trigger_change(change.write, at)
        case _:
            return _schedule_change(change.write, at)


def _job_change(write: PutJob | MoveJob, at: str) -> ChangeView:
    life = write.life
    view = ChangeView("job", write.id, life.state.value, at)
    view.reason, view.deadline = life.reason, life.deadline
    if isinstance(write, PutJob):
        view.name, view.queue = write.spec.terms.name, write.spec.terms.queue
    return view


def _schedule_change(write: _NotStreamed | _AboutSchedule, at: str) -> ChangeView | None:
    if isinstance(write, _NotStreamed):
        return None
    if isinstance(write, PutSchedule):
        status = "paused" if write.schedule.state.paused else "active"
        return ChangeView("schedule", write.schedule.id, status, at, write.schedule.definition.name)
    if isinstance(write, DropSchedule):
        return ChangeView("schedule", write.id, "deleted", at)
    one = write.occurrence
    return ChangeView(
        "occurrence",
        f"{one.schedule_id}/{from_instant(one.nominal)}",
        one.decision.value,
        at,
        reason=one.skip_reason.value,
        job_id=one.job_id or "",
        schedule_id=one.schedule_id,
    )


def _trigger_change(write: PutTrigger | DropTrigger | PutTriggerDecision, at: str) -> ChangeView:
    if isinstance(write, PutTrigger):
        status = "paused" if write.trigger.paused else "active"
        return ChangeView("trigger", write.trigger.id, status, at, write.trigger.definition.name)
    if isinstance(write, DropTrigger):
        return ChangeView("trigger", write.id, "deleted", at)
    one = write.decision
    return ChangeView(
        "arrival",
        one.id,
        one.decision.value,
        at,
        one.type,
        reason=one.detail,
        job_id=one.job_id or "",
        trigger_id=one.trigger_id,
    )


async def visible_changes(call: Call[Any, Any], changes: Sequence[Change]) -> Sequence[Change]:
    """Returns the changes a caller may see: its tenant's own, and those of workers and queues.

    A deletion is shown if the item's tenant is remembered, because the store no longer knows it.
    The same goes for occurrences and events that created no job.
    """
    own, tenants = call.caller.tenant, call.state.tenants
    if own is None:
        return changes
    for change in changes:
        _note_tenant(tenants, change)
    unknown = {job_id: None for job_id in map(_job_of, changes) if _is_unknown(tenants, job_id)}
    found = await tenants_of(call.deps.queries, [one for one in unknown if one is not None])
    for job_id, tenant in found.items():
        tenants.record(job_id, tenant)
    return [
        one for one in changes if (item_id := _owned_id(one)) is None or tenants.of(item_id) == own
    ]


def _note_tenant(tenants: TenantCache, change: Change) -> None:
    match change.write:
        case PutJob(id=job_id, spec=spec):
            tenants.record(job_id, spec.terms.tenant)
        case PutSchedule(schedule=schedule):
            tenants.record(schedule.id, schedule.definition.job.terms.tenant)
        case PutTrigger(trigger=trigger):
            tenants.record(trigger.id, trigger.definition.job.terms.tenant)
        case _:
            pass


def _is_unknown(tenants: TenantCache, job_id: JobId | None) -> bool:
    return job_id is not None and tenants.of(job_id) is None


def _owned_id(change: Change) -> str | None:
    """Returns the id of the item that has a tenant; None: the change is visible to all."""
    match change.write:
        case PutSchedule(schedule=schedule):
            return schedule.id
        case PutTrigger(trigger=trigger):
            return trigger.id
        case DropSchedule(id=thing_id) | DropTrigger(id=thing_id):
            return thing_id
        case PutOccurrence(occurrence=occurrence):
            return occurrence.job_id or occurrence.schedule_id
        case PutTriggerDecision(decision=decision):
            return decision.job_id or decision.trigger_id
        case _:
            return _job_of(change)


def _job_of(change: Change) -> JobId | None:
    """Returns the job that a change is about; None: it is about no job."""
    match change.write:
        case PutJob(id=job_id) | MoveJob(id=job_id) | DropJob(id=job_id):
            return job_id
        case PutExecution(execution=execution):
            return execution.job_id
        case PutOccurrence(occurrence=occurrence):
            return occurrence.job_id
        case PutTriggerDecision(decision=decision):
            return decision.job_id
        case _:
            return None


EVENTS = "text/event-stream"
_EVENT_ID = re.compile(r"(\d{1,18})\.(\d{1,19})\Z", re.ASCII)
_RECORD_END = 10**18
"""Larger than any index in a record: all of the record was seen."""


class StreamQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Options of the stream."""

    digest: Annotated[
        bool,
        Meta(
            description="Instead of every change, sends at most one event a second, "
            "`event: digest`, with the figures of the overview."
        ),
    ] = False


class StreamPosition(NamedTuple):
    """Position of the last change seen."""

    seq: int
    number: int


@Operation(
    "GET",
    "/stream",
    "Stream state changes as server-sent events",
    tag="Service",
    permission=Permission.READ,
    any_server=True,
    query=StreamQuery,
    gives=EVENTS,
    streams_out=True,
    headers={"Last-Event-ID": HeaderSpec("42.0", r"^\d{1,18}\.\d{1,18}$")},
    description=(
        "Each event's data is one change (kind, id, status, at, …), its id a position in the "
        "journal. Send the last id as `Last-Event-ID` to continue from there; without it the "
        "stream starts now, and sends its position first. If missed changes are no longer kept, "
        "the first event is `reset`: read the lists again, then continue. A comment comes every "
        "15 s when nothing happens; a client that reads nothing for 30 s is disconnected; at most "
        "256 streams are open (else 429)."
    ),
    examples={"answer": "stream_changes"},
)
async def stream_changes(call: Call[None, StreamQuery]) -> Stream:
    """Streams changes from the position in Last-Event-ID, or from now."""
    call.state.streams.check()
    text = call.request.headers.get("last-event-id")
    oldest, newest = await call.deps.queries.head()
    position = _read_position(text) if text else StreamPosition(newest, _RECORD_END)
    lost = not oldest - 1 <= position.seq <= newest
    if lost:
        # Missed changes are not kept any more (or of another journal): the client starts afresh.
        position = StreamPosition(newest, _RECORD_END)
    pieces = _digests(call, position) if call.query.digest else _pieces(call, position, lost=lost)
    return Stream(pieces, EVENTS, closing=call.deps.closing, limit=call.state.streams)


def _read_position(text: str) -> StreamPosition:
    found = _EVENT_ID.match(text)
    if found is None:
        raise invalid("Last-Event-ID", "the `id` of an event of this stream, such as `42.0`")
    return StreamPosition(int(found[1]), int(found[2]))


async def _pieces(
    call: Call[None, StreamQuery], position: StreamPosition, *, lost: bool
) -> AsyncGenerator[bytes, None]:
    deps = call.deps
    # The position is sent at once: a client disconnected before the first change misses nothing.
    yield b"retry: 1000\n\n" + (_reset(position) if lost else b"id: %d.%d\n\n" % position)
    # The record of the last change seen is read again: it may hold more changes.
    after, newest = position.seq - (position.number < _RECORD_END), position.seq
    while True:
        if after < newest:
            async with call.state.stream_reads:
                texts, last = await _next_texts(call, position, after)
            for text in texts:
                yield text
            # Records without changes return nothing, but have been read as well.
            after = max(min(after + STREAM_RECORDS, newest), last)
            continue
        try:
            async with asyncio.timeout(STREAM_KEEPALIVE_S):
                newest = await deps.commits.wait_beyond(after)
        except TimeoutError:
            yield b": still here\n\n"


async def _next_texts(
    call: Call[None, StreamQuery], position: StreamPosition, after: int
) -> tuple[list[bytes], int]:
    """Returns the events of the next records, and the last record that had any.

    The records, with all that was submitted, are not kept while a slow client reads.
    """
    changes = await call.deps.queries.changes_after(Seq(after), STREAM_RECORDS)
    new = [one for one in changes if (one.seq, one.index) > position]
    texts = []
    for text in _encoded(await visible_changes(call, new)):
        texts.append(text)
        await asyncio.sleep(0)
    return texts, max((one.seq for one in changes), default=0)


async def _digests(
    call: Call[None, StreamQuery], position: StreamPosition
) -> AsyncGenerator[bytes, None]:
    """Yields digests; their cost does not depend on the number of changes, as no journal is
    read."""
    seq: int = position.seq
    yield b"retry: 1000\n\n"
    while True:
        data = await digest_of(call, seq)
        yield b"event: digest\nid: %d.%d\ndata: %b\n\n" % (seq, _RECORD_END, data)
        await asyncio.sleep(DIGEST_S)
        try:
            async with asyncio.timeout(STREAM_KEEPALIVE_S):
                seq = await call.deps.commits.wait_beyond(seq)
        except TimeoutError:
            # Sent again without a change, so that the client knows the stream is alive.
            continue


def _encoded(changes: Sequence[Change]) -> Iterator[bytes]:
    for start in range(0, len(changes), STREAM_EVENTS_PER_SEND):
        part = changes[start : start + STREAM_EVENTS_PER_SEND]
        if text := b"".join(_event(change) for change in part):
            yield text


def _event(change: Change) -> bytes:
    view = change_view(change)
    if view is None:
        return b""
    return b"id: %d.%d\ndata: %b\n\n" % (change.seq, change.index, encode(view))


def _reset(position: StreamPosition) -> bytes:
    return b'event: reset\nid: %d.%d\ndata: {"kind":"reset"}\n\n' % position
