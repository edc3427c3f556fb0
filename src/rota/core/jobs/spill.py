"""Spill: jobs at the rear of long queues are kept in the store and come back before their turn.

Only jobs that wait for nothing but a worker are spilled, and only as they arrive. The row of such a
job names its spill queue (`Life.line`) until the job moves. Loading one writes nothing: after a
restart it is spilled again. `JobLookup` finds a job in memory, in a spill queue, or among the
records that a command preloaded.
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
    """Whether nothing but a worker is missing, and nothing but a worker can happen to it.

    What others depend on is not asked here; nor may a job with a key go, for it has to be there
    when a slot of its key is free, whatever else waits. A schedule looks at its runs at every
    instant, so a load must find them. One with a deadline does not go by arrival, and is watched.
    An array is but one row, however many jobs it stands for.
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
    """A new job that only waits for a worker: stands in line, or is put on the shelf."""
    terms, window = spec.terms, t.timing.window
    if t.ready_queue.spilled_groups or len(t.jobs) >= window.jobs:
        lane = t.ready_queue.fifo_group(terms)
        if lane is not None and _must_spill(t, lane):
            return _spill(t, lane, JobEntry(job_id, spec, NEW_LIFE), now)
    return add_ready_job(t, job_id, spec, now)


def enqueue_or_spill_together(
    t: SchedulerState, ids: Sequence[JobId], specs: Sequence[Spec], now: Instant
) -> list[JobEntry]:
    """The same for alike jobs, each behind the one before."""
    if t.ready_queue.spilled_groups or len(t.jobs) + len(ids) > t.timing.window.jobs:
        return [enqueue_or_spill(t, *job, now) for job in zip(ids, specs, strict=True)]
    return add_ready_jobs(t, ids, specs, now)


def _must_spill(t: SchedulerState, lane: FifoGroup) -> bool:
    window = t.timing.window
    if not lane.spilled:
        return len(t.jobs) >= window.jobs and lane.in_memory >= window.fifo_group
    # The last few of a shelf come back all at once: who arrives meanwhile need not follow them.
    return lane.spilled > window.refill or lane.in_memory >= _refill_level(t)


def _refill_level(t: SchedulerState) -> int:
    """A lane with fewer jobs in memory is refilled: all of them share half of the window."""
    window = t.timing.window
    return max(window.fifo_group, window.jobs // (2 * max(1, t.ready_queue.spilled_groups)))


def _spill(t: SchedulerState, lane: FifoGroup, cell: JobEntry, now: Instant) -> JobEntry:
    t.ready_queue.spill(lane, cell.spec, cell.spec.arrival_number)
    lane.spilled_since_request += 1
    job_class = t.ready_queue.classes[lane.class_index]
    job_class.arrived += 1
    job_class.arrived_work += t.runtime_estimates.estimate(cell.spec.terms)
    if lane.spilled_life is None or lane.spilled_life.ready_at != now:
        lane.spilled_life = Life(
            JobState.QUEUED, reason="ready", ready_at=now, line=lane.spill_queue
        )
    cell.life = lane.spilled_life
    t.count_spilled(lane, 1)
    t.put_job(cell)
    return cell


def recall(t: SchedulerState, record: JobRecord, now: Instant) -> JobEntry:
    """One job of the shelf, wherever in its line it is; nothing is written yet."""
    lane = t.ready_queue.by_spill_queue.get(record.life.line)
    if lane is None or not lane.spilled or t.recently_finished.departed_at(record.id) is not None:
        raise StalePreload(f"job {record.id} has moved since it was read")
    t.recalled[record.id] = None
    cell = _load(t, lane, record)
    enqueue(t, cell, now)
    t.ready_queue.take_back(lane, 1)
    return cell


def _load(t: SchedulerState, lane: FifoGroup, record: JobRecord) -> JobEntry:
    """Into memory, from where it was counted as queued already.

    The store has seen to it that it shares its terms with others.
    """
    spec = record.spec
    if not _is_counted_with(lane, spec):
        t.count_spilled(lane, -1)
        return t.add_job(record.id, spec, record.life)
    place = t.ready_queue.order.sort_key(spec)
    cell = t.jobs[record.id] = JobEntry(record.id, spec, record.life, sort_key=place)
    return cell


def _is_counted_with(lane: FifoGroup, spec: Spec) -> bool:
    """Whether it is counted with its lane: a line of an earlier program has several tenants."""
    return spec.terms.tenant == lane.key[0]


def spill_untouched(t: SchedulerState) -> None:
    """At a turn's end: jobs that were brought back by name and then left as they were go again.

    Or else memory would fill up with jobs that were asked for something which was refused.
    """
    for job_id in t.recalled:
        cell = t.jobs.get(job_id)
        lane = None if cell is None else t.ready_queue.by_spill_queue.get(cell.life.line)
        # One before the edge would not be found there any more.
        if cell is not None and lane is not None and cell.spec.arrival_number >= lane.boundary:
            t.ready_queue.spill(lane, cell.spec, cell.spec.arrival_number)
            t.ready_queue.remove(cell)
            t.forget_job(cell)
            t.count_spilled(lane, 1)
    t.recalled.clear()


def refill(t: SchedulerState, event: Refilled, now: Instant) -> CountReceipt:
    """The next jobs of a line come back, but for those that came, or came and went, meanwhile."""
    lane = t.ready_queue.by_spill_queue.get(event.refill.spill_queue)
    if lane is None or lane.request_id != event.refill.request_id:
        return CountReceipt(0)
    may_lack = lane.spilled_since_request or not event.refill.exact
    assert event.jobs or may_lack or not lane.spilled, (
        f"line {lane.spill_queue} is not in the store"
    )
    jobs, gone = t.jobs, lane.left_since_request
    back: Sequence[JobRecord] = event.jobs
    if gone or not jobs.keys().isdisjoint([one.id for one in back]):
        back = [one for one in back if one.id not in jobs and one.id not in gone]
    _enqueue_loaded(t, lane, back, now)
    if back:
        t.ready_queue.take_back(lane, len(back))
    if event.jobs and lane.spilled:
        last = event.jobs[-1].spec
        t.ready_queue.move_boundary(lane, last, last.arrival_number + 1)
    lane.request_id, lane.empty, lane.urgent = 0, False, False
    # Where there were fewer than asked for, more may be on their way into the tables.
    lane.complete = not gone and len(event.jobs) == event.refill.limit
    gone.clear()
    if lane.spilled:
        t.ready_queue.refill_candidates[lane.spill_queue] = lane
    return CountReceipt(len(back))


def _enqueue_loaded(
    t: SchedulerState, lane: FifoGroup, back: Sequence[JobRecord], now: Instant
) -> None:
    """In line; alike jobs that follow each other, as mostly all of a shelf do, stand as one."""
    first: JobEntry | None = None
    behind: list[JobEntry] = []
    stretch_jobs = t.limits.refill_chunk_jobs
    for stretch in _alike_in_sequence(back, stretch_jobs):
        last = behind[-1] if behind else first
        cell = _load(t, lane, stretch[0])
        if first is not None and last is not None and _follows(cell, last):
            behind.append(cell)
        else:
            if first is not None and behind:
                t.ready_queue.add_behind(first, behind, now)
            enqueue(t, cell, now)
            first, behind = cell, []
        behind += _load_alike(t, lane, cell, stretch)
        if len(behind) >= stretch_jobs:
            t.ready_queue.add_behind(first, behind, now)
            first, behind = behind[-1], []
    if first is not None and behind:
        t.ready_queue.add_behind(first, behind, now)


def _alike_in_sequence(back: Sequence[JobRecord], most: int) -> Iterator[Sequence[JobRecord]]:
    """So many at most that follow each other, and are alike in all that places are made of."""
    begun = 0
    for number, (before, one) in enumerate(pairwise(back), 1):
        ahead, spec = before.spec, one.spec
        if number - begun == most or not (
            spec.terms is ahead.terms
            and spec.created_at == ahead.created_at
            and spec.arrival_number > ahead.arrival_number
            and spec.run_at is ahead.run_at is None
            and spec.finish_by is ahead.finish_by is None
            and spec.graph_ms is ahead.graph_ms is None
            and spec.concurrency is ahead.concurrency is None
        ):
            yield back[begun:number]
            begun = number
    if back:
        yield back[begun:]


def _load_alike(
    t: SchedulerState, lane: FifoGroup, first: JobEntry, together: Sequence[JobRecord]
) -> Collection[JobEntry]:
    """The others of those that came together; the first is in memory already."""
    if len(together) == 1:
        return ()
    if not _is_counted_with(lane, first.spec):
        return [_load(t, lane, one) for one in together[1:]]
    place = first.sort_key
    cells = {one.id: JobEntry(one.id, one.spec, one.life, sort_key=place) for one in together[1:]}
    t.jobs.update(cells)
    return cells.values()


def _follows(cell: JobEntry, before: JobEntry) -> bool:
    """Whether they are alike, and the one is behind the other in line. Neither has a key."""
    spec, ahead = cell.spec, before.spec
    return (
        spec.terms is ahead.terms
        and spec.concurrency is ahead.concurrency is None
        and (cell.sort_key, spec.arrival_number) > (before.sort_key, ahead.arrival_number)
    )


def wanted_refills(t: SchedulerState) -> list[Refill]:
    """What to ask of the store after this turn: one question a lane at a time.

    One that was asked in good time is asked again when it has become urgent; the first answer is
    then ignored. The tables are waited for only where it matters: they are behind by what has left
    the front of a shelf, which is not asked for, and by what has come to its end.
    """
    wanted: list[Refill] = []
    lines = t.ready_queue
    if not lines.refill_candidates:
        return wanted
    level = _refill_level(t)
    for lane in lines.refill_candidates.values():
        if _wants_refill(lane, level):
            t.refill_requests += 1
            exact = not lane.complete or bool(lane.left_since_request)
            lane.request_id, lane.urgent, lane.spilled_since_request = (
                t.refill_requests,
                lane.empty or not exact,
                0,
            )
            lane.left_since_request.clear()
            limit = min(t.timing.window.refill, level)
            wanted.append(
                Refill(
                    lane.spill_queue, lane.boundary - 1, limit, lane.request_id, lane.empty, exact
                )
            )
    lines.refill_candidates.clear()
    return wanted


def _wants_refill(lane: FifoGroup, level: int) -> bool:
    if lane.request_id:
        return lane.spilled > 0 and lane.empty and not lane.urgent
    return lane.spilled > 0 and (lane.empty or lane.in_memory < level)


def restore_spill_queues(t: SchedulerState, counts: Mapping[int, int]) -> None:
    """After a load: the first jobs of each line are in memory and stand in theirs, the rest is not.

    `counts` has how many jobs the store has in each line, those that were loaded among them.
    """
    loaded: dict[int, list[JobEntry]] = {}
    for cell in t.jobs.values():
        if cell.life.line:
            loaded.setdefault(cell.life.line, []).append(cell)
    for number, cells in loaded.items():
        last = cells[-1]
        lane = t.ready_queue.fifo_group(last.spec.terms)
        assert lane is not None
        if t.ready_queue.spill_queue_of(lane) == number:
            lane.spill_queue = number
        else:
            lane = t.ready_queue.fifo_group_of_old_number(lane, number)
        t.ready_queue.by_spill_queue[number] = lane
        rest = counts[number] - len(cells)
        if rest:
            t.ready_queue.spill(lane, last.spec, last.spec.arrival_number + 1, rest)
            t.count_spilled(lane, rest)
            t.ready_queue.refill_candidates[number] = lane


class JobLookup:
    """Live jobs first, then what the tables said; refuses what may have changed since."""

    def __init__(
        self, t: SchedulerState, recall: Preloaded | None, now: Instant, *, is_still: bool = False
    ) -> None:
        self._t = t
        self._is_read_only = is_still
        """Only looks: what is on the shelf stays there."""
        self._now = now
        self._at = now if recall is None else recall.at
        brought = () if recall is None else (*recall.upstream, *recall.jobs)
        self._records = {job.id: job for job in brought}

    def live(self, job_id: JobId) -> JobEntry | None:
        """The job in memory; one on the shelf is brought back. None: it is not live."""
        cell = self._t.jobs.get(job_id)
        record = self._records.get(job_id)
        if cell is not None or record is None or not record.life.line or self._is_read_only:
            return cell
        if self._t.recently_finished.is_stale(self._at, self._now):
            raise StalePreload(f"it was too long ago that job {job_id} was read")
        return recall(self._t, record, self._now)

    def state(self, job_id: JobId) -> JobState | None:
        """The state of a job wherever it is; None if there is no such job."""
        cell = self.live(job_id)
        if cell is not None:
            return cell.life.state
        # Where jobs end by the thousand, those that a caller read of are never all up to date.
        just_now = self._t.recently_finished.final_state(job_id)
        if just_now is not None:
            return just_now
        record = self._records.get(job_id)
        if self._is_read_only and record is not None and record.life.line:
            return record.life.state
        record = self.ended(job_id)
        return None if record is None else record.life.state

    def ended(self, job_id: JobId) -> JobRecord | None:
        """A job that is not live, as the tables have it."""
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
        """A job that is not live, or the refusal."""
        record = self.ended(job_id)
        if record is None:
            raise NotFound("job", job_id)
        return record
