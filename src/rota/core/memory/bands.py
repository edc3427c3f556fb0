"""The live bands: how many members each has waiting, running and ended, and which are jobs now.

Waiting members are no jobs yet, so they are counted here and in the depth of their queue and
tenant, where each counts as one job that waits.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from rota.core.band import Array, Gang, GroupMember, GroupProgress, copies_of
from rota.core.lifecycle import JOB_WAITING
from rota.core.memory.cells import JobEntry
from rota.core.model import Instant, JobId, JobState, Life, Spec, Terms, WorkerId

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

    def of(self, cell: JobEntry) -> GroupEntry:
        """The band that the job is, or is of."""
        band = cell.spec.group
        return self.entries[JobId(band.parent) if isinstance(band, GroupMember) else cell.id]

    def add(self, cell: JobEntry) -> bool:
        """A band or a member comes into memory; True: it counts as a job like any other."""
        band = cell.spec.group
        if isinstance(band, GroupMember):
            # At a load a member may come before its band.
            self.entries.setdefault(JobId(band.parent), GroupEntry()).live[cell.id] = None
            return True
        self._restore_counts(self.entries.setdefault(cell.id, GroupEntry()), cell)
        self.add_waiting(cell, self.entries[cell.id].waiting, counted=False)
        return False

    def _restore_counts(self, cell: GroupEntry, job: JobEntry) -> None:
        """What its spec and its row say; which members are live it knows already."""
        band, tally = job.spec.group, job.life.group_progress or GroupProgress()
        cell.size, cell.member_order = copies_of(band), ()
        if isinstance(band, Array):
            cell.member_order = indices(band.todo) if band.todo else range(band.count)
        cell.drawn, cell.running = tally.drawn, tally.running
        cell.succeeded, cell.failed = tally.succeeded, tally.failed
        cell.cancelled, cell.dropped, cell.hosts = tally.cancelled, tally.dropped, tally.hosts
        cell.cause, cell.delay_ms = tally.cause, tally.delay_ms
        cell.template = None
        if isinstance(band, Gang):
            cell.waiting = band.size if job.life.state in JOB_WAITING else 0
        else:
            cell.waiting = len(cell.member_order) - cell.drawn - cell.dropped

    def recount(self, cell: JobEntry, sign: int) -> bool:
        """A band's waiting members count by what it asks for: taken back, then counted anew.

        True: it is a member, and counts as a job like any other.
        """
        if isinstance(cell.spec.group, GroupMember):
            return True
        mine = self.entries[cell.id]
        if sign > 0:
            self._update_counts(mine, cell.spec)
        self.waiting += sign * mine.waiting
        self._count(cell.spec.terms, counted_state(cell.life.state), sign * mine.waiting)
        return False

    def _update_counts(self, mine: GroupEntry, spec: Spec) -> None:
        band = spec.group
        if isinstance(band, Array) and not mine.drawn and not band.todo:
            mine.member_order = range(band.count)
            mine.waiting = band.count
        elif isinstance(band, Gang) and mine.waiting:
            mine.waiting = band.size
        mine.size, mine.template = copies_of(band), None

    def remove(self, cell: JobEntry) -> bool:
        """A band or a member leaves memory; True: it counted as a job like any other."""
        band = cell.spec.group
        if isinstance(band, GroupMember):
            parent = JobId(band.parent)
            del self.entries[parent].live[cell.id]
            self.due[parent] = None
            return True
        self.add_waiting(cell, -self.entries[cell.id].waiting)
        del self.entries[cell.id]
        self.changed.pop(cell.id, None)
        self.due.pop(cell.id, None)
        return False

    def move(self, cell: JobEntry, after: JobState) -> bool:
        """A band or a member changes its state; True: it counts as a job like any other."""
        band, before = cell.spec.group, cell.life.state
        if isinstance(band, GroupMember):
            self._move_member(self.entries[JobId(band.parent)], before, after)
            self.changed[JobId(band.parent)] = None
            return True
        mine = self.entries[cell.id]
        if counted_state(before) is not counted_state(after):
            self._count(cell.spec.terms, counted_state(before), -mine.waiting)
            self._count(cell.spec.terms, counted_state(after), mine.waiting)
        return False

    def final_life(self, cell: JobEntry, life: Life) -> Life:
        """A band or a member is about to end with this life: members that wait are called off."""
        if isinstance(cell.spec.group, GroupMember):
            return life
        self.cancel_waiting(cell)
        return replace(life, group_progress=self.entries[cell.id].progress())

    def cancel_waiting(self, cell: JobEntry) -> int:
        """Those of its members that are no jobs yet will never be; answers how many."""
        mine = self.entries[cell.id]
        rest = mine.waiting
        mine.dropped += rest
        mine.cancelled += rest
        self.add_waiting(cell, -rest)
        return rest

    def _move_member(self, mine: GroupEntry, before: JobState, after: JobState) -> None:
        runs = (JobState.RUNNING, JobState.CANCELLING)
        mine.running += (after in runs) - (before in runs)
        if after not in runs and after not in JOB_WAITING:
            mine.count_end(after)

    def add_waiting(self, cell: JobEntry, step: int, *, counted: bool = True) -> None:
        """So many more members of the band wait to become jobs."""
        if counted:
            self.entries[cell.id].waiting += step
        self.waiting += step
        self._count(cell.spec.terms, counted_state(cell.life.state), step)


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
