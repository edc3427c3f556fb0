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

from rota.core.group_model import Array, Gang, GroupMember, GroupProgress, copies_of
from rota.core.lifecycle import JOB_WAITING
from rota.core.limits import FIT_CACHE_MAX
from rota.core.model import (
    Execution,
    ExecutionId,
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
)
from rota.core.outcome import Order
from rota.core.resources import NOTHING, left_of, minus, multiplied, plus, total

T = TypeVar("T", bound=Hashable)


class InternPool(Generic[T]):
    """Values that never change. Past `most` it starts anew, and only memory is the worse."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._known: dict[T, T] = {}
        self._most = most

    def same(self, value: T) -> T:
        """The equal one that came first, or this."""
        known = self._known
        first = known.get(value)
        if first is None:
            if len(known) >= self._most:
                known.clear()
            first = known[value] = value
        return first


class FreeCapacity:
    """One amount that is free on one kind of worker."""

    __slots__ = (
        "_all",
        "_less",
        "_more",
        "classes_made",
        "classes_seen",
        "free",
        "generation",
        "machine",
        "mask",
        "scores",
    )

    def __init__(self, all_free: FreeCapacities, machine: int, free: Resources) -> None:
        self._all = all_free
        self.machine = machine
        """The number of the kind of worker."""
        self.free = free
        self.mask = 0
        """Bits of the job classes that fit into it; placement.py sees to this, and to the rest."""
        self.scores: dict[int, int] = {}
        """How well each does, by number of class, the best the smallest."""
        self.classes_seen = 0
        """Classes below this number are in the mask."""
        self.generation = 0
        """Numbers of classes mean what they meant then."""
        self.classes_made = -1
        """How many classes had been made then."""
        self._less: dict[Resources, FreeCapacity] = {}
        self._more: dict[Resources, FreeCapacity] = {}

    def without(self, amount: Resources) -> FreeCapacity:
        """What is left when somebody takes so much of it."""
        found = self._less.get(amount)
        if found is None:
            found = self._all.neighbour(self, minus(self.free, amount))
            self._less[amount] = found
        return found

    def with_back(self, amount: Resources) -> FreeCapacity:
        """What it is when so much comes back."""
        found = self._more.get(amount)
        if found is None:
            found = self._all.neighbour(self, plus(self.free, amount))
            self._more[amount] = found
        return found

    def clear_links(self) -> None:
        """Knows no other rooms any more, so that none is kept that nobody uses."""
        self._less.clear()
        self._more.clear()


class FreeCapacities:
    """All rooms that were seen lately."""

    __slots__ = ("_known", "_links", "_most")

    def __init__(self, most: int = FIT_CACHE_MAX) -> None:
        self._most = most
        self._known: dict[tuple[int, Resources], FreeCapacity] = {}
        self._links = 0
        """How often one room was found from another."""

    def of(self, machine: int, free: Resources) -> FreeCapacity:
        """So much on that kind of worker."""
        key = (machine, free)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._most:
                self._forget()
            found = self._known[key] = FreeCapacity(self, machine, free)
        return found

    def neighbour(self, found: FreeCapacity, free: Resources) -> FreeCapacity:
        """The room that one becomes when something is taken or comes back."""
        self._links += 1
        if self._links >= self._most:
            self._forget()
        return self.of(found.machine, free)

    def _forget(self) -> None:
        for found in self._known.values():
            found.clear_links()
        self._known.clear()
        self._links = 0


NO_CLASS = -1

OrderKey: TypeAlias = tuple[int, int, JobId]
"""(place, arrival, job): the smallest goes first."""


class JobEntry(msgspec.Struct, gc=False):
    """A live job."""

    id: JobId
    spec: Spec
    life: Life
    unmet: int = 0
    """Dependencies that have not ended yet."""
    class_index: int = NO_CLASS
    """The class it stands in line with; none while anything but a worker is missing."""
    queue_number: int = 0
    """The line of the class that it stands in."""
    sort_key: int = 0
    """What it is sorted by, as the order says."""
    estimate: Millis = 0
    """How long it is expected to run, as of when it joined its line."""

    def record(self) -> JobRecord:
        """As stored and answered."""
        return JobRecord(self.id, self.spec, self.life)

    def order_key(self) -> OrderKey:
        """Its place in any line of jobs."""
        return (self.sort_key, self.spec.arrival_number, self.id)


class ExecutionEntry(msgspec.Struct, gc=False):
    """A live execution and its lease."""

    execution: Execution
    lease_until: Instant
    """By the scheduler's clock, grace included: its job is nobody's before this."""
    since: Instant
    """When it was claimed, by the clock as it is set now."""
    stop_until: Instant | None = None
    """How long its worker may take to stop it, once it was asked to."""
    delivered: bool = True
    """Whether an answer to its worker may have carried it."""
    stop_delivered: bool = False
    """Whether an answer to its worker has asked to stop it."""
    progress: float | None = None
    message: str = ""
    """The newest progress, written or not."""
    progress_at: Instant = 0
    """When progress was last written."""
    progress_due: bool = False
    """Whether a timer will write what is newer."""
    ends_at: Instant = 0
    """When it will probably end, by the clock as it is set now."""
    rate: float = 0.0
    """What its tenant is charged for a millisecond of it."""


class PendingPoll(msgspec.Struct, gc=False):
    """A worker's call that waits for an answer."""

    id: PollId
    until: Instant
    free_slots: int
    orders: list[Order]
    lost: Sequence[ExecutionId] = ()
    urgent: bool = False
    """To be answered at the end of this turn even without work."""
    spare: int = 0
    """Orders that its worker wants prefetched (plan/prefetch.py); `spare` on the wire."""


class MachineClass:
    """Workers that are alike: what they have, can do and serve."""

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
        self, index: int, worker: Worker, all_free: FreeCapacities, traits: Labels = ()
    ) -> None:
        self.index = index
        self.free_capacities = all_free
        """Those of all kinds of workers."""
        self.labels = dict(traits)
        """Those that any job requires."""
        self.only = worker.only
        self.capacity = worker.capacity
        self.capabilities = dict.fromkeys(worker.capabilities)
        self.queues = None if worker.queues is None else dict.fromkeys(worker.queues)
        self.can_mask = 0
        """Bits of the job classes that such a worker could run when empty."""
        self.classes_seen = 0
        """Job classes below this number are in the mask."""
        custom = sum(1 for _, amount in worker.capacity.custom if amount)
        self.special = (1 if worker.capacity.gpu_milli else 0) + custom
        self.workers: dict[WorkerId, None] = {}


class WorkerEntry:
    """A known worker and what it holds; its `room` is derived from `held`, and only here."""

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
        """By the execution whose end it waits for: the prefetched one, and how much of that place
        it takes. It is held as others are, but with nothing until then (life/prefetched.py)."""
        self.ends: list[tuple[Instant, ExecutionId]] = []
        """When what it holds will probably end, the soonest first."""
        self.counted = Resources()
        """What of it is in the capacity of the fleet."""
        self.free_capacity = machine.free_capacities.of(machine.index, left_of(worker.capacity, ()))
        """What is left of it."""
        self.poll: PendingPoll | None = None
        self.stops: dict[ExecutionId, None] = {}
        """What it holds and was asked to stop."""
        self.named: dict[ExecutionId, None] = {}
        """What it holds and has said that it runs."""
        self.undelivered: dict[ExecutionId, None] = {}
        """What it holds and no answer has carried yet."""
        self.check_at: Instant = 0
        """When its leases are looked at next; timers set for another time are void."""
        self.stamp = 0
        """Changes with whatever matters for placing; older offers of this worker are void."""
        self._expected_free: list[tuple[Instant, Resources]] | None = None
        """None: to be worked out."""

    @property
    def free(self) -> Resources:
        """How much is left of it."""
        return self.free_capacity.free

    def set_free(self, amount: Resources) -> None:
        """So much is left of it, being the machine that it is."""
        self.free_capacity = self.machine.free_capacities.of(self.machine.index, amount)
        self.stamp += 1
        self._expected_free = None

    def expected_free(self) -> list[tuple[Instant, Resources]]:
        """When it will probably have more room, and how much then; the soonest first."""
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
        """What it holds will probably end then, the soonest first."""
        self.ends = ends
        self._expected_free = None

    def hold(self, execution_id: ExecutionId, amount: Resources, ends_at: Instant) -> None:
        """The execution takes its share, probably until `ends_at`."""
        assert execution_id not in self.held
        self.held[execution_id] = amount
        ends = self.ends
        # What starts now mostly ends last.
        if ends and ends[-1][0] >= ends_at:
            insort(ends, (ends_at, execution_id))
        else:
            ends.append((ends_at, execution_id))
        if amount is not NOTHING:  # a prefetched one's, which has nothing yet
            self.free_capacity = self.free_capacity.without(amount)
        self.stamp += 1
        self._expected_free = None

    def hold_together(
        self, execution_ids: Sequence[ExecutionId], each: Resources, ends_at: Instant
    ) -> None:
        """Each of the executions takes as much, probably until `ends_at`."""
        self.held.update(dict.fromkeys(execution_ids, each))
        self.ends.extend((ends_at, execution_id) for execution_id in execution_ids)
        self.ends.sort()
        self.set_free(minus(self.free, multiplied(each, len(execution_ids))))

    def is_prefetched(self, execution: Execution) -> bool:
        """Whether it waits for the place of another that has not ended."""
        behind = execution.behind
        if behind is None or behind not in self.prefetched:
            return False
        return self.prefetched[behind][0] == execution.id

    def move_end(self, execution_id: ExecutionId, before: Instant, after: Instant) -> None:
        """The execution will probably end at another time."""
        del self.ends[bisect_left(self.ends, (before, execution_id))]
        insort(self.ends, (after, execution_id))
        self._expected_free = None

    def release(self, execution_id: ExecutionId, ends_at: Instant) -> None:
        """The share comes back: once, because what is not held cannot be given back."""
        amount = self.held.pop(execution_id, None)
        if self.named or self.stops or self.undelivered:
            self.named.pop(execution_id, None)
            self.stops.pop(execution_id, None)
            self.undelivered.pop(execution_id, None)
        if amount is not None:
            ends = self.ends
            # What began first mostly ends first.
            is_first = ends[0][1] == execution_id
            del ends[0 if is_first else bisect_left(ends, (ends_at, execution_id))]
            self.free_capacity = self.free_capacity.with_back(amount)
            self.stamp += 1
            self._expected_free = None

    def release_together(
        self, ended: Mapping[ExecutionId, Instant], taken_over: Sequence[Resources]
    ) -> None:
        """The shares of executions that were to end then come back, less what others took over."""
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
        """The one before it has ended, and its share is back: the prefetched one takes its own."""
        self.held[prefetched_id] = amount
        self.free_capacity = self.free_capacity.without(amount)
        self.stamp += 1
        self._expected_free = None


class QueueEntry:
    """A queue, how much runs of it, and the state of its rate limit."""

    __slots__ = ("class_mask", "next_start", "queue", "running", "runs")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.running = 0
        """Executions of it that live."""
        self.runs: dict[ExecutionId, None] = {}
        """Which they are, the oldest first; only of a queue that may run so many at once, where
        somebody may ask why it is full."""
        self.class_mask = 0
        """Bits of the job classes in this queue."""
        self.next_start = 0
        """The rate limit's theoretical arrival time, times the limit's count (so it is exact)."""

    def begin(self, execution_id: ExecutionId) -> None:
        """An execution of it lives."""
        self.running += 1
        if self.queue.max_workers is not None:
            self.runs[execution_id] = None

    def end(self, execution_id: ExecutionId) -> None:
        """It has ended."""
        self.running -= 1
        self.runs.pop(execution_id, None)


CountJobs: TypeAlias = Callable[[Terms, JobState, int], None]
"""So many more jobs with these terms are in this state."""


class GroupEntry:
    """One live array or gang."""

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
        """Members that are jobs and have not ended."""
        self.size = 0
        """Members in all."""
        self.member_order: Sequence[int] = ()
        """The indices to draw in this life, in this order."""
        self.waiting = 0
        """Members that are no jobs yet."""
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
        """What a member asks for, but for its index; None: to be made."""
        self.idle_since: Instant | None = None
        """Since when a gang has had room kept for it that it could have used."""
        self.places: list[WorkerId] = []
        """Where the members of a gang that is about to start go, by index."""

    def progress(self) -> GroupProgress:
        """As it is written."""
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
        """Members that have ended, one way or another."""
        return self.succeeded + self.failed + self.cancelled

    def count_end(self, state: JobState) -> None:
        """A member has ended so."""
        if state is JobState.SUCCEEDED:
            self.succeeded += 1
        elif state is JobState.FAILED:
            self.failed += 1
        else:
            self.cancelled += 1

    def reset(self) -> None:
        """All members of a gang wait, as in the beginning."""
        self.drawn = self.running = self.succeeded = self.failed = 0
        self.cancelled = self.dropped = 0
        self.hosts, self.cause, self.delay_ms, self.idle_since = (), "", -1, None


class GroupIndex:
    """All live arrays and gangs."""

    def __init__(self, count: CountJobs) -> None:
        self.entries: dict[JobId, GroupEntry] = {}
        self.waiting = 0
        """Members of all of them that are no jobs yet."""
        self.changed: dict[JobId, None] = {}
        """Bands whose tally is to be written at the end of the turn."""
        self.due: dict[JobId, None] = {}
        """Bands of which a member has ended."""
        self._count = count

    def of(self, entry: JobEntry) -> GroupEntry:
        """The band that the job is, or is of."""
        group = entry.spec.group
        return self.entries[JobId(group.parent) if isinstance(group, GroupMember) else entry.id]

    def add(self, entry: JobEntry) -> bool:
        """A band or a member comes into memory; True: it counts as a job like any other."""
        group = entry.spec.group
        if isinstance(group, GroupMember):
            # At a load a member may come before its band.
            self.entries.setdefault(JobId(group.parent), GroupEntry()).live[entry.id] = None
            return True
        self._restore_counts(self.entries.setdefault(entry.id, GroupEntry()), entry)
        self.add_waiting(entry, self.entries[entry.id].waiting, counted=False)
        return False

    def _restore_counts(self, entry: GroupEntry, job: JobEntry) -> None:
        """What its spec and its row say; which members are live it knows already."""
        group, tally = job.spec.group, job.life.group_progress or GroupProgress()
        entry.size, entry.member_order = copies_of(group), ()
        if isinstance(group, Array):
            entry.member_order = indices(group.todo) if group.todo else range(group.count)
        entry.drawn, entry.running = tally.drawn, tally.running
        entry.succeeded, entry.failed = tally.succeeded, tally.failed
        entry.cancelled, entry.dropped, entry.hosts = tally.cancelled, tally.dropped, tally.hosts
        entry.cause, entry.delay_ms = tally.cause, tally.delay_ms
        entry.template = None
        if isinstance(group, Gang):
            entry.waiting = group.size if job.life.state in JOB_WAITING else 0
        else:
            entry.waiting = len(entry.member_order) - entry.drawn - entry.dropped

    def recount(self, entry: JobEntry, sign: int) -> bool:
        """A band's waiting members count by what it asks for: taken back, then counted anew.

        True: it is a member, and counts as a job like any other.
        """
        if isinstance(entry.spec.group, GroupMember):
            return True
        mine = self.entries[entry.id]
        if sign > 0:
            self._update_counts(mine, entry.spec)
        self.waiting += sign * mine.waiting
        self._count(entry.spec.terms, counted_state(entry.life.state), sign * mine.waiting)
        return False

    def _update_counts(self, mine: GroupEntry, spec: Spec) -> None:
        group = spec.group
        if isinstance(group, Array) and not mine.drawn and not group.todo:
            mine.member_order = range(group.count)
            mine.waiting = group.count
        elif isinstance(group, Gang) and mine.waiting:
            mine.waiting = group.size
        mine.size, mine.template = copies_of(group), None

    def remove(self, entry: JobEntry) -> bool:
        """A band or a member leaves memory; True: it counted as a job like any other."""
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
        """A band or a member changes its state; True: it counts as a job like any other."""
        group, before = entry.spec.group, entry.life.state
        if isinstance(group, GroupMember):
            self._move_member(self.entries[JobId(group.parent)], before, after)
            self.changed[JobId(group.parent)] = None
            return True
        mine = self.entries[entry.id]
        if counted_state(before) is not counted_state(after):
            self._count(entry.spec.terms, counted_state(before), -mine.waiting)
            self._count(entry.spec.terms, counted_state(after), mine.waiting)
        return False

    def final_life(self, entry: JobEntry, life: Life) -> Life:
        """A band or a member is about to end with this life: members that wait are called off."""
        if isinstance(entry.spec.group, GroupMember):
            return life
        self.cancel_waiting(entry)
        return replace(life, group_progress=self.entries[entry.id].progress())

    def cancel_waiting(self, entry: JobEntry) -> int:
        """Those of its members that are no jobs yet will never be; answers how many."""
        mine = self.entries[entry.id]
        rest = mine.waiting
        mine.dropped += rest
        mine.cancelled += rest
        self.add_waiting(entry, -rest)
        return rest

    def _move_member(self, mine: GroupEntry, before: JobState, after: JobState) -> None:
        runs = (JobState.RUNNING, JobState.CANCELLING)
        mine.running += (after in runs) - (before in runs)
        if after not in runs and after not in JOB_WAITING:
            mine.count_end(after)

    def add_waiting(self, entry: JobEntry, step: int, *, counted: bool = True) -> None:
        """So many more members of the band wait to become jobs."""
        if counted:
            self.entries[entry.id].waiting += step
        self.waiting += step
        self._count(entry.spec.terms, counted_state(entry.life.state), step)


def counted_state(state: JobState) -> JobState:
    """What the waiting members of a band in this state are counted as."""
    return JobState.PENDING if state is JobState.PENDING else JobState.QUEUED


def indices(bits: bytes) -> array[int]:
    """The numbers of the bits that are set, in order."""
    found = array("I")
    for place, byte in enumerate(bits):
        if byte:
            found.extend(place * 8 + bit for bit in range(8) if byte >> bit & 1)
    return found


def bits_of(numbers: Sequence[int]) -> bytes:
    """The opposite of `indices`."""
    bits = bytearray(max(numbers, default=-1) // 8 + 1)
    for number in numbers:
        bits[number // 8] |= 1 << number % 8
    return bytes(bits)
