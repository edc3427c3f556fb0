"""The mutable cells that memory is made of: a frozen record each, and what is derived beside it.

Cells never point at each other, only name each other by id or number. So throwing the scheduler
away frees it at once, though the collector does not look into them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from rota.core.memory.rooms import FreeCapacities
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    JobRecord,
    Labels,
    Life,
    Millis,
    PollId,
    Queue,
    Resources,
    Spec,
    Worker,
    WorkerId,
)
from rota.core.outcome import Order
from rota.core.resources import NOTHING, left_of, minus, multiplied, plus, total

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
        self, index: int, worker: Worker, rooms: FreeCapacities, traits: Labels = ()
    ) -> None:
        self.index = index
        self.free_capacities = rooms
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
