"""Standby and recovery: follows the journal with a copy of what is live, and rebuilds the
scheduler from a snapshot.

`build_scheduler` is the one way back to memory: at start, after a failed append and at
fail-over. A standby server keeps the snapshot current, so that a take-over reads only what is
new.
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
from rota.engine.time_zones import load_zone
from rota.store.projection.standby_state import JournalGapError, StandbyState
from rota.store.protocol import FencedError, JournalRecord, NewerRecordError, Seq, Snapshot, Store


async def build_scheduler(snapshot: Snapshot, timing: Timing, now: Instant) -> Scheduler:
    """A scheduler that knows all that is in the snapshot.

    In a thread: hundreds of thousands of jobs take seconds, in which the seat must be renewed.
    """
    return await asyncio.to_thread(_build, snapshot, timing, now)


def _build(snapshot: Snapshot, timing: Timing, now: Instant) -> Scheduler:
    scheduler = Scheduler(timing, now, load_zone)
    # A million records are made at once and live long: the collector would only look at them.
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


log = structlog.get_logger("rota.engine")


class Standby:
    """Follows the journal; reads all that is live only once, and when it fell behind too far.

    While jobs wait on the shelf no copy is kept: which of them come next only the store knows, so a
    take-over reads those few anyway. The copy comes back when the shelf is empty.
    """

    def __init__(self, store: Store, clock: Clock, kept: int, limits: EngineLimits) -> None:
        self._limits = limits
        self._ledger = store.ledger
        self._catalog = store.catalog
        self._clock = clock
        self._kept = kept
        self._mirror: StandbyState | None = None
        self._seq = Seq(0)
        self._cold_until: Millis | None = None
        self.unreadable = ""
        """Why it cannot follow, if a newer server wrote what only its like can read."""

    @property
    def seq(self) -> Seq:
        """How far it has come."""
        return self._seq

    def forget(self) -> None:
        """The copy is old: the next look reads everything."""
        self._mirror, self._cold_until = None, None

    async def keep_up(self, *, insist: bool) -> Seq | None:
        """Reads on to the journal's end; None: it is beyond this program.

        Then it is left alone until nobody leads (`insist`): by that time the newer server may have
        folded what it wrote, and the tables are plain.
        """
        if self.unreadable:
            if not insist:
                return None
            self.forget()
        try:
            seq = await self.follow()
        except NewerRecordError as error:
            if not self.unreadable:
                log.error("cannot_follow", reason=str(error))
            self.unreadable = "a newer server wrote the journal: upgrade this one"
            return None
        self.unreadable = ""
        return seq

    async def follow(self) -> Seq:
        """Reads on to the journal's end."""
        mirror = self._mirror or await self._warm_up()
        if mirror is None:
            self._seq = (await self._catalog.head())[1]
            return self._seq
        while records := await self._ledger.records_after(mirror.seq, FOLLOW_RECORDS):
            looked_up = await self._look_up(mirror, records)
            try:
                mirror.apply(records, looked_up)
            except JournalGapError:
                log.warning("fell_behind", seq=mirror.seq, journal_begins=records[0].seq)
                self.forget()
                return await self.follow()
            if mirror.is_partial:
                self._cool_down()
                return await self.follow()
        self._seq = mirror.seq
        return self._seq

    async def _warm_up(self) -> StandbyState | None:
        if self._cold_until is not None and self._clock.steady() < self._cold_until:
            return None
        snapshot = await self._ledger.load(self._kept)
        if snapshot.spill_counts:
            self._cool_down()
        else:
            self._mirror = StandbyState(snapshot)
        return self._mirror

    def _cool_down(self) -> None:
        self._mirror, self._cold_until = None, self._clock.steady() + self._limits.cold_ms

    async def _look_up(
        self, mirror: StandbyState, records: Sequence[JournalRecord]
    ) -> list[JobRecord]:
        unknown = mirror.unknown(records)
        return await self._catalog.jobs(unknown) if unknown else []

    async def begin_term(self, seat: LeaderElection, now: Instant) -> Snapshot:
        """Puts the first record of our reign behind the last of any other; gives the copy away.

        A record of the leader before may still be on its way when we claim. It gets its place or we
        do: if it was first, it is read, and the next place tried.
        """
        while True:
            seq = Seq(await self.follow() + 1)
            try:
                await self._ledger.append(seat.epoch, seq, now, ())
            except FencedError:
                await seat.look()
                if not seat.is_ours:
                    raise
                continue
            break
        await self.follow()
        if self._mirror is None:
            return await self._ledger.load(self._kept)
        snapshot = self._mirror.snapshot()
        self.forget()
        return snapshot
