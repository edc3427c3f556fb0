"""What a server's study is to run and on which machines: a past of the cell, or a trace."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from rota.api.cell.simulations import Study, TraceFile
from rota.api.limits import SIMULATION_JOBS_MAX
from rota.cli.planning.past import job_line, queue_line, tenant_line, worker_line
from rota.cli.planning.workloads import Case
from rota.cli.problems import Failure
from rota.simulate.fleet import FleetPlan, pool, uniform
from rota.simulate.history import VERSION, History, Opening
from rota.simulate.kinds import KINDS, read_any
from rota.simulate.reading import TraceError, Upload
from rota.simulate.workload import Trace, fitting
from rota.wire.jobs import Time
from rota.wire.units import from_instant


class Scene(NamedTuple):
    """All that the policies of a study have alike."""

    case: Case
    there: FleetPlan
    """The machines on which it ran in truth, as far as that is known."""
    start: Time | None
    is_cut: bool


def scene_of(study: Study) -> Scene:
    """What the study asks for; jobs that fit no machine are left out."""
    return _past(study) if study.trace is None else _sent(study, study.trace)


def _past(study: Study) -> Scene:
    history = _history(study)
    there = history.fleet()
    assert there is not None, "the server asks only while there are workers"
    fleet = there if study.fleet is None else there.resized(study.fleet)
    works = fitting(history, fleet.can_run)
    if not len(works):
        raise Failure("no job ran then that these workers could run")
    start = min(job.scheduled_at for job in study.jobs)
    return Scene(Case(works, fleet, history.settings()), there, start, study.is_cut)


def _history(study: Study) -> History:
    opening = Opening(
        VERSION,
        workers=[worker_line(one) for one in study.workers],
        queues=[queue_line(one) for one in study.queues],
        tenants=[tenant_line(one) for one in study.tenants],
    )
    return History("the past", [job_line(one) for one in study.jobs], opening)


def _sent(study: Study, sent: TraceFile) -> Scene:
    source = Upload(sent.asked.name, sent.content)
    try:
        trace = read_any(source, cpus=sent.asked.cpus)
    except TraceError as error:
        raise Failure(f"{error}. What can be run is {KINDS}") from error
    there = _named(trace) or _history(study).fleet()
    fleet = _wanted(sent, there)
    works = fitting(_first(trace), fleet.can_run)
    if not len(works):
        raise Failure(f"{trace.title}: none of its jobs fits a machine of this fleet")
    setup = trace.settings() if isinstance(trace, History) else ()
    start = from_instant(trace.start_ms) if isinstance(trace, History) else None
    is_cut = len(trace) > SIMULATION_JOBS_MAX
    return Scene(Case(works, fleet, setup), there or fleet, start, is_cut)


def _named(trace: Trace) -> FleetPlan | None:
    """The machines that a trace names."""
    if isinstance(trace, History):
        return trace.fleet()
    return None if trace.processors is None else pool(trace.processors)


def _wanted(sent: TraceFile, there: FleetPlan | None) -> FleetPlan:
    asked = sent.asked
    memory = 0 if asked.memory is None else asked.memory.bytes
    if asked.cpus is not None:
        return pool(asked.cpus, memory)
    if asked.workers is not None and asked.cpu is not None:
        return uniform(asked.workers, round(asked.cpu * 1000), memory)
    if there is None:
        raise Failure(
            f"{asked.name} names no machine, and no worker is here: say how many processors"
            " (`cpus`), or how many workers of what size (`workers`, `cpu`)"
        )
    return there if asked.workers is None else there.resized(asked.workers)


def _first(trace: Trace) -> Trace:
    """As many as one simulation takes; whatever a job waits for comes before it."""
    if len(trace) <= SIMULATION_JOBS_MAX:
        return trace
    jobs = list(islice(trace, SIMULATION_JOBS_MAX))
    return Trace(trace.title, jobs, dropped=trace.dropped)
