"""Simulations of what ran: gathers the past, and has it run again in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.api.jobs import job_page
from rota.api.limits import SIMULATION_JOBS_MAX
from rota.api.paging import read_id_cursor
from rota.api.parts import Simulator, SimulatorError
from rota.api.policy import policy_view, tenant_view
from rota.api.problems import GoneAwayError, ProblemError, invalid
from rota.api.routes import Call, NoQuery
from rota.api.views import queue_view, worker_view
from rota.api.waiting import first_of, gone
from rota.core.model import Instant, JobState, WorkerState
from rota.store.protocol import JobQuery
from rota.wire.jobs import JobView
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.queues import QueueView
from rota.wire.simulations import ReplayName, SimulationSpec, SimulationView
from rota.wire.tenants import TenantView
from rota.wire.units import encode, to_instant
from rota.wire.workers import WorkerView

_RAN = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
"""The ends of a job that may have run."""
_NOTHING = msgspec.Raw(b"null")


class Study(msgspec.Struct):
    """All that the other process needs; jobs without what users put into them."""

    workers: list[WorkerView]
    queues: list[QueueView]
    tenants: list[TenantView]
    jobs: list[JobView]
    policies: dict[ReplayName, dict[str, Any] | None]
    """Settings as in `PUT /policy`; None: what happened in truth."""
    fleet: int | None = None
    is_cut: bool = False


async def simulate(call: Call[SimulationSpec, NoQuery]) -> SimulationView:
    """Each policy on the same past, one after the other."""
    simulator = call.parts.simulator
    if simulator is None:
        detail = "this server has no simulator: use rota history replay"
        raise ProblemError(503, "no_simulator", detail)
    window = _window(call.body, call.parts.brain.clock.now())
    seats = call.desk.simulations
    seats.check()
    with seats.taken():
        work = _simulated(call, simulator, window)
        found = await first_of(work, gone(call.request.receive), call.parts.closing.wait())
    if found is None:
        raise GoneAwayError
    return found


async def _simulated(
    call: Call[SimulationSpec, NoQuery], simulator: Simulator, window: tuple[Instant, Instant]
) -> SimulationView:
    study = await _study(call, window)
    try:
        answer = await simulator.run(encode(study))
    except SimulatorError as error:
        raise ProblemError(422, "not_simulated", str(error)) from error
    return msgspec.json.decode(answer, type=SimulationView)


def _window(spec: SimulationSpec, now: Instant) -> tuple[Instant, Instant]:
    end = now if spec.end is None else to_instant(spec.end)
    start = to_instant(spec.start)
    if start >= end:
        raise invalid("from", "is not before `to`: nothing can have come between them")
    return start, end


async def _study(call: Call[SimulationSpec, NoQuery], window: tuple[Instant, Instant]) -> Study:
    brain = call.parts.brain
    await brain.settled()
    workers = [one for one in brain.workers() if one.worker.state is not WorkerState.OFFLINE]
    if not workers:
        raise invalid("workers", "no worker is there to be like: start one, with rota worker")
    jobs, is_cut = await _past(call, window)
    now = msgspec.to_builtins(policy_view(brain.policy()))
    return Study(
        workers=[worker_view(one, {}) for one in workers],
        queues=[queue_view(one) for one in brain.queues()],
        tenants=[tenant_view(one) for one in brain.tenants()],
        jobs=jobs,
        policies={name: _settings(name, now) for name in dict.fromkeys(call.body.policies)},
        fleet=call.body.workers,
        is_cut=is_cut,
    )


def _settings(name: ReplayName, now: dict[str, Any]) -> dict[str, Any] | None:
    if name == "recorded":
        return None
    # What was accepted then is not refused now, whatever the limit on what waits.
    return {**now, "max_queued": None} if name == "current" else {"preset": name}


async def _past(
    call: Call[SimulationSpec, NoQuery], window: tuple[Instant, Instant]
) -> tuple[list[JobView], bool]:
    """The jobs that ran, newest first, and whether there were more."""
    start, end = window
    found: list[JobView] = []
    read = 0
    query = JobQuery(states=_RAN, created_after=start, created_before=end, limit=PAGE_ITEMS_MAX + 1)
    while True:
        page = await job_page(call, query)
        found += _that_ran(page.items)
        read += len(page.items)
        if page.next_cursor is None or read >= SIMULATION_JOBS_MAX:
            break
        query = replace(query, before=read_id_cursor(page.next_cursor))
    if not found:
        raise invalid("from", "no job that was submitted in this time has run")
    return found, page.next_cursor is not None


def _that_ran(jobs: Sequence[JobView]) -> list[JobView]:
    """Of an array or gang it is the members that ran, and they are jobs themselves."""
    return [
        replace(job, task=_NOTHING, payload=_NOTHING, result=None, error=None, labels={})
        for job in jobs
        if job.started_at and job.finished_at and job.array is None and job.gang is None
    ]
