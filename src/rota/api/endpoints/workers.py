"""Endpoints of workers: register, heartbeat, lease (long poll), drain, leave; show and list."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rota.api.auth.roles import Permission
from rota.api.cancel_on_disconnect import client_disconnected, first_of
from rota.api.convert.jobs import resources_of
from rota.api.convert.workers import completions_of, running_of, worker_view
from rota.api.ids import mint_session
from rota.api.letters import Letter
from rota.api.metrics import worker_status
from rota.api.pagination import Cursor, Limit, comma_list_of, cut, read_cursor, read_words
from rota.api.problems import invalid, not_found
from rota.api.recall import expect, post
from rota.api.router import JSON, Call, NoQuery, Operation
from rota.core.commands import (
    AnyInput,
    Deregister,
    Drain,
    Heartbeat,
    Poll,
    Preloaded,
    Register,
    Resume,
)
from rota.core.info_model import WorkerInfo
from rota.core.model import WorkerId
from rota.core.outcome import HeartbeatReply, PollAnswer, WorkerAnswer
from rota.engine.ports import AnswerEncoder, UnavailableError
from rota.wire.limits import LEASE_ORDERS_MAX, PAGE_ITEMS_DEFAULT
from rota.wire.problems import ClientDisconnectedError
from rota.wire.workers import (
    HeartbeatAnswer,
    HeartbeatSpec,
    LeaseAnswer,
    LeaseSpec,
    RegisterAnswer,
    RegisterSpec,
    WorkerPage,
    WorkerView,
)

STATUSES = ("online", "draining", "unhealthy", "offline")


class WorkersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the list of workers."""

    status: Annotated[str, comma_list_of(STATUSES)] | None = None
    capabilities: (
        Annotated[str, Meta(description="Separated by commas; a worker must have all of them.")]
        | None
    ) = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "POST",
    "/workers/register",
    "Register a worker",
    tag="Workers",
    permission=Permission.WORK,
    body=RegisterSpec,
    answer=RegisterAnswer,
    status=201,
    description="A known `worker_id` registers again; calls of the older registration get 409.",
    examples={"body": "register_spec", "answer": "registered"},
)
async def register_worker(call: Call[RegisterSpec, NoQuery]) -> RegisterAnswer:
    """Registers a new worker, or a known one again: then only the newer registration is valid."""
    spec, brain = call.body, call.deps.brain
    worker_id = WorkerId(spec.worker_id or call.state.ids.mint(brain.clock.now()))
    session = mint_session()

    def build(preloaded: Preloaded | None) -> AnyInput:
        return Register(
            worker_id=worker_id,
            session=session,
            name=spec.name,
            capacity=resources_of(spec.resources),
            capabilities=tuple(sorted(set(spec.capabilities))),
            queues=None if spec.queues is None else tuple(sorted(set(spec.queues))),
            labels=tuple(sorted(spec.labels.items())),
            only=tuple(sorted(set(spec.only))),
            key=call.key,
            preloaded=preloaded,
        )

    worker = expect(await post(call, build), WorkerAnswer).worker
    timing = brain.timing
    return RegisterAnswer(
        worker_id=worker.id,
        session=worker.session,
        heartbeat_interval=timing.heartbeat_ms / 1000,
        lease_ttl=timing.lease_ttl_ms / 1000,
        poll_wait_max=timing.lease_ttl_ms / 3000,
        spare_max=LEASE_ORDERS_MAX,
        patient=True,
    )


@Operation(
    "POST",
    "/workers/{worker_id}/heartbeat",
    "Send a heartbeat",
    tag="Workers",
    permission=Permission.WORK,
    repeatable=True,
    worker_traffic=True,
    body=HeartbeatSpec,
    answer=HeartbeatAnswer,
    errors=(404, 409),
    description="Renews the worker's leases; the answer says which executions to stop.",
    examples={"body": "heartbeat", "answer": "beat_worker"},
)
async def beat_worker(call: Call[HeartbeatSpec, NoQuery]) -> HeartbeatAnswer:
    worker_id, spec = worker_id_in(call), call.body
    event = Heartbeat(
        worker_id=worker_id, session=spec.session, executions=running_of(spec.executions)
    )
    reply = expect(await call.deps.brain.post(event), HeartbeatReply)
    call.state.usage.record(worker_id, spec.usage)
    return HeartbeatAnswer(cancel=list(reply.cancel), lost=list(reply.lost))


@Operation(
    "POST",
    "/workers/{worker_id}/lease",
    "Report finished executions and wait for orders",
    tag="Workers",
    permission=Permission.WORK,
    repeatable=True,
    worker_traffic=True,
    body=LeaseSpec,
    answer=LeaseAnswer,
    errors=(404, 409),
    description=(
        "A long poll: it answers as soon as there are orders, and counts as a heartbeat. Reports "
        "that were refused come back in `lost`. Safe to repeat."
    ),
    examples={"body": "lease_spec", "answer": "lease"},
)
async def lease_work(call: Call[LeaseSpec, NoQuery]) -> Response:
    """Takes reports, then waits for orders until the poll ends or the worker disconnects."""
    brain, spec, letter = call.deps.brain, call.body, Letter(call.deps, call.request.scope)
    wait_ms = min(spec.wait.ms, brain.timing.lease_ttl_ms // 3)
    worker_id = worker_id_in(call)
    poll = Poll(
        poll_id=brain.next_poll_id(),
        worker_id=worker_id,
        session=spec.session,
        max_orders=spec.max,
        until=brain.clock.now() + wait_ms,
        completed=completions_of(spec.completed),
        executions=running_of(spec.executions),
        spare=spec.spare,
        patient=spec.patient,
    )
    answer = await _wait(call, poll, letter)
    call.state.usage.record(worker_id, spec.usage)
    return Response(letter.text_of(answer), media_type=JSON)


async def _wait(call: Call[LeaseSpec, NoQuery], poll: Poll, encoder: AnswerEncoder) -> PollAnswer:
    """Returns the poll's answer; a worker that disconnects gives up its place at once."""
    closing, received = call.deps.closing, asyncio.Event()
    if not closing.is_set():
        left = client_disconnected(call.request.receive)
        answer = await first_of(call.deps.brain.poll(poll, received, encoder), left, closing.wait())
        if answer is not None:
            return answer
        if not closing.is_set():
            raise ClientDisconnectedError
    if poll.completed and not received.is_set():
        raise UnavailableError("the server is stopping: send the reports again")
    return PollAnswer(poll_id=poll.poll_id)


@Operation(
    "GET",
    "/workers/{worker_id}",
    "Show a worker",
    tag="Workers",
    permission=Permission.READ,
    answer=WorkerView,
    errors=(404,),
    examples={"answer": "worker"},
)
async def show_worker(call: Call[None, NoQuery]) -> WorkerView:
    await call.deps.brain.settled()
    return _view(call, _worker_info(call))


@Operation(
    "GET",
    "/workers",
    "List workers, newest first",
    tag="Workers",
    permission=Permission.READ,
    query=WorkersQuery,
    answer=WorkerPage,
    examples={"answer": "workers"},
)
async def list_workers(call: Call[None, WorkersQuery]) -> WorkerPage:
    wanted = read_words(call.query.status)
    if unknown := [word for word in wanted if word not in STATUSES]:
        raise invalid("status", f"{unknown[0]!r} is none of {', '.join(STATUSES)}")
    capabilities = read_words(call.query.capabilities)
    before = read_cursor(call.query.cursor)
    await call.deps.brain.settled()
    found = [
        info
        for info in sorted(call.deps.brain.workers(), key=_sort_key, reverse=True)
        if (not wanted or worker_status(info) in wanted)
        and all(one in info.worker.capabilities for one in capabilities)
        and (before is None or _sort_key(info) < before)
    ]
    items, next_cursor = cut(found, call.query.limit, _sort_key)
    return WorkerPage([_view(call, info) for info in items], next_cursor)


@Operation(
    "POST",
    "/workers/{worker_id}/drain",
    "Drain a worker",
    tag="Workers",
    permission=Permission.WORK,
    answer=WorkerView,
    errors=(404, 409),
    description="It gets no new orders.",
    examples={"answer": "worker"},
)
async def drain_worker(call: Call[None, NoQuery]) -> WorkerView:
    worker_id = worker_id_in(call)
    await post(
        call, lambda preloaded: Drain(worker_id=worker_id, key=call.key, preloaded=preloaded)
    )
    return _view(call, _worker_info(call))


@Operation(
    "POST",
    "/workers/{worker_id}/resume",
    "Resume a drained worker",
    tag="Workers",
    permission=Permission.OPERATE,
    answer=WorkerView,
    errors=(404, 409),
    description="A worker whose process is shutting down stops all the same.",
    examples={"answer": "worker"},
)
async def resume_worker(call: Call[None, NoQuery]) -> WorkerView:
    worker_id = worker_id_in(call)
    await post(
        call, lambda preloaded: Resume(worker_id=worker_id, key=call.key, preloaded=preloaded)
    )
    return _view(call, _worker_info(call))


@Operation(
    "DELETE",
    "/workers/{worker_id}",
    "Deregister a worker",
    tag="Workers",
    permission=Permission.WORK,
    status=204,
    errors=(404, 409),
)
async def remove_worker(call: Call[None, NoQuery]) -> None:
    """Deregisters a worker; its executions are lost, and run again where that is allowed."""
    worker_id = worker_id_in(call)
    await post(
        call, lambda preloaded: Deregister(worker_id=worker_id, key=call.key, preloaded=preloaded)
    )
    call.state.usage.forget(worker_id)


def worker_id_in(call: Call[Any, Any]) -> WorkerId:
    return WorkerId(call.path["worker_id"])


def _worker_info(call: Call[Any, Any]) -> WorkerInfo:
    worker_id = worker_id_in(call)
    info = call.deps.brain.worker(worker_id)
    if info is None:
        raise not_found("worker", worker_id[:100])
    return info


def _view(call: Call[Any, Any], info: WorkerInfo) -> WorkerView:
    view = worker_view(info, call.state.usage.of(info.worker.id))
    if call.caller.tenant is not None:
        view.executions = []  # workers belong to no tenant, executions do
    return view


def _sort_key(info: WorkerInfo) -> str:
    """Sorts by registration; workers may choose their ids, so these do not show age."""
    return f"{info.worker.registered_at:015d}:{info.worker.id}"
