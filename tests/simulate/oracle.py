"""Textbook FCFS and EASY, to compare with: processors and jobs, without the scheduler."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple


class Rigid(NamedTuple):
    """Rigid job; times in any unit."""

    submit: int
    run: int
    procs: int
    estimate: int


class Pool:
    """Processors, running jobs with their ends, and waiting jobs in the order of arrival."""

    def __init__(self, jobs: Sequence[Rigid], procs: int) -> None:
        self.jobs = jobs
        self.free = procs
        self.starts = [-1] * len(jobs)
        self.queue: list[int] = []
        self.ends: list[tuple[int, int]] = []
        self.believed: list[tuple[int, int]] = []
        """(estimated end, processors) of running jobs, sorted."""

    def start(self, place: int, now: int) -> None:
        job = self.jobs[place]
        self.starts[place] = now
        self.free -= job.procs
        heappush(self.ends, (now + job.run, place))
        insort(self.believed, (now + job.estimate, job.procs))

    def end(self, place: int) -> None:
        job = self.jobs[place]
        self.free += job.procs
        self.believed.remove((self.starts[place] + job.estimate, job.procs))


Policy = Callable[[Pool, int], None]


def fcfs(pool: Pool, now: int) -> None:
    """Starts jobs in order until one does not fit."""
    started = 0
    for place in pool.queue:
        if pool.jobs[place].procs > pool.free:
            break
        pool.start(place, now)
        started += 1
    del pool.queue[:started]


def easy(pool: Pool, now: int) -> None:
    """Starts jobs in order, then later ones that do not delay the first that did not fit."""
    fcfs(pool, now)
    if not pool.queue:
        return
    shadow, extra = _shadow(pool)
    left = pool.queue[:1]
    for place in pool.queue[1:]:
        job = pool.jobs[place]
        in_time = now + job.estimate <= shadow
        if job.procs <= pool.free and (in_time or job.procs <= extra):
            if not in_time:
                extra -= job.procs
            pool.start(place, now)
        else:
            left.append(place)
    pool.queue = left


def _shadow(pool: Pool) -> tuple[int, int]:
    """Returns when the first waiting job can start at the latest, and what is free beside it."""
    need, free = pool.jobs[pool.queue[0]].procs, pool.free
    for at, (when, procs) in enumerate(pool.believed):
        free += procs
        is_last_of_instant = at + 1 == len(pool.believed) or pool.believed[at + 1][0] != when
        if free >= need and is_last_of_instant:
            return when, free - need
    raise AssertionError("larger than the machine")


def starts(jobs: Sequence[Rigid], procs: int, policy: Policy) -> list[int]:
    """Returns each job's start: at every instant first ends, then arrivals, then one pass."""
    pool = Pool(jobs, procs)
    coming = 0
    while coming < len(jobs) or pool.ends:
        times = [pool.ends[0][0]] if pool.ends else []
        if coming < len(jobs):
            times.append(jobs[coming].submit)
        now = min(times)
        while pool.ends and pool.ends[0][0] <= now:
            pool.end(heappop(pool.ends)[1])
        while coming < len(jobs) and jobs[coming].submit <= now:
            pool.queue.append(coming)
            coming += 1
        policy(pool, now)
    return pool.starts
