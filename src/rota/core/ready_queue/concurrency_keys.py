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
"""A place in line that comes before every job's."""


class KeySlots:
    """The holders of one key, and those who wait for a slot."""

    __slots__ = ("holders", "last", "queue", "waiting")

    def __init__(self) -> None:
        self.holders: dict[JobId, None] = {}
        self.last = BEFORE_ALL
        """No holder's place in line is behind this, so a job behind it need not look for one."""
        self.waiting: dict[JobId, None] = {}
        self.queue: list[OrderKey] = []


class ConcurrencyKeys:
    """All keys in use."""

    def __init__(self, jobs: Mapping[JobId, JobEntry]) -> None:
        self._jobs = jobs
        self.groups: dict[TenantAndKey, KeySlots] = {}

    def group_of(self, entry: JobEntry) -> KeySlots | None:
        """The group of the job's key, if there is one now."""
        key = _key_of(entry)
        return None if key is None else self.groups.get(key)

    def admit(self, entry: JobEntry) -> tuple[bool, JobEntry | None]:
        """(whether the job has a slot, the idle job behind it that had to give its own up)."""
        key = _key_of(entry)
        if key is None:
            return True, None
        group = self.groups.setdefault(key, KeySlots())
        if entry.id in group.holders:
            return True, None
        if len(group.holders) < _limit_of(entry):
            self._hold(group, entry)
            return True, None
        weaker = self._idle_behind(group, entry.order_key())
        if weaker is None:
            self._wait(group, entry)
            return False, None
        self._swap(group, weaker, entry)
        return True, weaker

    def release(self, entry: JobEntry) -> Iterator[JobEntry]:
        """The job needs no slot any more; yields those who get one now."""
        key = _key_of(entry)
        group = None if key is None else self.groups.get(key)
        if key is None or group is None:
            return
        group.holders.pop(entry.id, None)
        group.waiting.pop(entry.id, None)
        while (head := self._head(group)) is not None and len(group.holders) < _limit_of(head):
            heappop(group.queue)
            self._hold(group, head)
            yield head
        if not group.holders and not group.waiting:
            del self.groups[key]
        elif len(group.queue) > 2 * len(group.waiting) + 64:
            group.queue = [key for key in group.queue if self._is_current(group, key)]
            heapify(group.queue)

    def force(self, entry: JobEntry) -> tuple[bool, JobEntry | None]:
        """Like `admit`, but takes the slot of any job that does not run yet."""
        key = _key_of(entry)
        if key is None:
            return True, None
        group = self.groups.setdefault(key, KeySlots())
        if entry.id in group.holders:
            return True, None
        weaker = None
        if len(group.holders) >= _limit_of(entry):
            weaker = self._idle_behind(group, BEFORE_ALL)
            if weaker is None:
                return False, None
            self._swap(group, weaker, entry)
        else:
            self._hold(group, entry)
        return True, weaker

    def hand_on(self, entry: JobEntry, to: JobEntry) -> None:
        """An array's slot is its member's from now on."""
        key = _key_of(entry)
        assert key is not None
        group = self.groups[key]
        del group.holders[entry.id]
        self._hold(group, to)

    def waits(self, entry: JobEntry) -> bool:
        """Whether the job stands in the line of its key."""
        group = self.group_of(entry)
        return group is not None and entry.id in group.waiting

    def restore_holder(self, entry: JobEntry) -> None:
        """A job that was running when the scheduler was loaded holds its slot."""
        key = _key_of(entry)
        if key is not None:
            self._hold(self.groups.setdefault(key, KeySlots()), entry)

    def reorder(self) -> None:
        """Jobs have other places than before: those who wait for a slot stand in line anew."""
        for group in self.groups.values():
            group.queue = [self._jobs[job_id].order_key() for job_id in group.waiting]
            heapify(group.queue)
            places = (self._jobs[job_id].order_key() for job_id in group.holders)
            group.last = max(places, default=BEFORE_ALL)

    def _hold(self, group: KeySlots, entry: JobEntry) -> None:
        group.waiting.pop(entry.id, None)
        group.holders[entry.id] = None
        group.last = max(group.last, entry.order_key())

    def _swap(self, group: KeySlots, weaker: JobEntry, entry: JobEntry) -> None:
        del group.holders[weaker.id]
        self._wait(group, weaker)
        self._hold(group, entry)

    def _wait(self, group: KeySlots, entry: JobEntry) -> None:
        group.waiting[entry.id] = None
        heappush(group.queue, entry.order_key())

    def _head(self, group: KeySlots) -> JobEntry | None:
        """The first who waits; entries of jobs that left the line or changed are passed over."""
        while group.queue:
            if self._is_current(group, group.queue[0]):
                return self._jobs[group.queue[0][2]]
            heappop(group.queue)
        return None

    def _is_current(self, group: KeySlots, key: OrderKey) -> bool:
        entry = self._jobs.get(key[2])
        return key[2] in group.waiting and entry is not None and entry.order_key() == key

    def _idle_behind(self, group: KeySlots, place: OrderKey) -> JobEntry | None:
        """The last in line of the holders that do not run yet and come after this place."""
        if place >= group.last:
            return None
        idle = (self._jobs[job_id] for job_id in group.holders)
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
