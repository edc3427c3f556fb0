"""Standby and recovery: follows the journal with a copy of live jobs, and rebuilds the scheduler
from a snapshot.

`build_scheduler` is the one recovery path: at start, after a failed append and at fail-over. A
standby server keeps its snapshot current, so that a take-over reads only the newest records.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Sequence

import msgspec
import structlog

from rota.core.commands import Timing
from rota.core.model import Instant, JobRecord, Millis
from rota.core.restore import Stored
from rota.core.scheduler import Scheduler
from rota.engine.leadership import LeaderElection
from rota.engine.limits import FOLLOW_RECORDS, HEADS_KEPT, EngineLimits
from rota.engine.ports import Clock
from rota.engine.restorable import restorable
from rota.engine.time_zones import load_zone
from rota.store.limits import DAMAGED_ROWS_NOTED
from rota.store.projection.live_state import JournalGapError, LiveState
from rota.store.protocol import (
    DivergedError,
    FencedError,
    Head,
    JournalRecord,
    JournalStore,
    Loss,
    NewerRecordError,
    Seq,
    Snapshot,
    Store,
)

log = structlog.get_logger("rota.engine")


async def build_scheduler(snapshot: Snapshot, timing: Timing, now: Instant) -> Scheduler:
    """Builds a scheduler from a snapshot, and logs what cannot be restored.

    In a thread: hundreds of thousands of jobs take seconds, in which leadership must be renewed.
    """
    return await asyncio.to_thread(_build, snapshot, timing, now)


def _build(stored: Snapshot, timing: Timing, now: Instant) -> Scheduler:
    snapshot, left_out = restorable(stored)
    for line in left_out[:DAMAGED_ROWS_NOTED]:
        log.error("stored_row_damaged", reason=line)
    scheduler = Scheduler(timing, now, load_zone)
    # A million records are made at once and live long: collecting garbage meanwhile finds none.
    gc.disable()
    try:
        scheduler.restore(
            Stored(
                jobs=snapshot.jobs,
                executions=snapshot.executions,
                workers=snapshot.workers,
                queues=snapshot.queues,
                order_next=snapshot.next_arrival_number,
                policy=snapshot.settings.policy,
                tenants=snapshot.settings.tenants,
                runtimes=snapshot.settings.runtimes,
                spill_queues=snapshot.spill_counts,
                schedules=snapshot.schedules,
                calendars=snapshot.calendars,
                triggers=snapshot.triggers,
                fence_floor=snapshot.fence_floor,
                buffered_events=snapshot.buffered_events,
            ),
            now,
        )
        gc.freeze()
    finally:
        gc.enable()
    return scheduler


class Standby:
    """Follows the journal; reads the whole snapshot only once, and after falling behind too far.

    While jobs are spilled it keeps no copy: only the store knows which of them come next, so a
    take-over reads them anyway. It makes a copy again when none is spilled.
    """

    def __init__(self, store: Store, clock: Clock, kept: int, limits: EngineLimits) -> None:
        self._limits = limits
        self._journal = store.journal
        self._queries = store.queries
        self._clock = clock
        self._kept = kept
        self._copy: LiveState | None = None
        self._seq = Seq(0)
        self._cold_until: Millis | None = None
        self.lineage = Lineage()
        self.unreadable = ""
        """The reason why it cannot follow: a newer program wrote records that this one cannot read.
        """

    @property
    def seq(self) -> Seq:
        """The newest record that it has read."""
        return self._seq

    def forget(self) -> None:
        """Drops the copy: the next look reads the whole snapshot."""
        self._copy, self._cold_until = None, None

    async def keep_up(self, *, insist: bool) -> Seq | None:
        """Reads on to the journal's end; None: this program cannot read a newer one's records.

        Then it reads no more until no server leads (`insist`): by then the newer server may have
        projected its records, and the tables can be read.
        """
        if self.unreadable:
            if not insist:
                return None
            self.forget()
        try:
            seq = await self.follow()
        except DivergedError as error:
            log.warning("standby_diverged", seq=self._seq, reason=str(error))
            self.forget()
            seq = await self.follow()
        except NewerRecordError as error:
            if not self.unreadable:
                log.error("journal_not_readable", reason=str(error))
            self.unreadable = "a newer server wrote the journal: upgrade this one"
            return None
        self.unreadable = ""
        return seq

    async def follow(self) -> Seq:
        """Reads on to the journal's end."""
        copy = self._copy or await self._warm_up()
        if copy is None:
            self._seq = (await self._queries.head())[1]
            return self._seq
        while records := await self._journal.records_after(copy.head, FOLLOW_RECORDS):
            looked_up = await self._look_up(copy, records)
            try:
                copy.apply(records, looked_up)
            except JournalGapError:
                log.warning("standby_reloading", seq=copy.seq, journal_begins=records[0].seq)
                self.forget()
                return await self.follow()
            if copy.is_partial:
                self._cool_down()
                return await self.follow()
            for record in records:
                self.lineage.note(record.head)
        self._seq = copy.seq
        return self._seq

    async def _warm_up(self) -> LiveState | None:
        if self._cold_until is not None and self._clock.steady() < self._cold_until:
            return None
        snapshot = await self._journal.load(self._kept)
        # Before this end is noted: a loss shows at the newest one.
        await self._find_loss()
        self.lineage.note(snapshot.head)
        if snapshot.spill_counts:
            self._cool_down()
        else:
            self._copy = LiveState(snapshot)
        return self._copy

    def _cool_down(self) -> None:
        self._copy, self._cold_until = None, self._clock.steady() + self._limits.cold_ms

    async def _look_up(self, copy: LiveState, records: Sequence[JournalRecord]) -> list[JobRecord]:
        unknown = copy.unknown(records)
        return await self._queries.jobs(unknown) if unknown else []

    async def begin_term(self, election: LeaderElection, now: Instant) -> Snapshot:
        """Appends the first record of this server's term; returns the snapshot and drops the copy.

        A record of the last leader may still be on its way. If it takes the sequence number first,
        it is read and the next number tried.
        """
        while True:
            snapshot = await self._read_up()
            await self._find_loss()
            try:
                head = await self._journal.append(election.epoch, snapshot.head, now, ())
            except FencedError:
                await election.look()
                if not election.is_ours:
                    raise
                continue
            break
        self.forget()
        self.lineage.note(head)
        fence_floor = (await self._journal.losses()).fence_floor
        return msgspec.structs.replace(snapshot, head=head, fence_floor=fence_floor)

    async def _read_up(self) -> Snapshot:
        """Returns all that is live at the journal's end: the copy's, if there is one."""
        try:
            await self.follow()
        except DivergedError as error:
            log.warning("standby_diverged", seq=self._seq, reason=str(error))
            self.forget()
        if self._copy is None:
            return await self._journal.load(self._kept)
        return self._copy.snapshot()

    async def _find_loss(self) -> None:
        """Records a loss if the journal lacks what this server knew to be durable."""
        kept = await self._queries.head()
        if self.lineage.newest < kept[0]:
            return  # it was away for so long that those records were dropped
        loss = await self.lineage.find_loss(self._journal, kept[1], self._clock.now())
        if loss is not None:
            log.error("records_lost", records=loss.records, after=loss.after)
            await self._journal.note_loss(loss)


class Lineage:
    """Newest ends of the journal that this server knew to be durable.

    A failover of the database may lose records or replace them. Who remembers them can tell.
    """

    def __init__(self) -> None:
        self._heads: deque[Head] = deque(maxlen=HEADS_KEPT)

    @property
    def newest(self) -> Seq:
        """The newest position that was noted."""
        return self._heads[-1].seq if self._heads else Seq(0)

    def note(self, head: Head) -> None:
        """Notes an end that was read, or appended and confirmed."""
        if head.seq:
            self._heads.append(head)

    async def find_loss(self, journal: JournalStore, end: Seq, now: Instant) -> Loss | None:
        """Returns what the journal, which ends at `end`, has lost of what was noted.

        Then it is forgotten.
        """
        if not self._heads:
            return None
        newest = self._heads[-1]
        if (await journal.heads([newest.seq])).get(newest.seq) == newest.hash:
            return None
        kept = await journal.heads([head.seq for head in self._heads])
        common = [head.seq for head in self._heads if kept.get(head.seq) == head.hash]
        after = max(common, default=min(Seq(self._heads[0].seq - 1), end))
        self._heads.clear()
        return Loss(now, newest.seq - after, after)
