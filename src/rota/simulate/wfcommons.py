"""Reads workflows as WfCommons records them (WfFormat 1.4 and 1.5): tasks, parents, run times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.core.model import Terms
from rota.simulate.limits import PROCESSORS_MAX, SPAN_MS_MAX, TRACE_JOBS_MAX
from rota.simulate.reading import Source, TraceError, read_document
from rota.simulate.workload import ONCE, GraphError, Trace, Work, arranged, cpu_needs

_Seconds = Annotated[float, Meta(ge=0, le=SPAN_MS_MAX / 1000)]


class _TaskRun(msgspec.Struct):
    """How one task went."""

    id: str = ""
    name: str = ""
    runtime_s: _Seconds | None = msgspec.field(default=None, name="runtimeInSeconds")
    cores: Annotated[float, Meta(ge=0, le=PROCESSORS_MAX)] | None = msgspec.field(
        default=None, name="coreCount"
    )
    memory: Annotated[float, Meta(ge=0, le=2.0**60)] | None = msgspec.field(
        default=None, name="memoryInBytes"
    )


class _Task(_TaskRun):
    """What one task is; in 1.4 also how it went."""

    parents: list[str] = []


class _Specification(msgspec.Struct):
    tasks: list[_Task]


class _Execution(msgspec.Struct):
    tasks: list[_TaskRun] = []


class _Workflow(msgspec.Struct):
    specification: _Specification | None = None
    execution: _Execution | None = None
    tasks: list[_Task] | None = None


class _Document(msgspec.Struct):
    workflow: _Workflow
    name: str = ""


_workflow_decoder = msgspec.json.Decoder(_Document)


def read_workflow(source: Source, *, with_memory: bool = False) -> Trace:
    """All tasks are there from the beginning, and how long each takes is known beforehand."""
    data = read_document(source)
    try:
        workflow = _workflow_decoder.decode(data).workflow
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(source, f"no workflow of WfCommons: {error}") from error
    tasks = workflow.tasks or (workflow.specification.tasks if workflow.specification else [])
    if not tasks:
        raise TraceError(source, "no workflow of WfCommons: it has no tasks")
    if len(tasks) > TRACE_JOBS_MAX:
        raise TraceError(source, f"more than {TRACE_JOBS_MAX:,} tasks")
    ran = {one.id: one for one in (workflow.execution.tasks if workflow.execution else [])}
    works = [
        _task_work(source, task, ran.get(task.id, task), with_memory=with_memory) for task in tasks
    ]
    try:
        return Trace(source.name, arranged(works, _task_parents(source, tasks)))
    except GraphError as error:
        raise TraceError(source, str(error)) from error


def _task_work(source: Source, task: _Task, ran: _TaskRun, *, with_memory: bool) -> Work:
    if ran.runtime_s is None:
        raise TraceError(
            source, f"task {_task_key(task)!r} has no runtimeInSeconds: it was never run"
        )
    run_ms = max(1, round(ran.runtime_s * 1000))
    memory = math.ceil(ran.memory or 0) if with_memory else 0
    terms = Terms(
        name=task.name or task.id,
        queue="default",
        tenant="default",
        priority=0,
        needs=cpu_needs(1000 * max(1, math.ceil(ran.cores or 1)), memory),
        retry=ONCE,
        expected_runtime_ms=run_ms,
    )
    return Work(_task_key(task), 0, run_ms, terms)


def _task_key(task: _TaskRun) -> str:
    return task.id or task.name


def _task_parents(source: Source, tasks: Sequence[_Task]) -> dict[int, list[int]]:
    places: dict[str, int] = {}
    for place, task in enumerate(tasks):
        if not _task_key(task) or places.setdefault(_task_key(task), place) != place:
            raise TraceError(source, f"two tasks are called {_task_key(task)!r}")
    found: dict[int, list[int]] = {}
    for place, task in enumerate(tasks):
        for parent in dict.fromkeys(task.parents):
            if parent not in places:
                raise TraceError(
                    source, f"task {_task_key(task)!r} waits for {parent!r}, which is not there"
                )
            found.setdefault(place, []).append(places[parent])
    return found
