"""Runs a simulation for a server in a process of its own: the study comes on stdin, the outcome
goes to stdout.

It limits its own memory, so that a study that is too large ends it and never the server.
"""

from __future__ import annotations

import os
import resource
import sys
from itertools import islice
from typing import NamedTuple

import msgspec

from rota.api.endpoints.policy import policy_of
from rota.api.endpoints.simulations import Study, TraceFile
from rota.api.limits import SIMULATION_JOBS_MAX
from rota.cli.history import job_line, queue_line, tenant_line, worker_line
from rota.cli.problems import Failure
from rota.cli.simulate import Case
from rota.cli.simulation_process import REFUSED
from rota.engine.clock import SystemClock
from rota.simulate import chart
from rota.simulate.fleet import FleetPlan, single_machine_fleet, uniform_fleet
from rota.simulate.study import StudyResult, StudySetup, evaluate_policy, load, recorded_result
from rota.simulate.trace_readers import (
    HISTORY_VERSION,
    TRACE_FORMATS,
    HistoryHeader,
    RecordedHistory,
    TraceError,
    Upload,
    read_trace,
)
from rota.simulate.virtual_time import SimulationError
from rota.simulate.workload import GraphError, Trace, fitting
from rota.wire.formats import dec_hook, from_instant
from rota.wire.jobs import Time
from rota.wire.policy import PolicySpec, ReplayName, ReplayView, SimulationView


class StudyInput(NamedTuple):
    """Jobs and machines of a study, shared by all its policies."""

    case: Case
    fleet: FleetPlan
    """The machines on which it ran in truth, as far as that is known."""
    start: Time | None
    is_cut: bool


def study_input(study: Study) -> StudyInput:
    """Reads the jobs and machines of a study; jobs that fit no machine are left out."""
    return _past(study) if study.trace is None else _uploaded_trace(study, study.trace)


def _past(study: Study) -> StudyInput:
    history = _history(study)
    there = history.fleet()
    assert there is not None, "the server asks only while there are workers"
    fleet = there if study.fleet is None else there.resized(study.fleet)
    works = fitting(history, fleet.can_run)
    if not len(works):
        raise Failure("no job ran then that these workers could run")
    start = min(job.scheduled_at for job in study.jobs)
    return StudyInput(Case(works, fleet, history.settings()), there, start, study.is_cut)


def _history(study: Study) -> RecordedHistory:
    opening = HistoryHeader(
        HISTORY_VERSION,
        workers=[worker_line(one) for one in study.workers],
        queues=[queue_line(one) for one in study.queues],
        tenants=[tenant_line(one) for one in study.tenants],
    )
    return RecordedHistory("the past", [job_line(one) for one in study.jobs], opening)


def _uploaded_trace(study: Study, sent: TraceFile) -> StudyInput:
    source = Upload(sent.asked.name, sent.content)
    try:
        trace = read_trace(source, cpus=sent.asked.cpus)
    except TraceError as error:
        raise Failure(f"{error}. What can be run is {TRACE_FORMATS}") from error
    there = _fleet_in_trace(trace) or _history(study).fleet()
    fleet = _chosen_fleet(sent, there)
    works = fitting(_first_jobs(trace), fleet.can_run)
    if not len(works):
        raise Failure(f"{trace.title}: none of its jobs fits a machine of this fleet")
    setup = trace.settings() if isinstance(trace, RecordedHistory) else ()
    start = from_instant(trace.start_ms) if isinstance(trace, RecordedHistory) else None
    is_cut = len(trace) > SIMULATION_JOBS_MAX
    return StudyInput(Case(works, fleet, setup), there or fleet, start, is_cut)


def _fleet_in_trace(trace: Trace) -> FleetPlan | None:
    """Returns the machines that a trace names."""
    if isinstance(trace, RecordedHistory):
        return trace.fleet()
    return None if trace.processors is None else single_machine_fleet(trace.processors)


def _chosen_fleet(sent: TraceFile, there: FleetPlan | None) -> FleetPlan:
    asked = sent.asked
    memory = 0 if asked.memory is None else asked.memory.bytes
    if asked.cpus is not None:
        return single_machine_fleet(asked.cpus, memory)
    if asked.workers is not None and asked.cpu is not None:
        return uniform_fleet(asked.workers, round(asked.cpu * 1000), memory)
    if there is None:
        raise Failure(
            f"{asked.name} names no machine, and no worker is here: say how many processors"
            " (`cpus`), or how many workers of what size (`workers`, `cpu`)"
        )
    return there if asked.workers is None else there.resized(asked.workers)


def _first_jobs(trace: Trace) -> Trace:
    """Takes as many jobs as one simulation may have; dependencies come first in a trace."""
    if len(trace) <= SIMULATION_JOBS_MAX:
        return trace
    jobs = list(islice(trace, SIMULATION_JOBS_MAX))
    return Trace(trace.title, jobs, dropped=trace.dropped)


MEMORY_MAX = 2 << 30
"""Address space: 20,000 jobs take a small part of it."""
NICE = 10
"""The server's own work goes first."""
SLICES = 120
"""Points of a line in a chart."""


def main() -> int:
    """Reads standard input to its end, writes the outcome to standard output."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    study = msgspec.json.decode(sys.stdin.buffer.read(), type=Study)
    try:
        outcome = study_outcome(study)
    except (Failure, SimulationError, GraphError) as error:
        print(error, file=sys.stderr)
        return REFUSED
    except MemoryError:
        print("it takes more memory than a server gives to it: ask for less", file=sys.stderr)
        return REFUSED
    sys.stdout.buffer.write(msgspec.json.encode(outcome))
    return 0


def study_outcome(study: Study) -> SimulationView:
    """Runs every policy of a study."""
    given = study_input(study)
    works, fleet, there = given.case.workload, given.case.fleet, given.fleet
    trials = {name: _try_policy(study, name, given) for name in study.policies}
    span_ms = chart.span_ms(one.job_history for one in trials.values())
    pressure = load(works, fleet)
    return SimulationView(
        start=given.start,
        jobs=len(works),
        left_out=works.dropped,
        is_cut=given.is_cut,
        workers=fleet.workers,
        cpus=fleet.cpu_milli / 1000,
        load=pressure if pressure < float("inf") else None,
        span=span_ms / 1000,
        policies=[
            _view(name, one, span_ms, there if study.policies[name] is None else fleet)
            for name, one in trials.items()
        ],
    )


def _try_policy(study: Study, name: ReplayName, given: StudyInput) -> StudyResult:
    case, settings = given.case, study.policies[name]
    if settings is None:
        found = recorded_result(case.workload, given.fleet)
        if found is None:
            title = case.workload.title
            raise Failure(f"{title} does not say when its jobs started: leave out `recorded`")
        return found
    policy = policy_of(msgspec.convert(settings, PolicySpec, dec_hook=dec_hook))
    try:
        return evaluate_policy(
            policy, StudySetup(case.workload, case.fleet, SystemClock(), case.setup)
        )
    except SimulationError as error:
        raise SimulationError(f"policy {name}: {error}") from error


def _view(name: ReplayName, made: StudyResult, span_ms: int, fleet: FleetPlan) -> ReplayView:
    (figures,) = made.runs
    return ReplayView(
        policy=name,
        avg_wait=figures.avg_wait_s,
        p50_wait=figures.p50_wait_s,
        p95_wait=figures.p95_wait_s,
        max_wait=figures.max_wait_s,
        slowdown=figures.avg_bounded_slowdown,
        utilisation=figures.utilisation,
        makespan=figures.makespan_s,
        preemptions=figures.preemptions,
        peak_waiting=None if name == "recorded" else figures.peak_waiting,
        waits=chart.mean_waits(made.job_history, SLICES, span_ms),
        uses=chart.uses(made.job_history, (SLICES, span_ms), fleet.cpu_milli),
    )


if __name__ == "__main__":
    sys.exit(main())
