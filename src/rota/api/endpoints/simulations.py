"""Endpoints of simulations: read past jobs or take a trace, and run it in a separate process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.api.auth.roles import Permission
from rota.api.cancel_on_disconnect import client_disconnected, first_of
from rota.api.convert.queues import queue_view
from rota.api.convert.workers import worker_view
from rota.api.deps import Simulator, SimulatorError
from rota.api.endpoints.files import OCTETS
from rota.api.endpoints.jobs import job_page
from rota.api.endpoints.policy import policy_view
from rota.api.endpoints.tenants import tenant_view
from rota.api.limits import SIMULATION_JOBS_MAX
from rota.api.pagination import read_id_cursor
from rota.api.problems import invalid
from rota.api.router import Call, NoQuery, Operation
from rota.core.model import Instant, JobState, WorkerState
from rota.engine.ports import Brain
from rota.store.queries import JobQuery
from rota.wire.formats import encode, to_instant
from rota.wire.jobs import JobView
from rota.wire.limits import PAGE_ITEMS_MAX, TRACE_BYTES_MAX
from rota.wire.policy import ReplayName, SimulationSpec, SimulationView, TraceQuery
from rota.wire.problems import ClientDisconnectedError, ProblemError
from rota.wire.queues import QueueView, TenantView
from rota.wire.workers import WorkerView

_RAN = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
"""Final states of jobs that may have run."""
_NOTHING = msgspec.Raw(b"null")


class TraceFile(msgspec.Struct):
    """Trace as it was sent, and the machines that it runs on."""

    content: bytes
    asked: TraceQuery


class Study(msgspec.Struct, omit_defaults=True):
    """Input of the simulation process; jobs without their payloads and results."""

    workers: list[WorkerView]
    policies: dict[ReplayName, dict[str, Any] | None]
    """Settings as in `PUT /policy`; None: what happened in reality."""
    queues: list[QueueView] = []
    tenants: list[TenantView] = []
    jobs: list[JobView] = []
    fleet: int | None = None
    is_cut: bool = False
    trace: TraceFile | None = None
    """Used in place of queues, tenants and jobs."""


@Operation(
    "POST",
    "/simulations",
    "Simulate past jobs under other policies",
    tag="Planning",
    permission=Permission.OPERATE,
    body=SimulationSpec,
    answer=SimulationView,
    repeatable=True,
    description=(
        "Takes jobs that ran and were submitted in this range, up to 20,000, and runs the "
        "server's scheduler under virtual time, in a process of its own with a limit of 30 "
        "seconds. Nothing is changed or stored. One simulation runs at a time; for a larger one "
        "use `rota history export` and `rota simulate`."
    ),
    examples={"body": "simulation_spec", "answer": "simulation"},
)
async def simulate(call: Call[SimulationSpec, NoQuery]) -> SimulationView:
    window = _window(call.body, call.deps.brain.clock.now())
    return await _one_at_a_time(call, lambda: _past_study(call, window))


@Operation(
    "POST",
    "/simulations/trace",
    "Simulate a trace under several policies",
    tag="Planning",
    permission=Permission.OPERATE,
    query=TraceQuery,
    body=bytes,
    takes=OCTETS,
    reads_body=True,
    body_bytes_max=TRACE_BYTES_MAX,
    answer=SimulationView,
    repeatable=True,
    description=(
        "The body is a log in Standard Workload Format, a workflow of WfCommons, or the output of "
        "`rota history export`, up to 16 MiB, with or without gzip. It runs on the machines in "
        "the query, else on those in the trace, else on workers like the current ones. `recorded` "
        "needs a trace with start times. Only the first 20,000 jobs run. Nothing is changed or "
        "stored, and one simulation runs at a time."
    ),
    examples={"body": "simulate_trace_body", "answer": "traced"},
)
async def simulate_trace(call: Call[None, TraceQuery]) -> SimulationView:
    _check_machines(call.query)
    if not call.raw:
        raise invalid(
            "", "the body is empty: send a trace, for example with curl --data-binary @FILE"
        )
    return await _one_at_a_time(call, lambda: _trace_study(call))


def _check_machines(asked: TraceQuery) -> None:
    if asked.cpus is not None and (asked.workers is not None or asked.cpu is not None):
        raise invalid("cpus", "is one pool of processors: leave out `workers` and `cpu`")
    if asked.cpu is not None and asked.workers is None:
        raise invalid("cpu", "is the size of one worker: set `workers` too")
    if asked.memory is not None and asked.cpu is None and asked.cpus is None:
        raise invalid("memory", "is the size of a machine: set `cpus` or `cpu` too")


async def _one_at_a_time(
    call: Call[Any, Any], gather: Callable[[], Awaitable[Study]]
) -> SimulationView:
    """Runs one simulation at a time, and only while its client is connected."""
    simulator = call.deps.simulator
    if simulator is None:
        detail = "this server runs no simulations: use rota history replay, or rota simulate"
        raise ProblemError(503, "no_simulator", detail)
    limit = call.state.simulations
    limit.check()
    with limit.acquired():
        work = _simulated(simulator, gather)
        found = await first_of(
            work, client_disconnected(call.request.receive), call.deps.closing.wait()
        )
    if found is None:
        raise ClientDisconnectedError
    return found


async def _simulated(
    simulator: Simulator, gather: Callable[[], Awaitable[Study]]
) -> SimulationView:
    study = await gather()
    try:
        answer = await simulator.run(encode(study))
    except SimulatorError as error:
        raise ProblemError(422, "not_simulated", str(error)) from error
    return msgspec.json.decode(answer, type=SimulationView)


def _window(spec: SimulationSpec, now: Instant) -> tuple[Instant, Instant]:
    end = now if spec.end is None else to_instant(spec.end)
    start = to_instant(spec.start)
    if start >= end:
        raise invalid("from", "must be earlier than `to`")
    return start, end


async def _past_study(
    call: Call[SimulationSpec, NoQuery], window: tuple[Instant, Instant]
) -> Study:
    brain = call.deps.brain
    await brain.settled()
    workers = _workers(brain)
    if not workers:
        raise invalid("workers", "no worker is there to copy: start one with rota worker")
    jobs, is_cut = await _past(call, window)
    return Study(
        workers=workers,
        policies=_policies(brain, call.body.policies),
        queues=[queue_view(one) for one in brain.queues()],
        tenants=[tenant_view(one) for one in brain.tenants()],
        jobs=jobs,
        fleet=call.body.workers,
        is_cut=is_cut,
    )


async def _trace_study(call: Call[None, TraceQuery]) -> Study:
    """Leaves out current queues and tenants: a trace has its own, or none."""
    brain = call.deps.brain
    await brain.settled()
    return Study(
        workers=_workers(brain),
        policies=_policies(brain, call.query.policies),
        trace=TraceFile(call.raw, call.query),
    )


def _workers(brain: Brain) -> list[WorkerView]:
    there = (one for one in brain.workers() if one.worker.state is not WorkerState.OFFLINE)
    return [worker_view(one, {}) for one in there]


def _policies(brain: Brain, names: Sequence[ReplayName]) -> dict[ReplayName, dict[str, Any] | None]:
    now = msgspec.to_builtins(policy_view(brain.policy()))
    return {name: _settings(name, now) for name in dict.fromkeys(names)}


def _settings(name: ReplayName, now: dict[str, Any]) -> dict[str, Any] | None:
    if name == "recorded":
        return None
    # Jobs accepted then must not be refused now by the limit on queued jobs.
    return {**now, "max_queued": None} if name == "current" else {"preset": name}


async def _past(
    call: Call[SimulationSpec, NoQuery], window: tuple[Instant, Instant]
) -> tuple[list[JobView], bool]:
    """Reads the jobs that ran, newest first; also returns whether there were more."""
    start, end = window
    found: list[JobView] = []
    read = 0
    query = JobQuery(states=_RAN, created_after=start, created_before=end, limit=PAGE_ITEMS_MAX + 1)
    while True:
        page = await job_page(call, query)
        found += _without_content(page.items)
        read += len(page.items)
        if page.next_cursor is None or read >= SIMULATION_JOBS_MAX:
            break
        query = replace(query, before=read_id_cursor(page.next_cursor))
    if not found:
        raise invalid("from", "no job that was submitted in this time has run")
    return found, page.next_cursor is not None


def _without_content(jobs: Sequence[JobView]) -> list[JobView]:
    """Drops content; an array or gang is left out, because its members are jobs themselves."""
    return [
        replace(job, task=_NOTHING, payload=_NOTHING, result=None, error=None, labels={})
        for job in jobs
        if job.started_at and job.finished_at and job.array is None and job.gang is None
    ]
