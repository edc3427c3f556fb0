"""Leader election: decides which server of a cell may write, and renews its leadership.

A server judges by its own clock alone. Safety does not rest on it: the store refuses a record whose
sequence number is taken, whatever a server believes. Election only settles which server should try,
and for how long a leader may answer. See docs/decisions/0009-leader-election-by-a-database-row.md.
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

log = structlog.get_logger("rota.engine")

NO_LEADER_YET = LeaderRow("", Epoch(0), 0)
"""The row before the first claim."""


class CellMember(msgspec.Struct, frozen=True, kw_only=True):
    """This server as a member of its cell."""

    node: str
    address: str = ""
    """The URL at which the other servers reach it."""
    ttl_ms: Millis | None = None
    """How long leadership lasts without a renewal; None: there are no other servers."""
    limits: EngineLimits = ENGINE_LIMITS


class LeaderElection:
    """Takes part in the leader election: knows who leads, and holds this server's leadership."""

    def __init__(self, journal: Leadership, clock: Clock, member: CellMember) -> None:
        self.member = member
        self.epoch = Epoch(0)
        """The epoch of this server's newest term."""
        self.row = NO_LEADER_YET
        self._journal = journal
        self._clock = clock
        self._changed_at: Millis | None = None
        """When the row was first seen as it is now."""
        self._last_present = Epoch(0)
        """The newest epoch whose holder has been seen with a connection to the store."""
        self._absent_since: Millis | None = None
        self.suspected = 0
        """The epoch whose leader does not answer this server, though it did before."""
        self.step_down_requested = 0
        """The epoch of this server that is to end, because no other server reaches it."""
        self._aside_until: Millis | None = None
        self._trusted_until: Millis | None = None
        self._renewed_at: Millis | None = None
        self._lapsed_ms = 0
        self._held = False

    # Watching

    async def look(self) -> None:
        """Reads the row; its silence is counted from the moment it was read."""
        row = await self._journal.observe() or NO_LEADER_YET
        now = self._clock.steady()
        if self._changed_at is None or (row.epoch, row.nonce) != (self.row.epoch, self.row.nonce):
            self._changed_at = now
        self._note_presence(row, now)
        self.row = row
        if row.epoch != self.epoch:
            self._held = False

    @property
    def is_free(self) -> bool:
        """Whether to claim leadership: no holder, a holder that is gone, or this server itself."""
        if self._changed_at is None or self._stands_aside:
            return False
        return not self.row.holder or self.is_ours or self._was_ours or self._is_gone

    @property
    def is_ours(self) -> bool:
        """Whether the row still shows this server's own term."""
        return self.epoch != 0 and self.row.epoch == self.epoch and bool(self.row.holder)

    @property
    def _was_ours(self) -> bool:
        """Whether the holder is the last process of this server, which has ended."""
        return self.epoch == 0 and self.row.holder == self.member.node

    @property
    def leader(self) -> LeaderRow | None:
        """The leader, as far as this server knows; None: there is none, or it is gone."""
        if self._changed_at is None or not self.row.holder or self._is_gone:
            return None
        return self.row

    @property
    def look_every_s(self) -> float:
        """The pause between two reads of the row."""
        return self._ttl_ms / LOOKS_PER_TTL / 1000

    @property
    def _is_gone(self) -> bool:
        """Whether the holder has not renewed for the TTL, or its connection has ended.

        Neither is certain, and a holder that still runs does no harm: it can append nothing, and
        the next leader waits for leases that it may have renewed meanwhile.
        """
        silent_ms = self._silent_ms()
        if self.suspected and self.suspected == self.row.epoch:
            silent_ms *= UNREACHED_PER_TTL
        absent_ms = 0 if self._absent_since is None else self._clock.steady() - self._absent_since
        return silent_ms >= self._ttl_ms or absent_ms * ABSENT_PER_TTL > self._ttl_ms

    @property
    def _stands_aside(self) -> bool:
        """Whether this server lets another lead first, for a TTL at most."""
        return self._aside_until is not None and self._clock.steady() < self._aside_until

    def _note_presence(self, row: LeaderRow, now: Millis) -> None:
        # Only a holder that was seen present can be absent: an older program never shows presence.
        if row.present:
            self._last_present = row.epoch
        if row.present is not False or self._last_present != row.epoch:
            self._absent_since = None
        elif self._absent_since is None:
            self._absent_since = now

    def _silent_ms(self) -> Millis:
        return 0 if self._changed_at is None else self._clock.steady() - self._changed_at

    @property
    def _ttl_ms(self) -> Millis:
        return self.member.ttl_ms or 0

    # Holding

    @property
    def is_held(self) -> bool:
        """Whether this server claimed leadership and has not seen it lost."""
        return self._held

    @property
    def trusted(self) -> bool:
        """Whether this server may decide and answer: no other can have become leader by now."""
        if not self._held:
            return False
        return self._trusted_until is None or self._clock.steady() < self._trusted_until

    def trusted_for_ms(self) -> Millis | None:
        """Returns how much longer it is trusted; None: for as long as it is held."""
        if self._trusted_until is None:
            return None
        return max(0, self._trusted_until - self._clock.steady())

    def take_lapse(self) -> Millis:
        """Returns for how long trust was missing since the last call of this."""
        lapsed_ms, self._lapsed_ms = self._lapsed_ms, 0
        return lapsed_ms

    async def take(self) -> None:
        """Claims leadership for a new term; FencedError: another server was first."""
        alone = self.member.ttl_ms is None
        sent = self._clock.steady()
        self.epoch = await self._journal.claim(
            self.member.node, None if alone else self.row, self.member.address
        )
        self._trust(sent)

    async def renew(self) -> None:
        """Renews leadership; FencedError: another server leads."""
        sent = self._clock.steady()
        if not await self._journal.renew(self.epoch):
            self._held = False
            raise FencedError(f"epoch {self.epoch} is over: another server leads")
        self._trust(sent)

    async def resign(self) -> None:
        """Gives leadership up, so that another server can lead at once."""
        if self._held:
            self._held = False
            await self._journal.resign(self.epoch)

    async def step_aside(self) -> None:
        """Gives leadership up and lets another server be first to claim it."""
        self._aside_until = self._clock.steady() + self._ttl_ms
        await self.resign()

    def _trust(self, sent: Millis) -> None:
        # Counted from before the row was written: other servers count from after it.
        if not self.trusted and self._renewed_at is not None:
            self._lapsed_ms += sent - self._renewed_at
        self._held, self._renewed_at = True, sent
        ttl_ms = self.member.ttl_ms
        self._trusted_until = None if ttl_ms is None else sent + int(ttl_ms * (1 - TRUST_MARGIN))


class LeadershipRenewal:
    """Renews leadership beside the loop, during one term.

    A timer of its own notices when trust ends: the answer of a renewal may never come.
    """

    def __init__(self, election: LeaderElection, changed: Callable[[], None]) -> None:
        self._election = election
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to renew, unless there are no other servers."""
        if self._election.member.ttl_ms is not None:
            self._watch_expiry()
            self._task = asyncio.create_task(self._run(), name="rota-leadership")

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
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
                log.warning("leadership_not_renewed", epoch=self._election.epoch, reason=str(error))
                pause_s = usual_s / 4  # the next connection may be a better one
                continue
            pause_s = usual_s
            self._watch_expiry()
            self._changed()

    def _watch_expiry(self) -> None:
        """Calls back when trust ends, unless leadership is renewed before."""
        if self._expiry is not None:
            self._expiry.cancel()
        left_ms = self._election.trusted_for_ms()
        if left_ms is not None:
            loop = asyncio.get_running_loop()
            # A millisecond later, so that trust has ended by the clock it is measured with.
            self._expiry = loop.call_later((left_ms + 1) / 1000, self._changed)
