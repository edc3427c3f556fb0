"""What happened to each job of a simulation, in columns, so that millions fit into memory."""

from __future__ import annotations

from array import array

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
