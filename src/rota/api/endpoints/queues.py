"""Endpoints of queues: their settings and depth, pause, resume, purge."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from rota.api.auth.roles import Permission
from rota.api.convert.queues import queue_view, settings_of
from rota.api.pagination import PageQuery, page_of
from rota.api.problems import not_found
from rota.api.recall import expect, post, post_recalling
from rota.api.router import Call, NoQuery, Operation
from rota.api.tenant_scope import name_in
from rota.core.commands import AnyInput, Preloaded, Purge, PutQueueSettings, Tick
from rota.core.info_model import QueueInfo
from rota.core.lifecycle import JOB_WAITING
from rota.core.model import JobRecord, JobState
from rota.core.outcome import CountReceipt, QueueAnswer
from rota.engine.ports import UnavailableError
from rota.store.queries import JobQuery
from rota.wire.queues import CountAnswer, QueuePage, QueueSpec, QueueView


@Operation(
    "GET",
    "/queues",
    "List queues, by name",
    tag="Queues",
    permission=Permission.READ,
    query=PageQuery,
    answer=QueuePage,
    examples={"answer": "queues"},
)
async def list_queues(call: Call[None, PageQuery]) -> QueuePage:
    await call.deps.brain.settled()
    queues = sorted(call.deps.brain.queues(), key=_name)
    items, next_cursor = page_of(queues, call.query, _name)
    return QueuePage([queue_view(one, _rate(call, one)) for one in items], next_cursor)


@Operation(
    "GET",
    "/queues/{name}",
    "Show a queue",
    tag="Queues",
    permission=Permission.READ,
    answer=QueueView,
    errors=(404,),
    examples={"answer": "queue"},
)
async def show_queue(call: Call[None, NoQuery]) -> QueueView:
    await call.deps.brain.settled()
    found = _existing(call)
    return queue_view(found, _rate(call, found))


def _rate(call: Call[Any, Any], info: QueueInfo) -> float | None:
    history = call.deps.metrics_history
    return None if history is None else history.rate(info.queue.name)


@Operation(
    "PUT",
    "/queues/{name}",
    "Set a queue's settings",
    tag="Queues",
    permission=Permission.OPERATE,
    body=QueueSpec,
    answer=QueueView,
    description=(
        "Creates the queue if it does not exist. Settings that are left out get their default."
    ),
    examples={"body": "queue_spec", "answer": "queue"},
)
async def put_queue(call: Call[QueueSpec, NoQuery]) -> QueueView:
    return await _set(call, replace=True)


@Operation(
    "PATCH",
    "/queues/{name}",
    "Change a queue's settings",
    tag="Queues",
    permission=Permission.OPERATE,
    body=QueueSpec,
    answer=QueueView,
    errors=(404,),
    description="Settings that are left out stay; null restores a default.",
    examples={"body": "patch_queue_body", "answer": "queue"},
)
async def patch_queue(call: Call[QueueSpec, NoQuery]) -> QueueView:
    _existing(call)
    return await _set(call, replace=False)


@Operation(
    "POST",
    "/queues/{name}/pause",
    "Pause a queue",
    tag="Queues",
    permission=Permission.OPERATE,
    answer=QueueView,
    errors=(404,),
    description="No more of its jobs start; running jobs continue.",
    examples={"answer": "pause_queue"},
)
async def pause_queue(call: Call[None, NoQuery]) -> QueueView:
    return await _pause(call, paused=True)


@Operation(
    "POST",
    "/queues/{name}/resume",
    "Resume a queue",
    tag="Queues",
    permission=Permission.OPERATE,
    answer=QueueView,
    errors=(404,),
    examples={"answer": "queue"},
)
async def resume_queue(call: Call[None, NoQuery]) -> QueueView:
    return await _pause(call, paused=False)


@Operation(
    "POST",
    "/queues/{name}/purge",
    "Cancel all waiting jobs of a queue",
    tag="Queues",
    permission=Permission.OPERATE,
    answer=CountAnswer,
    errors=(404,),
    examples={"answer": "purge_queue"},
)
async def purge_queue(call: Call[None, NoQuery]) -> CountAnswer:
    """Cancels all waiting jobs piece by piece, spilled ones first."""
    await call.deps.brain.settled()
    info, key = _existing(call), call.key
    name = info.queue.name
    repeated = key is not None and await call.deps.queries.key(key.key) is not None
    before = 0
    if not repeated:
        # Each piece is a command of its own: the key is for the purge as a whole.
        single = dataclasses.replace(call, key=None)
        before = await _purge_spilled(single, name) if info.spilled else 0
        before += await _purge_memory(call, info)
    receipt = await post(
        call, lambda preloaded: Purge(name=name, key=key, preloaded=preloaded, before=before)
    )
    return CountAnswer(expect(receipt, CountReceipt).count)


async def _purge_spilled(call: Call[None, NoQuery], name: str) -> int:
    """Cancels spilled jobs, newest first, so that jobs submitted meanwhile are not included."""
    count, last, size = 0, None, call.deps.limits.purge_page
    while True:
        query = JobQuery(queue=name, states=(JobState.QUEUED,), before=last, limit=size)
        page: list[JobRecord] = []
        piece = partial(_purge_page, call, query, page)
        receipt = await post_recalling(call, piece, partial(_purge_input, name))
        count += expect(receipt, CountReceipt).count
        if len(page) < size:
            return count
        _refuse_if_stopping(call)
        last = page[-1].id


async def _purge_memory(call: Call[None, NoQuery], info: QueueInfo) -> int:
    """Cancels jobs in memory but for the last piece, which the caller cancels under its key."""
    waiting = sum(info.depth.get(state, 0) for state in JOB_WAITING) - info.spilled
    most = call.deps.limits.purge_piece
    count, done = 0, most
    while waiting > most and done == most:
        piece = Purge(name=info.queue.name, most=most)
        done = expect(await call.deps.brain.post(piece), CountReceipt).count
        count += done
        _refuse_if_stopping(call)
    return count


def _refuse_if_stopping(call: Call[None, NoQuery]) -> None:
    if call.deps.closing.is_set():
        raise UnavailableError("the server is stopping: some of the jobs were cancelled; try again")


async def _purge_page(
    call: Call[None, NoQuery], query: JobQuery, page: list[JobRecord]
) -> list[JobRecord]:
    page[:] = await call.deps.queries.find_jobs(query)
    return [job for job in page if job.life.line]


def _purge_input(name: str, preloaded: Preloaded | None) -> AnyInput:
    # No spilled jobs on this page: a purge without jobs would cancel all in memory.
    return (
        Purge(name=name, preloaded=preloaded)
        if preloaded is not None and preloaded.jobs
        else Tick()
    )


async def _set(call: Call[QueueSpec, NoQuery], *, replace: bool) -> QueueView:
    name = name_in(call)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return settings_of(name, call.body, replace=replace, key=call.key, preloaded=preloaded)

    return _after(call, expect(await post(call, build), QueueAnswer))


async def _pause(call: Call[None, NoQuery], *, paused: bool) -> QueueView:
    name = _existing(call).queue.name

    def build(preloaded: Preloaded | None) -> AnyInput:
        return PutQueueSettings(name=name, paused=paused, key=call.key, preloaded=preloaded)

    return _after(call, expect(await post(call, build), QueueAnswer))


def _after(call: Call[Any, Any], answer: QueueAnswer) -> QueueView:
    info = _find(call, answer.queue.name)
    return queue_view(QueueInfo(answer.queue, info.depth if info is not None else {}))


def _find(call: Call[Any, Any], name: str) -> QueueInfo | None:
    return next((one for one in call.deps.brain.queues() if one.queue.name == name), None)


def _existing(call: Call[Any, Any]) -> QueueInfo:
    name = call.path["name"]
    info = _find(call, name)
    if info is None:
        raise not_found("queue", name[:100])
    return info


def _name(info: QueueInfo) -> str:
    return info.queue.name
