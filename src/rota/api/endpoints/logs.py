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
"""Offset in the log where an answer begins, so that a client can continue after a lost
connection."""

SIZE_HEADER = "Rota-Log-Size"
"""Bytes in the log when a part was read."""

Offset = Annotated[int, Meta(ge=0, le=2**63 - 1, description="Bytes to skip at the start.")]
Follow = Annotated[bool, Meta(description="Continues until the job has finished.")]
Tail = Annotated[
    int,
    Meta(
        ge=0,
        le=LOG_TAIL_LINES_MAX,
        description="Starts with this many of the last lines; the header `Rota-Log-Offset` has "
        "their offset. Not with `offset`.",
    ),
]


Most = Annotated[
    int,
    Meta(
        ge=1,
        le=LOG_PIECE_BYTES_MAX,
        description="The most bytes to return; the header `Rota-Log-Size` has the size of the log. "
        "Not with `follow`.",
    ),
]


class JobLogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Selects a part of a job's log."""

    follow: Follow = False
    offset: Offset = 0
    tail: Tail | None = None
    limit: Most | None = None
    execution_id: (
        Annotated[str, Meta(description="An earlier execution; else the newest.")] | None
    ) = None


class LogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Selects a part of an execution's log."""

    follow: Follow = False
    offset: Offset = 0
    tail: Tail | None = None
    limit: Most | None = None


class SendLogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Place of a chunk in the log."""

    offset: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2**63 - 1,
                description="Offset where the chunk starts; bytes that are there already are not "
                "added again. Default: at the end.",
            ),
        ]
        | None
    ) = None
    fence: Annotated[int, Meta(description="The execution's fence; a stale one is 409.")] | None = (
        None
    )


class LogSize(msgspec.Struct):
    """Bytes in the log now: the next chunk starts there."""

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
    """Appends a chunk of raw bytes; a repeat appends nothing."""
    execution_id = execution_id_in(call)
    data = await read_body(call.request.scope, call.request.receive, LOG_CHUNK_BYTES_MAX)
    execution = await find_execution(call, execution_id)
    if call.query.fence is not None and call.query.fence != execution.fence:
        detail = f"execution {execution_id} has fence {execution.fence}, not {call.query.fence}"
        raise ProblemError(409, "stale_execution", detail)
    ended, now = execution.ended_at, call.deps.brain.clock.now()
    if ended is not None and now - ended > LOG_GRACE_MS:
        detail = f"execution {execution_id} finished long ago: its log is closed"
        raise ProblemError(409, "log_closed", detail)
    size = await call.deps.logs.append(execution_id, call.query.offset, data)
    call.state.log_notifier.notify(execution_id)
    return LogSize(size)


def _stream(call: Call[Any, Any], start: int, pieces: AsyncGenerator[bytes, None]) -> Stream:
    limit = call.state.streams if call.query.follow else None
    if limit is not None:
        limit.check()
    headers = {OFFSET_HEADER: str(start)}
    return Stream(pieces, TEXT, closing=call.deps.closing, limit=limit, headers=headers)


async def _one(call: Call[Any, Any], execution_id: ExecutionId) -> Response:
    start = await _start(call, execution_id)
    if call.query.limit is not None:
        return await _piece(call, execution_id, start)
    if call.query.follow:
        follower = LogFollower(call.deps, call.state.log_notifier)
        return _stream(call, start, follower.execution(execution_id, start))
    return _stream(call, start, _so_far(call.deps, execution_id, start))


async def _piece(call: Call[Any, Any], execution_id: ExecutionId, start: int) -> Response:
    """Returns a window of the log, for clients that read a long one part by part."""
    if call.query.follow:
        raise invalid(
            "limit", "cannot be combined with follow: a log that is followed has no end yet"
        )
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
    """Returns the offset where the answer begins."""
    offset, tail = call.query.offset, call.query.tail
    if tail is None:
        return int(offset)
    if offset:
        raise invalid("tail", "cannot be combined with offset: use one of them")
    return 0 if execution_id is None else await _tail_start(call.deps, execution_id, tail)


async def _tail_start(deps: AppDeps, execution_id: ExecutionId, lines: int) -> int:
    """Returns the offset of the last lines, searched backwards up to the limit."""
    end = (await deps.logs.read(execution_id, 0, 0)).size
    farthest = max(0, end - deps.limits.log_tail_bytes_max)
    start, wanted = end, lines
    while start > farthest:
        size = min(deps.limits.log_read_bytes, start - farthest)
        data = (await deps.logs.read(execution_id, start - size, size)).data
        # The end of the last line does not begin another.
        at = len(data) - 1 if start == end and data.endswith(b"\n") and lines else len(data)
        while wanted and (at := data.rfind(b"\n", 0, at)) >= 0:
            wanted -= 1
        if not wanted:
            return start - size + at + (1 if lines else 0)
        start -= size
    return farthest


async def _execution_of(deps: AppDeps, job: JobRecord, text: str) -> ExecutionId:
    if UUID.match(text.lower()):
        found = await deps.queries.executions([ExecutionId(text.lower())])
        if found and found[0].job_id == job.id:
            return found[0].id
    raise not_found(f"execution of job {job.id} with the id", text[:100])


async def _empty() -> AsyncGenerator[bytes, None]:
    return
    yield b""  # makes this a generator


async def _so_far(
    deps: AppDeps, execution_id: ExecutionId, offset: int
) -> AsyncGenerator[bytes, None]:
    """Yields the text that is there at the first read, so that the answer ends on a busy log
    too."""
    most = deps.limits.log_read_bytes
    page = await deps.logs.read(execution_id, offset, most)
    end = page.size
    while page.data:
        yield page.data
        offset = page.next_offset
        if offset >= end:
            break
        page = await deps.logs.read(execution_id, offset, most)
    if page.dropped and offset == page.size:
        yield _missing(page)


def _missing(page: LogPage) -> bytes:
    """Returns a notice in place of dropped bytes beyond the limit of a log.

    Offsets do not count it: a client that continues beyond the log's size has read it.
    """
    return f"\n[… {page.dropped:,} bytes left out …]\n".encode()


@dataclass(frozen=True, slots=True)
class LogFollower:
    """Follows logs that still grow."""

    deps: AppDeps
    notifier: LogNotifier

    async def execution(
        self, execution_id: ExecutionId, offset: int
    ) -> AsyncGenerator[bytes, None]:
        """Yields text as it comes, until the execution has finished and all of its text was
        sent."""
        limits, read = self.deps.limits, self.deps.logs.read
        wait_s = limits.log_wait_s
        with self.notifier.subscribed(execution_id) as new_text:
            while True:
                # Asked before reading, so that all text of a finished execution is read afterwards.
                # Not while it prints: the question makes the projection catch up with the journal.
                ended = not new_text.is_set() and await self._has_ended(execution_id)
                new_text.clear()
                page = await read(execution_id, offset, limits.log_read_bytes)
                while page.data:
                    yield page.data
                    wait_s, offset = limits.log_wait_s, page.next_offset
                    page = await read(execution_id, offset, limits.log_read_bytes)
                if ended:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await new_text.wait()
                wait_s = min(wait_s * 1.5, limits.log_wait_s_max)
        if page.dropped and offset == page.size:
            yield _missing(page)

    async def _has_ended(self, execution_id: ExecutionId) -> bool:
        found = await self.deps.queries.executions([execution_id])
        return not found or found[0].ended_at is not None

    async def job(self, job_id: JobId, offset: int) -> AsyncGenerator[bytes, None]:
        """Yields the logs of one execution after the other, until the job has finished."""
        queries, shown = self.deps.queries, None
        seq: int = (await queries.head())[1]
        while found := await queries.jobs([job_id]):
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
