"""How much work comes in, by class of jobs: counters are kept, and noted every few seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from rota.core.limits import ARRIVALS_EVERY_MS, ARRIVALS_MS, ARRIVALS_NOTED
from rota.core.model import Instant, Millis
from rota.core.order.party import JobClass


class ArrivalCount:
    """What had come in of a class until a time."""

    __slots__ = ("at", "jobs", "work")

    def __init__(self, at: Instant, jobs: int, work: Millis) -> None:
        self.at = at
        self.jobs = jobs
        self.work = work


class ArrivalRates:
    """Notes of the last minutes."""

    def __init__(self, now: Instant) -> None:
        self.due = now
        """When the counters are noted next."""
        self._notes: dict[int, tuple[JobClass, deque[ArrivalCount]]] = {}
        self._began = now

    def note(self, classes: Sequence[JobClass], now: Instant) -> None:
        """Notes how far all counters are."""
        self.due = now + ARRIVALS_EVERY_MS
        for job_class in classes:
            known = self._notes.get(job_class.index)
            if known is None or known[0] is not job_class:
                # A class that was not there at the last note began with nothing.
                first = ArrivalCount(max(self._began, now - ARRIVALS_EVERY_MS), 0, 0)
                known = (job_class, deque([first], ARRIVALS_NOTED))
                self._notes[job_class.index] = known
            known[1].append(ArrivalCount(now, job_class.arrived, job_class.arrived_work))

    def rate(self, job_class: JobClass, now: Instant) -> tuple[float, float]:
        """(jobs, seconds of work) that came in each second, over the last five minutes.

        Without the moment in which the most came: a batch is no stream, and will not come again.
        """
        known = self._notes.get(job_class.index)
        if known is None or known[0] is not job_class:
            return 0.0, 0.0
        notes = list(known[1])
        while len(notes) > 1 and notes[1].at <= now - ARRIVALS_MS:
            del notes[0]
        notes.append(ArrivalCount(now, job_class.arrived, job_class.arrived_work))
        steps = [(b.jobs - a.jobs, b.work - a.work) for a, b in pairwise(notes)]
        steps.remove(max(steps))
        seconds = max(ARRIVALS_MS, now - notes[0].at) / 1000
        jobs, work = sum(jobs for jobs, _ in steps), sum(work for _, work in steps)
        return jobs / seconds, work / 1000 / seconds

    def start_over(self, classes: Sequence[JobClass], now: Instant) -> None:
        """What there is by now did not come in: it was loaded, or the clock was set."""
        self._notes.clear()
        self._began = self.due = now
        for job_class in classes:
            job_class.arrived = job_class.arrived_work = 0
