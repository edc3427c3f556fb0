"""Classes of alike jobs, their queues by account, arrival rates, and the order policy's protocol.

A class is a queue and needs: a worker has free capacity for the first job of a class or for none of
it. An account is who competes for a share (a tenant, or a tenant and queue); it has one queue of
jobs for each class. Class queues are sorted by their first jobs, in blocks with a mask of classes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappush
from itertools import pairwise
from typing import Generic, Protocol, TypeAlias, TypeVar

from rota.core.entries import NO_CLASS, JobEntry, MachineClass, OrderKey, QueueEntry
from rota.core.limits import ARRIVALS_EVERY_MS, ARRIVALS_MS, ARRIVALS_NOTED
from rota.core.model import Instant, Millis, Needs, Spec, has_preference
from rota.core.ready_queue.merge_queue import FifoGroup, FifoGroupKey, MergeQueue

HEAD_BLOCK_MAX = 16
"""A block is split when it is twice as long: about the root of the most class queues expected."""


class HasClassBit(Protocol):
    """Anything that belongs to one class."""

    bit: int


L = TypeVar("L", bound=HasClassBit)
HeadEntry: TypeAlias = tuple[int, OrderKey, int, L]
"""(rank, or length; key of the job; number of the class queue, which breaks ties; class queue)."""


class _HeadBlock(Generic[L]):
    __slots__ = ("entries", "mask")

    def __init__(self, heads: list[HeadEntry[L]]) -> None:
        self.entries = heads
        self.mask = 0
        self.repair()

    def repair(self) -> None:
        mask = 0
        for _, _, _, class_queue in self.entries:
            mask |= class_queue.bit
        self.mask = mask


class ClassHeads(Generic[L]):
    """Head entries of class queues, sorted, in blocks with a mask of classes for fast search."""

    __slots__ = ("_block_max", "_blocks", "firsts")

    def __init__(self, block_max: int = HEAD_BLOCK_MAX) -> None:
        self._block_max = block_max
        self._blocks: list[_HeadBlock[L]] = []
        self.firsts: list[HeadEntry[L]] = []
        """First entry of each block."""

    def __iter__(self) -> Iterator[HeadEntry[L]]:
        for block in self._blocks:
            yield from block.entries

    def __len__(self) -> int:
        return sum(len(block.entries) for block in self._blocks)

    def least(self) -> int:
        """Smallest rank or length; -1: there are no entries."""
        return self.firsts[0][0] if self.firsts else -1

    def first(self, mask: int) -> HeadEntry[L] | None:
        """First entry whose class is in the mask."""
        for block in self._blocks:
            if block.mask & mask:
                for head in block.entries:
                    if head[3].bit & mask:
                        return head
                block.repair()
        return None

    def add(self, head: HeadEntry[L]) -> None:
        if not self._blocks:
            self._blocks.append(_HeadBlock([head]))
            self.firsts.append(head)
            return
        at = self._find(head)
        block = self._blocks[at]
        heads = block.entries
        insort(heads, head)
        self.firsts[at] = heads[0]
        block.mask |= head[3].bit
        if len(heads) > 2 * self._block_max:
            rear = heads[self._block_max :]
            del heads[self._block_max :]
            block.repair()
            self._blocks.insert(at + 1, _HeadBlock(rear))
            self.firsts.insert(at + 1, rear[0])

    def remove(self, head: HeadEntry[L]) -> None:
        at = self._find(head)
        heads = self._blocks[at].entries
        del heads[bisect_left(heads, head)]
        if heads:
            self.firsts[at] = heads[0]
        else:
            del self._blocks[at], self.firsts[at]

    def move(self, before: HeadEntry[L], after: HeadEntry[L]) -> None:
        """Moves a class queue from one position to another."""
        if len(self._blocks) > 1:
            self.remove(before)
            self.add(after)
            return
        heads = self._blocks[0].entries
        # Mostly, the entry was the first, and the next job of its class queue is the last one.
        del heads[0 if heads[0] is before else bisect_left(heads, before)]
        if heads and heads[-1] < after:
            heads.append(after)
        else:
            insort(heads, after)
        self.firsts[0] = heads[0]

    def _find(self, head: HeadEntry[L]) -> int:
        """Index of the block that the entry is in, or would be."""
        firsts = self.firsts
        return 0 if len(firsts) == 1 else (bisect_right(firsts, head) or 1) - 1


EVERY_CLASS = -1
"""All bits set: no class is excluded."""
LENGTHS_MAX = 8
"""Block size for class queues by length. Only jobs that fit beside others are searched for here, so
they are of few classes; they wait less than the others, and are the last of a length."""


class CandidateMachines:
    """Classes of workers that could run the jobs of a job class."""

    __slots__ = ("indexes", "machine_classes", "rivals", "stamp")

    def __init__(self, machines: tuple[MachineClass, ...], stamp: tuple[int, int, int]) -> None:
        self.machine_classes = machines
        self.indexes = [machine.index for machine in machines]
        self.rivals = 0
        """Bits of the job classes that could use any of them."""
        for machine in machines:
            self.rivals |= machine.can_mask
        self.stamp = stamp
        """Versions of fleet and classes that this was computed for; kept by placement/fleet.py."""


class JobClass:
    """Class of alike jobs: one queue, the same needs. A worker can take all of them or none."""

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
        """Whether workers that fit differ in value for the jobs (placement/affinity.py)."""
        self.waiting = 0
        """Jobs in its class queues."""
        self.spilled = 0
        """Spilled jobs."""
        self.arrived = self.arrived_work = 0
        """Jobs that arrived in its queues, spilled ones too, and the sum of their expected run
        times; `ArrivalRates` makes rates of them."""
        self.fifo_groups: dict[FifoGroupKey, FifoGroup] = {}
        """Those with jobs in memory or spilled."""
        self.class_queues: dict[int, ClassQueue] = {}
        """By number: one for each account that has jobs of the class."""
        self.offers: list[tuple[int, int, str, int]] = []
        """Heap of workers that may fit, best first; kept by placement/fleet.py."""
        self.cursor = -1
        """How far placement/fleet.py has read its log of offers for this class."""
        self.machines: CandidateMachines | None = None
        self.share = 0.0
        """Dominant share of the fleet that one job takes."""
        self.share_of_capacity: object = None
        """Capacity of the fleet for which that was computed."""


class ClassQueue:
    """Class queue: the waiting jobs of one class and one account, in order (a priority queue)."""

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
        self, number: int, job_class: JobClass, jobs: MergeQueue, tenant: str, rank: int
    ) -> None:
        self.number = number
        self.job_class = job_class
        self.bit = job_class.bit
        self.rank = rank
        """Sorts class queues before the keys of their jobs: the queue's priority, under some
        orders."""
        self.tenant = tenant
        """Tenant of the first job that was added; there may be jobs of others."""
        self.jobs = jobs
        self.first: OrderKey | None = None
        """Key of the head; None: to be looked up again."""
        self.waiting = 0
        """Jobs in it; `jobs` may have more entries than that, because stale ones stay."""
        self.work: Millis = 0
        """Sum of their expected run times."""
        self.spilled = 0
        """Spilled jobs that belong to it."""
        self.estimate: Millis = 0
        """Expected run time of its jobs, if it is the same for all."""
        self.is_mixed = False
        """Whether expected run times differ."""
        self.short: list[tuple[Millis, OrderKey]] | None = None
        """Heap of its jobs by expected length; None: to be made when short jobs are searched
        for."""
        self.stuck: OrderKey | None = None
        """The head that was tried and did not fit; `stuck_since` is when."""
        self.stuck_since: Instant = 0
        self.head_entry: QueueHead | None = None
        """Its entry in `Account.heads`."""
        self.length_entry: QueueHead | None = None
        """Its entry in `Account.by_length`."""

    def note_length(self, estimate: Millis, about: Millis, key: OrderKey) -> None:
        """Notes that a job comes with this expected run time, and with this coarse one."""
        if not self.waiting:
            self.estimate, self.is_mixed, self.short = estimate, False, None
        elif estimate != self.estimate:
            self.is_mixed = True
        if self.short is not None:
            heappush(self.short, (about, key))


QueueHead: TypeAlias = HeadEntry[ClassQueue]
FindHead: TypeAlias = Callable[[ClassQueue], OrderKey]
"""Finds the head of a class queue that is not empty."""
ShortJob: TypeAlias = tuple[Millis, OrderKey, Millis]
"""(coarse length, key of the job, length); the first is never more than the last."""
FindShortest: TypeAlias = Callable[[ClassQueue], ShortJob | None]
"""Finds about the shortest job of a class queue in memory."""


class FreeTime(Protocol):
    """Free time on waiting workers until the start of jobs that have a reservation there."""

    free: int
    """Bits of the classes whose jobs may run for any time."""
    longest: Millis
    """Longest time for which jobs of other classes may run."""

    def time_for(self, job_class: JobClass) -> Millis:
        """How long a job of the class may run where it fits."""
        ...


class Account:
    """Account: competes for a share; its class queues differ for the order policy by heads alone.

    The class queues are sorted by their heads, so that the first with a job that fits on a worker
    is found without comparing all. An entry in `heads` may be too early, because the next head is
    looked up only when its class queue is asked; it is never too late.
    """

    __slots__ = ("allowed", "by_length", "class_queues", "heads", "ready", "waiting")

    def __init__(self) -> None:
        self.class_queues: dict[int, ClassQueue] = {}
        """By class index."""
        self.heads: ClassHeads[ClassQueue] = ClassHeads()
        self.by_length: ClassHeads[ClassQueue] | None = None
        """Class queues by their shortest job; None: not asked for yet."""
        self.waiting = 0
        """Bits of the classes with waiting or spilled jobs."""
        self.allowed = EVERY_CLASS
        """Bits of the classes that quotas allow."""
        self.ready = 0
        """Bits of the classes that may start: waiting and allowed."""

    # By head

    def set_head(self, class_queue: ClassQueue, key: OrderKey) -> None:
        """Sets the position of a class queue: its head is this key, or comes later."""
        before, after = (
            class_queue.head_entry,
            (class_queue.rank, key, class_queue.number, class_queue),
        )
        class_queue.head_entry = after
        if before is None:
            self.heads.add(after)
        else:
            self.heads.move(before, after)

    def remove_head(self, class_queue: ClassQueue) -> None:
        """Removes an empty class queue."""
        if class_queue.head_entry is not None:
            self.heads.remove(class_queue.head_entry)
            class_queue.head_entry = None
        if class_queue.length_entry is not None:
            self._remove_length_entry(class_queue)

    def first(self, mask: int, head: FindHead) -> ClassQueue | None:
        """Class queue, among these classes, with the first head."""
        mask &= self.ready
        heads = self.heads
        if heads.firsts:
            _, key, _, class_queue = heads.firsts[0]
            # Mostly the first entry is the one, and is up to date.
            if class_queue.bit & mask and class_queue.first is key:
                return class_queue
        while (found := heads.first(mask)) is not None:
            _, key, _, class_queue = found
            first = class_queue.first or head(class_queue)
            if first is key:
                return class_queue
            self.set_head(class_queue, first)
        return None

    # By length

    def note_length(self, class_queue: ClassQueue, length: Millis, key: OrderKey) -> None:
        """Notes that a job of the class queue is as short as this."""
        if self.by_length is not None:
            head = class_queue.length_entry
            if head is None or (length, key) < head[:2]:
                self._set_length_entry(class_queue, length, key)

    def _set_length_entry(self, class_queue: ClassQueue, length: Millis, key: OrderKey) -> None:
        assert self.by_length is not None
        before, after = class_queue.length_entry, (length, key, class_queue.number, class_queue)
        class_queue.length_entry = after
        if before is None:
            self.by_length.add(after)
        else:
            self.by_length.move(before, after)

    def _remove_length_entry(self, class_queue: ClassQueue) -> None:
        assert self.by_length is not None
        assert class_queue.length_entry is not None
        self.by_length.remove(class_queue.length_entry)
        class_queue.length_entry = None

    def shortest(self, mask: int, free_time: FreeTime, shortest: FindShortest) -> QueueHead | None:
        """Entry of the shortest job of these classes for which there is free time."""
        mask &= self.ready
        if self.by_length is None:
            self._sort_by_length(shortest)
        heads = self.by_length
        assert heads is not None
        if heads.least() > free_time.longest:
            mask &= free_time.free  # the common case, so it is tested first: no job is that short
        while mask and (head := heads.first(mask)) is not None:
            length, key, _, class_queue = head
            if length > free_time.longest and mask & ~free_time.free:
                mask &= free_time.free  # no later entry is shorter
                continue
            time = free_time.time_for(class_queue.job_class)
            if length > time:
                mask &= ~class_queue.bit
                continue
            found = shortest(class_queue)
            if found is None:
                self._remove_length_entry(class_queue)
            elif found[1] is not key or found[0] != length:
                self._set_length_entry(class_queue, *found[:2])
            elif found[2] <= time:
                return head
            else:
                mask &= ~class_queue.bit
        return None

    def _sort_by_length(self, shortest: FindShortest) -> None:
        self.by_length = ClassHeads(LENGTHS_MAX)
        for class_queue in self.class_queues.values():
            found = shortest(class_queue)
            if found is not None:
                self._set_length_entry(class_queue, *found[:2])


class QueueHandle:
    """Handle of the class queue for jobs with the same terms; void if the FIFO group is empty."""

    __slots__ = ("account", "fifo_group", "job_class", "queue")

    def __init__(self, account: Account, class_queue: ClassQueue, fifo_group: FifoGroup) -> None:
        self.account = account
        self.queue = class_queue
        self.job_class = class_queue.job_class
        self.fifo_group = fifo_group

    def leave_first(self, entry: JobEntry) -> bool:
        """Removes the head, a job with these terms, and sets the position of the next one at once.

        False: not done, because the job is not the head, or the last, or there is more to update.
        """
        class_queue, fifo_group, job_class = self.queue, self.fifo_group, self.job_class
        first, jobs, waiting = class_queue.first, class_queue.jobs, class_queue.waiting
        # As many entries as jobs, so none is stale, and none is a spill marker.
        if first is None or first[2] != entry.id or waiting < 2 or jobs.size != waiting:
            return False
        if fifo_group.in_memory < 2:
            if fifo_group.spilled or fifo_group.spill_queue:
                return False
            del job_class.fifo_groups[fifo_group.key]
        fifo_group.in_memory -= 1
        job_class.waiting -= 1
        class_queue.waiting = waiting - 1
        class_queue.work -= entry.estimate
        jobs.drop_first()
        class_queue.first = first = jobs.first()
        self.account.set_head(class_queue, first)
        entry.class_index = NO_CLASS
        return True

    def add_behind(self, first: JobEntry, entries: Sequence[JobEntry]) -> bool:
        """Adds alike jobs at the end of the class queue, in order; `first` is one of them.

        False: not done, because they are few, or there is more to update for each.
        """
        class_queue, fifo_group, job_class = self.queue, self.fifo_group, self.job_class
        count, estimate = len(entries), first.estimate
        if (
            count < class_queue.jobs.long_fifo_group
            or self.account.by_length is not None
            or class_queue.short is not None
        ):
            return False
        class_queue.jobs.add_run(
            [(entry.sort_key, entry.spec.arrival_number, entry.id) for entry in entries], fifo_group
        )
        fifo_group.in_memory += count
        job_class.waiting += count
        class_queue.waiting += count
        class_queue.work += count * estimate
        for entry in entries:
            entry.estimate = estimate
            entry.class_index, entry.queue_number = job_class.index, class_queue.number
        return True


class OrderPolicy(Protocol):
    """Order policy: decides which account goes first. It knows jobs by their sort keys alone."""

    def sort_key(self, spec: Spec) -> int:
        """Sort key of the job inside its account, before arrival; it never changes."""
        ...

    def account(self, tenant: str, queue: QueueEntry) -> Account:
        """Account of jobs of this tenant and queue."""
        ...

    def rank(self, queue: QueueEntry) -> int:
        """Sorts the queue's class queues inside an account before the keys of their jobs."""
        ...

    def coarse_length(self, length: Millis) -> Millis:
        """Coarse length, at most the length: jobs with equal ones count as equally short."""
        ...

    def add_class(self, account: Account, bit: int, now: Instant) -> None:
        """Notes that the account has jobs of this class now."""
        ...

    def remove_class(self, account: Account, bit: int) -> None:
        """Notes that the account has no jobs of this class any more."""
        ...

    def allow(self, tenant: str, bits: int, now: Instant) -> None:
        """Allows these classes of the tenant, and no others, as its quota says."""
        ...

    def first(self, mask: int, head: FindHead) -> ClassQueue | None:
        """Class queue, among these classes, whose head goes first."""
        ...

    def only(self, mask: int) -> Account | None:
        """Account that has any of these classes ready, if there is just one."""
        ...

    def in_turn(self, mask: int) -> Iterator[Sequence[Account]]:
        """Accounts that have these classes ready, in order; those that are equal come together."""
        ...

    def charge(self, account: Account, share: float, span: ChargedTime, count: int = 1) -> float:
        """Charges the account for starts of `count` jobs that take this share of the fleet each.

        Returns the charge of one of them per millisecond.
        """
        ...

    def charge_more(self, account: Account, rate: float, by: int) -> None:
        """Charges for so many milliseconds more, or less, than was expected."""
        ...

    def settle_charge(
        self, account: Account, rate: float, span: ChargedTime, count: int = 1
    ) -> None:
        """Corrects the charge of `count` jobs that end now and are paid until the end of `span`."""
        ...

    def update_queue(self, queue: QueueEntry) -> None:
        """Follows a change of the queue's priority or weight."""
        ...

    def follow_clock(self, by: Millis) -> None:
        """Follows a change of the system clock."""
        ...

    def needs_reset(self, now: Instant) -> bool:
        """Whether its numbers have grown so large that they must be computed anew."""
        ...


ChargedTime: TypeAlias = tuple[Instant, Instant]
"""(now, expected end)."""


class ArrivalCount:
    """Totals of a class's arrivals at a time."""

    __slots__ = ("at", "jobs", "work")

    def __init__(self, at: Instant, jobs: int, work: Millis) -> None:
        self.at = at
        self.jobs = jobs
        self.work = work


class ArrivalRates:
    """Arrival rates of classes, from samples of the last minutes."""

    def __init__(self, now: Instant) -> None:
        self.due = now
        """When the counters are sampled next."""
        self._notes: dict[int, tuple[JobClass, deque[ArrivalCount]]] = {}
        self._began = now

    def note(self, classes: Sequence[JobClass], now: Instant) -> None:
        """Samples all counters."""
        self.due = now + ARRIVALS_EVERY_MS
        for job_class in classes:
            known = self._notes.get(job_class.index)
            if known is None or known[0] is not job_class:
                # A class that was not there at the last sample began with nothing.
                first = ArrivalCount(max(self._began, now - ARRIVALS_EVERY_MS), 0, 0)
                known = (job_class, deque([first], ARRIVALS_NOTED))
                self._notes[job_class.index] = known
            known[1].append(ArrivalCount(now, job_class.arrived, job_class.arrived_work))

    def rate(self, job_class: JobClass, now: Instant) -> tuple[float, float]:
        """(jobs, seconds of work) that arrived per second, over the last five minutes.

        The interval with the most arrivals is left out: a batch is no stream, and will not come
        again.
        """
        known = self._notes.get(job_class.index)
        if known is None or known[0] is not job_class:
            return 0.0, 0.0
        notes = list(known[1])
        while len(notes) > 1 and notes[1].at <= now - ARRIVALS_MS:
            del notes[0]
        notes.append(ArrivalCount(now, job_class.arrived, job_class.arrived_work))
        steps = [(b.jobs - a.jobs, b.work - a.work) for a, b in pairwise(notes)]
        steps.remove(max(steps))
        seconds = max(ARRIVALS_MS, now - notes[0].at) / 1000
        jobs, work = sum(jobs for jobs, _ in steps), sum(work for _, work in steps)
        return jobs / seconds, work / 1000 / seconds

    def start_over(self, classes: Sequence[JobClass], now: Instant) -> None:
        """Resets all counters: jobs that are there were loaded, or the clock was set."""
        self._notes.clear()
        self._began = self.due = now
        for job_class in classes:
            job_class.arrived = job_class.arrived_work = 0
