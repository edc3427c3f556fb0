"""The rear of long lines waits in the store, on the shelf, and comes back before it is its turn.

Only jobs that wait for nothing but a worker are put there, and only as they arrive. The row of such
a job names its line (`Life.line`) until the job moves. Bringing one back writes nothing: after a
restart it is on the shelf again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from rota.core.errors import StaleRecall
from rota.core.inputs import Refilled
from rota.core.life.waiting import add_ready_job, add_ready_jobs, enqueue
from rota.core.memory.cells import JobCell
from rota.core.model import Instant, JobId, JobRecord, JobState, Life, Spec
from rota.core.order.lanes import Lane
from rota.core.outcome import Counted, Refill
from rota.core.tables import FRESH, Tables


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
        and spec.band is None
        and (spec.run_at is None or spec.run_at <= now)
    )


def enqueue_or_spill(t: Tables, job_id: JobId, spec: Spec, now: Instant) -> JobCell:
    """A new job that only waits for a worker: stands in line, or is put on the shelf."""
    terms, window = spec.terms, t.timing.window
    if t.lines.shelves or len(t.jobs) >= window.jobs:
        lane = t.lines.lane(terms)
        if lane is not None and _must_spill(t, lane):
            return _spill(t, lane, JobCell(job_id, spec, FRESH), now)
    return add_ready_job(t, job_id, spec, now)


def enqueue_or_spill_together(
    t: Tables, ids: Sequence[JobId], specs: Sequence[Spec], now: Instant
) -> list[JobCell]:
    """The same for alike jobs, each behind the one before."""
    if t.lines.shelves or len(t.jobs) + len(ids) > t.timing.window.jobs:
        return [enqueue_or_spill(t, *job, now) for job in zip(ids, specs, strict=True)]
    return add_ready_jobs(t, ids, specs, now)


def _must_spill(t: Tables, lane: Lane) -> bool:
    window = t.timing.window
    if not lane.shelved:
        return len(t.jobs) >= window.jobs and lane.kept >= window.line
    # The last few of a shelf come back all at once: who arrives meanwhile need not follow them.
    return lane.shelved > window.piece or lane.kept >= _refill_level(t)


def _refill_level(t: Tables) -> int:
    """A lane with fewer jobs in memory is refilled: all of them share half of the window."""
    window = t.timing.window
    return max(window.line, window.jobs // (2 * max(1, t.lines.shelves)))


def _spill(t: Tables, lane: Lane, cell: JobCell, now: Instant) -> JobCell:
    t.lines.shelve(lane, cell.spec, cell.spec.order)
    lane.arrived += 1
    job_class = t.lines.classes[lane.class_index]
    job_class.arrived += 1
    job_class.arrived_work += t.runtimes.estimate(cell.spec.terms)
    if lane.life is None or lane.life.ready_at != now:
        lane.life = Life(JobState.QUEUED, reason="ready", ready_at=now, line=lane.number)
    cell.life = lane.life
    t.count_shelved(lane, 1)
    t.put_job(cell)
    return cell


def recall(t: Tables, record: JobRecord, now: Instant) -> JobCell:
    """One job of the shelf, wherever in its line it is; nothing is written yet."""
    lane = t.lines.numbered.get(record.life.line)
    if lane is None or not lane.shelved or t.recent.departed_at(record.id) is not None:
        raise StaleRecall(f"job {record.id} has moved since it was read")
    t.visitors[record.id] = None
    cell = _load(t, lane, record)
    enqueue(t, cell, now)
    t.lines.unshelve(lane, 1)
    return cell


def _load(t: Tables, lane: Lane, record: JobRecord) -> JobCell:
    """Into memory, from where it was counted as queued already.

    The store has seen to it that it shares its terms with others.
    """
    spec = record.spec
    if not _is_counted_with(lane, spec):
        t.count_shelved(lane, -1)
        return t.add_job(record.id, spec, record.life)
    place = t.lines.order.place(spec)
    cell = t.jobs[record.id] = JobCell(record.id, spec, record.life, place=place)
    return cell


def _is_counted_with(lane: Lane, spec: Spec) -> bool:
    """Whether it is counted with its lane: a line of an earlier program has several tenants."""
    return spec.terms.tenant == lane.key[0]


def spill_untouched(t: Tables) -> None:
    """At a turn's end: jobs that were brought back by name and then left as they were go again.

    Or else memory would fill up with jobs that were asked for something which was refused.
    """
    for job_id in t.visitors:
        cell = t.jobs.get(job_id)
        lane = None if cell is None else t.lines.numbered.get(cell.life.line)
        # One before the edge would not be found there any more.
        if cell is not None and lane is not None and cell.spec.order >= lane.edge:
            t.lines.shelve(lane, cell.spec, cell.spec.order)
            t.lines.leave(cell)
            t.forget_job(cell)
            t.count_shelved(lane, 1)
    t.visitors.clear()


def refill(t: Tables, event: Refilled, now: Instant) -> Counted:
    """The next jobs of a line come back, but for those that came, or came and went, meanwhile."""
    lane = t.lines.numbered.get(event.refill.line)
    if lane is None or lane.asked != event.refill.ticket:
        return Counted(0)
    may_lack = lane.arrived or not event.refill.exact
    assert event.jobs or may_lack or not lane.shelved, f"line {lane.number} is not in the store"
    jobs, gone = t.jobs, lane.gone
    back: Sequence[JobRecord] = event.jobs
    if gone or not jobs.keys().isdisjoint([one.id for one in back]):
        back = [one for one in back if one.id not in jobs and one.id not in gone]
    _enqueue_loaded(t, lane, back, now)
    if back:
        t.lines.unshelve(lane, len(back))
    if event.jobs and lane.shelved:
        last = event.jobs[-1].spec
        t.lines.move_edge(lane, last, last.order + 1)
    lane.asked, lane.dry, lane.hurried = 0, False, False
    # Where there were fewer than asked for, more may be on their way into the tables.
    lane.settled = not gone and len(event.jobs) == event.refill.limit
    gone.clear()
    if lane.shelved:
        t.lines.touched[lane.number] = lane
    return Counted(len(back))


def _enqueue_loaded(t: Tables, lane: Lane, back: Sequence[JobRecord], now: Instant) -> None:
    """In line; alike jobs that follow each other, as mostly all of a shelf do, stand as one."""
    first: JobCell | None = None
    behind: list[JobCell] = []
    stretch_jobs = t.limits.stretch_jobs
    for stretch in _alike_in_sequence(back, stretch_jobs):
        last = behind[-1] if behind else first
        cell = _load(t, lane, stretch[0])
        if first is not None and last is not None and _follows(cell, last):
            behind.append(cell)
        else:
            if first is not None and behind:
                t.lines.join_behind(first, behind, now)
            enqueue(t, cell, now)
            first, behind = cell, []
        behind += _load_alike(t, lane, cell, stretch)
        if len(behind) >= stretch_jobs:
            t.lines.join_behind(first, behind, now)
            first, behind = behind[-1], []
    if first is not None and behind:
        t.lines.join_behind(first, behind, now)


def _alike_in_sequence(back: Sequence[JobRecord], most: int) -> Iterator[Sequence[JobRecord]]:
    """So many at most that follow each other, and are alike in all that places are made of."""
    begun = 0
    for number, (before, one) in enumerate(pairwise(back), 1):
        ahead, spec = before.spec, one.spec
        if number - begun == most or not (
            spec.terms is ahead.terms
            and spec.created_at == ahead.created_at
            and spec.order > ahead.order
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
    t: Tables, lane: Lane, first: JobCell, together: Sequence[JobRecord]
) -> Collection[JobCell]:
    """The others of those that came together; the first is in memory already."""
    if len(together) == 1:
        return ()
    if not _is_counted_with(lane, first.spec):
        return [_load(t, lane, one) for one in together[1:]]
    place = first.place
    cells = {one.id: JobCell(one.id, one.spec, one.life, place=place) for one in together[1:]}
    t.jobs.update(cells)
    return cells.values()


def _follows(cell: JobCell, before: JobCell) -> bool:
    """Whether they are alike, and the one is behind the other in line. Neither has a key."""
    spec, ahead = cell.spec, before.spec
    return (
        spec.terms is ahead.terms
        and spec.concurrency is ahead.concurrency is None
        and (cell.place, spec.order) > (before.place, ahead.order)
    )


def wanted_refills(t: Tables) -> list[Refill]:
    """What to ask of the store after this turn: one question a lane at a time.

    One that was asked in good time is asked again when it has become urgent; the first answer is
    then ignored. The tables are waited for only where it matters: they are behind by what has left
    the front of a shelf, which is not asked for, and by what has come to its end.
    """
    wanted: list[Refill] = []
    lines = t.lines
    if not lines.touched:
        return wanted
    level = _refill_level(t)
    for lane in lines.touched.values():
        if _wants_refill(lane, level):
            t.tickets += 1
            exact = not lane.settled or bool(lane.gone)
            lane.asked, lane.hurried, lane.arrived = t.tickets, lane.dry or not exact, 0
            lane.gone.clear()
            limit = min(t.timing.window.piece, level)
            wanted.append(Refill(lane.number, lane.edge - 1, limit, lane.asked, lane.dry, exact))
    lines.touched.clear()
    return wanted


def _wants_refill(lane: Lane, level: int) -> bool:
    if lane.asked:
        return lane.shelved > 0 and lane.dry and not lane.hurried
    return lane.shelved > 0 and (lane.dry or lane.kept < level)


def restore_spill_queues(t: Tables, counts: Mapping[int, int]) -> None:
    """After a load: the first jobs of each line are in memory and stand in theirs, the rest is not.

    `counts` has how many jobs the store has in each line, those that were loaded among them.
    """
    loaded: dict[int, list[JobCell]] = {}
    for cell in t.jobs.values():
        if cell.life.line:
            loaded.setdefault(cell.life.line, []).append(cell)
    for number, cells in loaded.items():
        last = cells[-1]
        lane = t.lines.lane(last.spec.terms)
        assert lane is not None
        if t.lines.number_of(lane) == number:
            lane.number = number
        else:
            lane = t.lines.stranger(lane, number)
        t.lines.numbered[number] = lane
        rest = counts[number] - len(cells)
        if rest:
            t.lines.shelve(lane, last.spec, last.spec.order + 1, rest)
            t.count_shelved(lane, rest)
            t.lines.touched[number] = lane
