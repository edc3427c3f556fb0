"""Parties: those between whom an order chooses, and the lines of jobs that each of them has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush
from typing import Protocol, TypeAlias

from rota.core.affinity import has_preference
from rota.core.memory.cells import NO_CLASS, JobEntry, MachineClass, OrderKey, QueueEntry
from rota.core.model import Instant, Millis, Needs
from rota.core.order.heads import ClassHeads
from rota.core.order.heads import HeadEntry as AnySeat
from rota.core.order.lanes import FifoGroup, FifoGroupKey
from rota.core.order.row import MergeQueue

EVERY_CLASS = -1
"""All bits: nothing is ruled out."""
LENGTHS_MAX = 8
"""A block of lines by length is split when it is twice as long. Who is asked for here fits beside
others, so it is of few classes; and those wait less than the rest, and are the last of a length."""


class CandidateMachines:
    """The kinds of workers that could run the jobs of a class."""

    __slots__ = ("indexes", "machine_classes", "rivals", "stamp")

    def __init__(self, kinds: tuple[MachineClass, ...], stamp: tuple[int, int, int]) -> None:
        self.machine_classes = kinds
        self.indexes = [machine.index for machine in kinds]
        self.rivals = 0
        """Bits of the classes that could use any of them."""
        for machine in kinds:
            self.rivals |= machine.can_mask
        self.stamp = stamp
        """What of fleet and classes this was computed for; kept by placement.py."""


class JobClass:
    """Jobs that a worker has room for or not, all alike: one queue, the same needs."""

    __slots__ = (
        "arrived",
        "arrived_work",
        "bit",
        "class_queues",
        "cursor",
        "fifo_groups",
        "has_preference",
        "index",
        "machines",
        "needs",
        "offers",
        "queue",
        "share",
        "share_of_capacity",
        "spilled",
        "waiting",
    )

    def __init__(self, index: int, queue: QueueEntry, needs: Needs) -> None:
        self.index = index
        self.bit = 1 << index
        self.queue = queue
        self.needs = needs
        self.has_preference = has_preference(needs.affinity) or needs.copies > 1
        """Whether a worker with room is not as good as any other (locality.py)."""
        self.waiting = 0
        """Jobs in line."""
        self.spilled = 0
        """Jobs that are on the shelf."""
        self.arrived = self.arrived_work = 0
        """Jobs that came to stand in line or on the shelf, and how long they are expected to run
        together; arrivals.py makes rates of it."""
        self.fifo_groups: dict[FifoGroupKey, FifoGroup] = {}
        """Those with jobs in line or on the shelf."""
        self.class_queues: dict[int, ClassQueue] = {}
        """By number: one for each party that has jobs of the class."""
        self.offers: list[tuple[int, int, str, int]] = []
        """Workers that may fit, best first; kept by placement.py."""
        self.cursor = -1
        """How far placement.py has read the log of opened workers for this class."""
        self.machines: CandidateMachines | None = None
        self.share = 0.0
        """The part of the fleet that one job takes, of what it takes the most of."""
        self.share_of_capacity: object = None
        """The fleet's capacity for which that was computed."""


class ClassQueue:
    """The jobs of one class and one party, in order."""

    __slots__ = (
        "bit",
        "estimate",
        "first",
        "head_entry",
        "is_mixed",
        "job_class",
        "jobs",
        "length_entry",
        "number",
        "rank",
        "short",
        "spilled",
        "stuck",
        "stuck_since",
        "tenant",
        "waiting",
        "work",
    )

    def __init__(
        self, number: int, job_class: JobClass, row: MergeQueue, tenant: str, rank: int
    ) -> None:
        self.number = number
        self.job_class = job_class
        self.bit = job_class.bit
        self.rank = rank
        """What comes before the places of its jobs: of its queue, under some orders."""
        self.tenant = tenant
        """One of the tenants whose jobs are in it: that of the first job that came."""
        self.jobs = row
        self.first: OrderKey | None = None
        """The head of the line; None: to be looked up again."""
        self.waiting = 0
        """Jobs in line; the row may hold more entries than that, stale ones."""
        self.work: Millis = 0
        """How long they are expected to run together."""
        self.spilled = 0
        """Jobs that are on the shelf."""
        self.estimate: Millis = 0
        """How long its jobs are expected to run, if it is the same for all of them."""
        self.is_mixed = False
        """Whether it is not."""
        self.short: list[tuple[Millis, OrderKey]] | None = None
        """The jobs by expected length; None: to be made when somebody asks for short ones."""
        self.stuck: OrderKey | None = None
        """The head that went first and did not fit; `stuck_since` when."""
        self.stuck_since: Instant = 0
        self.head_entry: QueueHead | None = None
        """Its entry among the party's heads."""
        self.length_entry: QueueHead | None = None
        """Its entry among the party's lines by length."""

    def note_length(self, estimate: Millis, about: Millis, key: OrderKey) -> None:
        """A job comes that is expected to run so long, or about so long."""
        if not self.waiting:
            self.estimate, self.is_mixed, self.short = estimate, False, None
        elif estimate != self.estimate:
            self.is_mixed = True
        if self.short is not None:
            heappush(self.short, (about, key))


QueueHead: TypeAlias = AnySeat[ClassQueue]
FindHead: TypeAlias = Callable[[ClassQueue], OrderKey]
"""The first entry of a line that has one."""
ShortJob: TypeAlias = tuple[Millis, OrderKey, Millis]
"""(about how long, the job, how long), the first never more than the last."""
FindShortest: TypeAlias = Callable[[ClassQueue], ShortJob | None]
"""About the shortest job of a line in memory."""


class FreeTime(Protocol):
    """For how long there is room on workers that wait, behind those who have places there."""

    free: int
    """Bits of the classes that may run as long as they like."""
    longest: Millis
    """The most that the others may run."""

    def time_for(self, job_class: JobClass) -> Millis:
        """How long a job of the class may run where it fits."""
        ...


class Account:
    """Lines that are served as one: no rule of the order tells them apart but their heads.

    The lines are kept sorted by their heads, so that the first of those a worker has room for is
    found without comparing them all. An entry may be too early, since a head that has left is not
    looked for before its line is asked; it is never too late.
    """

    __slots__ = ("allowed", "by_length", "class_queues", "heads", "ready", "waiting")

    def __init__(self) -> None:
        self.class_queues: dict[int, ClassQueue] = {}
        """By number of class."""
        self.heads: ClassHeads[ClassQueue] = ClassHeads()
        self.by_length: ClassHeads[ClassQueue] | None = None
        """By the shortest job of each; None: nobody has asked yet."""
        self.waiting = 0
        """Bits of the classes with jobs in line or on the shelf."""
        self.allowed = EVERY_CLASS
        """Bits of the classes that quotas leave room for."""
        self.ready = 0
        """Bits of the classes that may go: waiting and allowed."""

    # By head

    def set_head(self, line: ClassQueue, key: OrderKey) -> None:
        """The head of the line is this, or comes later."""
        before, after = line.head_entry, (line.rank, key, line.number, line)
        line.head_entry = after
        if before is None:
            self.heads.add(after)
        else:
            self.heads.move(before, after)

    def remove_head(self, line: ClassQueue) -> None:
        """The line has nobody in it any more."""
        if line.head_entry is not None:
            self.heads.remove(line.head_entry)
            line.head_entry = None
        if line.length_entry is not None:
            self._remove_length_entry(line)

    def first(self, mask: int, head: FindHead) -> ClassQueue | None:
        """The line among these classes whose head comes first."""
        mask &= self.ready
        heads = self.heads
        if heads.firsts:
            _, key, _, line = heads.firsts[0]
            # Mostly it is the first of all, and sits where it should.
            if line.bit & mask and line.first is key:
                return line
        while (seat := heads.first(mask)) is not None:
            _, key, _, line = seat
            first = line.first or head(line)
            if first is key:
                return line
            self.set_head(line, first)
        return None

    # By length

    def note_length(self, line: ClassQueue, length: Millis, key: OrderKey) -> None:
        """A job of the line is as short as this."""
        if self.by_length is not None:
            seat = line.length_entry
            if seat is None or (length, key) < seat[:2]:
                self._set_length_entry(line, length, key)

    def _set_length_entry(self, line: ClassQueue, length: Millis, key: OrderKey) -> None:
        assert self.by_length is not None
        before, after = line.length_entry, (length, key, line.number, line)
        line.length_entry = after
        if before is None:
            self.by_length.add(after)
        else:
            self.by_length.move(before, after)

    def _remove_length_entry(self, line: ClassQueue) -> None:
        assert self.by_length is not None
        assert line.length_entry is not None
        self.by_length.remove(line.length_entry)
        line.length_entry = None

    def shortest(self, mask: int, room: FreeTime, shortest: FindShortest) -> QueueHead | None:
        """The shortest job of these classes for which there is time."""
        mask &= self.ready
        if self.by_length is None:
            self._sort_by_length(shortest)
        seats = self.by_length
        assert seats is not None
        if seats.least() > room.longest:
            mask &= room.free  # nobody is short enough: most often that is so, and asked first
        while mask and (seat := seats.first(mask)) is not None:
            length, key, _, line = seat
            if length > room.longest and mask & ~room.free:
                mask &= room.free  # all that follow are as long
                continue
            time = room.time_for(line.job_class)
            if length > time:
                mask &= ~line.bit
                continue
            found = shortest(line)
            if found is None:
                self._remove_length_entry(line)
            elif found[1] is not key or found[0] != length:
                self._set_length_entry(line, *found[:2])
            elif found[2] <= time:
                return seat
            else:
                mask &= ~line.bit
        return None

    def _sort_by_length(self, shortest: FindShortest) -> None:
        self.by_length = ClassHeads(LENGTHS_MAX)
        for line in self.class_queues.values():
            found = shortest(line)
            if found is not None:
                self._set_length_entry(line, *found[:2])


class QueueHandle:
    """Where jobs of the same terms stand. Void when nobody is left in the lane."""

    __slots__ = ("account", "fifo_group", "job_class", "queue")

    def __init__(self, party: Account, line: ClassQueue, lane: FifoGroup) -> None:
        self.account = party
        self.queue = line
        self.job_class = line.job_class
        self.fifo_group = lane

    def leave_first(self, cell: JobEntry) -> bool:
        """The head of the line, a job of these terms, leaves it; the next has its seat at once.

        False: it does not, for it is not the head, or the last, or there is more to note.
        """
        line, lane, job_class = self.queue, self.fifo_group, self.job_class
        first, row, waiting = line.first, line.jobs, line.waiting
        # As many entries as jobs: each means something, and none is a mark.
        if first is None or first[2] != cell.id or waiting < 2 or row.size != waiting:
            return False
        if lane.in_memory < 2:
            if lane.spilled or lane.spill_queue:
                return False
            del job_class.fifo_groups[lane.key]
        lane.in_memory -= 1
        job_class.waiting -= 1
        line.waiting = waiting - 1
        line.work -= cell.estimate
        row.drop_first()
        line.first = first = row.first()
        self.account.set_head(line, first)
        cell.class_index = NO_CLASS
        return True

    def add_behind(self, first: JobEntry, cells: Sequence[JobEntry]) -> bool:
        """Jobs of these terms stand in line, each behind the one before, the first among them.

        False: they do not; they are few, or there is more to note of each.
        """
        line, lane, job_class = self.queue, self.fifo_group, self.job_class
        count, estimate = len(cells), first.estimate
        if (
            count < line.jobs.long_fifo_group
            or self.account.by_length is not None
            or line.short is not None
        ):
            return False
        line.jobs.add_run(
            [(cell.sort_key, cell.spec.arrival_number, cell.id) for cell in cells], lane
        )
        lane.in_memory += count
        job_class.waiting += count
        line.waiting += count
        line.work += count * estimate
        for cell in cells:
            cell.estimate = estimate
            cell.class_index, cell.queue_number = job_class.index, line.number
        return True
