"""A retry of many jobs that wait for each other: those in front first, so that the others wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rota.api.endpoints.bulk_refusals import GONE, Refusals
from rota.api.limits import READ_AT_ONCE
from rota.api.recall import read_jobs
from rota.core.dependency_graph import accepts
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import GroupMember, Instant, JobId, JobRecord, JobState
from rota.store.protocol import Direction, QueryStore

Act = Callable[[Sequence[JobRecord]], Awaitable[int]]
"""Starts these over, in any order; how many of them it could be done to."""
_Part = dict[JobId, tuple[JobId, ...]]
"""Some of the jobs that wait here, and whom of all that wait here each depends on."""


_RULED_OUT = "a job that it depends on was started over too, and has already ended otherwise"


class Heads:
    """Members start over with their array or gang only, so that stands for them, and once."""

    def __init__(self, queries: QueryStore, states: Sequence[JobState]) -> None:
        self._queries = queries
        self._states = states
        """Those that are meant."""
        self._seen: set[JobId] = set()

    async def of(self, jobs: Sequence[JobRecord]) -> list[JobRecord]:
        """These, with the heads of those that are members. A member whose head goes on is left out:
        nothing can be done. One whose head has ended otherwise, or is gone, stays, to be refused.
        """
        above = {
            JobId(one.spec.group.parent) for one in jobs if isinstance(one.spec.group, GroupMember)
        }
        heads = {one.id: one for one in await read_jobs(self._queries, sorted(above))}
        meant: dict[JobId, JobRecord] = {}
        for job in jobs:
            band = job.spec.group
            head = heads.get(JobId(band.parent)) if isinstance(band, GroupMember) else None
            if head is None or (
                head.life.state in JOB_FINAL and head.life.state not in self._states
            ):
                meant[job.id] = job
            elif head.life.state in JOB_FINAL:
                meant[head.id] = head
        fresh = [one for one in meant.values() if one.id not in self._seen]
        self._seen |= {one.id for one in fresh if one.spec.group is not None}
        return fresh


class Latecomers:
    """Jobs with dependencies, or that others depend on, which start over after all others.

    Retried before the jobs it depends on a job would go at once: of one that is retried alone these
    count as settled. And what was skipped because of a job comes back with that, and would not be
    found any more. They may be on any later page, so it waits here until the pages are through.
    """

    def __init__(self, queries: QueryStore, since: Instant, refusals: Refusals, page: int) -> None:
        self._queries = queries
        self._page = page
        """Jobs that are started over together."""
        self._since = since
        """When this retry began: a job that ended later was started over by it."""
        self._refusals = refusals
        self._lives: dict[JobId, int] = {}
        """Whom to start over, and how often that was done before."""

    def __len__(self) -> int:
        return len(self._lives)

    async def without(self, jobs: Sequence[JobRecord]) -> list[JobRecord]:
        """Those that nothing links to others; the rest waits."""
        free = [job.id for job in jobs if not job.spec.dependencies]
        edges = await self._queries.edges(free, Direction.DOWNSTREAM)
        linked = dict.fromkeys(edge.parent for edge in edges)
        late = [job for job in jobs if job.spec.dependencies or job.id in linked]
        self._lives |= {job.id: job.life.lives for job in late}
        return [job for job in jobs if job.id not in self._lives]

    async def start(self, act: Act) -> int:
        """Starts all of them over that nothing in front rules out; how many that was."""
        count = 0
        newest_first = sorted(self._lives, reverse=True)
        while newest_first:
            oldest = [newest_first.pop() for _ in range(min(self._page, len(newest_first)))]
            part = await self._with_upstream(oldest)
            count += await self._start_part(part, act)
            for job_id in part:
                del self._lives[job_id]
        return count

    async def _with_upstream(self, job_ids: Sequence[JobId]) -> _Part:
        """Those that are left of these, and who must go before them though it is newer."""
        found: _Part = {}
        level = [job_id for job_id in job_ids if job_id in self._lives]
        while level:
            found |= dict.fromkeys(level, ())
            for start in range(0, len(level), READ_AT_ONCE):
                for job in await self._queries.jobs(level[start : start + READ_AT_ONCE]):
                    above = (d.job_id for d in job.spec.dependencies)
                    found[job.id] = tuple(one for one in above if one in self._lives)
            news = {one: None for job_id in level for one in found[job_id]}
            level = [one for one in news if one not in found]
        return found

    async def _start_part(self, part: _Part, act: Act) -> int:
        """Whoever waits for none of the others, again and again."""
        count, waiting = 0, dict(part)
        while waiting:
            first = [
                job_id
                for job_id, above in waiting.items()
                if not any(one in waiting for one in above)
            ]
            # A job that ended can be waited for by one that it waited for itself.
            first = first or list(waiting)
            count += await self._start_over(first, act)
            for job_id in first:
                del waiting[job_id]
        return count

    async def _start_over(self, job_ids: Sequence[JobId], act: Act) -> int:
        """Only these are read now: a long chain has as many rounds as jobs."""
        jobs = await read_jobs(self._queries, job_ids)
        # Who was skipped comes back with the one in front, and may have ended again.
        left = [job for job in jobs if job.life.lives == self._lives[job.id]]
        ruled_out = await self._ruled_out(left)
        self._refusals.add(GONE, len(job_ids) - len(jobs))
        self._refusals.add(_RULED_OUT, len(ruled_out))
        started = await act([job for job in left if job.id not in ruled_out])
        return len(jobs) - len(left) + started

    async def _ruled_out(self, jobs: Sequence[JobRecord]) -> dict[JobId, None]:
        """Those of whose upstream jobs one was started over, and has ended otherwise already."""
        above = list({d.job_id: None for job in jobs for d in job.spec.dependencies})
        ended: dict[JobId, JobState] = {}
        for start in range(0, len(above), READ_AT_ONCE):
            for one in await self._queries.jobs(above[start : start + READ_AT_ONCE]):
                finished_at = one.life.finished_at or self._since
                if one.life.state in JOB_FINAL and finished_at > self._since:
                    ended[one.id] = one.life.state
        return {
            job.id: None
            for job in jobs
            for d in job.spec.dependencies
            if d.job_id in ended and not accepts(d.when, ended[d.job_id])
        }
