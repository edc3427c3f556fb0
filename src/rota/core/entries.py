"""Entries: the in-memory records of jobs, executions, workers, queues and job groups.

An entry holds a frozen record and what is derived beside it: what a worker holds and its free
capacity, how many members of an array or gang wait. Equal values are interned. Entries never point
at each other, only name each other by id or number, so dropping the scheduler frees them at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from rota.core.lifecycle import JOB_WAITING
from rota.core.limits import FIT_CACHE_MAX
from rota.core.model import (
    Array,
    Execution,
    ExecutionId,
    Gang,
    GroupMember,
    GroupProgress,
    Instant,
    JobId,
    JobRecord,
    JobState,
    Labels,
    Life,
    Millis,
    PollId,
    Queue,
    Resources,
    Spec,
    Terms,
    Worker,
    WorkerId,
    copies_of,
)
from rota.core.outcome import Order
from rota.core.resources import NOTHING, left_of, minus, multiplied, plus, total

T = TypeVar("T", bound=Hashable)


class InternPool(Generic[T]):
    """Intern pool: one object for equal immutable values. With `most` values it starts anew."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._known: dict[T, T] = {}
        self._most = most

    def same(self, value: T) -> T:
        """Returns the first object that was equal to this, or this."""
        known = self._known
        first = known.get(value)
        if first is None:
            if len(known) >= self._most:
                known.clear()
            first = known[value] = value
        return first


class FreeCapacity:
    """Free capacity of a class of workers: one amount, with the job classes that fit into it."""

    __slots__ = (
        "_after_return",
        "_after_taking",
        "_pool",
        "classes_made",
        "classes_seen",
        "free",
        "generation",
        "machine",
        "mask",
        "scores",
    )

    def __init__(self, pool: FreeCapacities, machine: int, free: Resources) -> None:
        self._pool = pool
        self.machine = machine
        """Index of the machine class."""
        self.free = free
        self.mask = 0
        """Bits of the job classes that fit into it; placement/fleet.py keeps this and the rest."""
        self.scores: dict[int, int] = {}
        """Placement score by class index; the smallest is the best."""
        self.classes_seen = 0
        """Classes below this number are in the mask."""
        self.generation = 0
        """`ReadyQueue.class_generation` for which mask and scores hold."""
        self.classes_made = -1
        """`ReadyQueue.classes_made` for which the mask is complete."""
        self._after_taking: dict[Resources, FreeCapacity] = {}
        self._after_return: dict[Resources, FreeCapacity] = {}

    def without(self, amount: Resources) -> FreeCapacity:
        """Free capacity after something takes this amount."""
        found = self._after_taking.get(amount)
        if found is None:
            found = self._pool.neighbour(self, minus(self.free, amount))
            self._after_taking[amount] = found
        return found

    def with_back(self, amount: Resources) -> FreeCapacity:
        """Free capacity after this amount is given back."""
        found = self._after_return.get(amount)
        if found is None:
            found = self._pool.neighbour(self, plus(self.free, amount))
            self._after_return[amount] = found
        return found

    def clear_links(self) -> None:
        """Forgets other amounts, so that those that nothing else uses are freed."""
        self._after_taking.clear()
        self._after_return.clear()


class FreeCapacities:
    """Pool of the free capacities that were seen recently, one object for each amount."""

    __slots__ = ("_known", "_links", "_most")

    def __init__(self, most: int = FIT_CACHE_MAX) -> None:
        self._most = most
        self._known: dict[tuple[int, Resources], FreeCapacity] = {}
        self._links = 0
        """How often one was found from another."""

    def of(self, machine: int, free: Resources) -> FreeCapacity:
        """Returns the object for this amount on this machine class."""
        key = (machine, free)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._most:
                self._forget()
            found = self._known[key] = FreeCapacity(self, machine, free)
        return found

    def neighbour(self, origin: FreeCapacity, free: Resources) -> FreeCapacity:
        """Returns the object for an amount that `origin` will link to."""
        self._links += 1
        if self._links >= self._most:
            self._forget()
        return self.of(origin.machine, free)

    def _forget(self) -> None:
        for found in self._known.values():
            found.clear_links()
        self._known.clear()
        self._links = 0


NO_CLASS = -1

OrderKey: TypeAlias = tuple[int, int, JobId]
"""(sort key, arrival number, job id): the smallest goes first."""


class JobEntry(msgspec.Struct, gc=False):
    """Live job in memory: its spec and life, and its place in the ready queue."""

    id: JobId
    spec: Spec
    life: Life
    unmet: int = 0
    """Dependencies that are not met yet."""
    class_index: int = NO_CLASS
    """Class in whose queue it is; `NO_CLASS` while it waits for anything but a worker."""
    queue_number: int = 0
    """Number of the class queue that it is in."""
    sort_key: int = 0
    """Sort key by the order policy."""
    estimate: Millis = 0
    """Expected run time, as of when it entered its class queue."""

    def record(self) -> JobRecord:
        return JobRecord(self.id, self.spec, self.life)

    def order_key(self) -> OrderKey:
        """Position in a class queue."""
        return (self.sort_key, self.spec.arrival_number, self.id)


class ExecutionEntry(msgspec.Struct, gc=False):
    """Live execution and its lease."""

    execution: Execution
    lease_until: Instant
    """End of the lease by the scheduler's clock, grace included: the job cannot run again
    before."""
    since: Instant
    """When it was claimed, by the clock as it is set now."""
    stop_until: Instant | None = None
    """When its worker must have stopped it, once it was asked to."""
    delivered: bool = True
    """Whether an answer to its worker may have carried the order."""
    stop_delivered: bool = False
    """Whether an answer to its worker has asked to stop it."""
    progress: float | None = None
    message: str = ""
    """Newest progress, written or not."""
    progress_at: Instant = 0
    """When progress was last written."""
    progress_due: bool = False
    """A timer is set that will write newer progress."""
    ends_at: Instant = 0
    """Expected end, by the clock as it is set now."""
    rate: float = 0.0
    """Usage that its tenant is charged per millisecond."""


class PendingPoll(msgspec.Struct, gc=False):
    """Open long poll of a worker."""

    id: PollId
    until: Instant
    free_slots: int
    orders: list[Order]
    lost: Sequence[ExecutionId] = ()
    urgent: bool = False
    """Answer at the end of this turn even without orders."""
    spare: int = 0
    """How many orders the worker wants to prefetch (dispatch/prefetch.py)."""


class MachineClass:
    """Class of alike workers: same capacity, capabilities, queues and required labels."""

    __slots__ = (
        "can_mask",
        "capabilities",
        "capacity",
        "classes_seen",
        "free_capacities",
        "index",
        "labels",
        "only",
        "queues",
        "special",
        "workers",
    )

    def __init__(
        self, index: int, worker: Worker, pool: FreeCapacities, labels: Labels = ()
    ) -> None:
        self.index = index
        self.free_capacities = pool
        """Shared by all machine classes."""
        self.labels = dict(labels)
        """Labels that some job requires."""
        self.only = worker.only
        self.capacity = worker.capacity
        self.capabilities = dict.fromkeys(worker.capabilities)
        self.queues = None if worker.queues is None else dict.fromkeys(worker.queues)
        self.can_mask = 0
        """Bits of the job classes that an empty worker of this class can run."""
        self.classes_seen = 0
        """Job classes below this index are in the mask."""
        custom = sum(1 for _, amount in worker.capacity.custom if amount)
        self.special = (1 if worker.capacity.gpu_milli else 0) + custom
        self.workers: dict[WorkerId, None] = {}


class WorkerEntry:
    """Known worker in memory: what it holds, its free capacity and its open poll."""

    __slots__ = (
        "_expected_free",
        "check_at",
        "counted",
        "ends",
        "free_capacity",
        "held",
        "last_seen",
        "machine",
        "named",
        "poll",
        "prefetched",
        "rank",
        "stamp",
        "stops",
        "undelivered",
        "worker",
    )

    def __init__(self, worker: Worker, machine: MachineClass, rank: int, seen: Instant) -> None:
        self.worker = worker
        self.machine = machine
        self.rank = rank
        self.last_seen = seen
        self.held: dict[ExecutionId, Resources] = {}
        self.prefetched: dict[ExecutionId, tuple[ExecutionId, Resources]] = {}
        """By the execution whose end they wait for: the prefetched execution, and how much it takes
        over. Until then it is in `held` with `NOTHING` (dispatch/prefetch.py)."""
        self.ends: list[tuple[Instant, ExecutionId]] = []
        """Expected ends of the executions in `held`, the soonest first."""
        self.counted = Resources()
        """How much of its capacity is counted in that of the fleet."""
        self.free_capacity = machine.free_capacities.of(machine.index, left_of(worker.capacity, ()))
        """Derived from `held`, by the methods of this class alone."""
        self.poll: PendingPoll | None = None
        self.stops: dict[ExecutionId, None] = {}
        """Executions that it was asked to stop."""
        self.named: dict[ExecutionId, None] = {}
        """Executions that it has reported as running."""
        self.undelivered: dict[ExecutionId, None] = {}
        """Executions whose order no answer has carried yet."""
        self.check_at: Instant = 0
        """When its leases are checked next; timers set for another time are void."""
        self.stamp = 0
        """Changes with everything that matters for placement: older offers of this worker are
        void."""
        self._expected_free: list[tuple[Instant, Resources]] | None = None
        """None: to be computed."""

    @property
    def free(self) -> Resources:
        return self.free_capacity.free

    def set_free(self, amount: Resources) -> None:
        """Sets the free capacity to this amount."""
        self.free_capacity = self.machine.free_capacities.of(self.machine.index, amount)
        self.stamp += 1
        self._expected_free = None

    def expected_free(self) -> list[tuple[Instant, Resources]]:
        """Expected free capacity after each of the ends to come, the soonest first."""
        found = self._expected_free
        if found is None:
            found, free = [], self.free_capacity.free
            for at, execution_id in self.ends:
                free = plus(free, self.held[execution_id])
                if found and found[-1][0] == at:
                    found.pop()
                found.append((at, free))
            self._expected_free = found
        return found

    def set_ends(self, ends: list[tuple[Instant, ExecutionId]]) -> None:
        """Replaces the expected ends, which are sorted, the soonest first."""
        self.ends = ends
        self._expected_free = None

    def hold(self, execution_id: ExecutionId, amount: Resources, ends_at: Instant) -> None:
        """Gives the execution its resources, probably until `ends_at`."""
        assert execution_id not in self.held
        self.held[execution_id] = amount
        ends = self.ends
        # Mostly, the newest execution ends last.
        if ends and ends[-1][0] >= ends_at:
            insort(ends, (ends_at, execution_id))
        else:
            ends.append((ends_at, execution_id))
        if amount is not NOTHING:  # NOTHING: prefetched, so it takes nothing yet
            self.free_capacity = self.free_capacity.without(amount)
        self.stamp += 1
        self._expected_free = None

    def hold_together(
        self, execution_ids: Sequence[ExecutionId], each: Resources, ends_at: Instant
    ) -> None:
        """Gives each of the executions as much, probably until `ends_at`."""
        self.held.update(dict.fromkeys(execution_ids, each))
        self.ends.extend((ends_at, execution_id) for execution_id in execution_ids)
        self.ends.sort()
        self.set_free(minus(self.free, multiplied(each, len(execution_ids))))

    def is_prefetched(self, execution: Execution) -> bool:
        """Whether the execution still waits for the end of the one before it."""
        behind = execution.behind
        if behind is None or behind not in self.prefetched:
            return False
        return self.prefetched[behind][0] == execution.id

    def move_end(self, execution_id: ExecutionId, before: Instant, after: Instant) -> None:
        """Changes the expected end of an execution."""
        del self.ends[bisect_left(self.ends, (before, execution_id))]
        insort(self.ends, (after, execution_id))
        self._expected_free = None

    def release(self, execution_id: ExecutionId, ends_at: Instant) -> None:
        """Takes the execution's resources back; again, it does nothing."""
        amount = self.held.pop(execution_id, None)
        if self.named or self.stops or self.undelivered:
            self.named.pop(execution_id, None)
            self.stops.pop(execution_id, None)
            self.undelivered.pop(execution_id, None)
        if amount is not None:
            ends = self.ends
            # Mostly, the oldest execution ends first.
            is_first = ends[0][1] == execution_id
            del ends[0 if is_first else bisect_left(ends, (ends_at, execution_id))]
            self.free_capacity = self.free_capacity.with_back(amount)
            self.stamp += 1
            self._expected_free = None

    def release_together(
        self, ended: Mapping[ExecutionId, Instant], taken_over: Sequence[Resources]
    ) -> None:
        """Takes back the resources of executions (by expected end), less what others took over."""
        held = [self.held.pop(execution_id) for execution_id in ended]
        for execution_id in ended:
            self.named.pop(execution_id, None)
            self.undelivered.pop(execution_id, None)
        if len(ended) * 8 < len(self.ends):
            for execution_id, ends_at in ended.items():
                del self.ends[bisect_left(self.ends, (ends_at, execution_id))]
        else:
            self.ends = [entry for entry in self.ends if entry[1] not in ended]
        self.set_free(minus(plus(self.free, total(held)), total(taken_over)))

    def take_over(self, prefetched_id: ExecutionId, amount: Resources) -> None:
        """Gives a prefetched execution its resources, after the end of the one before it."""
        self.held[prefetched_id] = amount
        self.free_capacity = self.free_capacity.without(amount)
        self.stamp += 1
        self._expected_free = None


class QueueEntry:
    """Queue in memory: its live executions, and its rate limit (token bucket, as a GCRA)."""

    __slots__ = ("class_mask", "next_start", "queue", "running", "runs")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.running = 0
        """Live executions."""
        self.runs: dict[ExecutionId, None] = {}
        """The live executions, the oldest first; only if the queue has `max_workers`, where an
        explanation names them."""
        self.class_mask = 0
        """Bits of the queue's job classes."""
        self.next_start = 0
        """Theoretical arrival time of the rate limit, times the limit's count (so it is exact)."""

    def begin(self, execution_id: ExecutionId) -> None:
        self.running += 1
        if self.queue.max_workers is not None:
            self.runs[execution_id] = None

    def end(self, execution_id: ExecutionId) -> None:
        self.running -= 1
        self.runs.pop(execution_id, None)


CountJobs: TypeAlias = Callable[[Terms, JobState, int], None]
"""Counts so many more jobs with these terms in this state."""


class GroupEntry:
    """Live array or gang in memory, with counts of its members."""

    __slots__ = (
        "cancelled",
        "cause",
        "delay_ms",
        "drawn",
        "dropped",
        "failed",
        "hosts",
        "idle_since",
        "live",
        "member_order",
        "places",
        "running",
        "size",
        "succeeded",
        "template",
        "waiting",
    )

    def __init__(self) -> None:
        self.live: dict[JobId, None] = {}
        """Members that are live jobs."""
        self.size = 0
        """Number of members."""
        self.member_order: Sequence[int] = ()
        """Indices of the members to start in this life, in this order."""
        self.waiting = 0
        """Members that are not jobs yet."""
        self.drawn = 0
        self.running = 0
        self.succeeded = 0
        self.failed = 0
        self.cancelled = 0
        self.dropped = 0
        self.hosts: tuple[str, ...] = ()
        self.cause = ""
        self.delay_ms = -1
        self.template: Spec | None = None
        """Spec of a member, except its index; None: to be made."""
        self.idle_since: Instant | None = None
        """Since when free capacity has been kept for a gang that could have used it."""
        self.places: list[WorkerId] = []
        """Workers for the members of a gang that is about to start, by index."""

    def progress(self) -> GroupProgress:
        return GroupProgress(
            self.drawn,
            self.running,
            self.succeeded,
            self.failed,
            self.cancelled,
            self.dropped,
            self.hosts,
            self.cause,
            self.delay_ms,
        )

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled

    def count_end(self, state: JobState) -> None:
        if state is JobState.SUCCEEDED:
            self.succeeded += 1
        elif state is JobState.FAILED:
            self.failed += 1
        else:
            self.cancelled += 1

    def reset(self) -> None:
        """Makes all members of a gang wait again."""
        self.drawn = self.running = self.succeeded = self.failed = 0
        self.cancelled = self.dropped = 0
        self.hosts, self.cause, self.delay_ms, self.idle_since = (), "", -1, None


class GroupIndex:
    """Live arrays and gangs by id; counts their waiting members in queues and tenants."""

    def __init__(self, count: CountJobs) -> None:
        self.entries: dict[JobId, GroupEntry] = {}
        self.waiting = 0
        """Members of all groups that are not jobs yet."""
        self.changed: dict[JobId, None] = {}
        """Groups whose progress is to be written at the end of the turn."""
        self.due: dict[JobId, None] = {}
        """Groups of which a member has ended."""
        self._count = count

    def of(self, entry: JobEntry) -> GroupEntry:
        """Entry of the group that the job is, or is a member of."""
        group = entry.spec.group
        return self.entries[JobId(group.parent) if isinstance(group, GroupMember) else entry.id]

    def add(self, entry: JobEntry) -> bool:
        """Adds a group or a member to memory; True: it counts as a plain job."""
        group = entry.spec.group
        if isinstance(group, GroupMember):
            # After a restart, a member may be loaded before its group.
            self.entries.setdefault(JobId(group.parent), GroupEntry()).live[entry.id] = None
            return True
        self._restore_counts(self.entries.setdefault(entry.id, GroupEntry()), entry)
        self.add_waiting(entry, self.entries[entry.id].waiting, counted=False)
        return False

    def _restore_counts(self, entry: GroupEntry, job: JobEntry) -> None:
        """Restores the counts from spec and progress; members fill `live` themselves."""
        group, progress = job.spec.group, job.life.group_progress or GroupProgress()
        entry.size, entry.member_order = copies_of(group), ()
        if isinstance(group, Array):
            entry.member_order = indices(group.todo) if group.todo else range(group.count)
        entry.drawn, entry.running = progress.drawn, progress.running
        entry.succeeded, entry.failed = progress.succeeded, progress.failed
        entry.cancelled, entry.dropped, entry.hosts = (
            progress.cancelled,
            progress.dropped,
            progress.hosts,
        )
        entry.cause, entry.delay_ms = progress.cause, progress.delay_ms
        entry.template = None
        if isinstance(group, Gang):
            entry.waiting = group.size if job.life.state in JOB_WAITING else 0
        else:
            entry.waiting = len(entry.member_order) - entry.drawn - entry.dropped

    def recount(self, entry: JobEntry, sign: int) -> bool:
        """Counts a group's waiting members with its terms again (`sign` 1), or takes them out (-1).

        True: it is a member, and counts as a plain job.
        """
        if isinstance(entry.spec.group, GroupMember):
            return True
        group_entry = self.entries[entry.id]
        if sign > 0:
            self._update_counts(group_entry, entry.spec)
        self.waiting += sign * group_entry.waiting
        self._count(entry.spec.terms, counted_state(entry.life.state), sign * group_entry.waiting)
        return False

    def _update_counts(self, group_entry: GroupEntry, spec: Spec) -> None:
        group = spec.group
        if isinstance(group, Array) and not group_entry.drawn and not group.todo:
            group_entry.member_order = range(group.count)
            group_entry.waiting = group.count
        elif isinstance(group, Gang) and group_entry.waiting:
            group_entry.waiting = group.size
        group_entry.size, group_entry.template = copies_of(group), None

    def remove(self, entry: JobEntry) -> bool:
        """Removes a group or a member from memory; True: it counted as a plain job."""
        group = entry.spec.group
        if isinstance(group, GroupMember):
            parent = JobId(group.parent)
            del self.entries[parent].live[entry.id]
            self.due[parent] = None
            return True
        self.add_waiting(entry, -self.entries[entry.id].waiting)
        del self.entries[entry.id]
        self.changed.pop(entry.id, None)
        self.due.pop(entry.id, None)
        return False

    def move(self, entry: JobEntry, after: JobState) -> bool:
        """Follows a group's or member's change of state; True: it counts as a plain job."""
        group, before = entry.spec.group, entry.life.state
        if isinstance(group, GroupMember):
            self._move_member(self.entries[JobId(group.parent)], before, after)
            self.changed[JobId(group.parent)] = None
            return True
        group_entry = self.entries[entry.id]
        if counted_state(before) is not counted_state(after):
            self._count(entry.spec.terms, counted_state(before), -group_entry.waiting)
            self._count(entry.spec.terms, counted_state(after), group_entry.waiting)
        return False

    def final_life(self, entry: JobEntry, life: Life) -> Life:
        """Final `Life` of a job: if it is a group, its waiting members are cancelled."""
        if isinstance(entry.spec.group, GroupMember):
            return life
        self.cancel_waiting(entry)
        return replace(life, group_progress=self.entries[entry.id].progress())

    def cancel_waiting(self, entry: JobEntry) -> int:
        """Cancels the members that are not jobs yet; returns how many."""
        group_entry = self.entries[entry.id]
        rest = group_entry.waiting
        group_entry.dropped += rest
        group_entry.cancelled += rest
        self.add_waiting(entry, -rest)
        return rest

    def _move_member(self, group_entry: GroupEntry, before: JobState, after: JobState) -> None:
        runs = (JobState.RUNNING, JobState.CANCELLING)
        group_entry.running += (after in runs) - (before in runs)
        if after not in runs and after not in JOB_WAITING:
            group_entry.count_end(after)

    def add_waiting(self, entry: JobEntry, step: int, *, counted: bool = True) -> None:
        """Adds to the number of members that wait to become jobs."""
        if counted:
            self.entries[entry.id].waiting += step
        self.waiting += step
        self._count(entry.spec.terms, counted_state(entry.life.state), step)


def counted_state(state: JobState) -> JobState:
    """State that the waiting members of a group in this state are counted in."""
    return JobState.PENDING if state is JobState.PENDING else JobState.QUEUED


def indices(bits: bytes) -> array[int]:
    """Numbers of the bits that are set, in order."""
    found = array("I")
    for place, byte in enumerate(bits):
        if byte:
            found.extend(place * 8 + bit for bit in range(8) if byte >> bit & 1)
    return found


def bits_of(numbers: Sequence[int]) -> bytes:
    """Bits with these numbers set: the opposite of `indices`."""
    bits = bytearray(max(numbers, default=-1) // 8 + 1)
    for number in numbers:
        bits[number // 8] |= 1 << number % 8
    return bytes(bits)
