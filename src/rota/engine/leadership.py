"""Leader election: which server of a cell may write, by this server's own clock alone, and the
renewal of leadership.

Safety does not rest on it: a record at a taken place of the journal is refused, whatever anybody
believes. Election only settles who should try, and for how long a leader may answer.
`LeadershipRenewal` renews beside the loop and watches by a timer of its own when trust ends: the
answer of a renewal may never come.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
import structlog

from rota.core.model import Millis
from rota.engine.limits import (
    ABSENT_PER_TTL,
    ENGINE_LIMITS,
    LOOKS_PER_TTL,
    RENEWALS_PER_TTL,
    TRUST_MARGIN,
    UNREACHED_PER_TTL,
    EngineLimits,
)
from rota.engine.ports import Clock
from rota.store.protocol import Epoch, FencedError, LeaderRow, Leadership, StoreError

NO_LEADER_YET = LeaderRow("", Epoch(0), 0)
"""The row before the first claim."""


class CellMember(msgspec.Struct, frozen=True, kw_only=True):
    """This server among the others of its cell."""

    node: str
    address: str = ""
    """Where the others reach it."""
    ttl_ms: Millis | None = None
    """How long a leader that says nothing still leads; None: there are no others."""
    limits: EngineLimits = ENGINE_LIMITS


class LeaderElection:
    """What this server knows of the leadership, and its own part in it."""

    def __init__(self, ledger: Leadership, clock: Clock, member: CellMember) -> None:
        self.member = member
        self.epoch = Epoch(0)
        """Of our own last reign."""
        self.row = NO_LEADER_YET
        self._ledger = ledger
        self._clock = clock
        self._seen_at: Millis | None = None
        self._met = Epoch(0)
        """The last reign whose holder has been seen with a connection to the store."""
        self._absent_from: Millis | None = None
        self.suspected = 0
        """The reign whose holder does not answer this server, though it did before."""
        self.step_down_requested = 0
        """The reign of ours that another server is to end, because none of them reaches us."""
        self._aside_until: Millis | None = None
        self._trusted_until: Millis | None = None
        self._renewed_at: Millis | None = None
        self._lapsed_ms = 0
        self._held = False

    # Watching

    async def look(self) -> None:
        """Reads the row; how long it stays the same is counted from the moment it was read."""
        row = await self._ledger.observe() or NO_LEADER_YET
        now = self._clock.steady()
        if self._seen_at is None or (row.epoch, row.nonce) != (self.row.epoch, self.row.nonce):
            self._seen_at = now
        self._note_presence(row, now)
        self.row = row
        if row.epoch != self.epoch:
            self._held = False

    @property
    def is_free(self) -> bool:
        """Whether to try: nobody holds it, its holder is gone, or it is still our own."""
        if self._seen_at is None or self._stands_aside:
            return False
        return not self.row.holder or self.is_ours or self._was_ours or self._is_gone

    @property
    def is_ours(self) -> bool:
        """Whether the row still has our own reign."""
        return self.epoch != 0 and self.row.epoch == self.epoch and bool(self.row.holder)

    @property
    def _was_ours(self) -> bool:
        """Whether the holder has our name, and we have only just started: it was the process before
        this one, which has ended."""
        return self.epoch == 0 and self.row.holder == self.member.node

    @property
    def leader(self) -> LeaderRow | None:
        """Who leads, as far as can be known here; None: nobody, or somebody who is gone."""
        if self._seen_at is None or not self.row.holder or self._is_gone:
            return None
        return self.row

    @property
    def look_every_s(self) -> float:
        """The pause between two looks."""
        return self._ttl_ms / LOOKS_PER_TTL / 1000

    @property
    def _is_gone(self) -> bool:
        """Whether the holder has said nothing for the TTL, or its process has ended.

        Neither is certain, and a holder that lives after all does no harm: it can append nothing,
        and whoever leads next waits for leases that it may still have renewed meanwhile.
        """
        silent_ms = self._silent_ms()
        if self.suspected and self.suspected == self.row.epoch:
            silent_ms *= UNREACHED_PER_TTL
        absent_ms = 0 if self._absent_from is None else self._clock.steady() - self._absent_from
        return silent_ms >= self._ttl_ms or absent_ms * ABSENT_PER_TTL > self._ttl_ms

    @property
    def _stands_aside(self) -> bool:
        """Whether another is to have the seat that we gave up; for a TTL at most."""
        return self._aside_until is not None and self._clock.steady() < self._aside_until

    def _note_presence(self, row: LeaderRow, now: Millis) -> None:
        """Only who was there can be missed: an older program never shows that it is."""
        if row.present:
            self._met = row.epoch
        if row.present is not False or self._met != row.epoch:
            self._absent_from = None
        elif self._absent_from is None:
            self._absent_from = now

    def _silent_ms(self) -> Millis:
        return 0 if self._seen_at is None else self._clock.steady() - self._seen_at

    @property
    def _ttl_ms(self) -> Millis:
        return self.member.ttl_ms or 0

    # Holding

    @property
    def is_held(self) -> bool:
        """Whether nobody has been seen to take it from us."""
        return self._held

    @property
    def trusted(self) -> bool:
        """Whether we may decide and answer: nobody else can have taken the seat by now."""
        if not self._held:
            return False
        return self._trusted_until is None or self._clock.steady() < self._trusted_until

    def trusted_for_ms(self) -> Millis | None:
        """How much longer; None: for as long as it is held."""
        if self._trusted_until is None:
            return None
        return max(0, self._trusted_until - self._clock.steady())

    def take_lapse(self) -> Millis:
        """How long we could not answer since this was last asked, because the trust had ended."""
        lapsed_ms, self._lapsed_ms = self._lapsed_ms, 0
        return lapsed_ms

    async def take(self) -> None:
        """Opens a reign of our own; FencedError: somebody else was first."""
        alone = self.member.ttl_ms is None
        sent = self._clock.steady()
        self.epoch = await self._ledger.claim(
            self.member.node, None if alone else self.row, self.member.address
        )
        self._trust(sent)

    async def renew(self) -> None:
        """Says that we live; FencedError: somebody else leads."""
        sent = self._clock.steady()
        if not await self._ledger.renew(self.epoch):
            self._held = False
            raise FencedError(f"epoch {self.epoch} is over: another server leads")
        self._trust(sent)

    async def resign(self) -> None:
        """Lets the next one lead at once."""
        if self._held:
            self._held = False
            await self._ledger.resign(self.epoch)

    async def step_aside(self) -> None:
        """The same for a server that goes on: another is to be first."""
        self._aside_until = self._clock.steady() + self._ttl_ms
        await self.resign()

    def _trust(self, sent: Millis) -> None:
        """Counted from before the row was written: others count from after it."""
        if not self.trusted and self._renewed_at is not None:
            self._lapsed_ms += sent - self._renewed_at
        self._held, self._renewed_at = True, sent
        ttl_ms = self.member.ttl_ms
        self._trusted_until = None if ttl_ms is None else sent + int(ttl_ms * (1 - TRUST_MARGIN))


log = structlog.get_logger("rota.engine")


class LeadershipRenewal:
    """Runs beside the loop for the length of one reign."""

    def __init__(self, seat: LeaderElection, changed: Callable[[], None]) -> None:
        self._election = seat
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to renew; nothing to do where there are no others."""
        if self._election.member.ttl_ms is not None:
            self._set_alarm()
            self._task = asyncio.create_task(self._run(), name="rota-seat")

    async def stop(self) -> None:
        """Renews no more."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        ttl_ms = self._election.member.ttl_ms
        assert ttl_ms is not None
        usual_s = pause_s = ttl_ms / RENEWALS_PER_TTL / 1000
        while self._election.is_held:
            await asyncio.sleep(pause_s)
            try:
                await self._election.renew()
            except FencedError:
                pass
            except StoreError as error:
                log.warning("not_renewed", epoch=self._election.epoch, reason=str(error))
                pause_s = usual_s / 4  # the next connection may be a better one
                continue
            pause_s = usual_s
            self._set_alarm()
            self._changed()

    def _set_alarm(self) -> None:
        """Rings when the trust ends, if nothing renews it before."""
        if self._alarm is not None:
            self._alarm.cancel()
        left_ms = self._election.trusted_for_ms()
        if left_ms is not None:
            loop = asyncio.get_running_loop()
            # A moment later, so that it is over by the clock it is measured with.
            self._alarm = loop.call_later((left_ms + 1) / 1000, self._changed)
