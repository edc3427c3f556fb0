"""Endpoints of logs: read, follow and send what executions print."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rota.api.auth.roles import Permission
from rota.api.convert.jobs import UUID
from rota.api.deps import AppDeps, LogNotifier
from rota.api.endpoints.executions import execution_id_in
from rota.api.endpoints.files import OCTETS
from rota.api.endpoints.jobs import job_id_in
from rota.api.limits import LOG_GRACE_MS, LOG_PIECE_BYTES_MAX, LOG_TAIL_LINES_MAX
from rota.api.parsing.request import read_body
from rota.api.problems import invalid, not_found
from rota.api.router import Call, Operation
from rota.api.streaming import Stream
from rota.api.tenant_scope import find_execution, find_job
from rota.core.model import ExecutionId, JobId, JobRecord
from rota.store.protocol import LogPage
from rota.wire.limits import LOG_CHUNK_BYTES_MAX
from rota.wire.problems import ProblemError

TEXT = "text/plain; charset=utf-8"
OFFSET_HEADER = "Rota-Log-Offset"
"""Where in the log an answer begins: who counts on from there can come back after a lost line."""

SIZE_HEADER = "Rota-Log-Size"
"""How many bytes there were when a part was read."""

Offset = Annotated[int, Meta(ge=0, le=2**63 - 1, description="Bytes to leave out at the start.")]
Follow = Annotated[bool, Meta(description="Goes on until the job has ended.")]
Tail = Annotated[
    int,
    Meta(
        ge=0,
        le=LOG_TAIL_LINES_MAX,
        description="Begin with this many of the last lines. The header `Rota-Log-Offset` says "
        "where in the log that is. Not with `offset`.",
    ),
]


Most = Annotated[
    int,
    Meta(
        ge=1,
        le=LOG_PIECE_BYTES_MAX,
        description="At most so many bytes; the header `Rota-Log-Size` says how many there are. "
        "Not with `follow`.",
    ),
]


class JobLogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which part of a job's log."""

    follow: Follow = False
    offset: Offset = 0
    tail: Tail | None = None
    limit: Most | None = None
    execution_id: Annotated[str, Meta(description="An earlier try; else the newest.")] | None = None


class LogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which part of an execution's log."""

    follow: Follow = False
    offset: Offset = 0
    tail: Tail | None = None
    limit: Most | None = None


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


@Operation(
    "GET",
    "/jobs/{job_id}/logs",
    "Read a job's log",
    tag="Jobs",
    permission=Permission.READ,
    any_server=True,
    query=JobLogsQuery,
    gives=TEXT,
    streams_out=True,
    errors=(404,),
    description=(
        "The text of the newest execution, or of the one in `execution_id`. With `follow` the "
        "answer continues, one execution after the other, until the job has finished. `tail` "
        "begins with the last lines."
    ),
    examples={"answer": "job_logs"},
)
async def job_logs(call: Call[None, JobLogsQuery]) -> Response:
    """The newest execution's log, or that of the one named."""
    job = await find_job(call, job_id_in(call))
    asked = call.query.execution_id
    if asked is not None:
        return await _one(call, await _execution_of(call.deps, job, asked))
    newest = job.life.execution_id
    if call.query.follow:
        start = await _start(call, newest)
        return _stream(
            call, start, LogFollower(call.deps, call.state.log_notifier).job(job.id, start)
        )
    return _stream(call, 0, _empty()) if newest is None else await _one(call, newest)


@Operation(
    "GET",
    "/executions/{execution_id}/logs",
    "Read an execution's log",
    tag="Executions",
    permission=Permission.READ,
    any_server=True,
    query=LogsQuery,
    gives=TEXT,
    streams_out=True,
    errors=(404,),
    description=(
        "With `follow` the answer continues until the execution has finished. `tail` begins with "
        "the last lines."
    ),
    examples={"answer": "job_logs"},
)
async def execution_logs(call: Call[None, LogsQuery]) -> Response:
    """One execution's log."""
    execution = await find_execution(call, execution_id_in(call))
    return await _one(call, execution.id)


@Operation(
    "POST",
    "/executions/{execution_id}/logs",
    "Send a chunk of log",
    tag="Executions",
    permission=Permission.WORK,
    worker_traffic=True,
    query=SendLogsQuery,
    body=bytes,
    takes=OCTETS,
    streams_in=True,
    answer=LogSize,
    errors=(404, 409),
    description=(
        "Raw bytes, up to 1 MiB at a time. Send the next chunk from the `size` in the answer. 64 "
        "MiB are kept of one execution; later bytes are counted and dropped."
    ),
    examples={"body": "send_logs_body", "answer": "send_logs"},
)
async def send_logs(call: Call[None, SendLogsQuery]) -> LogSize:
    """Adds a chunk of raw bytes; a repeat adds nothing."""
    execution_id = execution_id_in(call)
    data = await read_body(call.request.scope, call.request.receive, LOG_CHUNK_BYTES_MAX)
    execution = await find_execution(call, execution_id)
    if call.query.fence is not None and call.query.fence != execution.fence:
        detail = f"execution {execution_id} has fence {execution.fence}, not {call.query.fence}"
        raise ProblemError(409, "stale_execution", detail)
    ended, now = execution.ended_at, call.deps.brain.clock.now()
    if ended is not None and now - ended > LOG_GRACE_MS:
        detail = f"execution {execution_id} ended long ago: its log is closed"
        raise ProblemError(409, "log_closed", detail)
    size = await call.deps.logs.append(execution_id, call.query.offset, data)
    call.state.log_notifier.notify(execution_id)
    return LogSize(size)


def _stream(call: Call[Any, Any], start: int, pieces: AsyncGenerator[bytes, None]) -> Stream:
    seats = call.state.streams if call.query.follow else None
    if seats is not None:
        seats.check()
    headers = {OFFSET_HEADER: str(start)}
    return Stream(pieces, TEXT, closing=call.deps.closing, limit=seats, headers=headers)


async def _one(call: Call[Any, Any], execution_id: ExecutionId) -> Response:
    start = await _start(call, execution_id)
    if call.query.limit is not None:
        return await _piece(call, execution_id, start)
    if call.query.follow:
        follower = LogFollower(call.deps, call.state.log_notifier)
        return _stream(call, start, follower.execution(execution_id, start))
    return _stream(call, start, _so_far(call.deps, execution_id, start))


async def _piece(call: Call[Any, Any], execution_id: ExecutionId, start: int) -> Response:
    """A window of the log, for who looks at a long one part by part."""
    if call.query.follow:
        raise invalid("limit", "does not go with follow: what is followed has no end yet")
    read, wanted, data = call.deps.logs.read, call.query.limit, b""
    most = call.deps.limits.log_read_bytes
    page = await read(execution_id, start, min(wanted, most))
    while page.data:
        data += page.data
        if len(data) >= wanted:
            break
        page = await read(execution_id, page.next_offset, min(wanted - len(data), most))
    headers = {OFFSET_HEADER: str(start), SIZE_HEADER: str(page.size)}
    return Response(data, headers=headers, media_type=TEXT)


async def _start(call: Call[Any, Any], execution_id: ExecutionId | None) -> int:
    """The byte that the answer begins with."""
    offset, tail = call.query.offset, call.query.tail
    if tail is None:
        return int(offset)
    if offset:
        raise invalid("tail", "does not go with offset: one says where to begin, not both")
    return 0 if execution_id is None else await _tail_start(call.deps, execution_id, tail)


async def _tail_start(parts: AppDeps, execution_id: ExecutionId, lines: int) -> int:
    """Where the last lines begin, found by reading backwards; not further than the bound."""
    end = (await parts.logs.read(execution_id, 0, 0)).size
    farthest = max(0, end - parts.limits.log_tail_bytes_max)
    start, wanted = end, lines
    while start > farthest:
        size = min(parts.limits.log_read_bytes, start - farthest)
        data = (await parts.logs.read(execution_id, start - size, size)).data
        # The end of the last line does not begin another.
        at = len(data) - 1 if start == end and data.endswith(b"\n") and lines else len(data)
        while wanted and (at := data.rfind(b"\n", 0, at)) >= 0:
            wanted -= 1
        if not wanted:
            return start - size + at + (1 if lines else 0)
        start -= size
    return farthest


async def _execution_of(parts: AppDeps, job: JobRecord, text: str) -> ExecutionId:
    if UUID.match(text.lower()):
        found = await parts.catalog.executions([ExecutionId(text.lower())])
        if found and found[0].job_id == job.id:
            return found[0].id
    raise not_found(f"execution of job {job.id} with the id", text[:100])


async def _empty() -> AsyncGenerator[bytes, None]:
    return
    yield b""  # makes this a generator


async def _so_far(
    parts: AppDeps, execution_id: ExecutionId, offset: int
) -> AsyncGenerator[bytes, None]:
    """All that was there when the first piece was read, so that a busy log ends too."""
    most = parts.limits.log_read_bytes
    page = await parts.logs.read(execution_id, offset, most)
    end = page.size
    while page.data:
        yield page.data
        offset = page.next_offset
        if offset >= end:
            break
        page = await parts.logs.read(execution_id, offset, most)
    if page.dropped and offset == page.size:
        yield _missing(page)


def _missing(page: LogPage) -> bytes:
    """What stands in place of the end that a worker sent beyond what is kept.

    Not counted by offsets: who comes back with one beyond the log's size has read this.
    """
    return f"\n[… {page.dropped:,} bytes left out …]\n".encode()


@dataclass(frozen=True, slots=True)
class LogFollower:
    """Reads logs that still grow."""

    deps: AppDeps
    notifier: LogNotifier

    async def execution(
        self, execution_id: ExecutionId, offset: int
    ) -> AsyncGenerator[bytes, None]:
        """Text as it comes, until the execution has ended and all of its text is out."""
        limits, read = self.deps.limits, self.deps.logs.read
        wait_s = limits.log_wait_s
        with self.notifier.subscribed(execution_id) as heard:
            while True:
                # Asked before reading: what an ended execution printed is then there to be read.
                # Not while it prints: whoever asks makes the tables catch up with the journal.
                ended = not heard.is_set() and await self._has_ended(execution_id)
                heard.clear()
                page = await read(execution_id, offset, limits.log_read_bytes)
                while page.data:
                    yield page.data
                    wait_s, offset = limits.log_wait_s, page.next_offset
                    page = await read(execution_id, offset, limits.log_read_bytes)
                if ended:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await heard.wait()
                wait_s = min(wait_s * 1.5, limits.log_wait_s_max)
        if page.dropped and offset == page.size:
            yield _missing(page)

    async def _has_ended(self, execution_id: ExecutionId) -> bool:
        found = await self.deps.catalog.executions([execution_id])
        return not found or found[0].ended_at is not None

    async def job(self, job_id: JobId, offset: int) -> AsyncGenerator[bytes, None]:
        """One execution after the other, until the job has ended."""
        catalog, shown = self.deps.catalog, None
        seq: int = (await catalog.head())[1]
        while found := await catalog.jobs([job_id]):
            life = found[0].life
            if life.execution_id is not None and life.execution_id != shown:
                shown = life.execution_id
                async for piece in self.execution(shown, offset):
                    yield piece
                offset = 0
            elif life.finished_at is not None:
                return
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.deps.limits.log_wait_s_max):
                        seq = await self.deps.commits.wait_beyond(seq)
