"""Metrics of a simulation: waits, slowdown and utilisation, from the history of its jobs.

The history is kept in columns, so that millions of jobs fit into memory.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

import msgspec

from rota.core.model import Millis
from rota.simulate.workload import Work

NOT_YET = -1


class JobHistory:
    """History of all jobs: a row for each, by its place in the workload; times since the first
    arrival."""

    def __init__(self) -> None:
        self.submit = array("q")
        self.ready = array("q")
        """When the job was ready and missed only a worker."""
        self.start = array("q")
        """When its last execution began."""
        self.run = array("q")
        self.cpu_milli = array("q")
        self.tenant = array("q")
        """Index in `tenants`."""
        self.tenants: dict[str, int] = {}
        self.decisions = 0
        """Number of executions that began."""
        self.preemptions = 0
        self.peak_waiting = 0
        """The most ready jobs that waited after a turn."""
        self.engine_s = 0.0
        """Real seconds that the scheduler took."""

    def __len__(self) -> int:
        return len(self.submit)

    def arrive(self, work: Work, now: Millis) -> int:
        """Adds a job that arrives; returns its place."""
        place = len(self.submit)
        self.submit.append(now)
        self.ready.append(now)
        self.start.append(NOT_YET)
        self.run.append(work.run_ms)
        self.cpu_milli.append(work.terms.needs.resources.cpu_milli)
        self.tenant.append(self.tenants.setdefault(work.terms.tenant, len(self.tenants)))
        return place

    def begin(self, place: int, now: Millis) -> None:
        """Notes that an execution of the job begins."""
        self.start[place] = now
        self.decisions += 1

    def unstarted(self) -> list[int]:
        """Returns the places of jobs that never began."""
        return [place for place, start in enumerate(self.start) if start == NOT_YET]


SLOWDOWN_BOUND_MS = 10_000
"""A shorter job counts as so long, else the shortest ones would dominate the mean."""


class SimulationMetrics(msgspec.Struct, frozen=True):
    """Metrics of a policy on a workload."""

    jobs: int
    avg_wait_s: float
    p50_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    avg_bounded_slowdown: float
    utilisation: float
    """Share of processors in use between the first and the last arrival."""
    makespan_s: float
    preemptions: int
    decisions: int
    decisions_per_s: float
    peak_waiting: int


def simulation_metrics(history: JobHistory, cpu_milli: int) -> SimulationMetrics:
    """Computes the metrics of a simulation in which all jobs have ended."""
    waits = sorted(_waits(history))
    return SimulationMetrics(
        jobs=len(history),
        avg_wait_s=_mean_s(waits),
        p50_wait_s=percentile(waits, 0.50) / 1000,
        p95_wait_s=percentile(waits, 0.95) / 1000,
        max_wait_s=waits[-1] / 1000 if waits else 0.0,
        avg_bounded_slowdown=_mean(slowdowns(history)),
        utilisation=utilisation(history, cpu_milli),
        makespan_s=makespan_ms(history) / 1000,
        preemptions=history.preemptions,
        decisions=history.decisions,
        decisions_per_s=history.decisions / history.engine_s if history.engine_s else 0.0,
        peak_waiting=history.peak_waiting,
    )


class TenantMetrics(msgspec.Struct, frozen=True):
    """Metrics of a policy for one tenant."""

    jobs: int
    avg_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    avg_bounded_slowdown: float


def tenant_metrics(history: JobHistory) -> dict[str, TenantMetrics]:
    """Computes the metrics of each tenant, by name."""
    waits: list[list[int]] = [[] for _ in history.tenants]
    slow: list[list[float]] = [[] for _ in history.tenants]
    columns = zip(history.tenant, _waits(history), slowdowns(history), strict=True)
    for tenant, wait, slowdown in columns:
        waits[tenant].append(wait)
        slow[tenant].append(slowdown)
    return {
        name: _of_tenant(sorted(waits[number]), slow[number])
        for name, number in sorted(history.tenants.items())
    }


def _of_tenant(waits: Sequence[int], slow: Sequence[float]) -> TenantMetrics:
    return TenantMetrics(
        jobs=len(waits),
        avg_wait_s=_mean_s(waits),
        p95_wait_s=percentile(waits, 0.95) / 1000,
        max_wait_s=waits[-1] / 1000,
        avg_bounded_slowdown=_mean(slow),
    )


def _waits(history: JobHistory) -> array[int]:
    columns = zip(history.start, history.ready, strict=True)
    return array("q", (start - ready for start, ready in columns))


def slowdowns(history: JobHistory) -> Iterable[float]:
    """Yields each job's time from ready to end relative to its run time: 1 is without a wait."""
    for start, ready, run in zip(history.start, history.ready, history.run, strict=True):
        yield max(1.0, (start - ready + run) / max(run, SLOWDOWN_BOUND_MS))


def percentile(ordered: Sequence[int], part: float) -> int:
    """Returns the value that this part of all does not exceed."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0


def makespan_ms(history: JobHistory) -> Millis:
    """Returns the time from the first arrival to the last end."""
    if not len(history):
        return 0
    last = max(start + run for start, run in zip(history.start, history.run, strict=True))
    return last - min(history.submit)


def utilisation(history: JobHistory, cpu_milli: int) -> float:
    """Returns the utilisation while jobs arrived, or until the end if all arrived at once."""
    if not len(history):
        return 0.0
    begin, end = min(history.submit), max(history.submit)
    if begin == end:
        end = begin + makespan_ms(history)
    delivered = 0
    for start, run, cpus in zip(history.start, history.run, history.cpu_milli, strict=True):
        if start < end:
            delivered += cpus * (min(start + run, end) - start)
    return delivered / (cpu_milli * (end - begin)) if cpu_milli and end > begin else 0.0


def _mean_s(values: Sequence[Millis]) -> float:
    return sum(values) / len(values) / 1000 if values else 0.0


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0
