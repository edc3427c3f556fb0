"""Fleet: all workers, which of them wait for work, their free capacity, and which fits best.

A worker is offered to a class once for each change of its free capacity; offers are kept in a heap
by score and are void when the worker has changed since. Workers of one machine class with the same
free capacity are equally good, so a choice among few compares free capacities. A reservation keeps
one of them for a job.
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
"""(rank of the worker, the worker, the free capacity that it is listed with)."""
WorkerFilter: TypeAlias = Callable[[WorkerEntry], bool]
"""Whether a worker may be used."""


def first_allowed(workers: Sequence[FreeEntry], allowed: WorkerFilter) -> FreeEntry | None:
    """First of equally good workers that may be used."""
    return next((entry for entry in workers if allowed(entry[1])), None)


class FreeIndex:
    """Open workers with free capacity for any class, by free capacity."""

    __slots__ = ("by_free_capacity", "by_id")

    def __init__(self) -> None:
        self.by_id: dict[WorkerId, FreeEntry] = {}
        self.by_free_capacity: dict[FreeCapacity, list[FreeEntry]] = {}
        """Sorted by rank; none of the lists is empty."""

    def put(self, worker_id: WorkerId, worker: WorkerEntry) -> None:
        """Adds the worker, or moves it to the free capacity that it has now."""
        free_capacity = worker.free_capacity
        before = self.by_id.get(worker_id)
        if before is not None:
            self._take_out(before)
        entry = self.by_id[worker_id] = (worker.rank, worker, free_capacity)
        insort(self.by_free_capacity.setdefault(free_capacity, []), entry)

    def drop(self, worker_id: WorkerId) -> None:
        """Removes the worker, if it is listed."""
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
"""(worker, when, its free capacity then)."""


class Reservation:
    """Reservation of a place on a worker for the first job of a class."""

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
        """Stamp of the worker when this was computed."""
        self.left = self._left_at_first = minus(self.free, job_class.needs.resources)
        """Capacity that the reserved job leaves free at that time, less what started there in this
        pass."""
        self.copies = 1
        """Of a gang: number of its members on this worker; `free` is what is left for the last
        one."""

    def reset(self) -> None:
        """Begins another pass: what started there before is held by the worker now."""
        self.left = self._left_at_first

    def admits(self, needs: Resources, estimate: Millis, now: Instant) -> bool:
        """Whether a job that starts there now does not delay the reserved one."""
        return now + estimate <= self.at or fits(needs, self.left)

    def take(self, needs: Resources, estimate: Millis, now: Instant) -> None:
        """Notes that a job starts there now; if it runs beyond the reserved time, less is left."""
        if now + estimate > self.at:
            self.left = minus(self.left, needs)


_ONLINE = WorkerState.ONLINE
_WASTED_BITS = 64
"""Waste is compared before tightness, which takes fewer bits."""
_WORST = 1 << 128
"""Greater than any score."""
MachineKey: TypeAlias = tuple[
    Resources, tuple[str, ...], tuple[str, ...] | None, tuple[str, ...], Labels
]
"""(capacity, capabilities, queues, `only`, labels that jobs require)."""


class Fleet:
    """Fleet: all workers, the open ones, and the choice of the best for a class."""

    def __init__(self, ready_queue: ReadyQueue, limits: CoreLimits = CORE_LIMITS) -> None:
        self._ready_queue = ready_queue
        self._fresh_max = limits.open_workers_compared
        self.workers: dict[WorkerId, WorkerEntry] = {}
        self.machines: dict[MachineKey, MachineClass] = {}
        self.labels = LabelIndex()
        self.open: dict[WorkerId, WorkerEntry] = {}
        self.spare: dict[WorkerId, None] = {}
        """Open workers that can prefetch; one that was tried in vain is not in it before it polls
        again (dispatch/prefetch.py)."""
        self.capacity = NOTHING
        """Capacity of all workers that are not offline."""
        self._log: list[tuple[WorkerEntry, int]] = []
        """Log of offers: workers, and their stamps then."""
        self._log_start = 0
        self._free_capacities = FreeCapacities(limits.fit_cache_max)
        self._reused = ready_queue.class_generation
        self._ranks = 0
        self._machines_made = 0
        self._fresh: dict[WorkerId, WorkerEntry] = {}
        """Open workers that are few enough to look at each."""
        self.free_index = FreeIndex()
        """Open workers with free capacity for any class."""
        self._fresh_for: int | None = None
        """Bits of the classes that fit on any of `_fresh`; None: to be computed."""
        self._maybe_fits = 0
        """Bits of the classes that may fit on one of the other open workers: perhaps too many,
        never too few."""
        self._placeable = 0
        """Bits of the classes that fit on any open worker: perhaps too many, never too few."""
        self._looked_at: int | None = None
        """`classes_made` for which this holds; None: a worker was offered since."""
        self.fitted = 0
        """`classes_made` for which the masks of all listed workers are complete; those of an
        offered worker are checked at the offer."""
        self._changes = 0
        """Grows when a worker comes, goes or changes its class."""

    def machine_of(self, worker: Worker) -> MachineClass:
        """Class of workers like this one, created on first use."""
        labels = self.labels.required_labels(worker)
        key = (worker.capacity, worker.capabilities, worker.queues, worker.only, labels)
        machine = self.machines.get(key)
        if machine is None:
            self._machines_made += 1
            machine = MachineClass(self._machines_made, worker, self._free_capacities, labels)
            self._drop_unused_machines()
            self.machines[key] = machine
        return machine

    def _drop_unused_machines(self) -> None:
        """Drops unused classes: workers with ever new amounts (free disk, say) must not add up."""
        if len(self.machines) > 1024 + 2 * len(self.workers):
            used = {entry.machine.index: None for entry in self.workers.values()}
            self.machines = {k: m for k, m in self.machines.items() if m.index in used}

    def add(self, worker: Worker, seen: int) -> WorkerEntry:
        """Adds a worker that was last heard of at `seen`."""
        self._ranks += 1
        self.labels.add(worker)
        entry = WorkerEntry(worker, self.machine_of(worker), self._ranks, seen)
        self.workers[worker.id] = entry
        entry.machine.workers[worker.id] = None
        self.count(entry)
        return entry

    def machines_for(self, job_class: JobClass) -> CandidateMachines:
        """Machine classes that could run such a job, with a worker online."""
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
        """Whether the worker gets orders."""
        worker = self.workers.get(worker_id)
        return worker is not None and worker.worker.state is WorkerState.ONLINE

    def online_first(self) -> list[WorkerEntry]:
        """All workers, online ones first."""
        return sorted(self.workers.values(), key=lambda entry: not self.is_online(entry.worker.id))

    def remove(self, entry: WorkerEntry) -> None:
        """Removes a worker."""
        self._changes += 1
        del self.workers[entry.worker.id]
        del entry.machine.workers[entry.worker.id]
        self.labels.remove(entry.worker)
        self.capacity = minus(self.capacity, entry.counted)

    def count(self, entry: WorkerEntry) -> None:
        """Adjusts the fleet's capacity to the worker's capacity and state."""
        self._changes += 1
        is_away = entry.worker.state is WorkerState.OFFLINE
        counted = NOTHING if is_away else entry.worker.capacity
        if counted != entry.counted:
            self.capacity = plus(minus(self.capacity, entry.counted), counted)
            entry.counted = counted

    def update(self, entry: WorkerEntry, worker: Worker) -> None:
        """Follows a new registration of a known worker; what it holds stays held."""
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
        """Makes machine classes differ in the labels that these needs require."""
        classes = (job_class.needs for job_class in self._ready_queue.classes)
        if needs.affinity is not None and self.labels.track(needs.affinity, classes):
            for entry in self.workers.values():
                self._reclassify(entry)
            self._refresh_fits()

    def offer(self, entry: WorkerEntry) -> None:
        """Offers a worker that waits, or waits with more free capacity than before."""
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
        """Offers a worker that still waits, with less free capacity than before."""
        worker_id, free_capacity = entry.worker.id, entry.free_capacity
        if worker_id not in self.free_index.by_id:
            self.offer(entry)
        elif (
            free_capacity.mask
            if free_capacity.classes_made == self._ready_queue.classes_made
            else self.fitting(entry)
        ):
            # No other class fits now, and for those that do, the worker was offered before.
            self.free_index.put(worker_id, entry)
            if worker_id in self._fresh:
                self._fresh_for = None
            self._note_offer(entry)
        else:
            self._close(worker_id)

    def _close(self, worker_id: WorkerId) -> None:
        """Removes a worker that no job fits on, or that does not wait any more."""
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
        """Number of offers so far."""
        return self._log_start + len(self._log)

    def opened_since(self, count: int) -> Iterator[WorkerEntry]:
        """Workers offered since then; all open ones, if that is too long ago."""
        if count < self._log_start:
            yield from self.open.values()
            return
        for entry, stamp in self._log[count - self._log_start :]:
            if entry.stamp == stamp and entry.worker.id in self.open:
                yield entry

    def withdraw(self, entry: WorkerEntry) -> None:
        """Takes a worker back that does not wait any more."""
        worker_id = entry.worker.id
        if self.open.pop(worker_id, None) is not None:
            self._close(worker_id)
        entry.stamp += 1

    def fitting(self, entry: WorkerEntry) -> int:
        """Bits of the classes that fit into the worker's free capacity."""
        free_capacity = entry.free_capacity
        if free_capacity.classes_made != self._ready_queue.classes_made:
            self._fit_into(entry.machine, free_capacity)
        return free_capacity.mask

    def fitting_into(self, machine: MachineClass, free: Resources) -> int:
        """Bits of the classes that fit into this free capacity of such a worker."""
        free_capacity = self._free_capacities.of(machine.index, free)
        if free_capacity.classes_made != self._ready_queue.classes_made:
            self._fit_into(machine, free_capacity)
        return free_capacity.mask

    def _fit_into(self, machine: MachineClass, free_capacity: FreeCapacity) -> None:
        """Completes the mask with classes made since."""
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
        """Caches the score of a class for an amount of free capacity, which never changes. It is
        one number, because it is compared more often than anything else."""
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
        """Clears all masks, because a class index has a new meaning."""
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
            self._maybe_fits |= ready_queue.new_classes
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
                self._maybe_fits |= mask
                self._fresh.clear()
                self._fresh_for = 0
        return self._maybe_fits | mask

    def mark_unplaceable(self, classes: int) -> None:
        """Notes that no open worker has free capacity for any of these classes."""
        self._maybe_fits &= ~classes

    def _best_of_many(
        self, job_class: JobClass, allowed: WorkerFilter | None
    ) -> WorkerEntry | None:
        self._read_log(job_class)
        offers, refused = job_class.offers, []
        best: WorkerEntry | None = None
        while offers:
            _, _, worker_id, stamp = offers[0]
            entry = self.open.get(WorkerId(worker_id))
            if entry is None or entry.stamp != stamp:
                heappop(offers)
            elif allowed is not None and not allowed(entry):
                refused.append(heappop(offers))
            else:
                best = entry
                break
        for offer in refused:
            heappush(offers, offer)
        return best

    def choose(
        self, job_class: JobClass, allowed: WorkerFilter | None = None
    ) -> WorkerEntry | None:
        """Open worker that fits this class best, among those allowed; None: none fits."""
        if len(self.free_index.by_id) > FREE_WORKERS_COMPARED:
            return self._best_of_many(job_class, allowed)
        bit, index, made = job_class.bit, job_class.index, self._ready_queue.classes_made
        if self._looked_at == made and not self._placeable & bit:
            return None
        if self.fitted != made:
            self._refresh_fits()
        best: WorkerEntry | None = None
        least, rank = _WORST, 0
        # The innermost loop of a decision: no function is called for a known score.
        for free_capacity, workers in self.free_index.by_free_capacity.items():
            if not free_capacity.mask & bit:
                continue
            try:
                found = free_capacity.scores[index]
            except KeyError:
                found = self._score(workers[0][1], job_class)
            if found > least:
                continue
            entry = workers[0] if allowed is None else first_allowed(workers, allowed)
            if entry is not None and (found < least or entry[0] < rank):
                rank, best, _ = entry
                least = found
        if best is None and allowed is None:
            self._note_placeable(made)
        return best

    def _refresh_fits(self) -> None:
        """Completes all masks after classes or machine classes were made."""
        for worker_id, (_, entry, free_capacity) in list(self.free_index.by_id.items()):
            self.fitting(entry)
            if entry.free_capacity is not free_capacity:
                self.free_index.put(worker_id, entry)
        self.fitted, self._fresh_for = self._ready_queue.classes_made, None

    def _note_placeable(self, made: int) -> None:
        """Collects all classes that fit: after one that does not, mostly the next do not either."""
        self._looked_at, self._placeable = made, 0
        for free_capacity in self.free_index.by_free_capacity:
            self._placeable |= free_capacity.mask

    def _read_log(self, job_class: JobClass) -> None:
        """Adds the workers that were offered since the class was last tried to its heap."""
        end = self._log_start + len(self._log)
        if job_class.cursor < self._log_start:
            job_class.offers.clear()
            self._note(job_class, [entry for _, entry, _ in self.free_index.by_id.values()])
        elif job_class.cursor < end:
            log = self._log[job_class.cursor - self._log_start :]
            # A worker that does not wait any more, or has other free capacity, has another stamp.
            self._note(job_class, [entry for entry, stamp in log if entry.stamp == stamp])
        job_class.cursor = end

    def _note(self, job_class: JobClass, entries: Iterable[WorkerEntry]) -> None:
        bit, index, offers = job_class.bit, job_class.index, job_class.offers
        for entry in entries:
            if self.fitting(entry) & bit:
                scores = entry.free_capacity.scores
                found = scores[index] if index in scores else self._score(entry, job_class)
                heappush(offers, (found, entry.rank, entry.worker.id, entry.stamp))
