"""Concurrency keys: at most `limit` jobs of a key run at once; the others wait for a slot.

A job holds a slot from when it may wait for a worker until it ends or waits again. Slots are the
holders themselves, never a number, so none can leak or be given back twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from rota.core.entries import NO_CLASS, JobEntry, OrderKey
from rota.core.model import JobId

TenantAndKey: TypeAlias = tuple[str, str]
"""(tenant, key)."""


BEFORE_ALL: OrderKey = (-(1 << 62), 0, JobId(""))
"""Order key that comes before every job's."""


class KeySlots:
    """Slots of one concurrency key: the holders, and the queue of jobs that wait for a slot."""

    __slots__ = ("holders", "last", "queue", "waiting")

    def __init__(self) -> None:
        self.holders: dict[JobId, None] = {}
        self.last = BEFORE_ALL
        """No holder comes after this in the order, so a job behind it need not look for one."""
        self.waiting: dict[JobId, None] = {}
        self.queue: list[OrderKey] = []


class ConcurrencyKeys:
    """All concurrency keys in use, by tenant and key."""

    def __init__(self, jobs: Mapping[JobId, JobEntry]) -> None:
        self._jobs = jobs
        self.groups: dict[TenantAndKey, KeySlots] = {}

    def group_of(self, entry: JobEntry) -> KeySlots | None:
        """Slots of the job's key, if there are any now."""
        key = _key_of(entry)
        return None if key is None else self.groups.get(key)

    def admit(self, entry: JobEntry) -> tuple[bool, JobEntry | None]:
        """(whether the job has a slot, the idle holder behind it that lost its slot)."""
        key = _key_of(entry)
        if key is None:
            return True, None
        slots = self.groups.setdefault(key, KeySlots())
        if entry.id in slots.holders:
            return True, None
        if len(slots.holders) < _limit_of(entry):
            self._hold(slots, entry)
            return True, None
        loser = self._idle_behind(slots, entry.order_key())
        if loser is None:
            self._wait(slots, entry)
            return False, None
        self._swap(slots, loser, entry)
        return True, loser

    def release(self, entry: JobEntry) -> Iterator[JobEntry]:
        """Gives the job's slot back; yields the jobs that get one now."""
        key = _key_of(entry)
        slots = None if key is None else self.groups.get(key)
        if key is None or slots is None:
            return
        slots.holders.pop(entry.id, None)
        slots.waiting.pop(entry.id, None)
        while (head := self._head(slots)) is not None and len(slots.holders) < _limit_of(head):
            heappop(slots.queue)
            self._hold(slots, head)
            yield head
        if not slots.holders and not slots.waiting:
            del self.groups[key]
        elif len(slots.queue) > 2 * len(slots.waiting) + 64:
            slots.queue = [key for key in slots.queue if self._is_current(slots, key)]
            heapify(slots.queue)

    def force(self, entry: JobEntry) -> tuple[bool, JobEntry | None]:
        """Like `admit`, but takes the slot of any job that does not run yet."""
        key = _key_of(entry)
        if key is None:
            return True, None
        slots = self.groups.setdefault(key, KeySlots())
        if entry.id in slots.holders:
            return True, None
        loser = None
        if len(slots.holders) >= _limit_of(entry):
            loser = self._idle_behind(slots, BEFORE_ALL)
            if loser is None:
                return False, None
            self._swap(slots, loser, entry)
        else:
            self._hold(slots, entry)
        return True, loser

    def hand_on(self, entry: JobEntry, to: JobEntry) -> None:
        """Gives an array's slot to its member."""
        key = _key_of(entry)
        assert key is not None
        slots = self.groups[key]
        del slots.holders[entry.id]
        self._hold(slots, to)

    def waits(self, entry: JobEntry) -> bool:
        """Whether the job waits for a slot of its key."""
        slots = self.group_of(entry)
        return slots is not None and entry.id in slots.waiting

    def restore_holder(self, entry: JobEntry) -> None:
        """Restores the slot of a job that was running when the scheduler was loaded."""
        key = _key_of(entry)
        if key is not None:
            self._hold(self.groups.setdefault(key, KeySlots()), entry)

    def reorder(self) -> None:
        """Sorts the waiting jobs again, after sort keys have changed."""
        for slots in self.groups.values():
            slots.queue = [self._jobs[job_id].order_key() for job_id in slots.waiting]
            heapify(slots.queue)
            places = (self._jobs[job_id].order_key() for job_id in slots.holders)
            slots.last = max(places, default=BEFORE_ALL)

    def _hold(self, slots: KeySlots, entry: JobEntry) -> None:
        slots.waiting.pop(entry.id, None)
        slots.holders[entry.id] = None
        slots.last = max(slots.last, entry.order_key())

    def _swap(self, slots: KeySlots, loser: JobEntry, entry: JobEntry) -> None:
        del slots.holders[loser.id]
        self._wait(slots, loser)
        self._hold(slots, entry)

    def _wait(self, slots: KeySlots, entry: JobEntry) -> None:
        slots.waiting[entry.id] = None
        heappush(slots.queue, entry.order_key())

    def _head(self, slots: KeySlots) -> JobEntry | None:
        """First waiting job; stale keys are removed on the way."""
        while slots.queue:
            if self._is_current(slots, slots.queue[0]):
                return self._jobs[slots.queue[0][2]]
            heappop(slots.queue)
        return None

    def _is_current(self, slots: KeySlots, key: OrderKey) -> bool:
        entry = self._jobs.get(key[2])
        return key[2] in slots.waiting and entry is not None and entry.order_key() == key

    def _idle_behind(self, slots: KeySlots, place: OrderKey) -> JobEntry | None:
        """Last of the holders that do not run yet and come after this key in the order."""
        if place >= slots.last:
            return None
        idle = (self._jobs[job_id] for job_id in slots.holders)
        return max(
            (
                entry
                for entry in idle
                if entry.class_index != NO_CLASS and entry.order_key() > place
            ),
            key=JobEntry.order_key,
            default=None,
        )


def _key_of(entry: JobEntry) -> TenantAndKey | None:
    concurrency = entry.spec.concurrency
    return None if concurrency is None else (entry.spec.terms.tenant, concurrency.key)


def _limit_of(entry: JobEntry) -> int:
    assert entry.spec.concurrency is not None
    return entry.spec.concurrency.limit
