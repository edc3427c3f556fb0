"""Ready queue: the priority queue of jobs that wait for a worker, and the choice of the next.

A decision looks at the first job of each class queue only, so its cost does not depend on how many
wait. Classes are numbered, and a set of classes is the bits of one integer. Whose first job goes
first is for the order policy to say. The rear of a long FIFO group may be spilled to the store; a
marker stands in its place, so that nobody who comes after the spilled jobs goes before them. What
jobs with equal terms have in common is cached, by the identity of their terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop

from rota.core.entries import NO_CLASS, JobEntry, OrderKey, QueueEntry
from rota.core.ids import spill_queue_number
from rota.core.limits import CORE_LIMITS, TERMS_POOL_MAX, CoreLimits
from rota.core.model import Instant, JobId, JobName, Millis, Needs, Spec, Terms
from rota.core.policy import OrderKind, Policy
from rota.core.ready_queue.classes import (
    EVERY_CLASS,
    Account,
    ClassQueue,
    JobClass,
    OrderPolicy,
    QueueHandle,
    ShortJob,
)
from rota.core.ready_queue.fair_share import FairOrder
from rota.core.ready_queue.limits_and_quotas import Depth, Depths, TenantEntry, Tenants, has_limits
from rota.core.ready_queue.merge_queue import FifoGroup, FifoGroupKey, MergeQueue, fifo_group_key
from rota.core.ready_queue.strict_order import StrictOrder
from rota.core.runtime_estimates import RuntimeEstimates


class TermsEntry:
    """Jobs of the same terms, waiting and running."""

    __slots__ = (
        "_length",
        "_length_as_of",
        "_of_queue",
        "_of_tenant",
        "handle",
        "is_plain",
        "name",
        "queue",
        "resources",
        "tenant",
        "terms",
    )

    def __init__(self, terms: Terms, queue: QueueEntry, tenant: TenantEntry, depth: Depth) -> None:
        self.terms = terms
        """Kept, so that no other terms can have their identity."""
        self.name: JobName = (terms.tenant, terms.name)
        """By which what they take is learned (runtimes.py)."""
        self.resources = terms.needs.resources
        self.queue = queue
        self.tenant = tenant
        self.handle: QueueHandle | None = None
        """Where they last stood in line; ordering.py sees to it."""
        self._of_queue, self._of_tenant = depth, tenant.depth
        """How many jobs there are by state: of the queue, and of the tenant (depths.py)."""
        self.is_plain = (
            not terms.preemptible
            and terms.needs.affinity is None
            and not has_limits(queue)
            and tenant.tenant.quota is None
        )
        """Whether nobody waits for what such jobs hold but whoever comes next."""

        self._length: Millis = 0
        """How long one of them will probably run, and as of which change of what is known."""
        self._length_as_of = -1

    def estimate(self, runtimes: RuntimeEstimates) -> Millis:
        """How long one of them will probably run: most of what is learned changes nothing."""
        if self._length_as_of != runtimes.changes:
            self._length, self._length_as_of = runtimes.estimate(self.terms), runtimes.changes
        return self._length

    def account(self, order: OrderPolicy) -> Account:
        """Whom the order charges for them."""
        stand = self.handle
        # A party in which nobody waits may have been forgotten since.
        if stand is not None and stand.account.class_queues:
            return stand.account
        return order.account(self.terms.tenant, self.queue)

    def count_queued(self, count: int = 1) -> None:
        """So many more of them are queued."""
        self._of_queue.queued += count
        self._of_tenant.queued += count

    def count_started(self, count: int = 1) -> None:
        """So many of those that were queued are running."""
        depth = self._of_queue
        depth.queued -= count
        depth.running += count
        depth = self._of_tenant
        depth.queued -= count
        depth.running += count

    def count_ended(self, count: int = 1) -> None:
        """So many of those that were running are gone."""
        self._of_queue.running -= count
        self._of_tenant.running -= count


class TermsCache:
    """All kinds that were seen lately."""

    __slots__ = ("_depths", "_most", "_queues", "_tenants", "entries")

    def __init__(
        self,
        queues: Mapping[str, QueueEntry],
        tenants: Tenants,
        depths: Depths,
        most: int = TERMS_POOL_MAX,
    ) -> None:
        self._most = most
        self._queues = queues
        self._tenants = tenants
        self._depths = depths
        self.entries: dict[int, TermsEntry] = {}
        """By the identity of their terms."""

    def of(self, terms: Terms) -> TermsEntry:
        """The kind of jobs with these terms, whose queue there is."""
        kind = self.entries.get(id(terms))
        return self._make(terms) if kind is None or kind.tenant.is_forgotten else kind

    def forget(self) -> None:
        """What was looked up may be out of date: a queue or tenant has other limits, or all stand
        in line anew."""
        self.entries.clear()

    def _make(self, terms: Terms) -> TermsEntry:
        if len(self.entries) >= self._most:
            self.forget()
        tenant = self._tenants.entries.get(terms.tenant) or self._tenants.entry(terms.tenant)
        kind = TermsEntry(terms, self._queues[terms.queue], tenant, self._depths.of(terms.queue))
        self.entries[id(terms)] = kind
        return kind


def make_order(policy: Policy, tenants: Tenants, now: Instant, queues_kept: int) -> OrderPolicy:
    """The order, nobody waiting in it yet."""
    if policy.order in (OrderKind.PRIORITY, OrderKind.FIFO):
        return StrictOrder(policy, {cell.tenant.name: EVERY_CLASS for cell in tenants.limited()})
    used: dict[str, float] = {}
    for cell in tenants.entries.values():
        if cell.tenant.used and policy.order is OrderKind.FAIR:
            faded = 0.5 ** ((now - cell.tenant.used_at) / policy.half_life_ms)
            used[cell.tenant.name] = cell.tenant.used * faded
    return FairOrder(policy, now, tenants.weight_of, used, queues_kept)


SPILL_MARKER = "\0"
"""What stands in a line for the first job of a lane that is on the shelf has a name that begins so:
it comes before every id."""


def is_spill_marker(entry: OrderKey) -> bool:
    """Whether it stands for a job on the shelf."""
    return entry[2][0] == SPILL_MARKER


class ReadyQueue:
    """All classes, and which of them have jobs in line."""

    def __init__(
        self,
        jobs: Mapping[JobId, JobEntry],
        kinds: TermsCache,
        order: OrderPolicy,
        limits: CoreLimits = CORE_LIMITS,
    ) -> None:
        self._limits = limits
        self._jobs = jobs
        self._terms = kinds
        self.order = order
        self.classes: list[JobClass] = []
        self._by_key: dict[tuple[str, Needs], JobClass] = {}
        self._empty: dict[int, None] = {}
        self._queues: dict[int, ClassQueue] = {}
        self._queues_made = 0
        self.by_spill_queue: dict[int, FifoGroup] = {}
        """Lanes with a line in the store, by its number."""
        self.spilled_groups = 0
        """How many lanes have jobs on the shelf."""
        self.spilled = 0
        """How many jobs are on the shelf."""
        self.refill_candidates: dict[int, FifoGroup] = {}
        """Lanes with jobs on the shelf that may want some of them back."""
        self.ready = 0
        """Bits of the classes with jobs in line or on the shelf."""
        self.new_classes = 0
        """Bits of classes made since placement.py last looked."""
        self.class_generation = 0
        """Grows when a number is given to another class: whoever remembers bits must forget."""
        self.classes_made = 0
        """Classes made so far."""

    def add(self, cell: JobEntry, kind: TermsEntry, now: Instant) -> JobClass:
        """The job stands in line."""
        assert cell.class_index == NO_CLASS
        stand = kind.handle
        if stand is None or not (stand.fifo_group.in_memory or stand.fifo_group.spilled):
            stand = self._find_handle(kind)
        party, line, lane, job_class = stand.account, stand.queue, stand.fifo_group, stand.job_class
        estimate, key = cell.estimate, (cell.sort_key, cell.spec.arrival_number, cell.id)
        line.jobs.add(key, lane)
        is_usual = estimate == line.estimate or line.is_mixed
        if not is_usual or not line.waiting or line.short is not None:
            line.note_length(estimate, self.order.coarse_length(estimate), key)
        if party.by_length is not None:
            party.note_length(line, self.order.coarse_length(estimate), key)
        lane.in_memory += 1
        job_class.waiting += 1
        line.waiting += 1
        line.work += estimate
        if (seat := line.head_entry) is None or key < seat[1]:
            line.first = key
            party.set_head(line, key)
        elif line.first is not None and line.first is not seat[1] and key < line.first:
            line.first = key  # its seat is too early still, which does no harm
        cell.class_index, cell.queue_number = job_class.index, line.number
        if not party.waiting & job_class.bit:
            self._fill(party, job_class, now)
        return job_class

    def add_behind(self, first: JobEntry, cells: Sequence[JobEntry], now: Instant) -> None:
        """Jobs of the same terms as the first, which stands in line, each behind the one before."""
        kind = self._terms.of(first.spec.terms)
        assert kind.handle is not None
        for cell in () if kind.handle.add_behind(first, cells) else cells:
            cell.estimate = first.estimate
            self.add(cell, kind, now)

    def _find_handle(self, kind: TermsEntry) -> QueueHandle:
        """Where such jobs stand, of whom nobody is left in the lane they had."""
        terms, queue, stand = kind.terms, kind.queue, kind.handle
        if stand is not None and stand.queue.waiting and not stand.fifo_group.spill_queue:
            # Others of the line are still there; and nothing is known of the lane but its key.
            lanes = stand.job_class.fifo_groups
            stand.fifo_group = lanes.setdefault(stand.fifo_group.key, stand.fifo_group)
            return stand
        job_class = self._class_of(queue, terms.needs)
        party = self.order.account(terms.tenant, queue)
        line = self._queue_of(party, job_class, terms.tenant)
        kind.handle = QueueHandle(
            party, line, self._fifo_group_of(job_class, fifo_group_key(terms))
        )
        return kind.handle

    def _fill(self, party: Account, job_class: JobClass, now: Instant) -> None:
        self._empty.pop(job_class.index, None)
        self.ready |= job_class.bit
        self.order.add_class(party, job_class.bit, now)

    def _queue_of(self, party: Account, job_class: JobClass, tenant: str) -> ClassQueue:
        line = party.class_queues.get(job_class.index)
        if line is None:
            self._queues_made += 1
            rank = self.order.rank(job_class.queue)
            row = MergeQueue(self._limits.long_fifo_group)
            line = ClassQueue(self._queues_made, job_class, row, tenant, rank)
            party.class_queues[job_class.index] = line
            self._queues[line.number] = job_class.class_queues[line.number] = line
        return line

    def _fifo_group_of(self, job_class: JobClass, key: FifoGroupKey) -> FifoGroup:
        lane = job_class.fifo_groups.get(key)
        if lane is None:
            lane = job_class.fifo_groups[key] = FifoGroup(job_class.index, key)
        return lane

    def remove(self, cell: JobEntry) -> None:
        """The job stands in line no longer, if it did; its entry is passed over later."""
        if cell.class_index == NO_CLASS:
            return
        line = self._queues[cell.queue_number]
        line.work -= cell.estimate
        if line.first is not None and line.first[2] == cell.id:
            line.first = None
            line.jobs.drop_first()  # its entry, or of one who is gone: nobody is before the head
        self._count_removed(cell, line, 1)
        cell.class_index = NO_CLASS

    def remove_together(self, cells: Sequence[JobEntry]) -> None:
        """Jobs of the same terms leave their line; their entries are gone from its row already."""
        line = self._queues[cells[0].queue_number]
        line.work -= sum(cell.estimate for cell in cells)
        self._count_removed(cells[0], line, len(cells))
        for cell in cells:
            cell.class_index = NO_CLASS

    def _count_removed(self, cell: JobEntry, line: ClassQueue, count: int) -> None:
        """So many jobs like this one have left the line; their entries are passed over later."""
        job_class = line.job_class
        job_class.waiting -= count
        line.waiting -= count
        kind = self._terms.entries.get(id(cell.spec.terms))
        stand = None if kind is None else kind.handle
        lane = (
            job_class.fifo_groups[fifo_group_key(cell.spec.terms)]
            if stand is None
            else stand.fifo_group
        )
        lane.in_memory -= count
        if lane.spilled:
            self.refill_candidates[lane.spill_queue] = lane
        elif not lane.in_memory:
            self._drop_fifo_group(job_class, lane)
        if not line.waiting and not line.spilled:
            self._drop_queue(job_class, line)
        elif line.jobs.size > 2 * line.waiting + 64:
            line.jobs.compact(lambda entry: self.is_current(entry, line))
            line.short = None

    def _drop_fifo_group(self, job_class: JobClass, lane: FifoGroup) -> None:
        del job_class.fifo_groups[lane.key]
        self.by_spill_queue.pop(lane.spill_queue, None)

    def _drop_queue(self, job_class: JobClass, line: ClassQueue) -> None:
        party = self.order.account(line.tenant, job_class.queue)
        del party.class_queues[job_class.index]
        party.remove_head(line)
        del self._queues[line.number], job_class.class_queues[line.number]
        self.order.remove_class(party, job_class.bit)
        if not job_class.waiting and not job_class.spilled:
            self.ready &= ~job_class.bit
            self._empty[job_class.index] = None

    def reorder(self, order: OrderPolicy, now: Instant) -> None:
        """Another order holds from now on: all stand in line anew. Costs what waits in memory."""
        self.order = order
        self._queues.clear()
        self._terms.forget()
        for job_class in self.classes:
            job_class.class_queues.clear()
            for lane in job_class.fifo_groups.values():
                lane.run = None
        for cell in self._jobs.values():
            cell.sort_key = order.sort_key(cell.spec)
            if cell.class_index != NO_CLASS:
                job_class = self.classes[cell.class_index]
                cell.class_index = NO_CLASS
                job_class.waiting -= 1
                job_class.fifo_groups[fifo_group_key(cell.spec.terms)].in_memory -= 1
                self.add(cell, self._terms.of(cell.spec.terms), now)
        for lane in self.by_spill_queue.values():
            if lane.spilled:
                self._queue_of_group(lane, now).spilled += lane.spilled
                self._set_spill_marker(lane)

    # The shelf

    def class_of(self, terms: Terms) -> JobClass | None:
        """The class of jobs like this, if there is one now."""
        return self._by_key.get((terms.queue, terms.needs))

    def fifo_group(self, terms: Terms) -> FifoGroup | None:
        """The lane of jobs like this, if there are any."""
        job_class = self.class_of(terms)
        return None if job_class is None else job_class.fifo_groups.get(fifo_group_key(terms))

    def spilled_of(self, queue: QueueEntry) -> int:
        """How many jobs of the queue are on the shelf."""
        if not self.spilled_groups:
            return 0
        classes = (one for one in self.classes if one.bit & queue.class_mask)
        return sum(job_class.spilled for job_class in classes)

    def spill_queue_of(self, lane: FifoGroup) -> int:
        """The line of the store for the rear of this lane."""
        job_class = self.classes[lane.class_index]
        tenant, priority, length, _ = lane.key
        alike = (job_class.queue.queue.name, job_class.needs, priority, tenant, length)
        return spill_queue_number(alike)

    def fifo_group_of_old_number(self, lane: FifoGroup, number: int) -> FifoGroup:
        """A lane for a line of the store that is not what it would be called today."""
        job_class = self.classes[lane.class_index]
        return self._fifo_group_of(job_class, (*lane.key[:3], number))

    def spill(self, lane: FifoGroup, like: Spec, edge: int, count: int = 1) -> None:
        """So many jobs of the lane, none of which arrived before `edge`, are put away.

        `like` is the first of them, or the last before them.
        """
        job_class = self.classes[lane.class_index]
        if not lane.spill_queue:
            lane.spill_queue = self.spill_queue_of(lane)
        self.by_spill_queue[lane.spill_queue] = lane
        lane.spilled += count
        job_class.spilled += count
        self.spilled += count
        self._queue_of_group(lane, like.created_at).spilled += count
        if lane.spilled == count:
            self.spilled_groups += 1
            self.move_boundary(lane, like, edge)

    def take_back(self, lane: FifoGroup, count: int) -> None:
        """So many jobs of the lane are back, and stand in line already."""
        job_class, line = self.classes[lane.class_index], self._queue_of_group(lane, 0)
        lane.spilled -= count
        job_class.spilled -= count
        line.spilled -= count
        self.spilled -= count
        if not lane.spilled:
            self.spilled_groups -= 1
            lane.spill_marker = lane.boundary_spec = None
            line.first = None  # it may have been the mark
            if not lane.in_memory:
                self._drop_fifo_group(job_class, lane)
            if not line.waiting and not line.spilled:
                self._drop_queue(job_class, line)

    def move_boundary(self, lane: FifoGroup, like: Spec, edge: int) -> None:
        """No job of the lane that is on the shelf arrived before `edge`: the mark goes there."""
        lane.boundary_spec, lane.boundary = like, edge
        self._set_spill_marker(lane)

    def _set_spill_marker(self, lane: FifoGroup) -> None:
        assert lane.boundary_spec is not None
        line = self._queue_of_group(lane, 0)
        mark = (
            self.order.sort_key(lane.boundary_spec),
            lane.boundary,
            JobId(f"{SPILL_MARKER}{lane.spill_queue}"),
        )
        lane.spill_marker = mark
        line.jobs.add_spill_marker(mark)
        if line.head_entry is None or mark < line.head_entry[1]:
            self.order.account(line.tenant, line.job_class.queue).set_head(line, mark)
        line.first = None  # it may have been the mark before, or behind this one

    def _queue_of_group(self, lane: FifoGroup, now: Instant) -> ClassQueue:
        """The line in which the lane's mark stands."""
        job_class, tenant = self.classes[lane.class_index], lane.key[0]
        party = self.order.account(tenant, job_class.queue)
        line = self._queue_of(party, job_class, tenant)
        if not party.waiting & job_class.bit:
            self._fill(party, job_class, now)
        return line

    def note_empty(self, mark: OrderKey) -> None:
        """A worker has room for the first job of this shelf: the store is asked for it."""
        lane = self.by_spill_queue[int(mark[2][1:])]
        lane.empty = True
        self.refill_candidates[lane.spill_queue] = lane

    # Choosing

    def head(self, line: ClassQueue) -> OrderKey:
        """The first entry of a line that has any: a job's, or the mark of a shelf."""
        if line.first is None:
            row = line.jobs
            first = row.first()
            # As many entries as jobs: each means something, and none is a mark.
            while row.size != line.waiting and not self.is_current(first, line):
                row.drop_first()
                first = row.first()
            line.first = first
        return line.first

    def ready_since(self) -> dict[str, Instant]:
        """By queue, since when the oldest of the heads of its lines has been ready."""
        oldest: dict[str, Instant] = {}
        for line in self._queues.values():
            cell = self._jobs.get(JobId(self.head(line)[2]))
            if cell is not None and cell.life.ready_at is not None:
                queue = line.job_class.queue.queue.name
                oldest[queue] = min(cell.life.ready_at, oldest.get(queue, cell.life.ready_at))
        return oldest

    def is_current(self, entry: OrderKey, line: ClassQueue) -> bool:
        """Whether an entry of the line's row still means something."""
        if entry[2][0] == SPILL_MARKER:
            lane = self.by_spill_queue.get(int(entry[2][1:]))
            return lane is not None and lane.spill_marker == entry
        cell = self._jobs.get(entry[2])
        return (
            cell is not None
            and cell.class_index == line.job_class.index
            and cell.queue_number == line.number
            and cell.sort_key == entry[0]
        )

    def first(self, mask: int) -> ClassQueue | None:
        """The line among these classes whose head goes first."""
        mask &= self.ready
        return self.order.first(mask, self.head) if mask else None

    def shortest(self, line: ClassQueue) -> ShortJob | None:
        """The job in memory that is expected to run about the shortest, and how long."""
        about = self.order.coarse_length
        if not line.is_mixed:
            head = self.head(line)
            return None if is_spill_marker(head) else (about(line.estimate), head, line.estimate)
        if line.short is None:
            line.short = [
                (about(self._jobs[entry[2]].estimate), entry)
                for entry in line.jobs
                if not is_spill_marker(entry) and self.is_current(entry, line)
            ]
            heapify(line.short)
        while line.short and not self.is_current(line.short[0][1], line):
            heappop(line.short)
        if not line.short:
            return None
        length, key = line.short[0]
        return length, key, self._jobs[key[2]].estimate

    def queue_of_job(self, cell: JobEntry) -> ClassQueue | None:
        """The line a job stands in."""
        return None if cell.class_index == NO_CLASS else self._queues[cell.queue_number]

    def queue_of_group(self, lane: FifoGroup) -> ClassQueue:
        """The line that the jobs of a lane stand in."""
        return self._queue_of_group(lane, 0)

    # Classes

    def _class_of(self, queue: QueueEntry, needs: Needs) -> JobClass:
        key = (queue.queue.name, needs)
        job_class = self._by_key.get(key)
        if job_class is None:
            job_class = self._make(queue, needs)
            self._by_key[key] = job_class
        return job_class

    def _make(self, queue: QueueEntry, needs: Needs) -> JobClass:
        if len(self.classes) < self._limits.classes_kept or not self._empty:
            job_class = JobClass(len(self.classes), queue, needs)
            self.classes.append(job_class)
        else:
            index = next(iter(self._empty))
            del self._empty[index]
            old = self.classes[index]
            old.queue.class_mask &= ~old.bit
            del self._by_key[(old.queue.queue.name, old.needs)]
            job_class = JobClass(index, queue, needs)
            self.classes[index] = job_class
            self.class_generation += 1
        self.classes_made += 1
        queue.class_mask |= job_class.bit
        self.new_classes |= job_class.bit
        self._empty[job_class.index] = None
        return job_class
