"""Endpoints of executions: show, list, report their end and their progress."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from rota.api.auth.roles import Permission
from rota.api.convert.jobs import execution_view
from rota.api.convert.workers import clean_message, completion_of
from rota.api.pagination import Cursor, Limit, comma_list_of, read_choices, read_id_cursor
from rota.api.recall import expect
from rota.api.router import Call, NoQuery, Operation
from rota.api.tenant_scope import find_execution, find_executions, id_in
from rota.core.commands import Complete, Progress, Running
from rota.core.errors import NotFound, StaleFence
from rota.core.model import Execution, ExecutionId, ExecutionState, JobId, WorkerId
from rota.core.outcome import ExecutionAnswer
from rota.store.queries import ExecutionQuery
from rota.wire.limits import PAGE_ITEMS_DEFAULT
from rota.wire.workers import (
    CompletionSpec,
    ExecutionPage,
    ExecutionView,
    HeartbeatAnswer,
    ProgressSpec,
)


class ExecutionsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the list of executions."""

    job_id: str | None = None
    worker_id: str | None = None
    status: Annotated[str, comma_list_of(ExecutionState)] | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "GET",
    "/executions/{execution_id}",
    "Show an execution",
    tag="Executions",
    permission=Permission.READ,
    any_server=True,
    answer=ExecutionView,
    errors=(404,),
    examples={"answer": "execution"},
)
async def show_execution(call: Call[None, NoQuery]) -> ExecutionView:
    execution = await find_execution(call, execution_id_in(call))
    (outputs,) = await call.deps.files.outputs.list([execution.id])
    return execution_view(execution, outputs)


@Operation(
    "GET",
    "/executions",
    "List executions, newest first",
    tag="Executions",
    permission=Permission.READ,
    any_server=True,
    query=ExecutionsQuery,
    answer=ExecutionPage,
    examples={"answer": "executions"},
)
async def list_executions(call: Call[None, ExecutionsQuery]) -> ExecutionPage:
    asked, deps = call.query, call.deps
    query = ExecutionQuery(
        job_id=None if asked.job_id is None else JobId(asked.job_id.lower()),
        worker_id=None if asked.worker_id is None else WorkerId(asked.worker_id),
        states=read_choices(asked.status, ExecutionState, "status"),
        before=read_id_cursor(asked.cursor),
        limit=asked.limit + 1,
    )
    found, next_cursor = await find_executions(call, query)
    outputs = await deps.files.outputs.list([one.id for one in found])
    views = [execution_view(one, files) for one, files in zip(found, outputs, strict=True)]
    return ExecutionPage(views, next_cursor)


@Operation(
    "POST",
    "/executions/{execution_id}/complete",
    "Report how an execution ended",
    tag="Executions",
    permission=Permission.WORK,
    repeatable=True,
    worker_traffic=True,
    body=CompletionSpec,
    answer=ExecutionView,
    errors=(404, 409),
    description="A repeat is 200 and changes nothing; an execution that lost its lease is 409.",
    examples={"body": "completion", "answer": "execution"},
)
async def complete_execution(call: Call[CompletionSpec, NoQuery]) -> ExecutionView:
    """Ends an execution; a repeat changes nothing, a stale report is refused."""
    execution_id, report = execution_id_in(call), call.body
    completion = completion_of(execution_id, report)
    try:
        receipt = await call.deps.brain.post(Complete(completion=completion))
    except NotFound:
        # It may have ended long ago: the store has executions that the scheduler has dropped.
        past = await find_execution(call, execution_id)
        if (past.fence, past.state.value) != (report.fence, report.status):
            raise _ended(past) from None
        return execution_view(past)
    return execution_view(expect(receipt, ExecutionAnswer).execution)


@Operation(
    "POST",
    "/executions/{execution_id}/progress",
    "Report an execution's progress",
    tag="Executions",
    permission=Permission.WORK,
    repeatable=True,
    worker_traffic=True,
    body=ProgressSpec,
    answer=HeartbeatAnswer,
    errors=(404, 409),
    description="A changed value is visible at once and stored at most once a second.",
    examples={"body": "report_progress_body", "answer": "beat_worker"},
)
async def report_progress(call: Call[ProgressSpec, NoQuery]) -> HeartbeatAnswer:
    running = Running(
        execution_id=execution_id_in(call),
        fence=call.body.fence,
        progress=call.body.progress,
        message=clean_message(call.body.message),
    )
    try:
        receipt = await call.deps.brain.post(Progress(running=running))
    except NotFound:
        raise _ended(await find_execution(call, running.execution_id)) from None
    execution = expect(receipt, ExecutionAnswer).execution
    return HeartbeatAnswer(cancel=[execution.id] if execution.stop else [], lost=[])


def _ended(execution: Execution) -> StaleFence:
    return StaleFence(f"execution {execution.id} has ended already, as {execution.state.value}")


def execution_id_in(call: Call[Any, Any]) -> ExecutionId:
    return ExecutionId(id_in(call, "execution_id", "execution"))
