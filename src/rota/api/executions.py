"""Executions: shown, listed, ended, and their output files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from starlette.requests import ClientDisconnect

from rota.api.bodies import too_slow
from rota.api.limits import ARTIFACT_BYTES_MAX, BODY_READ_S
from rota.api.lookup import find_execution, find_executions
from rota.api.paging import Cursor, Limit, any_of, read_id_cursor
from rota.api.problems import GoneAwayError, invalid, not_found
from rota.api.recall import expect
from rota.api.routes import Call, NoQuery
from rota.api.streams import Stream
from rota.api.translate import UUID, clean_message, completion_of
from rota.api.views import execution_view
from rota.core.errors import NotFound, StaleFence
from rota.core.inputs import Complete, Progress, Running
from rota.core.model import Execution, ExecutionId, ExecutionState, JobId, WorkerId
from rota.core.outcome import ExecutionAnswer
from rota.store.protocol import ExecutionQuery
from rota.wire.executions import (
    ArtifactView,
    CompletionSpec,
    ExecutionPage,
    ExecutionView,
    ProgressSpec,
)
from rota.wire.limits import PAGE_ITEMS_DEFAULT
from rota.wire.workers import HeartbeatAnswer

OCTETS = "application/octet-stream"


class ExecutionsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which executions to list."""

    job_id: str | None = None
    worker_id: str | None = None
    status: Annotated[str, any_of(ExecutionState)] | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


class ArtifactPage(msgspec.Struct):
    """All output files of an execution, by name."""

    items: list[ArtifactView]
    next_cursor: str | None = None


async def show_execution(call: Call[None, NoQuery]) -> ExecutionView:
    """One try of a job."""
    execution = await find_execution(call, execution_id_in(call))
    return execution_view(execution, await call.parts.artifacts.list(execution.id))


async def list_executions(call: Call[None, ExecutionsQuery]) -> ExecutionPage:
    """Those that match, newest first."""
    asked, parts = call.query, call.parts
    query = ExecutionQuery(
        job_id=None if asked.job_id is None else JobId(asked.job_id.lower()),
        worker_id=None if asked.worker_id is None else WorkerId(asked.worker_id),
        states=_states(asked.status),
        before=read_id_cursor(asked.cursor),
        limit=asked.limit + 1,
    )
    found, next_cursor = await find_executions(call, query)
    views = [execution_view(one, await parts.artifacts.list(one.id)) for one in found]
    return ExecutionPage(views, next_cursor)


async def complete_execution(call: Call[CompletionSpec, NoQuery]) -> ExecutionView:
    """Ends an execution; a repeat changes nothing, a stale one is refused."""
    execution_id, report = execution_id_in(call), call.body
    completion = completion_of(execution_id, report)
    try:
        receipt = await call.parts.brain.post(Complete(completion=completion))
    except NotFound:
        # It may have ended long ago: the tables remember what the scheduler does not.
        past = await find_execution(call, execution_id)
        if (past.fence, past.state.value) != (report.fence, report.status):
            raise _ended(past) from None
        return execution_view(past)
    return execution_view(expect(receipt, ExecutionAnswer).execution)


async def report_progress(call: Call[ProgressSpec, NoQuery]) -> HeartbeatAnswer:
    """How far it is; the answer says whether to stop."""
    running = Running(
        execution_id=execution_id_in(call),
        fence=call.body.fence,
        progress=call.body.progress,
        message=clean_message(call.body.message),
    )
    try:
        receipt = await call.parts.brain.post(Progress(running=running))
    except NotFound:
        raise _ended(await find_execution(call, running.execution_id)) from None
    execution = expect(receipt, ExecutionAnswer).execution
    return HeartbeatAnswer(cancel=[execution.id] if execution.stop else [], lost=[])


def _ended(execution: Execution) -> StaleFence:
    return StaleFence(f"execution {execution.id} has ended already, as {execution.state.value}")


async def put_artifact(call: Call[None, NoQuery]) -> ArtifactView:
    """Keeps one output file, streamed to disk as it comes in."""
    execution = await find_execution(call, execution_id_in(call))
    kept = await call.parts.artifacts.write(
        execution.id, call.path["name"], _pieces(call), ARTIFACT_BYTES_MAX
    )
    return ArtifactView(kept.name, kept.size)


async def get_artifact(call: Call[None, NoQuery]) -> Stream:
    """Sends one output file; never shown in place, whatever is in it."""
    name = call.path["name"]
    execution_id = (await find_execution(call, execution_id_in(call))).id
    pieces = await call.parts.artifacts.read(execution_id, name)
    if pieces is None:
        raise not_found(f"artifact of execution {execution_id} named", name)
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Stream(_sent(pieces), OCTETS, closing=call.parts.closing, headers=headers)


async def _sent(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        yield piece


async def list_artifacts(call: Call[None, NoQuery]) -> ArtifactPage:
    """The names and sizes of what was kept."""
    execution = await find_execution(call, execution_id_in(call))
    found = await call.parts.artifacts.list(execution.id)
    return ArtifactPage([ArtifactView(one.name, one.size) for one in found])


async def _pieces(call: Call[Any, Any]) -> AsyncIterator[bytes]:
    body = call.request.stream()
    while True:
        try:
            async with asyncio.timeout(BODY_READ_S):
                piece = await anext(body, None)
        except ClientDisconnect:
            raise GoneAwayError from None
        except TimeoutError:
            raise too_slow() from None
        if piece is None:
            return
        yield piece


def execution_id_in(call: Call[Any, Any]) -> ExecutionId:
    """The id in the path; what cannot be one is not found."""
    text = call.path["execution_id"]
    if not UUID.match(text.lower()):
        raise not_found("execution", text[:100])
    return ExecutionId(text.lower())


def _states(text: str | None) -> tuple[ExecutionState, ...]:
    words = [word.strip() for word in (text or "").split(",")]
    try:
        return tuple(ExecutionState(word) for word in words if word)
    except ValueError:
        raise invalid("status", f"some of {', '.join(ExecutionState)}, by commas") from None
