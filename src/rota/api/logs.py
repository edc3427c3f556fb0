"""What executions printed: read, followed and sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.api.bodies import read_body
from rota.api.executions import execution_id_in, find_execution
from rota.api.jobs import find_job, job_id_in
from rota.api.limits import LOG_GRACE_MS, LOG_READ_BYTES, LOG_WAIT_S, LOG_WAIT_S_MAX
from rota.api.parts import Parts
from rota.api.problems import ProblemError, not_found
from rota.api.routes import Call
from rota.api.streams import Stream
from rota.api.translate import UUID
from rota.core.model import Execution, ExecutionId, JobId, JobRecord
from rota.wire.limits import LOG_CHUNK_BYTES_MAX

TEXT = "text/plain; charset=utf-8"

Offset = Annotated[int, Meta(ge=0, le=2**63 - 1, description="Bytes to leave out at the start.")]
Follow = Annotated[bool, Meta(description="Goes on until the job has ended.")]


class JobLogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which part of a job's log."""

    follow: Follow = False
    offset: Offset = 0
    execution_id: Annotated[str, Meta(description="An earlier try; else the newest.")] | None = None


class LogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which part of an execution's log."""

    follow: Follow = False
    offset: Offset = 0


class SendLogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Where a chunk belongs."""

    offset: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2**63 - 1,
                description="Where the chunk starts; what is there already is not added again. "
                "Left out: at the end.",
            ),
        ]
        | None
    ) = None
    fence: Annotated[int, Meta(description="The execution's fence; a wrong one is 409.")] | None = (
        None
    )


class LogSize(msgspec.Struct):
    """How many bytes of log there are now: send on from there."""

    size: int


async def job_logs(call: Call[None, JobLogsQuery]) -> Stream:
    """The newest execution's log, or that of the one named."""
    job = await find_job(call.parts.catalog, job_id_in(call))
    asked = call.query.execution_id
    if asked is not None:
        execution = await _execution_of(call.parts, job, asked)
        return _stream(call, _one(call.parts, execution, call.query.offset, call.query.follow))
    if call.query.follow:
        return _stream(call, _follow_job(call.parts, job.id, call.query.offset))
    if job.life.execution_id is None:
        return _stream(call, _empty())
    return _stream(call, _so_far(call.parts, job.life.execution_id, call.query.offset))


async def execution_logs(call: Call[None, LogsQuery]) -> Stream:
    """One execution's log."""
    execution = await find_execution(call.parts.catalog, execution_id_in(call))
    return _stream(call, _one(call.parts, execution, call.query.offset, call.query.follow))


async def send_logs(call: Call[None, SendLogsQuery]) -> LogSize:
    """Adds a chunk of raw bytes; a repeat adds nothing."""
    execution_id = execution_id_in(call)
    data = await read_body(call.request.scope, call.request.receive, LOG_CHUNK_BYTES_MAX)
    execution = await find_execution(call.parts.catalog, execution_id)
    if call.query.fence is not None and call.query.fence != execution.fence:
        detail = f"execution {execution_id} has fence {execution.fence}, not {call.query.fence}"
        raise ProblemError(409, "stale_execution", detail)
    ended, now = execution.ended_at, call.parts.brain.clock.now()
    if ended is not None and now - ended > LOG_GRACE_MS:
        detail = f"execution {execution_id} ended long ago: its log is closed"
        raise ProblemError(409, "log_closed", detail)
    return LogSize(await call.parts.logs.append(execution_id, call.query.offset, data))


def _stream(call: Call[Any, Any], pieces: AsyncGenerator[bytes, None]) -> Stream:
    seats = call.desk.seats if call.query.follow else None
    if seats is not None:
        seats.check()
    return Stream(pieces, TEXT, closing=call.parts.closing, seats=seats)


async def _execution_of(parts: Parts, job: JobRecord, text: str) -> Execution:
    if UUID.match(text.lower()):
        found = await parts.catalog.executions([ExecutionId(text.lower())])
        if found and found[0].job_id == job.id:
            return found[0]
    raise not_found(f"execution of job {job.id} with the id", text[:100])


async def _empty() -> AsyncGenerator[bytes, None]:
    return
    yield b""  # makes this a generator


def _one(
    parts: Parts, execution: Execution, offset: int, follow: bool
) -> AsyncGenerator[bytes, None]:
    if follow:
        return _follow_execution(parts, execution.id, offset)
    return _so_far(parts, execution.id, offset)


async def _so_far(
    parts: Parts, execution_id: ExecutionId, offset: int
) -> AsyncGenerator[bytes, None]:
    """All that was there when the first piece was read, so that a busy log ends too."""
    page = await parts.logs.read(execution_id, offset, LOG_READ_BYTES)
    end = page.size
    while page.data:
        yield page.data
        if page.next_offset >= end:
            return
        page = await parts.logs.read(execution_id, page.next_offset, LOG_READ_BYTES)


async def _follow_execution(
    parts: Parts, execution_id: ExecutionId, offset: int
) -> AsyncGenerator[bytes, None]:
    """Text as it comes, until the execution has ended and all of its text is out."""
    wait_s = LOG_WAIT_S
    while True:
        # Asked before reading: what an ended execution printed is then there to be read.
        ended = await _has_ended(parts, execution_id)
        page = await parts.logs.read(execution_id, offset, LOG_READ_BYTES)
        while page.data:
            yield page.data
            wait_s, offset = LOG_WAIT_S, page.next_offset
            page = await parts.logs.read(execution_id, offset, LOG_READ_BYTES)
        if ended:
            return
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 1.5, LOG_WAIT_S_MAX)


async def _has_ended(parts: Parts, execution_id: ExecutionId) -> bool:
    found = await parts.catalog.executions([execution_id])
    return not found or found[0].ended_at is not None


async def _follow_job(parts: Parts, job_id: JobId, offset: int) -> AsyncGenerator[bytes, None]:
    """One execution after the other, until the job has ended."""
    shown: ExecutionId | None = None
    seq: int = (await parts.catalog.head())[1]
    while found := await parts.catalog.jobs([job_id]):
        life = found[0].life
        if life.execution_id is not None and life.execution_id != shown:
            shown = life.execution_id
            async for piece in _follow_execution(parts, shown, offset):
                yield piece
            offset = 0
        elif life.finished_at is not None:
            return
        else:
            with suppress(TimeoutError):
                seq = await asyncio.wait_for(parts.feed.wait_beyond(seq), LOG_WAIT_S_MAX)
