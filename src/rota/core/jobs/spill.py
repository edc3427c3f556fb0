"""Spill: keeps jobs at the rear of long queues in the store, and loads them before their turn.

Only jobs that wait for nothing but a worker are spilled, and only as they arrive. The row of such a
job names its spill queue (`Life.line`) until the job moves. Loading one writes nothing: after a
restart it is spilled again. `JobLookup` finds a job in memory, in a spill queue, or among the
records that a command preloaded.

Why: docs/decisions/0003-memory-holds-live-jobs-only.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from rota.core.commands import Preloaded, Refilled
from rota.core.entries import JobEntry
from rota.core.errors import NotFound, StalePreload
from rota.core.jobs.wait_states import add_ready_job, add_ready_jobs, enqueue
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import Instant, JobId, JobRecord, JobState, Life, Spec
from rota.core.outcome import CountReceipt, Refill
from rota.core.ready_queue.merge_queue import FifoGroup
from rota.core.state import NEW_LIFE, SchedulerState


def waits_for_worker_only(spec: Spec, now: Instant) -> bool:
    """Whether nothing but a worker is missing, and nothing but a worker can change the job.

    - A job with a concurrency key must be in memory when a slot of its key is free.
    - A schedule checks its live jobs at every instant, so a restore must find them.
    - A job with a deadline is not sorted by arrival, and has timers.
    - An array is one row, however many members it has.

    Downstream jobs are not considered here: the caller knows them.
    """
    return (
        not spec.dependencies
        and spec.origin is None
        and spec.concurrency is None
        and spec.expires_at is None
        and spec.finish_by is None
        and spec.group is None
        and (spec.run_at is None or spec.run_at <= now)
    )


def enqueue_or_spill(t: SchedulerState, job_id: JobId, spec: Spec, now: Instant) -> JobEntry:
    """Queues a new job that waits only for a worker, or spills it."""
    terms, window = spec.terms, t.timing.window
    if t.ready_queue.spilled_groups or len(t.jobs) >= window.jobs:
        fifo_group = t.ready_queue.fifo_group(terms)
        if fifo_group is not None and _must_spill(t, fifo_group):
            return _spill(t, fifo_group, JobEntry(job_id, spec, NEW_LIFE), now)
    return add_ready_job(t, job_id, spec, now)


def enqueue_or_spill_together(
    t: SchedulerState, ids: Sequence[JobId], specs: Sequence[Spec], now: Instant
) -> list[JobEntry]:
    """Queues or spills alike jobs, each behind the one before."""
    if t.ready_queue.spilled_groups or len(t.jobs) + len(ids) > t.timing.window.jobs:
        return [enqueue_or_spill(t, *job, now) for job in zip(ids, specs, strict=True)]
    return add_ready_jobs(t, ids, specs, now)


def _must_spill(t: SchedulerState, fifo_group: FifoGroup) -> bool:
    window = t.timing.window
    if not fifo_group.spilled:
        return len(t.jobs) >= window.jobs and fifo_group.in_memory >= window.fifo_group
    # The last refill brings all that is left: jobs that arrive meanwhile need not follow them.
    return fifo_group.spilled > window.refill or fifo_group.in_memory >= _refill_level(t)


def _refill_level(t: SchedulerState) -> int:
    """Groups with fewer jobs in memory are refilled; all of them share half of the window."""
    window = t.timing.window
    return max(window.fifo_group, window.jobs // (2 * max(1, t.ready_queue.spilled_groups)))


def _spill(t: SchedulerState, fifo_group: FifoGroup, job: JobEntry, now: Instant) -> JobEntry:
    t.ready_queue.spill(fifo_group, job.spec, job.spec.arrival_number)
    fifo_group.spilled_since_request += 1
    job_class = t.ready_queue.classes[fifo_group.class_index]
    job_class.arrived += 1
    job_class.arrived_work += t.runtime_estimates.estimate(job.spec.terms)
    if fifo_group.spilled_life is None or fifo_group.spilled_life.ready_at != now:
        fifo_group.spilled_life = Life(
            JobState.QUEUED, reason="ready", ready_at=now, line=fifo_group.spill_queue
        )
    job.life = fifo_group.spilled_life
    t.count_spilled(fifo_group, 1)
    t.put_job(job)
    return job


def recall(t: SchedulerState, record: JobRecord, now: Instant) -> JobEntry:
    """Loads one spilled job from anywhere in its spill queue; nothing is written yet."""
    fifo_group = t.ready_queue.by_spill_queue.get(record.life.line)
    if (
        fifo_group is None
        or not fifo_group.spilled
        or t.recently_finished.departed_at(record.id) is not None
    ):
        raise StalePreload(f"job {record.id} has moved since it was read")
    t.recalled[record.id] = None
    job = _load(t, fifo_group, record)
    enqueue(t, job, now)
    t.ready_queue.take_back(fifo_group, 1)
    return job


def _load(t: SchedulerState, fifo_group: FifoGroup, record: JobRecord) -> JobEntry:
    """Puts a spilled job into memory; it was counted as queued when it arrived.

    The store has interned its terms.
    """
    spec = record.spec
    if not _is_counted_with(fifo_group, spec):
        t.count_spilled(fifo_group, -1)
        return t.add_job(record.id, spec, record.life)
    sort_key = t.ready_queue.order.sort_key(spec)
    job = t.jobs[record.id] = JobEntry(record.id, spec, record.life, sort_key=sort_key)
    return job


def _is_counted_with(fifo_group: FifoGroup, spec: Spec) -> bool:
    """Whether the job counts with its group: old spill queues have several tenants."""
    return spec.terms.tenant == fifo_group.key[0]


def spill_untouched(t: SchedulerState) -> None:
    """At a turn's end: spills jobs again that a command loaded by id and then did not change.

    Otherwise memory would fill with jobs whose commands were refused.
    """
    for job_id in t.recalled:
        job = t.jobs.get(job_id)
        fifo_group = None if job is None else t.ready_queue.by_spill_queue.get(job.life.line)
        # A refill would not find one in front of the boundary again.
        if (
            job is not None
            and fifo_group is not None
            and job.spec.arrival_number >= fifo_group.boundary
        ):
            t.ready_queue.spill(fifo_group, job.spec, job.spec.arrival_number)
            t.ready_queue.remove(job)
            t.forget_job(job)
            t.count_spilled(fifo_group, 1)
    t.recalled.clear()


def refill(t: SchedulerState, event: Refilled, now: Instant) -> CountReceipt:
    """Queues the next jobs of a spill queue, except those that were loaded or ended meanwhile."""
    fifo_group = t.ready_queue.by_spill_queue.get(event.refill.spill_queue)
    if fifo_group is None or fifo_group.request_id != event.refill.request_id:
        return CountReceipt(0)
    may_lack = fifo_group.spilled_since_request or not event.refill.exact or event.damaged
    assert event.jobs or may_lack or not fifo_group.spilled, (
        f"spill queue {fifo_group.spill_queue} is not in the store"
    )
    jobs, departed = t.jobs, fifo_group.left_since_request
    records: Sequence[JobRecord] = event.jobs
    if departed or not jobs.keys().isdisjoint([one.id for one in records]):
        records = [one for one in records if one.id not in jobs and one.id not in departed]
    _enqueue_loaded(t, fifo_group, records, now)
    if event.damaged:
        # They stay in the store, and nobody can run them: they count as queued no longer.
        t.count_spilled(fifo_group, -len(event.damaged))
    if records or event.damaged:
        t.ready_queue.take_back(fifo_group, len(records) + len(event.damaged))
    if fifo_group.spilled:
        _move_boundary(t, fifo_group, event)
    fifo_group.request_id, fifo_group.empty, fifo_group.urgent = 0, False, False
    # With fewer than requested, more may still be on their way into the tables.
    fifo_group.complete = not departed and len(event.jobs) == event.refill.limit
    departed.clear()
    if fifo_group.spilled:
        t.ready_queue.refill_candidates[fifo_group.spill_queue] = fifo_group
    return CountReceipt(len(records))


def _move_boundary(t: SchedulerState, fifo_group: FifoGroup, event: Refilled) -> None:
    """Moves the boundary behind all that the store has answered with."""
    numbers = [*event.damaged, *(one.spec.arrival_number for one in event.jobs[-1:])]
    like = event.jobs[-1].spec if event.jobs else fifo_group.boundary_spec
    if numbers and like is not None:
        t.ready_queue.move_boundary(fifo_group, like, max(numbers) + 1)


def _enqueue_loaded(
    t: SchedulerState, fifo_group: FifoGroup, records: Sequence[JobRecord], now: Instant
) -> None:
    """Queues loaded jobs; alike jobs that follow each other, as most do, are added as one run."""
    first: JobEntry | None = None
    behind: list[JobEntry] = []
    chunk_jobs = t.limits.refill_chunk_jobs
    for alike in _alike_in_sequence(records, chunk_jobs):
        last = behind[-1] if behind else first
        job = _load(t, fifo_group, alike[0])
        if first is not None and last is not None and _follows(job, last):
            behind.append(job)
        else:
            if first is not None and behind:
                t.ready_queue.add_behind(first, behind, now)
            enqueue(t, job, now)
            first, behind = job, []
        behind += _load_alike(t, fifo_group, job, alike)
        if len(behind) >= chunk_jobs:
            t.ready_queue.add_behind(first, behind, now)
            first, behind = behind[-1], []
    if first is not None and behind:
        t.ready_queue.add_behind(first, behind, now)


def _alike_in_sequence(records: Sequence[JobRecord], most: int) -> Iterator[Sequence[JobRecord]]:
    """Splits into runs of at most `most` records that are alike in all that decides their order."""
    start = 0
    for number, (before, one) in enumerate(pairwise(records), 1):
        ahead, spec = before.spec, one.spec
        if number - start == most or not (
            spec.terms is ahead.terms
            and spec.created_at == ahead.created_at
            and spec.arrival_number > ahead.arrival_number
            and spec.run_at is ahead.run_at is None
            and spec.finish_by is ahead.finish_by is None
            and spec.graph_ms is ahead.graph_ms is None
            and spec.concurrency is ahead.concurrency is None
        ):
            yield records[start:number]
            start = number
    if records:
        yield records[start:]


def _load_alike(
    t: SchedulerState, fifo_group: FifoGroup, first: JobEntry, together: Sequence[JobRecord]
) -> Collection[JobEntry]:
    """Puts the other jobs of a run into memory; the first is there already."""
    if len(together) == 1:
        return ()
    if not _is_counted_with(fifo_group, first.spec):
        return [_load(t, fifo_group, one) for one in together[1:]]
    sort_key = first.sort_key
    jobs = {one.id: JobEntry(one.id, one.spec, one.life, sort_key=sort_key) for one in together[1:]}
    t.jobs.update(jobs)
    return jobs.values()


def _follows(job: JobEntry, before: JobEntry) -> bool:
    """Whether the jobs are alike, one is behind the other, and neither has a concurrency key."""
    spec, ahead = job.spec, before.spec
    return (
        spec.terms is ahead.terms
        and spec.concurrency is ahead.concurrency is None
        and (job.sort_key, spec.arrival_number) > (before.sort_key, ahead.arrival_number)
    )


def wanted_refills(t: SchedulerState) -> list[Refill]:
    """Refills to request from the store after this turn: at most one request for each group.

    A request made early is repeated when it has become urgent; the first answer is then ignored.
    Only an exact request waits for the projection. Its lag matters in two cases: jobs left the
    spill queue out of turn, or the last refill reached the end of what the tables had.
    """
    wanted: list[Refill] = []
    ready_queue = t.ready_queue
    if not ready_queue.refill_candidates:
        return wanted
    level = _refill_level(t)
    for fifo_group in ready_queue.refill_candidates.values():
        if _wants_refill(fifo_group, level):
            t.refill_requests += 1
            exact = not fifo_group.complete or bool(fifo_group.left_since_request)
            fifo_group.request_id, fifo_group.urgent, fifo_group.spilled_since_request = (
                t.refill_requests,
                fifo_group.empty or not exact,
                0,
            )
            fifo_group.left_since_request.clear()
            limit = min(t.timing.window.refill, level)
            wanted.append(
                Refill(
                    fifo_group.spill_queue,
                    fifo_group.boundary - 1,
                    limit,
                    fifo_group.request_id,
                    fifo_group.empty,
                    exact,
                )
            )
    ready_queue.refill_candidates.clear()
    return wanted


def _wants_refill(fifo_group: FifoGroup, level: int) -> bool:
    if fifo_group.request_id:
        return fifo_group.spilled > 0 and fifo_group.empty and not fifo_group.urgent
    return fifo_group.spilled > 0 and (fifo_group.empty or fifo_group.in_memory < level)


def restore_spill_queues(t: SchedulerState, counts: Mapping[int, int]) -> None:
    """After a restore: the first jobs of each spill queue are in memory, the rest stays in the
    store.

    `counts` is how many jobs each spill queue has in the store, the loaded ones included.
    """
    loaded: dict[int, list[JobEntry]] = {}
    for job in t.jobs.values():
        if job.life.line:
            loaded.setdefault(job.life.line, []).append(job)
    for number, jobs in loaded.items():
        last = jobs[-1]
        fifo_group = t.ready_queue.fifo_group(last.spec.terms)
        assert fifo_group is not None
        if t.ready_queue.spill_queue_of(fifo_group) == number:
            fifo_group.spill_queue = number
        else:
            fifo_group = t.ready_queue.fifo_group_of_old_number(fifo_group, number)
        t.ready_queue.by_spill_queue[number] = fifo_group
        spilled = counts[number] - len(jobs)
        if spilled:
            t.ready_queue.spill(fifo_group, last.spec, last.spec.arrival_number + 1, spilled)
            t.count_spilled(fifo_group, spilled)
            t.ready_queue.refill_candidates[number] = fifo_group


class JobLookup:
    """Finds jobs in memory, then among preloaded records that cannot have changed since."""

    def __init__(
        self,
        t: SchedulerState,
        preloaded: Preloaded | None,
        now: Instant,
        *,
        read_only: bool = False,
    ) -> None:
        self._t = t
        self._is_read_only = read_only
        """Lookups only: spilled jobs stay in the store."""
        self._now = now
        self._at = now if preloaded is None else preloaded.at
        records = () if preloaded is None else (*preloaded.upstream, *preloaded.jobs)
        self._records = {job.id: job for job in records}

    def live(self, job_id: JobId) -> JobEntry | None:
        """The live job; a spilled one is loaded. None: it is not live."""
        job = self._t.jobs.get(job_id)
        record = self._records.get(job_id)
        if job is not None or record is None or not record.life.line or self._is_read_only:
            return job
        if self._t.recently_finished.is_stale(self._at, self._now):
            raise StalePreload(f"job {job_id} was read too long ago")
        return recall(self._t, record, self._now)

    def state(self, job_id: JobId) -> JobState | None:
        """State of a job wherever it is; None: there is no such job."""
        job = self.live(job_id)
        if job is not None:
            return job.life.state
        # Where thousands of jobs end in a turn, a caller's preloaded records are never all current.
        just_now = self._t.recently_finished.final_state(job_id)
        if just_now is not None:
            return just_now
        record = self._records.get(job_id)
        if self._is_read_only and record is not None and record.life.line:
            return record.life.state
        record = self.ended(job_id)
        return None if record is None else record.life.state

    def ended(self, job_id: JobId) -> JobRecord | None:
        """An ended job as the tables have it."""
        record = self._records.get(job_id)
        left_at = self._t.recently_finished.departed_at(job_id)
        if left_at is not None and left_at >= self._at:
            raise StalePreload(f"job {job_id} has just ended")
        if record is None:
            return None
        if record.life.state not in JOB_FINAL or self._t.recently_finished.is_stale(
            self._at, self._now
        ):
            raise StalePreload(f"job {job_id} has changed since it was read")
        return record

    def require_ended(self, job_id: JobId) -> JobRecord:
        """An ended job as the tables have it; raises NotFound."""
        record = self.ended(job_id)
        if record is None:
            raise NotFound("job", job_id)
        return record
