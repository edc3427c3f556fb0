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
        handle = self.handle
        # A party in which nobody waits may have been forgotten since.
        if handle is not None and handle.account.class_queues:
            return handle.account
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
        terms_entry = self.entries.get(id(terms))
        return (
            self._make(terms)
            if terms_entry is None or terms_entry.tenant.is_forgotten
            else terms_entry
        )

    def forget(self) -> None:
        """What was looked up may be out of date: a queue or tenant has other limits, or all stand
        in line anew."""
        self.entries.clear()

    def _make(self, terms: Terms) -> TermsEntry:
        if len(self.entries) >= self._most:
            self.forget()
        tenant = self._tenants.entries.get(terms.tenant) or self._tenants.entry(terms.tenant)
        terms_entry = TermsEntry(
            terms, self._queues[terms.queue], tenant, self._depths.of(terms.queue)
        )
        self.entries[id(terms)] = terms_entry
        return terms_entry


def make_order(policy: Policy, tenants: Tenants, now: Instant, queues_kept: int) -> OrderPolicy:
    """The order, nobody waiting in it yet."""
    if policy.order in (OrderKind.PRIORITY, OrderKind.FIFO):
        return StrictOrder(policy, {entry.tenant.name: EVERY_CLASS for entry in tenants.limited()})
    used: dict[str, float] = {}
    for entry in tenants.entries.values():
        if entry.tenant.used and policy.order is OrderKind.FAIR:
            faded = 0.5 ** ((now - entry.tenant.used_at) / policy.half_life_ms)
            used[entry.tenant.name] = entry.tenant.used * faded
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
        terms_entries: TermsCache,
        order: OrderPolicy,
        limits: CoreLimits = CORE_LIMITS,
    ) -> None:
        self._limits = limits
        self._jobs = jobs
        self._terms = terms_entries
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

    def add(self, entry: JobEntry, terms_entry: TermsEntry, now: Instant) -> JobClass:
        """The job stands in line."""
        assert entry.class_index == NO_CLASS
        handle = terms_entry.handle
        if handle is None or not (handle.fifo_group.in_memory or handle.fifo_group.spilled):
            handle = self._find_handle(terms_entry)
        account, class_queue, fifo_group, job_class = (
            handle.account,
            handle.queue,
            handle.fifo_group,
            handle.job_class,
        )
        estimate, key = entry.estimate, (entry.sort_key, entry.spec.arrival_number, entry.id)
        class_queue.jobs.add(key, fifo_group)
        is_usual = estimate == class_queue.estimate or class_queue.is_mixed
        if not is_usual or not class_queue.waiting or class_queue.short is not None:
            class_queue.note_length(estimate, self.order.coarse_length(estimate), key)
        if account.by_length is not None:
            account.note_length(class_queue, self.order.coarse_length(estimate), key)
        fifo_group.in_memory += 1
        job_class.waiting += 1
        class_queue.waiting += 1
        class_queue.work += estimate
        if (head := class_queue.head_entry) is None or key < head[1]:
            class_queue.first = key
            account.set_head(class_queue, key)
        elif (
            class_queue.first is not None
            and class_queue.first is not head[1]
            and key < class_queue.first
        ):
            class_queue.first = key  # its seat is too early still, which does no harm
        entry.class_index, entry.queue_number = job_class.index, class_queue.number
        if not account.waiting & job_class.bit:
            self._fill(account, job_class, now)
        return job_class

    def add_behind(self, first: JobEntry, entries: Sequence[JobEntry], now: Instant) -> None:
        """Jobs of the same terms as the first, which stands in line, each behind the one before."""
        terms_entry = self._terms.of(first.spec.terms)
        assert terms_entry.handle is not None
        for entry in () if terms_entry.handle.add_behind(first, entries) else entries:
            entry.estimate = first.estimate
            self.add(entry, terms_entry, now)

    def _find_handle(self, terms_entry: TermsEntry) -> QueueHandle:
        """Where such jobs stand, of whom nobody is left in the lane they had."""
        terms, queue, handle = terms_entry.terms, terms_entry.queue, terms_entry.handle
        if handle is not None and handle.queue.waiting and not handle.fifo_group.spill_queue:
            # Others of the line are still there; and nothing is known of the lane but its key.
            fifo_groups = handle.job_class.fifo_groups
            handle.fifo_group = fifo_groups.setdefault(handle.fifo_group.key, handle.fifo_group)
            return handle
        job_class = self._class_of(queue, terms.needs)
        account = self.order.account(terms.tenant, queue)
        class_queue = self._queue_of(account, job_class, terms.tenant)
        terms_entry.handle = QueueHandle(
            account, class_queue, self._fifo_group_of(job_class, fifo_group_key(terms))
        )
        return terms_entry.handle

    def _fill(self, account: Account, job_class: JobClass, now: Instant) -> None:
        self._empty.pop(job_class.index, None)
        self.ready |= job_class.bit
        self.order.add_class(account, job_class.bit, now)

    def _queue_of(self, account: Account, job_class: JobClass, tenant: str) -> ClassQueue:
        class_queue = account.class_queues.get(job_class.index)
        if class_queue is None:
            self._queues_made += 1
            rank = self.order.rank(job_class.queue)
            jobs = MergeQueue(self._limits.long_fifo_group)
            class_queue = ClassQueue(self._queues_made, job_class, jobs, tenant, rank)
            account.class_queues[job_class.index] = class_queue
            self._queues[class_queue.number] = job_class.class_queues[class_queue.number] = (
                class_queue
            )
        return class_queue

    def _fifo_group_of(self, job_class: JobClass, key: FifoGroupKey) -> FifoGroup:
        fifo_group = job_class.fifo_groups.get(key)
        if fifo_group is None:
            fifo_group = job_class.fifo_groups[key] = FifoGroup(job_class.index, key)
        return fifo_group

    def remove(self, entry: JobEntry) -> None:
        """The job stands in line no longer, if it did; its entry is passed over later."""
        if entry.class_index == NO_CLASS:
            return
        class_queue = self._queues[entry.queue_number]
        class_queue.work -= entry.estimate
        if class_queue.first is not None and class_queue.first[2] == entry.id:
            class_queue.first = None
            class_queue.jobs.drop_first()  # its entry, or of one who is gone: nobody is before the head
        self._count_removed(entry, class_queue, 1)
        entry.class_index = NO_CLASS

    def remove_together(self, entries: Sequence[JobEntry]) -> None:
        """Jobs of the same terms leave their line; their entries are gone from its row already."""
        class_queue = self._queues[entries[0].queue_number]
        class_queue.work -= sum(entry.estimate for entry in entries)
        self._count_removed(entries[0], class_queue, len(entries))
        for entry in entries:
            entry.class_index = NO_CLASS

    def _count_removed(self, entry: JobEntry, class_queue: ClassQueue, count: int) -> None:
        """So many jobs like this one have left the line; their entries are passed over later."""
        job_class = class_queue.job_class
        job_class.waiting -= count
        class_queue.waiting -= count
        terms_entry = self._terms.entries.get(id(entry.spec.terms))
        handle = None if terms_entry is None else terms_entry.handle
        fifo_group = (
            job_class.fifo_groups[fifo_group_key(entry.spec.terms)]
            if handle is None
            else handle.fifo_group
        )
        fifo_group.in_memory -= count
        if fifo_group.spilled:
            self.refill_candidates[fifo_group.spill_queue] = fifo_group
        elif not fifo_group.in_memory:
            self._drop_fifo_group(job_class, fifo_group)
        if not class_queue.waiting and not class_queue.spilled:
            self._drop_queue(job_class, class_queue)
        elif class_queue.jobs.size > 2 * class_queue.waiting + 64:
            class_queue.jobs.compact(lambda key: self.is_current(key, class_queue))
            class_queue.short = None

    def _drop_fifo_group(self, job_class: JobClass, fifo_group: FifoGroup) -> None:
        del job_class.fifo_groups[fifo_group.key]
        self.by_spill_queue.pop(fifo_group.spill_queue, None)

    def _drop_queue(self, job_class: JobClass, class_queue: ClassQueue) -> None:
        account = self.order.account(class_queue.tenant, job_class.queue)
        del account.class_queues[job_class.index]
        account.remove_head(class_queue)
        del self._queues[class_queue.number], job_class.class_queues[class_queue.number]
        self.order.remove_class(account, job_class.bit)
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
            for fifo_group in job_class.fifo_groups.values():
                fifo_group.run = None
        for entry in self._jobs.values():
            entry.sort_key = order.sort_key(entry.spec)
            if entry.class_index != NO_CLASS:
                job_class = self.classes[entry.class_index]
                entry.class_index = NO_CLASS
                job_class.waiting -= 1
                job_class.fifo_groups[fifo_group_key(entry.spec.terms)].in_memory -= 1
                self.add(entry, self._terms.of(entry.spec.terms), now)
        for fifo_group in self.by_spill_queue.values():
            if fifo_group.spilled:
                self._queue_of_group(fifo_group, now).spilled += fifo_group.spilled
                self._set_spill_marker(fifo_group)

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

    def spill_queue_of(self, fifo_group: FifoGroup) -> int:
        """The line of the store for the rear of this lane."""
        job_class = self.classes[fifo_group.class_index]
        tenant, priority, length, _ = fifo_group.key
        alike = (job_class.queue.queue.name, job_class.needs, priority, tenant, length)
        return spill_queue_number(alike)

    def fifo_group_of_old_number(self, fifo_group: FifoGroup, number: int) -> FifoGroup:
        """A lane for a line of the store that is not what it would be called today."""
        job_class = self.classes[fifo_group.class_index]
        return self._fifo_group_of(job_class, (*fifo_group.key[:3], number))

    def spill(self, fifo_group: FifoGroup, like: Spec, boundary: int, count: int = 1) -> None:
        """So many jobs of the lane, none of which arrived before `edge`, are put away.

        `like` is the first of them, or the last before them.
        """
        job_class = self.classes[fifo_group.class_index]
        if not fifo_group.spill_queue:
            fifo_group.spill_queue = self.spill_queue_of(fifo_group)
        self.by_spill_queue[fifo_group.spill_queue] = fifo_group
        fifo_group.spilled += count
        job_class.spilled += count
        self.spilled += count
        self._queue_of_group(fifo_group, like.created_at).spilled += count
        if fifo_group.spilled == count:
            self.spilled_groups += 1
            self.move_boundary(fifo_group, like, boundary)

    def take_back(self, fifo_group: FifoGroup, count: int) -> None:
        """So many jobs of the lane are back, and stand in line already."""
        job_class, class_queue = (
            self.classes[fifo_group.class_index],
            self._queue_of_group(fifo_group, 0),
        )
        fifo_group.spilled -= count
        job_class.spilled -= count
        class_queue.spilled -= count
        self.spilled -= count
        if not fifo_group.spilled:
            self.spilled_groups -= 1
            fifo_group.spill_marker = fifo_group.boundary_spec = None
            class_queue.first = None  # it may have been the mark
            if not fifo_group.in_memory:
                self._drop_fifo_group(job_class, fifo_group)
            if not class_queue.waiting and not class_queue.spilled:
                self._drop_queue(job_class, class_queue)

    def move_boundary(self, fifo_group: FifoGroup, like: Spec, boundary: int) -> None:
        """No job of the lane that is on the shelf arrived before `edge`: the mark goes there."""
        fifo_group.boundary_spec, fifo_group.boundary = like, boundary
        self._set_spill_marker(fifo_group)

    def _set_spill_marker(self, fifo_group: FifoGroup) -> None:
        assert fifo_group.boundary_spec is not None
        class_queue = self._queue_of_group(fifo_group, 0)
        marker = (
            self.order.sort_key(fifo_group.boundary_spec),
            fifo_group.boundary,
            JobId(f"{SPILL_MARKER}{fifo_group.spill_queue}"),
        )
        fifo_group.spill_marker = marker
        class_queue.jobs.add_spill_marker(marker)
        if class_queue.head_entry is None or marker < class_queue.head_entry[1]:
            self.order.account(class_queue.tenant, class_queue.job_class.queue).set_head(
                class_queue, marker
            )
        class_queue.first = None  # it may have been the mark before, or behind this one

    def _queue_of_group(self, fifo_group: FifoGroup, now: Instant) -> ClassQueue:
        """The line in which the lane's mark stands."""
        job_class, tenant = self.classes[fifo_group.class_index], fifo_group.key[0]
        account = self.order.account(tenant, job_class.queue)
        class_queue = self._queue_of(account, job_class, tenant)
        if not account.waiting & job_class.bit:
            self._fill(account, job_class, now)
        return class_queue

    def note_empty(self, marker: OrderKey) -> None:
        """A worker has room for the first job of this shelf: the store is asked for it."""
        fifo_group = self.by_spill_queue[int(marker[2][1:])]
        fifo_group.empty = True
        self.refill_candidates[fifo_group.spill_queue] = fifo_group

    # Choosing

    def head(self, class_queue: ClassQueue) -> OrderKey:
        """The first entry of a line that has any: a job's, or the mark of a shelf."""
        if class_queue.first is None:
            jobs = class_queue.jobs
            first = jobs.first()
            # As many entries as jobs: each means something, and none is a mark.
            while jobs.size != class_queue.waiting and not self.is_current(first, class_queue):
                jobs.drop_first()
                first = jobs.first()
            class_queue.first = first
        return class_queue.first

    def ready_since(self) -> dict[str, Instant]:
        """By queue, since when the oldest of the heads of its lines has been ready."""
        oldest: dict[str, Instant] = {}
        for class_queue in self._queues.values():
            entry = self._jobs.get(JobId(self.head(class_queue)[2]))
            if entry is not None and entry.life.ready_at is not None:
                queue = class_queue.job_class.queue.queue.name
                oldest[queue] = min(entry.life.ready_at, oldest.get(queue, entry.life.ready_at))
        return oldest

    def is_current(self, key: OrderKey, class_queue: ClassQueue) -> bool:
        """Whether an entry of the class queue still stands for a job or spill marker there."""
        if is_spill_marker(key):
            fifo_group = self.by_spill_queue.get(int(key[2][1:]))
            return fifo_group is not None and fifo_group.spill_marker == key
        entry = self._jobs.get(key[2])
        return (
            entry is not None
            and entry.class_index == class_queue.job_class.index
            and entry.queue_number == class_queue.number
            and entry.sort_key == key[0]
        )

    def first(self, mask: int) -> ClassQueue | None:
        """The line among these classes whose head goes first."""
        mask &= self.ready
        return self.order.first(mask, self.head) if mask else None

    def shortest(self, class_queue: ClassQueue) -> ShortJob | None:
        """The job in memory that is expected to run about the shortest, and how long."""
        about = self.order.coarse_length
        if not class_queue.is_mixed:
            head = self.head(class_queue)
            return (
                None
                if is_spill_marker(head)
                else (about(class_queue.estimate), head, class_queue.estimate)
            )
        if class_queue.short is None:
            class_queue.short = [
                (about(self._jobs[entry[2]].estimate), entry)
                for entry in class_queue.jobs
                if not is_spill_marker(entry) and self.is_current(entry, class_queue)
            ]
            heapify(class_queue.short)
        while class_queue.short and not self.is_current(class_queue.short[0][1], class_queue):
            heappop(class_queue.short)
        if not class_queue.short:
            return None
        length, key = class_queue.short[0]
        return length, key, self._jobs[key[2]].estimate

    def queue_of_job(self, entry: JobEntry) -> ClassQueue | None:
        """The line a job stands in."""
        return None if entry.class_index == NO_CLASS else self._queues[entry.queue_number]

    def queue_of_group(self, fifo_group: FifoGroup) -> ClassQueue:
        """The line that the jobs of a lane stand in."""
        return self._queue_of_group(fifo_group, 0)

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
