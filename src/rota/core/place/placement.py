"""WHERE a job goes: which workers could run it, which have room, and which fits best.

A worker is offered to a class once for each change of its room; offers are kept in a heap by score
and are void when the worker has changed since. So a choice costs a few heap operations, no scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from rota.core.limits import CORE_LIMITS, FEW_ROOMY, CoreLimits
from rota.core.memory.cells import MachineClass, WorkerCell
from rota.core.memory.rooms import Room, Rooms
from rota.core.model import Labels, Needs, Resources, Worker, WorkerId, WorkerState
from rota.core.order.ordering import Lines
from rota.core.order.party import JobClass, Machines
from rota.core.place.fitness import score, unable
from rota.core.place.labels import Labelled
from rota.core.place.roomy import May as May
from rota.core.place.roomy import Roomy, first_that
from rota.core.resources import NOTHING, fits, left_of, minus, plus

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

    def __init__(self, lines: Lines, limits: CoreLimits = CORE_LIMITS) -> None:
        self._lines = lines
        self._fresh_max = limits.fresh_max
        self.workers: dict[WorkerId, WorkerCell] = {}
        self.machines: dict[MachineKey, MachineClass] = {}
        self.labels = Labelled()
        self.open: dict[WorkerId, WorkerCell] = {}
        self.spare: dict[WorkerId, None] = {}
        """Workers that wait and can prefetch; those last looked at in vain are not in it before
        they poll again (plan/prefetch.py)."""
        self.capacity = NOTHING
        """All that the workers which are not away have together."""
        self._log: list[tuple[WorkerCell, int]] = []
        """Workers that were offered, and their stamps then."""
        self._log_start = 0
        self._rooms = Rooms(limits.fit_cache_max)
        self._reused = lines.reused
        self._ranks = 0
        self._machines_made = 0
        self._fresh: dict[WorkerId, WorkerCell] = {}
        """Open workers whose room is looked at itself, because they are few."""
        self.roomy = Roomy()
        """Open workers that have room for any class at all."""
        self._fresh_for: int | None = None
        """Bits of the classes that fit on any of these; None: to be looked up."""
        self._hopeful = 0
        """Bits of the classes for which one of the other open workers may have room: perhaps too
        many, never too few."""
        self._roomy_for = 0
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
            machine = MachineClass(self._machines_made, worker, self._rooms, traits)
            self._drop_unused_machines()
            self.machines[key] = machine
        return machine

    def _drop_unused_machines(self) -> None:
        """Workers that come with ever new amounts (free disk, say) must not fill memory."""
        if len(self.machines) > 1024 + 2 * len(self.workers):
            used = {cell.machine.index: None for cell in self.workers.values()}
            self.machines = {k: m for k, m in self.machines.items() if m.index in used}

    def add(self, worker: Worker, seen: int) -> WorkerCell:
        """A worker that was not known, and was last heard of then."""
        self._ranks += 1
        self.labels.add(worker)
        cell = WorkerCell(worker, self.machine_of(worker), self._ranks, seen)
        self.workers[worker.id] = cell
        cell.machine.workers[worker.id] = None
        self.count(cell)
        return cell

    def machines_for(self, job_class: JobClass) -> Machines:
        """The kinds of workers that could run such a job, and of which one is there."""
        stamp = (self._changes, len(self._lines.classes), self._lines.reused)
        if job_class.machines is None or job_class.machines.stamp != stamp:
            kinds = tuple(
                machine
                for machine in self.machines.values()
                if self.able(machine) & job_class.bit
                and any(self.is_there(worker_id) for worker_id in machine.workers)
            )
            job_class.machines = Machines(kinds, stamp)
        return job_class.machines

    def is_there(self, worker_id: WorkerId) -> bool:
        """Whether the worker takes work."""
        worker = self.workers.get(worker_id)
        return worker is not None and worker.worker.state is WorkerState.ONLINE

    def there_first(self) -> list[WorkerCell]:
        """All workers, those that take work before those that are away."""
        return sorted(self.workers.values(), key=lambda cell: not self.is_there(cell.worker.id))

    def remove(self, cell: WorkerCell) -> None:
        """A worker that is to be forgotten."""
        self._changes += 1
        del self.workers[cell.worker.id]
        del cell.machine.workers[cell.worker.id]
        self.labels.remove(cell.worker)
        self.capacity = minus(self.capacity, cell.counted)

    def count(self, cell: WorkerCell) -> None:
        """What the fleet has in all follows what its workers have and whether they are there."""
        self._changes += 1
        is_away = cell.worker.state is WorkerState.OFFLINE
        counted = NOTHING if is_away else cell.worker.capacity
        if counted != cell.counted:
            self.capacity = plus(minus(self.capacity, cell.counted), counted)
            cell.counted = counted

    def reshape(self, cell: WorkerCell, worker: Worker) -> None:
        """A known worker registers again, perhaps with other capacity; what it holds stays held."""
        self.labels.remove(cell.worker)
        self.labels.add(worker)
        cell.worker = worker
        self._class_anew(cell)
        cell.set_free(left_of(worker.capacity, cell.held.values()))

    def _class_anew(self, cell: WorkerCell) -> None:
        self._changes += 1
        del cell.machine.workers[cell.worker.id]
        cell.machine = machine = self.machine_of(cell.worker)
        cell.room = self._rooms.of(machine.index, cell.free)
        machine.workers[cell.worker.id] = None

    def mind_labels(self, needs: Needs) -> None:
        """Jobs like this wait: workers that differ in labels they require are not alike."""
        classes = (job_class.needs for job_class in self._lines.classes)
        if needs.affinity is not None and self.labels.mind(needs.affinity, classes):
            for cell in self.workers.values():
                self._class_anew(cell)
            self._fit_roomy()

    def offer(self, cell: WorkerCell) -> None:
        """The worker waits, or waits with more room than before."""
        poll, worker = cell.poll, cell.worker
        if poll is None or poll.room <= 0 or worker.state is not _ONLINE:
            return
        worker_id = worker.id
        self.open[worker_id] = cell
        if self.fitting(cell):
            self._offer_room(worker_id, cell)
        else:
            self._close(worker_id)

    def tighten(self, cell: WorkerCell) -> None:
        """The worker waits on, with less room than before."""
        worker_id, room = cell.worker.id, cell.room
        if worker_id not in self.roomy.by_id:
            self.offer(cell)
        elif room.mask if room.made == self._lines.made else self.fitting(cell):
            # Nothing fits that did not before: whoever was found to fit nowhere still does not,
            # and what still fits is hoped for already.
            self.roomy.put(worker_id, cell)
            if worker_id in self._fresh:
                self._fresh_for = None
            self._note_offer(cell)
        else:
            self._close(worker_id)

    def _close(self, worker_id: WorkerId) -> None:
        """Nothing fits into the worker, or it waits no longer."""
        self.roomy.drop(worker_id)
        if self._fresh.pop(worker_id, None) is not None:
            self._fresh_for = None

    def _offer_room(self, worker_id: WorkerId, cell: WorkerCell) -> None:
        self.roomy.put(worker_id, cell)
        self._fresh[worker_id] = cell
        self._fresh_for = self._looked_at = None
        self._note_offer(cell)

    def _note_offer(self, cell: WorkerCell) -> None:
        self._log.append((cell, cell.stamp))
        if len(self._log) > 1024 + 4 * len(self.open):
            self._log_start += len(self._log)
            self._log.clear()

    def opened(self) -> int:
        """How often workers have waited, or waited with more room, so far."""
        return self._log_start + len(self._log)

    def opened_since(self, count: int) -> Iterator[WorkerCell]:
        """Those that wait since then; all, if it is too long ago."""
        if count < self._log_start:
            yield from self.open.values()
            return
        for cell, stamp in self._log[count - self._log_start :]:
            if cell.stamp == stamp and cell.worker.id in self.open:
                yield cell

    def withdraw(self, cell: WorkerCell) -> None:
        """The worker waits no longer."""
        worker_id = cell.worker.id
        if self.open.pop(worker_id, None) is not None:
            self._close(worker_id)
        cell.stamp += 1

    def fitting(self, cell: WorkerCell) -> int:
        """Bits of the classes whose jobs fit into the worker's free room now."""
        room = cell.room
        if room.made != self._lines.made:
            self._fit_into(cell.machine, room)
        return room.mask

    def fitting_into(self, machine: MachineClass, free: Resources) -> int:
        """Bits of the classes that such a worker could run in so much room."""
        room = self._rooms.of(machine.index, free)
        if room.made != self._lines.made:
            self._fit_into(machine, room)
        return room.mask

    def _fit_into(self, machine: MachineClass, room: Room) -> None:
        """The room is told of the classes that were made since it was last looked at."""
        lines, can = self._lines, self.able(machine)
        if room.era != lines.reused:
            room.era, room.mask, room.seen, room.scores = lines.reused, 0, 0, {}
        for job_class in lines.classes[room.seen :]:
            if can & job_class.bit and fits(job_class.needs.resources, room.free):
                room.mask |= job_class.bit
        room.seen, room.made = len(lines.classes), lines.made

    def _score(self, cell: WorkerCell, job_class: JobClass) -> int:
        """The score of a class and an amount of room never changes, so it is kept: as one number,
        for it is compared more often than anything else."""
        wasted, left = score(job_class.needs.resources, cell.machine, cell.free)
        found = cell.room.scores[job_class.index] = (wasted << _WASTED_BITS) + left
        return found

    def able(self, machine: MachineClass) -> int:
        """Bits of the classes that such a worker could run when empty."""
        if self._reused != self._lines.reused:
            self._forget_bits()
        classes = self._lines.classes
        for job_class in classes[machine.seen :]:
            if not unable(job_class.queue.queue.name, job_class.needs, machine):
                machine.can_mask |= job_class.bit
        machine.seen = len(classes)
        return machine.can_mask

    def _forget_bits(self) -> None:
        """A class number has a new meaning: all masks are computed again."""
        self._reused = self._lines.reused
        for machine in self.machines.values():
            machine.can_mask = machine.seen = 0

    def hopes(self) -> int:
        """Bits of the classes worth trying to place.

        In a busy fleet few workers are open at once and the answer is exact; where many are, a
        class is tried in vain once, and then not again before another worker opens.
        """
        lines = self._lines
        if lines.fresh:
            self._hopeful |= lines.fresh
            lines.fresh = 0
            for worker_id, cell in self.open.items():
                if worker_id not in self.roomy.by_id and self.fitting(cell):
                    self._offer_room(worker_id, cell)
        if self.fitted != lines.made:
            self._fit_roomy()
        mask = self._fresh_for
        if mask is None:
            mask = 0
            for cell in self._fresh.values():
                mask |= cell.room.mask
            self._fresh_for = mask
            if len(self._fresh) > self._fresh_max:
                self._hopeful |= mask
                self._fresh.clear()
                self._fresh_for = 0
        return self._hopeful | mask

    def give_up(self, classes: int) -> None:
        """No open worker has room for any of these."""
        self._hopeful &= ~classes

    def _best_of_many(self, job_class: JobClass, may: May | None) -> WorkerCell | None:
        self._read_log(job_class)
        offers, refused = job_class.offers, []
        best: WorkerCell | None = None
        while offers:
            _, _, worker_id, stamp = offers[0]
            cell = self.open.get(WorkerId(worker_id))
            if cell is None or cell.stamp != stamp:
                heappop(offers)
            elif may is not None and not may(cell):
                refused.append(heappop(offers))
            else:
                best = cell
                break
        for offer in refused:
            heappush(offers, offer)
        return best

    def choose(self, job_class: JobClass, may: May | None = None) -> WorkerCell | None:
        """The open worker that fits this class best, among those it may use, or None."""
        if len(self.roomy.by_id) > FEW_ROOMY:
            return self._best_of_many(job_class, may)
        bit, index, made = job_class.bit, job_class.index, self._lines.made
        if self._looked_at == made and not self._roomy_for & bit:
            return None
        if self.fitted != made:
            self._fit_roomy()
        best: WorkerCell | None = None
        least, rank = _WORST, 0
        # The innermost loop of a decision: nothing is called for a score that is known.
        for room, row in self.roomy.by_room.items():
            if not room.mask & bit:
                continue
            try:
                found = room.scores[index]
            except KeyError:
                found = self._score(row[0][1], job_class)
            if found > least:
                continue
            entry = row[0] if may is None else first_that(row, may)
            if entry is not None and (found < least or entry[0] < rank):
                rank, best, _ = entry
                least = found
        if best is None and may is None:
            self._look_at_rooms(made)
        return best

    def _fit_roomy(self) -> None:
        """Classes were made, or kinds of workers, since the rooms were looked at."""
        for worker_id, (_, cell, room) in list(self.roomy.by_id.items()):
            self.fitting(cell)
            if cell.room is not room:
                self.roomy.put(worker_id, cell)
        self.fitted, self._fresh_for = self._lines.made, None

    def _look_at_rooms(self, made: int) -> None:
        """One class fits nowhere: where many shapes wait, the next few will not either."""
        self._looked_at, self._roomy_for = made, 0
        for room in self.roomy.by_room:
            self._roomy_for |= room.mask

    def _read_log(self, job_class: JobClass) -> None:
        """Takes note of the workers that were offered since the class was last looked at."""
        end = self._log_start + len(self._log)
        if job_class.cursor < self._log_start:
            job_class.offers.clear()
            self._note(job_class, [cell for _, cell, _ in self.roomy.by_id.values()])
        elif job_class.cursor < end:
            log = self._log[job_class.cursor - self._log_start :]
            # One that waits no longer, or has other room, has another stamp.
            self._note(job_class, [cell for cell, stamp in log if cell.stamp == stamp])
        job_class.cursor = end

    def _note(self, job_class: JobClass, cells: Iterable[WorkerCell]) -> None:
        bit, index, offers = job_class.bit, job_class.index, job_class.offers
        for cell in cells:
            if self.fitting(cell) & bit:
                scores = cell.room.scores
                found = scores[index] if index in scores else self._score(cell, job_class)
                heappush(offers, (found, cell.rank, cell.worker.id, cell.stamp))
