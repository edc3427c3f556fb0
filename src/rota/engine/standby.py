"""Standby and recovery: follows the journal with a copy of live jobs, and rebuilds the scheduler
from a snapshot.

`build_scheduler` is the one recovery path: at start, after a failed append and at fail-over. A
standby server keeps its snapshot current, so that a take-over reads only the newest records.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import structlog

from rota.core.commands import Timing
from rota.core.model import Instant, JobRecord, Millis
from rota.core.restore import Stored
from rota.core.scheduler import Scheduler
from rota.engine.leadership import LeaderElection
from rota.engine.limits import FOLLOW_RECORDS, EngineLimits
from rota.engine.ports import Clock
from rota.engine.restorable import restorable
from rota.engine.time_zones import load_zone
from rota.store.limits import DAMAGED_ROWS_NOTED
from rota.store.projection.standby_state import JournalGapError, StandbyState
from rota.store.protocol import FencedError, JournalRecord, NewerRecordError, Seq, Snapshot, Store

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
        self._copy: StandbyState | None = None
        self._seq = Seq(0)
        self._cold_until: Millis | None = None
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
        while records := await self._journal.records_after(copy.seq, FOLLOW_RECORDS):
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
        self._seq = copy.seq
        return self._seq

    async def _warm_up(self) -> StandbyState | None:
        if self._cold_until is not None and self._clock.steady() < self._cold_until:
            return None
        snapshot = await self._journal.load(self._kept)
        if snapshot.spill_counts:
            self._cool_down()
        else:
            self._copy = StandbyState(snapshot)
        return self._copy

    def _cool_down(self) -> None:
        self._copy, self._cold_until = None, self._clock.steady() + self._limits.cold_ms

    async def _look_up(
        self, copy: StandbyState, records: Sequence[JournalRecord]
    ) -> list[JobRecord]:
        unknown = copy.unknown(records)
        return await self._queries.jobs(unknown) if unknown else []

    async def begin_term(self, election: LeaderElection, now: Instant) -> Snapshot:
        """Appends the first record of this server's term; returns the snapshot and drops the copy.

        A record of the last leader may still be on its way. If it takes the sequence number first,
        it is read and the next number tried.
        """
        while True:
            seq = Seq(await self.follow() + 1)
            try:
                await self._journal.append(election.epoch, seq, now, ())
            except FencedError:
                await election.look()
                if not election.is_ours:
                    raise
                continue
            break
        await self.follow()
        if self._copy is None:
            return await self._journal.load(self._kept)
        snapshot = self._copy.snapshot()
        self.forget()
        return snapshot
