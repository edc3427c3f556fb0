"""Stands by with a copy of what is live, so that a take-over reads only what is new."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from rota.core.model import Instant, JobRecord
from rota.engine.limits import FOLLOW_RECORDS
from rota.engine.seat import Seat
from rota.store.mirror import JournalGapError, Mirror
from rota.store.protocol import (
    FencedError,
    JournalRecord,
    NewerRecordError,
    Seq,
    Snapshot,
    Store,
)

log = structlog.get_logger("rota.engine")


class Standby:
    """Follows the journal; reads all that is live only once, and when it fell behind too far."""

    def __init__(self, store: Store) -> None:
        self._ledger = store.ledger
        self._catalog = store.catalog
        self._mirror: Mirror | None = None
        self.unreadable = ""
        """Why it cannot follow, if a newer server wrote what only its like can read."""

    @property
    def seq(self) -> Seq:
        """How far it has come."""
        return Seq(0) if self._mirror is None else self._mirror.seq

    @property
    def is_hot(self) -> bool:
        """Whether there is a copy."""
        return self._mirror is not None

    def forget(self) -> None:
        """The copy is old: the next look reads everything."""
        self._mirror = None

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
        if self._mirror is None:
            self._mirror = Mirror(await self._ledger.load())
        mirror = self._mirror
        while records := await self._ledger.records_after(mirror.seq, FOLLOW_RECORDS):
            looked_up = await self._look_up(mirror, records)
            try:
                mirror.apply(records, looked_up)
            except JournalGapError:
                log.warning("fell_behind", seq=mirror.seq, journal_begins=records[0].seq)
                self._mirror = mirror = Mirror(await self._ledger.load())
        return mirror.seq

    async def _look_up(self, mirror: Mirror, records: Sequence[JournalRecord]) -> list[JobRecord]:
        unknown = mirror.unknown(records)
        return await self._catalog.jobs(unknown) if unknown else []

    async def open_reign(self, seat: Seat, now: Instant) -> Snapshot:
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
        assert self._mirror is not None
        snapshot = self._mirror.snapshot()
        self._mirror = None
        return snapshot
