"""Backfill scheduling: starts jobs around reservations, if they do not delay them.

The first job in order that fits on no worker gets a reservation; so does the first one for every
other type of worker. Jobs behind it that could use the same workers are tried, in order or shortest
first, and start where they will have ended in time
(docs/decisions/0016-backfill-reserves-a-worker-and-a-time.md). The backfill of a schedule is
something else (schedules/commands.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from rota.core.entries import NO_CLASS, OrderKey, WorkerEntry
from rota.core.groups.placement import pick_worker
from rota.core.limits import BACKFILL_LOOK, RESERVE_AFTER_MS, RESERVE_LOOK
from rota.core.model import Instant, JobId, Millis, WorkerId
from rota.core.placement.fleet import Fleet, Reservation, WorkerFilter
from rota.core.policy import BackfillKind, CandidateKind
from rota.core.ready_queue.classes import Account, ClassQueue, JobClass, QueueHead
from rota.core.ready_queue.ready_queue import is_spill_marker
from rota.core.reservations.reserve import NEVER, Candidate, Reservations
from rota.core.state import SchedulerState

OPEN_CHECKED_MAX = 64
"""Up to so many open workers, each is checked once; with more, only those with reservations."""
PASSED_MIN = 8
"""A walk that passes fewer classes than this costs more than it saves."""
ACCOUNTS_TRIED = 32
"""Accounts that are searched for a job that is short enough."""


class BackfillTime:
    """Time limits for backfill: how long a job of each class may run beside the reservations."""

    __slots__ = ("_fits_unreserved", "_fleet", "_reservations", "_time_limits", "free", "longest")

    def __init__(
        self, fleet: Fleet, reservations: Mapping[WorkerId, Reservation], now: Instant
    ) -> None:
        self._fleet = fleet
        self._reservations = reservations
        self._time_limits: list[tuple[int, Millis]] = []
        """(bits of classes, how long they may run) for each reserved worker."""
        self._fits_unreserved: dict[int, bool] | None = None
        self.free = 0
        self.longest: Millis = -1
        if len(fleet.open) <= OPEN_CHECKED_MAX:
            for worker in fleet.open.values():
                self._add_worker(worker, now)
            return
        self._fits_unreserved, self.longest = {}, NEVER
        for worker_id in reservations:
            if worker_id in fleet.open:
                self._add_worker(fleet.open[worker_id], now)

    def _add_worker(self, worker: WorkerEntry, now: Instant) -> None:
        fleet, reservation = self._fleet, self._reservations.get(worker.worker.id)
        fitting = fleet.fitting(worker)
        if reservation is None:
            self.free |= fitting
        else:
            self.free |= fitting & fleet.fitting_into(worker.machine, reservation.left)
            self._time_limits.append((fitting, reservation.at - now))
            self.longest = max(self.longest, reservation.at - now)

    def time_for(self, job_class: JobClass) -> Millis:
        """How long a job of the class may run where it fits; -1: it fits nowhere."""
        bit = job_class.bit
        if self.free & bit or (
            self._fits_unreserved is not None and self._fits_elsewhere(job_class)
        ):
            return NEVER
        longest: Millis = -1
        for fitting, time in self._time_limits:
            if fitting & bit and time > longest:
                longest = time
        return longest

    def _fits_elsewhere(self, job_class: JobClass) -> bool:
        """Whether it fits on an open worker without a reservation."""
        assert self._fits_unreserved is not None
        if job_class.index not in self._fits_unreserved:
            found = self._fleet.choose(job_class, self._is_unreserved)
            self._fits_unreserved[job_class.index] = found is not None
        return self._fits_unreserved[job_class.index]

    def _is_unreserved(self, worker: WorkerEntry) -> bool:
        return worker.worker.id not in self._reservations


class BackfillScan:
    """Scan of the waiting jobs in one turn, which may make reservations."""

    def __init__(self, t: SchedulerState, now: Instant) -> None:
        self._t = t
        self._now = now
        self.reservations = Reservations(t, now)
        self.unplaceable = 0
        """Bits of classes that fit on no open worker; free capacity only shrinks in a turn."""
        self.behind_reservations = 0
        """Bits of classes that could use a type of worker on which a job has a reservation."""
        self._left_out = 0
        """Bits of classes that are not considered any more in this turn."""
        backfill = t.policy.backfill
        self._is_greedy = backfill is BackfillKind.GREEDY
        self._may_wait = backfill is BackfillKind.EASY and len(t.fleet.workers) > RESERVE_LOOK
        """Whether first jobs wait for a while before capacity is reserved for them."""
        self._walks_left = t.limits.walks_per_pass if self._may_wait else 0
        """Walks that are still worth their cost; 0 after one that broke off early."""

    def next(self) -> Candidate | None:
        """The next job to start; None: nothing more can start now."""
        t = self._t
        fleet, ready_queue = t.fleet, t.ready_queue
        for worker_id, job_id in t.being_preempted.items():
            found = self._preempting_candidate(worker_id, job_id)
            if found is not None:
                return found
        first, head = ready_queue.order.first, ready_queue.head
        while fleet.open:
            # Masks are long numbers: testing for bits to exclude is cheaper than excluding none.
            candidates = ready = ready_queue.ready
            placeable = fleet.placeable_classes() & ready
            if excluded := t.blocked_classes | self.unplaceable:
                placeable &= ~excluded
            if not placeable:
                return None
            if excluded := t.blocked_classes | self.behind_reservations | self._left_out:
                candidates = ready & ~excluded
            class_queue = first(candidates, head)
            if (
                class_queue is not None
                and not class_queue.bit & placeable
                and self._may_be_passed(class_queue)
            ):
                candidates &= placeable
                class_queue = first(candidates, head)
            if class_queue is None:
                return self._backfill_candidate(placeable)
            found = self._try_head(class_queue, placeable, candidates)
            if found is not None:
                return found
            self._pass_over()
        return None

    def _preempting_candidate(self, worker_id: WorkerId, job_id: JobId) -> Candidate | None:
        """The job for which this worker's executions were stopped: it goes first once it fits."""
        job, worker = self._t.jobs[job_id], self._t.fleet.open.get(worker_id)
        # Without a class it has started on another worker in this pass.
        if worker is None or job.class_index == NO_CLASS:
            return None
        job_class = self._t.ready_queue.classes[job.class_index]
        if not self._t.fleet.fitting(worker) & job_class.bit:
            return None
        del self.reservations.by_worker[worker_id]
        del self._t.being_preempted[worker_id]
        return Candidate(job, worker)

    def _try_head(
        self, class_queue: ClassQueue, placeable: int, candidates: int
    ) -> Candidate | None:
        """Starts the head of the class queue if it fits; if not, makes its reservation."""
        t, job_class = self._t, class_queue.job_class
        head = class_queue.first or t.ready_queue.head(class_queue)
        if placeable & job_class.bit:
            job = t.jobs.get(head[2])  # none: a spill marker
            admits, has_preference = None, job_class.has_preference
            if self.reservations.affected_classes & job_class.bit:
                admits = self._admits(job_class, 0 if job is None else job.estimate)
            worker = (
                pick_worker(t, class_queue, self._now, admits)
                if has_preference
                else t.fleet.choose(job_class, admits)
            )
            if worker is not None and job is not None:
                is_plain = admits is None and not has_preference and not t.being_preempted
                return Candidate(job, worker, candidates if is_plain else 0)
            if worker is not None:
                # The head is in the store and must be loaded first, or others would overtake it.
                t.ready_queue.note_empty(head)
                self._left_out = -1
                self.behind_reservations = 0
                return None
            if has_preference and t.affinity.waits_until(job_class, self._now) is not None:
                self._left_out |= job_class.bit  # it fits, but waits for a worker that it prefers
                return None
            # Not beside reservations: what counts as placeable decides who gets the next one.
            if admits is None and not has_preference and not self.reservations.by_worker:
                t.fleet.mark_unplaceable(job_class.bit)
            self.unplaceable |= job_class.bit
        self._hold_back(class_queue, head)
        return None

    def _may_be_passed(self, class_queue: ClassQueue) -> bool:
        """Whether nothing is reserved for the head yet: a large fleet has free capacity soon."""
        if not self._may_wait:
            return self._is_greedy
        if class_queue.job_class.needs.copies > 1:
            return False
        head = self._t.ready_queue.head(class_queue)
        if class_queue.stuck != head:
            class_queue.stuck, class_queue.stuck_since = head, self._now
        return self._now < class_queue.stuck_since + RESERVE_AFTER_MS

    def _pass_over(self) -> None:
        """Passes over many classes at once where no open worker has capacity for any of them.

        Goes in their order, up to the first head for which more is to be decided than that it waits
        (docs/performance.md, "Classes that cannot start are passed over in one walk").
        """
        t = self._t
        if t.fleet.free_index.by_id or not self._walks_left:
            return
        if self.reservations.affected_classes or self.reservations.by_worker:
            return
        placeable = (
            t.fleet.placeable_classes()
            & t.ready_queue.ready
            & ~(t.blocked_classes | self.unplaceable)
        )
        passed, is_unplaceable_met = 0, False
        for class_queue in self._in_order(
            t.ready_queue.ready & ~(t.blocked_classes | self.behind_reservations | self._left_out)
        ):
            if passed == placeable:
                break
            if not class_queue.bit & placeable:
                # Only the first class that could not be placed anyway is checked, each time again.
                if not is_unplaceable_met and not self._may_be_passed(class_queue):
                    break
                is_unplaceable_met = True
            elif not class_queue.bit & passed:
                has_machines = bool(t.fleet.machines_for(class_queue.job_class).machine_classes)
                if class_queue.job_class.has_preference or (
                    has_machines and not self._may_be_passed(class_queue)
                ):
                    break
                passed |= class_queue.bit
        # A walk that keeps breaking off repeats all before: then trying each head is cheaper.
        self._walks_left = self._walks_left - 1 if passed.bit_count() >= PASSED_MIN else 0
        self.unplaceable |= passed
        self._left_out |= passed
        t.fleet.mark_unplaceable(passed)

    def _in_order(self, mask: int) -> Iterator[ClassQueue]:
        """Class queues in dispatch order, as far as it is known without a search.

        Nothing may start or be queued while this is iterated.
        """
        for accounts in self._t.ready_queue.order.in_turn(mask):
            if len(accounts) > 1:
                return
            bits = mask & accounts[0].ready
            for _, key, _, class_queue in accounts[0].heads:
                if class_queue.bit & bits:
                    if class_queue.first is not key:
                        return
                    yield class_queue

    def _hold_back(self, class_queue: ClassQueue, head: OrderKey) -> None:
        job_class, backfill = class_queue.job_class, self._t.policy.backfill
        machines = self._t.fleet.machines_for(job_class)
        if not machines.machine_classes or self._may_be_passed(class_queue):
            # It waits for a worker that is not there, or is passed over.
            self._left_out |= job_class.bit
        elif backfill is BackfillKind.NONE:
            self._left_out |= machines.rivals
        elif self.reservations.reserve(job_class, head[2]) is None:
            self._left_out |= job_class.bit
        else:
            self.behind_reservations |= machines.rivals

    # Jobs behind the reservations

    def _backfill_candidate(self, placeable: int) -> Candidate | None:
        """The best job that may start before a reserved one, of the first account that has one."""
        t, mask, limits = self._t, placeable & self.behind_reservations, self._time_left()
        for accounts in islice(t.ready_queue.order.in_turn(mask), ACCOUNTS_TRIED):
            found = [one for account in accounts if (one := self._pick(account, mask, limits))]
            if found:
                _, key, _, class_queue = min(found)
                job = t.jobs[key[2]]
                worker = self._worker_for(class_queue, key, job.estimate)
                if worker is not None:
                    return Candidate(job, worker)
                self.unplaceable |= class_queue.bit  # it waits for another worker that it prefers
                return self._backfill_candidate(placeable & ~class_queue.bit)
        # Free capacity and time only shrink, so no later call finds one either.
        self.unplaceable |= mask
        return None

    def _time_left(self) -> BackfillTime:
        return BackfillTime(self._t.fleet, self.reservations.by_worker, self._now)

    def _pick(self, account: Account, mask: int, limits: BackfillTime) -> QueueHead | None:
        """The account's first or shortest job that is no longer than its class may run."""
        ready_queue = self._t.ready_queue
        if self._t.policy.candidates is CandidateKind.SHORTEST:
            return account.shortest(mask, limits, ready_queue.shortest)
        best: QueueHead | None = None
        for head in list(account.heads):
            class_queue = head[3]
            if best is not None and best[:2] < head[:2]:
                break
            if class_queue.bit & mask & account.ready:
                key = self._first_within(class_queue, limits.time_for(class_queue.job_class))
                if key is not None and (best is None or (class_queue.rank, key) < best[:2]):
                    best = (class_queue.rank, key, class_queue.number, class_queue)
        return best

    def _first_within(self, class_queue: ClassQueue, limit: Millis) -> OrderKey | None:
        """The first job in memory that is no longer than this."""
        t = self._t
        if limit >= NEVER or not class_queue.is_mixed:
            head = t.ready_queue.head(class_queue)
            return head if class_queue.estimate <= limit and not is_spill_marker(head) else None
        short = (
            entry
            for entry in islice(class_queue.jobs.in_order(), BACKFILL_LOOK)
            if not is_spill_marker(entry)
            and t.ready_queue.is_current(entry, class_queue)
            and t.jobs[entry[2]].estimate <= limit
        )
        return next(short, None)

    def _worker_for(
        self, class_queue: ClassQueue, key: OrderKey, estimate: Millis
    ) -> WorkerEntry | None:
        """The best worker on which a job of this length delays no reservation."""
        job_class = class_queue.job_class
        admits = self._admits(job_class, estimate)
        if job_class.has_preference:
            return pick_worker(self._t, class_queue, self._now, admits, key)
        worker = self._t.fleet.choose(job_class, admits)
        assert worker is not None, "a job that may start has a worker where it may"
        return worker

    def _admits(self, job_class: JobClass, estimate: Millis) -> WorkerFilter:
        reservations, needs, now = self.reservations.by_worker, job_class.needs.resources, self._now

        def admits(worker: WorkerEntry) -> bool:
            reservation = reservations.get(worker.worker.id)
            return reservation is None or reservation.admits(needs, estimate, now)

        return admits

    def note_started(self, candidate: Candidate, job_class: JobClass) -> None:
        """Reduces what a reservation leaves free by a job that started on its worker."""
        reservation = self.reservations.by_worker.get(candidate.worker.worker.id)
        if reservation is not None:
            reservation.take(job_class.needs.resources, candidate.job.estimate, self._now)
