"""Ready queue: the priority queue of jobs that wait for a worker, and the choice of the next.

A decision looks at the first job of each class queue only, so its cost does not depend on how many
wait. Classes are numbered, and a set of classes is the bits of one integer. The order policy
decides whose first job goes first. The rear of a long FIFO group may be spilled to the store; a
marker stands in its place, so that no job that comes after the spilled ones goes before them. What
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
    """Terms entry: what all jobs of the same terms have in common, looked up once."""

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
        """Kept, so that no other terms can have the same identity."""
        self.name: JobName = (terms.tenant, terms.name)
        """Key of run time estimates and usage statistics."""
        self.resources = terms.needs.resources
        self.queue = queue
        self.tenant = tenant
        self.handle: QueueHandle | None = None
        """Where they were queued last; kept by `ReadyQueue`."""
        self._of_queue, self._of_tenant = depth, tenant.depth
        """Counts of jobs by state, of the queue and of the tenant."""
        self.is_plain = (
            not terms.preemptible
            and terms.needs.affinity is None
            and not has_limits(queue)
            and tenant.tenant.quota is None
        )
        """Whether only the next job in order can use what such a job gives back."""

        self._length: Millis = 0
        """Expected run time, as of `_length_as_of` changes of the estimates."""
        self._length_as_of = -1

    def estimate(self, runtimes: RuntimeEstimates) -> Millis:
        """Expected run time of one of them, cached because most runs do not change it."""
        if self._length_as_of != runtimes.changes:
            self._length, self._length_as_of = runtimes.estimate(self.terms), runtimes.changes
        return self._length

    def account(self, order: OrderPolicy) -> Account:
        """Account that the order policy charges for them."""
        handle = self.handle
        # An account without waiting jobs may have been forgotten since.
        if handle is not None and handle.account.class_queues:
            return handle.account
        return order.account(self.terms.tenant, self.queue)

    def count_queued(self, count: int = 1) -> None:
        """Counts so many more of them as queued."""
        self._of_queue.queued += count
        self._of_tenant.queued += count

    def count_started(self, count: int = 1) -> None:
        """Counts so many queued ones as running."""
        depth = self._of_queue
        depth.queued -= count
        depth.running += count
        depth = self._of_tenant
        depth.queued -= count
        depth.running += count

    def count_ended(self, count: int = 1) -> None:
        """Counts so many running ones as gone."""
        self._of_queue.running -= count
        self._of_tenant.running -= count


class TermsCache:
    """Cache of terms entries."""

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
        """Terms entry for these terms; their queue must exist."""
        terms_entry = self.entries.get(id(terms))
        return (
            self._make(terms)
            if terms_entry is None or terms_entry.tenant.is_forgotten
            else terms_entry
        )

    def forget(self) -> None:
        """Forgets everything: limits of a queue or tenant changed, or all jobs are queued anew."""
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
    """Creates the order policy, without waiting jobs."""
    if policy.order in (OrderKind.PRIORITY, OrderKind.FIFO):
        return StrictOrder(policy, {entry.tenant.name: EVERY_CLASS for entry in tenants.limited()})
    used: dict[str, float] = {}
    for entry in tenants.entries.values():
        if entry.tenant.used and policy.order is OrderKind.FAIR:
            faded = 0.5 ** ((now - entry.tenant.used_at) / policy.half_life_ms)
            used[entry.tenant.name] = entry.tenant.used * faded
    return FairOrder(policy, now, tenants.weight_of, used, queues_kept)


SPILL_MARKER = "\0"
"""First character of the id in a spill marker, the key that stands for a FIFO group's first spilled
job: it comes before every id."""


def is_spill_marker(entry: OrderKey) -> bool:
    """Whether the key is a spill marker."""
    return entry[2][0] == SPILL_MARKER


class ReadyQueue:
    """Ready queue (a priority queue): all classes with their queues, and the next job's choice."""

    def __init__(
        self,
        jobs: Mapping[JobId, JobEntry],
        terms: TermsCache,
        order: OrderPolicy,
        limits: CoreLimits = CORE_LIMITS,
    ) -> None:
        self._limits = limits
        self._jobs = jobs
        self._terms = terms
        self.order = order
        self.classes: list[JobClass] = []
        self._by_key: dict[tuple[str, Needs], JobClass] = {}
        self._empty: dict[int, None] = {}
        self._queues: dict[int, ClassQueue] = {}
        self._queues_made = 0
        self.by_spill_queue: dict[int, FifoGroup] = {}
        """FIFO groups with a spill queue, by its number."""
        self.spilled_groups = 0
        """Number of FIFO groups with spilled jobs."""
        self.spilled = 0
        """Number of spilled jobs."""
        self.refill_candidates: dict[int, FifoGroup] = {}
        """FIFO groups with spilled jobs that may need a refill."""
        self.ready = 0
        """Bits of the classes with waiting or spilled jobs."""
        self.new_classes = 0
        """Bits of classes made since placement looked last."""
        self.class_generation = 0
        """Grows when a class gets the index of another: bits that are cached elsewhere are void."""
        self.classes_made = 0
        """Number of classes made so far."""

    def add(self, entry: JobEntry, terms_entry: TermsEntry, now: Instant) -> JobClass:
        assert entry.class_index == NO_CLASS
        handle = terms_entry.handle
        if handle is None or not (handle.fifo_group.in_memory or handle.fifo_group.spilled):
            handle = self._find_handle(terms_entry)
        account, class_queue = handle.account, handle.queue
        fifo_group, job_class = handle.fifo_group, handle.job_class
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
            class_queue.first = key  # its head entry is still too early, which is allowed
        entry.class_index, entry.queue_number = job_class.index, class_queue.number
        if not account.waiting & job_class.bit:
            self._fill(account, job_class, now)
        return job_class

    def add_behind(self, first: JobEntry, entries: Sequence[JobEntry], now: Instant) -> None:
        """Adds jobs with the terms of `first`, which is queued, behind it, in order."""
        terms_entry = self._terms.of(first.spec.terms)
        assert terms_entry.handle is not None
        for entry in () if terms_entry.handle.add_behind(first, entries) else entries:
            entry.estimate = first.estimate
            self.add(entry, terms_entry, now)

    def _find_handle(self, terms_entry: TermsEntry) -> QueueHandle:
        """Finds the class queue of such jobs, after their FIFO group became empty."""
        terms, queue, handle = terms_entry.terms, terms_entry.queue, terms_entry.handle
        if handle is not None and handle.queue.waiting and not handle.fifo_group.spill_queue:
            # The class queue still has other jobs, and an empty FIFO group is nothing but its key.
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
        """Removes a job, if it is queued; its key may stay and become stale."""
        if entry.class_index == NO_CLASS:
            return
        class_queue = self._queues[entry.queue_number]
        class_queue.work -= entry.estimate
        if class_queue.first is not None and class_queue.first[2] == entry.id:
            class_queue.first = None
            class_queue.jobs.drop_first()  # its key, or a stale one: none is before the head
        self._count_removed(entry, class_queue, 1)
        entry.class_index = NO_CLASS

    def remove_together(self, entries: Sequence[JobEntry]) -> None:
        """Removes jobs with the same terms, whose keys are not in the merge queue any more."""
        class_queue = self._queues[entries[0].queue_number]
        class_queue.work -= sum(entry.estimate for entry in entries)
        self._count_removed(entries[0], class_queue, len(entries))
        for entry in entries:
            entry.class_index = NO_CLASS

    def _count_removed(self, entry: JobEntry, class_queue: ClassQueue, count: int) -> None:
        """Counts so many jobs like this one as removed; their keys may stay and become stale."""
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
        """Applies another order policy: all jobs in memory are queued anew, which costs much."""
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
                self.queue_of_group(fifo_group, now).spilled += fifo_group.spilled
                self._set_spill_marker(fifo_group)

    # Spill queues

    def class_of(self, terms: Terms) -> JobClass | None:
        """Class of jobs with these terms, if it exists now."""
        return self._by_key.get((terms.queue, terms.needs))

    def fifo_group(self, terms: Terms) -> FifoGroup | None:
        """FIFO group of jobs with these terms, if it exists now."""
        job_class = self.class_of(terms)
        return None if job_class is None else job_class.fifo_groups.get(fifo_group_key(terms))

    def spilled_of(self, queue: QueueEntry) -> int:
        """Number of spilled jobs of the queue."""
        if not self.spilled_groups:
            return 0
        classes = (one for one in self.classes if one.bit & queue.class_mask)
        return sum(job_class.spilled for job_class in classes)

    def spill_queue_of(self, fifo_group: FifoGroup) -> int:
        """Number of the spill queue for the rear of this FIFO group."""
        job_class = self.classes[fifo_group.class_index]
        tenant, priority, length, _ = fifo_group.key
        alike = (job_class.queue.queue.name, job_class.needs, priority, tenant, length)
        return spill_queue_number(alike)

    def fifo_group_of_old_number(self, fifo_group: FifoGroup, number: int) -> FifoGroup:
        """FIFO group for a spill queue that an older version has numbered in another way."""
        job_class = self.classes[fifo_group.class_index]
        return self._fifo_group_of(job_class, (*fifo_group.key[:3], number))

    def spill(self, fifo_group: FifoGroup, like: Spec, boundary: int, count: int = 1) -> None:
        """Counts so many jobs as spilled, none of which arrived before `boundary`.

        `like` is the first of them, or the last one before them.
        """
        job_class = self.classes[fifo_group.class_index]
        if not fifo_group.spill_queue:
            fifo_group.spill_queue = self.spill_queue_of(fifo_group)
        self.by_spill_queue[fifo_group.spill_queue] = fifo_group
        fifo_group.spilled += count
        job_class.spilled += count
        self.spilled += count
        self.queue_of_group(fifo_group, like.created_at).spilled += count
        if fifo_group.spilled == count:
            self.spilled_groups += 1
            self.move_boundary(fifo_group, like, boundary)

    def take_back(self, fifo_group: FifoGroup, count: int) -> None:
        """Counts so many spilled jobs as back; they are queued already."""
        job_class = self.classes[fifo_group.class_index]
        class_queue = self.queue_of_group(fifo_group)
        fifo_group.spilled -= count
        job_class.spilled -= count
        class_queue.spilled -= count
        self.spilled -= count
        if not fifo_group.spilled:
            self.spilled_groups -= 1
            fifo_group.spill_marker = fifo_group.boundary_spec = None
            class_queue.first = None  # it may have been the marker
            if not fifo_group.in_memory:
                self._drop_fifo_group(job_class, fifo_group)
            if not class_queue.waiting and not class_queue.spilled:
                self._drop_queue(job_class, class_queue)

    def move_boundary(self, fifo_group: FifoGroup, like: Spec, boundary: int) -> None:
        """Moves the spill marker: no spilled job of the FIFO group arrived before `boundary`."""
        fifo_group.boundary_spec, fifo_group.boundary = like, boundary
        self._set_spill_marker(fifo_group)

    def _set_spill_marker(self, fifo_group: FifoGroup) -> None:
        assert fifo_group.boundary_spec is not None
        class_queue = self.queue_of_group(fifo_group)
        marker = (
            self.order.sort_key(fifo_group.boundary_spec),
            fifo_group.boundary,
            JobId(f"{SPILL_MARKER}{fifo_group.spill_queue}"),
        )
        fifo_group.spill_marker = marker
        class_queue.jobs.add_spill_marker(marker)
        if class_queue.head_entry is None or marker < class_queue.head_entry[1]:
            account = self.order.account(class_queue.tenant, class_queue.job_class.queue)
            account.set_head(class_queue, marker)
        class_queue.first = None  # it may have been the old marker, or come after this one

    def queue_of_group(self, fifo_group: FifoGroup, now: Instant = 0) -> ClassQueue:
        """Class queue of the FIFO group, made if it is missing (at `now`)."""
        job_class, tenant = self.classes[fifo_group.class_index], fifo_group.key[0]
        account = self.order.account(tenant, job_class.queue)
        class_queue = self._queue_of(account, job_class, tenant)
        if not account.waiting & job_class.bit:
            self._fill(account, job_class, now)
        return class_queue

    def note_empty(self, marker: OrderKey) -> None:
        """Notes that a worker has free capacity for the first spilled job: a refill is needed."""
        fifo_group = self.by_spill_queue[int(marker[2][1:])]
        fifo_group.empty = True
        self.refill_candidates[fifo_group.spill_queue] = fifo_group

    # Choice of the next job

    def head(self, class_queue: ClassQueue) -> OrderKey:
        """Head of a class queue that is not empty: the key of a job, or a spill marker."""
        if class_queue.first is None:
            jobs = class_queue.jobs
            first = jobs.first()
            # As many keys as jobs, so none is stale, and none is a spill marker.
            while jobs.size != class_queue.waiting and not self.is_current(first, class_queue):
                jobs.drop_first()
                first = jobs.first()
            class_queue.first = first
        return class_queue.first

    def ready_since(self) -> dict[str, Instant]:
        """By queue: since when the job that waits longest at a head has been ready."""
        oldest: dict[str, Instant] = {}
        for class_queue in self._queues.values():
            entry = self._jobs.get(JobId(self.head(class_queue)[2]))
            if entry is not None and entry.life.ready_at is not None:
                queue = class_queue.job_class.queue.queue.name
                oldest[queue] = min(entry.life.ready_at, oldest.get(queue, entry.life.ready_at))
        return oldest

    def is_current(self, key: OrderKey, class_queue: ClassQueue) -> bool:
        """Whether a key of the class queue still stands for a job or spill marker there."""
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
        """Class queue, among these classes, whose head goes first."""
        mask &= self.ready
        return self.order.first(mask, self.head) if mask else None

    def shortest(self, class_queue: ClassQueue) -> ShortJob | None:
        """About the shortest job in memory."""
        about = self.order.coarse_length
        if not class_queue.is_mixed:
            head = self.head(class_queue)
            if is_spill_marker(head):
                return None
            return about(class_queue.estimate), head, class_queue.estimate
        if class_queue.short is None:
            class_queue.short = [
                (about(self._jobs[key[2]].estimate), key)
                for key in class_queue.jobs
                if not is_spill_marker(key) and self.is_current(key, class_queue)
            ]
            heapify(class_queue.short)
        while class_queue.short and not self.is_current(class_queue.short[0][1], class_queue):
            heappop(class_queue.short)
        if not class_queue.short:
            return None
        length, key = class_queue.short[0]
        return length, key, self._jobs[key[2]].estimate

    def queue_of_job(self, entry: JobEntry) -> ClassQueue | None:
        """Class queue of a job; None: it is not queued."""
        return None if entry.class_index == NO_CLASS else self._queues[entry.queue_number]

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
