"""Who may pass a job that does not fit yet: those who do not delay it.

The first job in order that fits on no worker has a place reserved (reserving.py); so has the first
of every other kind of worker. Those behind it that could use the same workers are tried, in order
or the shortest first, and start where they will be out of the way in time.
"""

from __future__ import annotations

from itertools import islice
from typing import TypeAlias

from rota.core.cells import LineKey, WorkerCell
from rota.core.limits import BACKFILL_LOOK
from rota.core.model import Instant, JobId, Millis, WorkerId
from rota.core.ordering import is_mark
from rota.core.party import JobClass, Line
from rota.core.placement import May
from rota.core.places import Reservation
from rota.core.policy import BackfillKind, CandidateKind, OrderKind
from rota.core.reserving import Reservations
from rota.core.resources import fits
from rota.core.tables import Tables

OPEN_LOOKED_AT = 64
"""Open workers that are looked at one by one before those behind are tried."""
LINES_TRIED = 32
"""Tenants asked for a job of one class that is short enough."""


Look: TypeAlias = tuple[int, list[tuple[int, Reservation]]]
"""(what fits where nobody has a place, what fits on each of the others and whose place it is)."""
Rank: TypeAlias = tuple[int, LineKey]
"""The smallest is tried first."""


class Candidate:
    """A job that may start now, and where."""

    __slots__ = ("estimate", "job_id", "key", "worker")

    def __init__(self, key: LineKey, estimate: Millis, worker: WorkerCell) -> None:
        self.key = key
        self.job_id = key[2]
        self.estimate = estimate
        self.worker = worker


class Pass:
    """One pass over what waits, in which places may be reserved."""

    def __init__(self, t: Tables, now: Instant) -> None:
        self._t = t
        self._now = now
        self.reservations = Reservations(t, now)
        self.in_vain = 0
        """Classes that fit on no open worker: room only shrinks here, so they never will."""
        self.behind = 0
        """Classes that could use a kind of worker on which somebody waits for a place."""
        self._left_out = 0

    def next(self) -> Candidate | None:
        """The next job to start; None: nothing more can start now."""
        fleet, lines = self._t.fleet, self._t.lines
        for worker_id, job_id in self._t.cleared.items():
            found = self._for_whom_it_was_cleared(worker_id, job_id)
            if found is not None:
                return found
        while fleet.open:
            hopes = fleet.hopes() & ~self._t.parked & ~self.in_vain & lines.ready
            if not hopes:
                return None
            line = lines.first(~self._t.parked & ~self.behind & ~self._left_out)
            if line is None:
                return self._behind(hopes)
            found = self._try_head(line, hopes)
            if found is not None:
                return found
        return None

    def _for_whom_it_was_cleared(self, worker_id: WorkerId, job_id: JobId) -> Candidate | None:
        """The job for which others were stopped there goes before all, once there is room."""
        job, worker = self._t.jobs[job_id], self._t.fleet.open.get(worker_id)
        job_class = self._t.lines.classes[job.class_index]
        if worker is None or not self._t.fleet.fitting(worker) & job_class.bit:
            return None
        del self.reservations.by_worker[worker_id]
        del self._t.cleared[worker_id]
        return Candidate(job.line_key(), job.estimate, worker)

    def _try_head(self, line: Line, hopes: int) -> Candidate | None:
        """The head of the line goes if it fits; if not, a place is kept for it."""
        t, job_class = self._t, line.job_class
        head = t.lines.head(line)
        if hopes & job_class.bit:
            estimate = 0 if is_mark(head) else t.jobs[head[2]].estimate
            may = self._admits(job_class, estimate) if self.reservations.by_worker else None
            worker = t.fleet.choose(job_class, may)
            if worker is not None and not is_mark(head):
                return Candidate(head, estimate, worker)
            if worker is not None:
                # It goes first, and the store is asked for it: whoever else went now overtook it.
                t.lines.run_dry(head)
                self._left_out = -1
                self.behind = 0
                return None
            if may is None:
                t.fleet.give_up(job_class)
            self.in_vain |= job_class.bit
        self._hold_back(job_class, head)
        return None

    def _hold_back(self, job_class: JobClass, head: LineKey) -> None:
        machines = self.reservations.able(job_class)
        if not machines:
            self._left_out |= job_class.bit  # it waits for a worker that is not there
            return
        if self._t.policy.backfill is BackfillKind.GREEDY:
            self._left_out |= job_class.bit
            return
        rivals = 0
        for machine in machines:
            rivals |= machine.can_mask
        if self._t.policy.backfill is BackfillKind.NONE:
            self._left_out |= rivals
            return
        if self.reservations.reserve(job_class, head[2], machines) is None:
            self._left_out |= job_class.bit
        else:
            self.behind |= rivals

    # Those behind

    def _behind(self, hopes: int) -> Candidate | None:
        """The best of the jobs that may pass, in the policy's order of trying."""
        best: tuple[Rank, JobClass, Millis, LineKey] | None = None
        mask, look = hopes & self.behind, self._look_at_open()
        while mask:
            bit = mask & -mask
            mask ^= bit
            job_class = self._t.lines.classes[bit.bit_length() - 1]
            found = self._at_a_glance(job_class) if look[0] & bit else None
            found = found or self._pick(job_class, self._time_for(job_class, look))
            if found is None:
                self.in_vain |= bit  # nor will a later one: room and time only shrink
                continue
            rank = self._rank(job_class, *found)
            if best is None or rank < best[0]:
                best = (rank, job_class, *found)
        if best is None:
            return None
        _, job_class, estimate, key = best
        return Candidate(key, estimate, self._worker_for(job_class, estimate))

    def _at_a_glance(self, job_class: JobClass) -> tuple[Millis, LineKey] | None:
        """The head, where nothing but its place in order can matter: the usual case, and cheap."""
        if len(job_class.lines) == 1 and not self._t.tenants.limited_count:
            (line,) = job_class.lines.values()
            if not line.is_mixed and line.first is not None and not is_mark(line.first):
                return line.estimate, line.first
        return None

    def _rank(self, job_class: JobClass, estimate: Millis, key: LineKey) -> Rank:
        policy = self._t.policy
        if policy.candidates is CandidateKind.SHORTEST:
            return (estimate, key)
        is_strict = policy.order is OrderKind.PRIORITY
        return (-job_class.queue.queue.priority if is_strict else 0, key)

    def _look_at_open(self) -> Look:
        """What fits on the open workers: on those that nobody has a place on, and on the others."""
        fleet, places = self._t.fleet, self.reservations.by_worker
        free, kept = 0, []
        for worker in fleet.open.values() if len(fleet.open) <= OPEN_LOOKED_AT else ():
            place = places.get(worker.worker.id)
            if place is None:
                free |= fleet.fitting(worker)
            else:
                kept.append((fleet.fitting(worker), place))
        return free, kept

    def _time_for(self, job_class: JobClass, look: Look) -> Millis | None:
        """How long a job of the class may run where it fits; None: as long as it likes."""
        free, kept = look
        if free & job_class.bit:
            return None
        fleet, needs, time = self._t.fleet, job_class.needs.resources, -1
        if len(fleet.open) > OPEN_LOOKED_AT:
            if fleet.choose(job_class, self._is_free_for(job_class)) is not None:
                return None
            kept = [
                (fleet.fitting(fleet.open[place.worker_id]), place)
                for place in self.reservations.by_worker.values()
                if place.worker_id in fleet.open
            ]
        for fitting, place in kept:
            if fitting & job_class.bit:
                if fits(needs, place.spare):
                    return None
                time = max(time, place.at - self._now)
        return time

    def _is_free_for(self, job_class: JobClass) -> May:
        places, needs = self.reservations.by_worker, job_class.needs.resources

        def is_free(worker: WorkerCell) -> bool:
            place = places.get(worker.worker.id)
            return place is None or fits(needs, place.spare)

        return is_free

    def _worker_for(self, job_class: JobClass, estimate: Millis) -> WorkerCell:
        """The best worker where a job of this length is in nobody's way."""
        worker = self._t.fleet.choose(job_class, self._admits(job_class, estimate))
        assert worker is not None, "a job that may start has a worker where it may"
        return worker

    def _admits(self, job_class: JobClass, estimate: Millis) -> May:
        places, needs, now = self.reservations.by_worker, job_class.needs.resources, self._now

        def admits(worker: WorkerCell) -> bool:
            place = places.get(worker.worker.id)
            return place is None or place.admits(needs, estimate, now)

        return admits

    def _pick(self, job_class: JobClass, limit: Millis | None) -> tuple[Millis, LineKey] | None:
        """A job that is no longer than the limit: of whoever goes first, or else of others."""
        if len(job_class.lines) == 1:
            (only,) = job_class.lines.values()
            return self._pick_from(only, limit) if self._may_go(only) else None
        first = self._t.lines.first(job_class.bit)
        if first is None:
            return None
        found = self._pick_from(first, limit)
        for line in islice(job_class.lines.values(), LINES_TRIED) if found is None else ():
            if line is not first and self._may_go(line):
                found = self._pick_from(line, limit)
                if found is not None:
                    break
        return found

    def _may_go(self, line: Line) -> bool:
        party = self._t.lines.order.party(line.tenant, line.job_class.queue)
        return bool(party.ready & line.job_class.bit)

    def _pick_from(self, line: Line, limit: Millis | None) -> tuple[Millis, LineKey] | None:
        t = self._t
        if t.policy.candidates is CandidateKind.SHORTEST or not line.is_mixed:
            found = t.lines.shortest(line)
            return found if found is not None and (limit is None or found[0] <= limit) else None
        if limit is None:
            head = t.lines.head(line)
            return None if is_mark(head) else (t.jobs[head[2]].estimate, head)
        short = (
            entry
            for entry in line.heap[:BACKFILL_LOOK]
            if not is_mark(entry)
            and t.lines.stands(entry, line)
            and t.jobs[entry[2]].estimate <= limit
        )
        key = min(short, default=None)
        return None if key is None else (t.jobs[key[2]].estimate, key)

    def started(self, candidate: Candidate, job_class: JobClass) -> None:
        """The candidate has its worker: what is reserved there has less to spare."""
        place = self.reservations.by_worker.get(candidate.worker.worker.id)
        if place is not None:
            place.take(job_class.needs.resources, candidate.estimate, self._now)
