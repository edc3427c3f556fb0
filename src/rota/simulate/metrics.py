"""The metrics of a simulation: how long jobs waited and how busy machines were, from a history of
each job.

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
    """One row a job, by its place in the workload; times since the first arrival."""

    def __init__(self) -> None:
        self.submit = array("q")
        self.ready = array("q")
        """When nothing but a worker was missing."""
        self.start = array("q")
        """When the execution began that ended it."""
        self.run = array("q")
        self.cpu_milli = array("q")
        self.tenant = array("q")
        """Its number among `tenants`."""
        self.tenants: dict[str, int] = {}
        self.decisions = 0
        """Executions begun."""
        self.preemptions = 0
        self.peak_waiting = 0
        """The most jobs that waited for nothing but a worker when all was decided."""
        self.engine_s = 0.0
        """Real seconds that the scheduler took."""

    def __len__(self) -> int:
        return len(self.submit)

    def arrive(self, work: Work, now: Millis) -> int:
        """A job comes; its place."""
        place = len(self.submit)
        self.submit.append(now)
        self.ready.append(now)
        self.start.append(NOT_YET)
        self.run.append(work.run_ms)
        self.cpu_milli.append(work.terms.needs.resources.cpu_milli)
        self.tenant.append(self.tenants.setdefault(work.terms.tenant, len(self.tenants)))
        return place

    def begin(self, place: int, now: Millis) -> None:
        """An execution of the job begins."""
        self.start[place] = now
        self.decisions += 1

    def unstarted(self) -> list[int]:
        """The places of the jobs that never began."""
        return [place for place, start in enumerate(self.start) if start == NOT_YET]


SLOWDOWN_BOUND_MS = 10_000
"""A job shorter than this counts as so long, or the shortest ones would rule the mean."""


class SimulationMetrics(msgspec.Struct, frozen=True):
    """What a policy comes to on a workload."""

    jobs: int
    avg_wait_s: float
    p50_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    avg_bounded_slowdown: float
    utilisation: float
    """Of the processors, between the first and the last arrival."""
    makespan_s: float
    preemptions: int
    decisions: int
    decisions_per_s: float
    peak_waiting: int


def simulation_metrics(diary: JobHistory, cpu_milli: int) -> SimulationMetrics:
    """Of a simulation in which all jobs have ended."""
    waits = sorted(_waits(diary))
    return SimulationMetrics(
        jobs=len(diary),
        avg_wait_s=_mean_s(waits),
        p50_wait_s=percentile(waits, 0.50) / 1000,
        p95_wait_s=percentile(waits, 0.95) / 1000,
        max_wait_s=waits[-1] / 1000 if waits else 0.0,
        avg_bounded_slowdown=_mean(slowdowns(diary)),
        utilisation=utilisation(diary, cpu_milli),
        makespan_s=makespan_ms(diary) / 1000,
        preemptions=diary.preemptions,
        decisions=diary.decisions,
        decisions_per_s=diary.decisions / diary.engine_s if diary.engine_s else 0.0,
        peak_waiting=diary.peak_waiting,
    )


class TenantMetrics(msgspec.Struct, frozen=True):
    """What a policy comes to for one tenant."""

    jobs: int
    avg_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    avg_bounded_slowdown: float


def tenant_metrics(diary: JobHistory) -> dict[str, TenantMetrics]:
    """The same for each tenant, by name."""
    waits: list[list[int]] = [[] for _ in diary.tenants]
    slow: list[list[float]] = [[] for _ in diary.tenants]
    columns = zip(diary.tenant, _waits(diary), slowdowns(diary), strict=True)
    for tenant, wait, slowdown in columns:
        waits[tenant].append(wait)
        slow[tenant].append(slowdown)
    return {
        name: _of_tenant(sorted(waits[number]), slow[number])
        for name, number in sorted(diary.tenants.items())
    }


def _of_tenant(waits: Sequence[int], slow: Sequence[float]) -> TenantMetrics:
    return TenantMetrics(
        jobs=len(waits),
        avg_wait_s=_mean_s(waits),
        p95_wait_s=percentile(waits, 0.95) / 1000,
        max_wait_s=waits[-1] / 1000,
        avg_bounded_slowdown=_mean(slow),
    )


def _waits(diary: JobHistory) -> array[int]:
    columns = zip(diary.start, diary.ready, strict=True)
    return array("q", (start - ready for start, ready in columns))


def slowdowns(diary: JobHistory) -> Iterable[float]:
    """Each job's time from ready to end against its run time: 1 is at once."""
    for start, ready, run in zip(diary.start, diary.ready, diary.run, strict=True):
        yield max(1.0, (start - ready + run) / max(run, SLOWDOWN_BOUND_MS))


def percentile(ordered: Sequence[int], part: float) -> int:
    """The value that so large a part of the others does not exceed."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0


def makespan_ms(diary: JobHistory) -> Millis:
    """From the first arrival to the last end."""
    if not len(diary):
        return 0
    last = max(start + run for start, run in zip(diary.start, diary.run, strict=True))
    return last - min(diary.submit)


def utilisation(diary: JobHistory, cpu_milli: int) -> float:
    """Processor time delivered while jobs still arrived; all of it where all came at once."""
    if not len(diary):
        return 0.0
    begin, end = min(diary.submit), max(diary.submit)
    if begin == end:
        end = begin + makespan_ms(diary)
    delivered = 0
    for start, run, cpus in zip(diary.start, diary.run, diary.cpu_milli, strict=True):
        if start < end:
            delivered += cpus * (min(start + run, end) - start)
    return delivered / (cpu_milli * (end - begin)) if cpu_milli and end > begin else 0.0


def _mean_s(values: Sequence[Millis]) -> float:
    return sum(values) / len(values) / 1000 if values else 0.0


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0
