"""Fleet: all workers, which of them wait for work, their free capacity, and which fits best.

A worker is offered to a class once for each change of its free capacity; offers are kept in a heap
by score and are void when the worker has changed since. Workers of one type with the same free
capacity are equally good, so a choice among few compares free capacities. A reservation keeps one
of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from rota.core.entries import FreeCapacities, FreeCapacity, MachineClass, WorkerEntry
from rota.core.limits import CORE_LIMITS, FREE_WORKERS_COMPARED, CoreLimits
from rota.core.model import (
    Instant,
    JobId,
    Labels,
    Millis,
    Needs,
    Resources,
    Worker,
    WorkerId,
    WorkerState,
)
from rota.core.placement.feasibility import LabelIndex, infeasible_reasons, score
from rota.core.ready_queue.classes import CandidateMachines, JobClass
from rota.core.ready_queue.ready_queue import ReadyQueue
from rota.core.resources import NOTHING, fits, left_of, minus, plus

FreeEntry: TypeAlias = tuple[int, WorkerEntry, FreeCapacity]
"""(the worker's rank, the worker, the room that it is listed with)."""
WorkerFilter: TypeAlias = Callable[[WorkerEntry], bool]
"""Whether a worker may be used."""


def first_allowed(workers: Sequence[FreeEntry], may: WorkerFilter) -> FreeEntry | None:
    """The first of equally good workers that may be used."""
    return next((entry for entry in workers if may(entry[1])), None)


class FreeIndex:
    """Open workers with room, each once."""

    __slots__ = ("by_free_capacity", "by_id")

    def __init__(self) -> None:
        self.by_id: dict[WorkerId, FreeEntry] = {}
        self.by_free_capacity: dict[FreeCapacity, list[FreeEntry]] = {}
        """The same by room, those of a room by rank; none of the lists is empty."""

    def put(self, worker_id: WorkerId, worker: WorkerEntry) -> None:
        """Adds the worker, or moves it to the free capacity that it has now."""
        free_capacity = worker.free_capacity
        before = self.by_id.get(worker_id)
        if before is not None:
            self._take_out(before)
        entry = self.by_id[worker_id] = (worker.rank, worker, free_capacity)
        insort(self.by_free_capacity.setdefault(free_capacity, []), entry)

    def drop(self, worker_id: WorkerId) -> None:
        """The worker has none, or waits no longer."""
        entry = self.by_id.pop(worker_id, None)
        if entry is not None:
            self._take_out(entry)

    def _take_out(self, entry: FreeEntry) -> None:
        free_capacity = entry[2]
        workers = self.by_free_capacity[free_capacity]
        if len(workers) == 1:
            del self.by_free_capacity[free_capacity]
        else:
            del workers[bisect_left(workers, entry)]


ReservedPlace: TypeAlias = tuple[WorkerId, Instant, Resources]
"""(worker, when, how much it will have free then)."""


class Reservation:
    """A place for the first job of a class."""

    __slots__ = (
        "_left_at_first",
        "at",
        "copies",
        "free",
        "job_class",
        "job_id",
        "left",
        "stamp",
        "worker_id",
    )

    def __init__(self, place: ReservedPlace, job_class: JobClass, job_id: JobId) -> None:
        self.worker_id, self.at, self.free = place
        self.job_class = job_class
        self.job_id = job_id
        self.stamp = -1
        """The worker's, when this was computed."""
        self.left = self._left_at_first = minus(self.free, job_class.needs.resources)
        """What the reserved job leaves of the worker at that time, and what of that others leave
        who start in this pass."""
        self.copies = 1
        """How many members of a gang are to be there; the room given is without all but one."""

    def reset(self) -> None:
        """In another pass: whoever started there before is held by the worker, or has ended."""
        self.left = self._left_at_first

    def admits(self, needs: Resources, estimate: Millis, now: Instant) -> bool:
        """Whether a job that starts there now will not be in the way."""
        return now + estimate <= self.at or fits(needs, self.left)

    def take(self, needs: Resources, estimate: Millis, now: Instant) -> None:
        """A job starts there now; if it stays beyond the time, less is spare."""
        if now + estimate > self.at:
            self.left = minus(self.left, needs)


_ONLINE = WorkerState.ONLINE
_WASTED_BITS = 64
"""What is wasted comes before how tight a fit is, which takes fewer bits."""
_WORST = 1 << 128
"""More than any score."""
MachineKey: TypeAlias = tuple[
    Resources, tuple[str, ...], tuple[str, ...] | None, tuple[str, ...], Labels
]
"""(capacity, capabilities, queues, whom it is kept for, labels that matter)."""


class Fleet:
    """All workers, and which of them wait for work."""

    def __init__(self, ready_queue: ReadyQueue, limits: CoreLimits = CORE_LIMITS) -> None:
        self._ready_queue = ready_queue
        self._fresh_max = limits.open_workers_compared
        self.workers: dict[WorkerId, WorkerEntry] = {}
        self.machines: dict[MachineKey, MachineClass] = {}
        self.labels = LabelIndex()
        self.open: dict[WorkerId, WorkerEntry] = {}
        self.spare: dict[WorkerId, None] = {}
        """Workers that wait and can prefetch; those last looked at in vain are not in it before
        they poll again (plan/prefetch.py)."""
        self.capacity = NOTHING
        """All that the workers which are not away have together."""
        self._log: list[tuple[WorkerEntry, int]] = []
        """Workers that were offered, and their stamps then."""
        self._log_start = 0
        self._free_capacities = FreeCapacities(limits.fit_cache_max)
        self._reused = ready_queue.class_generation
        self._ranks = 0
        self._machines_made = 0
        self._fresh: dict[WorkerId, WorkerEntry] = {}
        """Open workers whose room is looked at itself, because they are few."""
        self.free_index = FreeIndex()
        """Open workers that have room for any class at all."""
        self._fresh_for: int | None = None
        """Bits of the classes that fit on any of these; None: to be looked up."""
        self._hopeful = 0
        """Bits of the classes for which one of the other open workers may have room: perhaps too
        many, never too few."""
        self._placeable = 0
        """Bits of the classes for which any of the open workers has room: never too few."""
        self._looked_at: int | None = None
        """How many classes had been made then; None: a worker was offered since."""
        self.fitted = 0
        """How many classes had been made when the rooms of all roomy workers were last looked at;
        that of each is looked at when it is offered."""
        self._changes = 0
        """Grows when a worker comes, goes or becomes another."""

    def machine_of(self, worker: Worker) -> MachineClass:
        """The class of workers like this one."""
        traits = self.labels.traits(worker)
        key = (worker.capacity, worker.capabilities, worker.queues, worker.only, traits)
        machine = self.machines.get(key)
        if machine is None:
            self._machines_made += 1
            machine = MachineClass(self._machines_made, worker, self._free_capacities, traits)
            self._drop_unused_machines()
            self.machines[key] = machine
        return machine

    def _drop_unused_machines(self) -> None:
        """Workers that come with ever new amounts (free disk, say) must not fill memory."""
        if len(self.machines) > 1024 + 2 * len(self.workers):
            used = {entry.machine.index: None for entry in self.workers.values()}
            self.machines = {k: m for k, m in self.machines.items() if m.index in used}

    def add(self, worker: Worker, seen: int) -> WorkerEntry:
        """A worker that was not known, and was last heard of then."""
        self._ranks += 1
        self.labels.add(worker)
        entry = WorkerEntry(worker, self.machine_of(worker), self._ranks, seen)
        self.workers[worker.id] = entry
        entry.machine.workers[worker.id] = None
        self.count(entry)
        return entry

    def machines_for(self, job_class: JobClass) -> CandidateMachines:
        """The kinds of workers that could run such a job, and of which one is there."""
        stamp = (self._changes, len(self._ready_queue.classes), self._ready_queue.class_generation)
        if job_class.machines is None or job_class.machines.stamp != stamp:
            machines = tuple(
                machine
                for machine in self.machines.values()
                if self.able(machine) & job_class.bit
                and any(self.is_online(worker_id) for worker_id in machine.workers)
            )
            job_class.machines = CandidateMachines(machines, stamp)
        return job_class.machines

    def is_online(self, worker_id: WorkerId) -> bool:
        """Whether the worker takes work."""
        worker = self.workers.get(worker_id)
        return worker is not None and worker.worker.state is WorkerState.ONLINE

    def online_first(self) -> list[WorkerEntry]:
        """All workers, those that take work before those that are away."""
        return sorted(self.workers.values(), key=lambda entry: not self.is_online(entry.worker.id))

    def remove(self, entry: WorkerEntry) -> None:
        """A worker that is to be forgotten."""
        self._changes += 1
        del self.workers[entry.worker.id]
        del entry.machine.workers[entry.worker.id]
        self.labels.remove(entry.worker)
        self.capacity = minus(self.capacity, entry.counted)

    def count(self, entry: WorkerEntry) -> None:
        """What the fleet has in all follows what its workers have and whether they are there."""
        self._changes += 1
        is_away = entry.worker.state is WorkerState.OFFLINE
        counted = NOTHING if is_away else entry.worker.capacity
        if counted != entry.counted:
            self.capacity = plus(minus(self.capacity, entry.counted), counted)
            entry.counted = counted

    def update(self, entry: WorkerEntry, worker: Worker) -> None:
        """A known worker registers again, perhaps with other capacity; what it holds stays held."""
        self.labels.remove(entry.worker)
        self.labels.add(worker)
        entry.worker = worker
        self._reclassify(entry)
        entry.set_free(left_of(worker.capacity, entry.held.values()))

    def _reclassify(self, entry: WorkerEntry) -> None:
        self._changes += 1
        del entry.machine.workers[entry.worker.id]
        entry.machine = machine = self.machine_of(entry.worker)
        entry.free_capacity = self._free_capacities.of(machine.index, entry.free)
        machine.workers[entry.worker.id] = None

    def track_labels(self, needs: Needs) -> None:
        """Jobs like this wait: workers that differ in labels they require are not alike."""
        classes = (job_class.needs for job_class in self._ready_queue.classes)
        if needs.affinity is not None and self.labels.track(needs.affinity, classes):
            for entry in self.workers.values():
                self._reclassify(entry)
            self._refresh_fits()

    def offer(self, entry: WorkerEntry) -> None:
        """The worker waits, or waits with more room than before."""
        poll, worker = entry.poll, entry.worker
        if poll is None or poll.free_slots <= 0 or worker.state is not _ONLINE:
            return
        worker_id = worker.id
        self.open[worker_id] = entry
        if self.fitting(entry):
            self._offer_free_capacity(worker_id, entry)
        else:
            self._close(worker_id)

    def offer_less(self, entry: WorkerEntry) -> None:
        """The worker waits on, with less room than before."""
        worker_id, free_capacity = entry.worker.id, entry.free_capacity
        if worker_id not in self.free_index.by_id:
            self.offer(entry)
        elif (
            free_capacity.mask
            if free_capacity.classes_made == self._ready_queue.classes_made
            else self.fitting(entry)
        ):
            # Nothing fits that did not before: whoever was found to fit nowhere still does not,
            # and what still fits is hoped for already.
            self.free_index.put(worker_id, entry)
            if worker_id in self._fresh:
                self._fresh_for = None
            self._note_offer(entry)
        else:
            self._close(worker_id)

    def _close(self, worker_id: WorkerId) -> None:
        """Nothing fits into the worker, or it waits no longer."""
        self.free_index.drop(worker_id)
        if self._fresh.pop(worker_id, None) is not None:
            self._fresh_for = None

    def _offer_free_capacity(self, worker_id: WorkerId, entry: WorkerEntry) -> None:
        self.free_index.put(worker_id, entry)
        self._fresh[worker_id] = entry
        self._fresh_for = self._looked_at = None
        self._note_offer(entry)

    def _note_offer(self, entry: WorkerEntry) -> None:
        self._log.append((entry, entry.stamp))
        if len(self._log) > 1024 + 4 * len(self.open):
            self._log_start += len(self._log)
            self._log.clear()

    def opened(self) -> int:
        """How often workers have waited, or waited with more room, so far."""
        return self._log_start + len(self._log)

    def opened_since(self, count: int) -> Iterator[WorkerEntry]:
        """Those that wait since then; all, if it is too long ago."""
        if count < self._log_start:
            yield from self.open.values()
            return
        for entry, stamp in self._log[count - self._log_start :]:
            if entry.stamp == stamp and entry.worker.id in self.open:
                yield entry

    def withdraw(self, entry: WorkerEntry) -> None:
        """The worker waits no longer."""
        worker_id = entry.worker.id
        if self.open.pop(worker_id, None) is not None:
            self._close(worker_id)
        entry.stamp += 1

    def fitting(self, entry: WorkerEntry) -> int:
        """Bits of the classes whose jobs fit into the worker's free room now."""
        free_capacity = entry.free_capacity
        if free_capacity.classes_made != self._ready_queue.classes_made:
            self._fit_into(entry.machine, free_capacity)
        return free_capacity.mask

    def fitting_into(self, machine: MachineClass, free: Resources) -> int:
        """Bits of the classes that such a worker could run in so much room."""
        free_capacity = self._free_capacities.of(machine.index, free)
        if free_capacity.classes_made != self._ready_queue.classes_made:
            self._fit_into(machine, free_capacity)
        return free_capacity.mask

    def _fit_into(self, machine: MachineClass, free_capacity: FreeCapacity) -> None:
        """The room is told of the classes that were made since it was last looked at."""
        ready_queue, can = self._ready_queue, self.able(machine)
        if free_capacity.generation != ready_queue.class_generation:
            (
                free_capacity.generation,
                free_capacity.mask,
                free_capacity.classes_seen,
                free_capacity.scores,
            ) = (
                ready_queue.class_generation,
                0,
                0,
                {},
            )
        for job_class in ready_queue.classes[free_capacity.classes_seen :]:
            if can & job_class.bit and fits(job_class.needs.resources, free_capacity.free):
                free_capacity.mask |= job_class.bit
        free_capacity.classes_seen, free_capacity.classes_made = (
            len(ready_queue.classes),
            ready_queue.classes_made,
        )

    def _score(self, entry: WorkerEntry, job_class: JobClass) -> int:
        """The score of a class and an amount of room never changes, so it is kept: as one number,
        for it is compared more often than anything else."""
        wasted, left = score(job_class.needs.resources, entry.machine, entry.free)
        found = entry.free_capacity.scores[job_class.index] = (wasted << _WASTED_BITS) + left
        return found

    def able(self, machine: MachineClass) -> int:
        """Bits of the classes that such a worker could run when empty."""
        if self._reused != self._ready_queue.class_generation:
            self._forget_bits()
        classes = self._ready_queue.classes
        for job_class in classes[machine.classes_seen :]:
            if not infeasible_reasons(job_class.queue.queue.name, job_class.needs, machine):
                machine.can_mask |= job_class.bit
        machine.classes_seen = len(classes)
        return machine.can_mask

    def _forget_bits(self) -> None:
        """A class number has a new meaning: all masks are computed again."""
        self._reused = self._ready_queue.class_generation
        for machine in self.machines.values():
            machine.can_mask = machine.classes_seen = 0

    def placeable_classes(self) -> int:
        """Bits of the classes worth trying to place.

        In a busy fleet few workers are open at once and the answer is exact; where many are, a
        class is tried in vain once, and then not again before another worker opens.
        """
        ready_queue = self._ready_queue
        if ready_queue.new_classes:
            self._hopeful |= ready_queue.new_classes
            ready_queue.new_classes = 0
            for worker_id, entry in self.open.items():
                if worker_id not in self.free_index.by_id and self.fitting(entry):
                    self._offer_free_capacity(worker_id, entry)
        if self.fitted != ready_queue.classes_made:
            self._refresh_fits()
        mask = self._fresh_for
        if mask is None:
            mask = 0
            for entry in self._fresh.values():
                mask |= entry.free_capacity.mask
            self._fresh_for = mask
            if len(self._fresh) > self._fresh_max:
                self._hopeful |= mask
                self._fresh.clear()
                self._fresh_for = 0
        return self._hopeful | mask

    def mark_unplaceable(self, classes: int) -> None:
        """No open worker has room for any of these."""
        self._hopeful &= ~classes

    def _best_of_many(self, job_class: JobClass, may: WorkerFilter | None) -> WorkerEntry | None:
        self._read_log(job_class)
        offers, refused = job_class.offers, []
        best: WorkerEntry | None = None
        while offers:
            _, _, worker_id, stamp = offers[0]
            entry = self.open.get(WorkerId(worker_id))
            if entry is None or entry.stamp != stamp:
                heappop(offers)
            elif may is not None and not may(entry):
                refused.append(heappop(offers))
            else:
                best = entry
                break
        for offer in refused:
            heappush(offers, offer)
        return best

    def choose(self, job_class: JobClass, may: WorkerFilter | None = None) -> WorkerEntry | None:
        """The open worker that fits this class best, among those it may use, or None."""
        if len(self.free_index.by_id) > FREE_WORKERS_COMPARED:
            return self._best_of_many(job_class, may)
        bit, index, made = job_class.bit, job_class.index, self._ready_queue.classes_made
        if self._looked_at == made and not self._placeable & bit:
            return None
        if self.fitted != made:
            self._refresh_fits()
        best: WorkerEntry | None = None
        least, rank = _WORST, 0
        # The innermost loop of a decision: nothing is called for a score that is known.
        for free_capacity, workers in self.free_index.by_free_capacity.items():
            if not free_capacity.mask & bit:
                continue
            try:
                found = free_capacity.scores[index]
            except KeyError:
                found = self._score(workers[0][1], job_class)
            if found > least:
                continue
            entry = workers[0] if may is None else first_allowed(workers, may)
            if entry is not None and (found < least or entry[0] < rank):
                rank, best, _ = entry
                least = found
        if best is None and may is None:
            self._note_placeable(made)
        return best

    def _refresh_fits(self) -> None:
        """Classes were made, or kinds of workers, since the rooms were looked at."""
        for worker_id, (_, entry, free_capacity) in list(self.free_index.by_id.items()):
            self.fitting(entry)
            if entry.free_capacity is not free_capacity:
                self.free_index.put(worker_id, entry)
        self.fitted, self._fresh_for = self._ready_queue.classes_made, None

    def _note_placeable(self, made: int) -> None:
        """One class fits nowhere: where many shapes wait, the next few will not either."""
        self._looked_at, self._placeable = made, 0
        for free_capacity in self.free_index.by_free_capacity:
            self._placeable |= free_capacity.mask

    def _read_log(self, job_class: JobClass) -> None:
        """Takes note of the workers that were offered since the class was last looked at."""
        end = self._log_start + len(self._log)
        if job_class.cursor < self._log_start:
            job_class.offers.clear()
            self._note(job_class, [entry for _, entry, _ in self.free_index.by_id.values()])
        elif job_class.cursor < end:
            log = self._log[job_class.cursor - self._log_start :]
            # One that waits no longer, or has other room, has another stamp.
            self._note(job_class, [entry for entry, stamp in log if entry.stamp == stamp])
        job_class.cursor = end

    def _note(self, job_class: JobClass, entries: Iterable[WorkerEntry]) -> None:
        bit, index, offers = job_class.bit, job_class.index, job_class.offers
        for entry in entries:
            if self.fitting(entry) & bit:
                scores = entry.free_capacity.scores
                found = scores[index] if index in scores else self._score(entry, job_class)
                heappush(offers, (found, entry.rank, entry.worker.id, entry.stamp))
