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

    def group_of(self, cell: JobEntry) -> KeySlots | None:
        """The group of the job's key, if there is one now."""
        key = _key_of(cell)
        return None if key is None else self.groups.get(key)

    def admit(self, cell: JobEntry) -> tuple[bool, JobEntry | None]:
        """(whether the job has a slot, the idle job behind it that had to give its own up)."""
        key = _key_of(cell)
        if key is None:
            return True, None
        group = self.groups.setdefault(key, KeySlots())
        if cell.id in group.holders:
            return True, None
        if len(group.holders) < _limit_of(cell):
            self._hold(group, cell)
            return True, None
        weaker = self._idle_behind(group, cell.order_key())
        if weaker is None:
            self._wait(group, cell)
            return False, None
        self._swap(group, weaker, cell)
        return True, weaker

    def release(self, cell: JobEntry) -> Iterator[JobEntry]:
        """The job needs no slot any more; yields those who get one now."""
        key = _key_of(cell)
        group = None if key is None else self.groups.get(key)
        if key is None or group is None:
            return
        group.holders.pop(cell.id, None)
        group.waiting.pop(cell.id, None)
        while (head := self._head(group)) is not None and len(group.holders) < _limit_of(head):
            heappop(group.queue)
            self._hold(group, head)
            yield head
        if not group.holders and not group.waiting:
            del self.groups[key]
        elif len(group.queue) > 2 * len(group.waiting) + 64:
            group.queue = [entry for entry in group.queue if self._stands(group, entry)]
            heapify(group.queue)

    def force(self, cell: JobEntry) -> tuple[bool, JobEntry | None]:
        """Like `admit`, but takes the slot of any job that does not run yet."""
        key = _key_of(cell)
        if key is None:
            return True, None
        group = self.groups.setdefault(key, KeySlots())
        if cell.id in group.holders:
            return True, None
        weaker = None
        if len(group.holders) >= _limit_of(cell):
            weaker = self._idle_behind(group, BEFORE_ALL)
            if weaker is None:
                return False, None
            self._swap(group, weaker, cell)
        else:
            self._hold(group, cell)
        return True, weaker

    def hand_on(self, cell: JobEntry, to: JobEntry) -> None:
        """An array's slot is its member's from now on."""
        key = _key_of(cell)
        assert key is not None
        group = self.groups[key]
        del group.holders[cell.id]
        self._hold(group, to)

    def waits(self, cell: JobEntry) -> bool:
        """Whether the job stands in the line of its key."""
        group = self.group_of(cell)
        return group is not None and cell.id in group.waiting

    def restore_holder(self, cell: JobEntry) -> None:
        """A job that was running when the scheduler was loaded holds its slot."""
        key = _key_of(cell)
        if key is not None:
            self._hold(self.groups.setdefault(key, KeySlots()), cell)

    def reorder(self) -> None:
        """Jobs have other places than before: those who wait for a slot stand in line anew."""
        for group in self.groups.values():
            group.queue = [self._jobs[job_id].order_key() for job_id in group.waiting]
            heapify(group.queue)
            places = (self._jobs[job_id].order_key() for job_id in group.holders)
            group.last = max(places, default=BEFORE_ALL)

    def _hold(self, group: KeySlots, cell: JobEntry) -> None:
        group.waiting.pop(cell.id, None)
        group.holders[cell.id] = None
        group.last = max(group.last, cell.order_key())

    def _swap(self, group: KeySlots, weaker: JobEntry, cell: JobEntry) -> None:
        del group.holders[weaker.id]
        self._wait(group, weaker)
        self._hold(group, cell)

    def _wait(self, group: KeySlots, cell: JobEntry) -> None:
        group.waiting[cell.id] = None
        heappush(group.queue, cell.order_key())

    def _head(self, group: KeySlots) -> JobEntry | None:
        """The first who waits; entries of jobs that left the line or changed are passed over."""
        while group.queue:
            if self._stands(group, group.queue[0]):
                return self._jobs[group.queue[0][2]]
            heappop(group.queue)
        return None

    def _stands(self, group: KeySlots, entry: OrderKey) -> bool:
        cell = self._jobs.get(entry[2])
        return entry[2] in group.waiting and cell is not None and cell.order_key() == entry

    def _idle_behind(self, group: KeySlots, place: OrderKey) -> JobEntry | None:
        """The last in line of the holders that do not run yet and come after this place."""
        if place >= group.last:
            return None
        idle = (self._jobs[job_id] for job_id in group.holders)
        return max(
            (cell for cell in idle if cell.class_index != NO_CLASS and cell.order_key() > place),
            key=JobEntry.order_key,
            default=None,
        )


def _key_of(cell: JobEntry) -> TenantAndKey | None:
    concurrency = cell.spec.concurrency
    return None if concurrency is None else (cell.spec.terms.tenant, concurrency.key)


def _limit_of(cell: JobEntry) -> int:
    assert cell.spec.concurrency is not None
    return cell.spec.concurrency.limit
