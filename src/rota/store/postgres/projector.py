"""Projector: the thread that keeps PostgreSQL's tables up to date with the journal.

It has an event loop and a connection of its own, so that neither the projection nor the load of a
million live jobs holds up the loop that decides. Any server can project, one at a time, with
`folded_seq` locked. The leader does it all the time; a follower only if its readers wait and no
other server does it. A server that is frozen while it holds that lock would block all others: its
transaction is ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from rota.core.model import Instant
from rota.store.limits import (
    FOLD_JOBS_KNOWN,
    FOLD_TAIL_JOBS,
    FOLD_TAIL_S,
    FOLD_TAIL_WRITES,
    FOLLOWER_LOOK_S,
    FOLLOWER_PATIENCE_S,
    POSTGRES_PROJECTION_WINDOW_WRITES,
    PROJECTION_BACKLOG_WRITES,
    PROJECTION_DEADLINE_S,
    PROJECTION_FEW_WRITES,
    PROJECTION_RETRY_S,
    PROJECTION_STALLED_LOOK_S,
    SWEEP_EXECUTIONS,
    UPKEEP_EVERY_MS,
)
from rota.store.postgres.connect import Address, Connection, DedicatedConnection
from rota.store.postgres.load import read_snapshot
from rota.store.postgres.logs_and_files import remove_outputs
from rota.store.postgres.partitions import drop_old, drop_old_journal, make_partitions
from rota.store.postgres.plan_cache import PlanCache
from rota.store.postgres.projection import ProjectionOptions, WindowProjection, WindowResult
from rota.store.postgres.window import Before, Window, read_window, stamp_of, take_turn, window_of
from rota.store.projection.known import KnownJobs
from rota.store.projection.precedence import Precedence
from rota.store.projection.tail import Tail
from rota.store.projection.unfolded import Unfolded
from rota.store.projection.watermark import Watermark
from rota.store.protocol import Dropped, JournalRecord, Seq, Snapshot, StoreError, StoreFullError

R = TypeVar("R")

_END_STALLED = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE pid = ANY (pg_blocking_pids($1)) AND application_name LIKE 'rota %'
    AND state <> 'idle' AND wait_event = 'ClientRead'
    AND clock_timestamp() - state_change > $2 * interval '1 second'
"""
"""Only sessions that have waited long for their own client: a slow statement is left alone. A role
may end its own sessions, so no further privilege is needed."""


class ProjectionLock:
    """Ends, on a connection of its own, frozen servers that block the projection."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._aside = DedicatedConnection(address, "aside", address.limits.follow_deadline_s, {})
        self._pid = 0

    def taken_by(self, connection: Connection) -> None:
        """Notes the connection that is about to wait for the lock."""
        self._pid = connection.get_server_pid()

    async def until(self, work: Coroutine[Any, Any, R]) -> R:
        """Returns the result of `work`; ends frozen servers that block it meanwhile."""
        waiting = asyncio.ensure_future(work)
        try:
            while True:
                await asyncio.wait({waiting}, timeout=PROJECTION_STALLED_LOOK_S)
                if waiting.done():
                    return waiting.result()
                with suppress(StoreError):
                    await self._end_stalled()
        finally:
            waiting.cancel()

    async def close(self) -> None:
        await self._aside.close()

    async def _end_stalled(self) -> None:
        # Behind PgBouncer the process id of the own connection is unknown.
        if self._pid and not self._address.pgbouncer:
            stalled_s = self._address.limits.projection_stalled_s
            await self._aside.read(lambda c: c.fetchval(_END_STALLED, self._pid, stalled_s))


T = TypeVar("T")


class Projector:
    """Projects the journal in its own thread; called from the server's loop."""

    def __init__(self, address: Address) -> None:
        self._address, self._limits = address, address.limits
        self.watermark = Watermark(Seq(0), Seq(0))
        self.leads = False
        self._unfolded = Unfolded()
        self.known = KnownJobs(FOLD_JOBS_KNOWN)
        self._tail: Tail | None = None
        """Projection in memory of the records up to `_taken`, not yet in the tables as a whole."""
        self._taken: Window | None = None
        self._tail_since = self._company_until = 0.0
        self._stamp = ""  # of the transaction in which this process last projected
        self._unprojected_writes = 0
        self._lags_since = 0.0
        """When the first of those writes came, or was left over, by the clock of the thread's
        loop."""
        self._appended_at = 0.0
        """When the newest write came, by the same clock."""
        self._wake_up_timer: asyncio.TimerHandle | None = None
        self._counting = threading.Lock()
        # Not waiting for the disk is safe: what a crash undoes is projected again.
        self._connection = DedicatedConnection(
            address,
            "project",
            PROJECTION_DEADLINE_S,
            {"synchronous_commit": "off"},
            statement_s=self._limits.projection_statement_s,
        )
        self._lock = ProjectionLock(address)
        self._plans = PlanCache()
        self.precedence = Precedence(self.watermark, self._limits)
        self._loop = type(asyncio.get_running_loop())()  # of the same kind as the server's
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._closing = self._failed = False
        self._to_sweep = True
        self._made_until = Seq(0)
        self._upkeep_due: Instant = 0
        self._thread = threading.Thread(
            target=self._run_thread, name="rota-store-projector", daemon=True
        )
        self._thread.start()
        self._projecting = asyncio.run_coroutine_threadsafe(self._run(), self._loop)

    async def start(self) -> None:
        """Reads how far journal and tables are, and makes partitions for the next records."""
        await self._in_thread(self._prepare())

    def note_appended(self, record: JournalRecord) -> None:
        """Notes a record that this process has appended."""
        self._unfolded.add(record)
        self.watermark.set_appended(record.seq)
        with self._counting:
            self._appended_at = self._loop.time()
            if not self._unprojected_writes:
                self._lags_since = self._appended_at
            self._unprojected_writes += len(record.writes)
        if self._unprojected_writes >= self._limits.projection_begin_writes:
            self._wake_up()
        elif self._wake_up_timer is None:
            loop = asyncio.get_running_loop()
            self._wake_up_timer = loop.call_later(
                self._limits.postgres_projection_idle_s, self._wake_up
            )

    async def wait_for_capacity(self) -> None:
        """Returns when the tables are near enough behind the journal for another append."""
        while self._unprojected_writes >= PROJECTION_BACKLOG_WRITES and self.watermark.lags:
            await self.reached(Seq(self.watermark.projected + 1))

    async def reached(self, seq: Seq) -> None:
        """Returns when record `seq` is in the tables."""
        waiter = self.watermark.reached(seq)
        if waiter is not None:
            self._wake_up()
            await asyncio.wrap_future(waiter)

    async def load(self, kept: int) -> Snapshot:
        """Projects what is left to project, then loads all that is live."""
        return await self._in_thread(self._load(kept))

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops a day of finished work, or some of the rest."""
        dropped = await self._in_thread(self._connection.write(lambda c: drop_old(c, before)))
        self._to_sweep = True
        self._wake_up()
        return dropped

    async def close(self) -> None:
        """Projects the rest if this server leads, and ends the thread."""
        if self._closing:
            return
        self._closing = True
        self._wake_up()
        projecting = asyncio.wrap_future(self._projecting)
        await asyncio.wait({projecting}, timeout=self._limits.projection_close_s)
        # If the database is away, the journal has the rest, and the next server projects it.
        projecting.cancel()
        for each in (self._connection.close(), self._lock.close()):
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(each, self._loop))
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)

    # In the server's loop above, in the thread below

    def _run_thread(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _in_thread(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closing:
            work.close()
            raise StoreError("the store is closed")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _wake_up(self) -> None:
        if self._wake_up_timer is not None:
            self._wake_up_timer.cancel()
            self._wake_up_timer = None
        self._loop.call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        try:
            while not self._closing:
                if self._failed:
                    # A sleep, not a wait: callers that ask all the time must not put it off.
                    await asyncio.sleep(PROJECTION_RETRY_S)
                elif await self._woken_within(self._patience()) or self._patience() != 0:
                    continue  # more has come meanwhile
                await self._work_once()
            while self.leads and self.watermark.lags and not self._failed:
                await self._work_once()
        finally:
            self.watermark.fail(StoreError("the store is closed"))

    async def _woken_within(self, patience_s: float | None) -> bool:
        if patience_s == 0:
            return False
        try:
            async with asyncio.timeout(patience_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    def _patience(self) -> float | None:
        """How long to wait for more to do before doing it; None: there is nothing to do."""
        awaited = self.watermark.awaited
        if not (awaited or (self.leads and (self.watermark.lags or self._to_sweep))):
            return None
        if awaited or self._unprojected_writes >= self._limits.projection_begin_writes:
            return 0
        left_s = max(0.0, self._lags_since + self._limits.projection_lag_s - self._loop.time())
        if self._unprojected_writes < PROJECTION_FEW_WRITES:
            last = max(self._appended_at, self._lags_since)
            return max(
                0.0, min(last + self._limits.postgres_projection_idle_s - self._loop.time(), left_s)
            )
        return left_s

    async def _work_once(self) -> None:
        try:
            if self.watermark.lags and (self.leads or not await self._others_projected()):
                await self._project_next()
            elif self._to_sweep:
                await self._sweep()
            self._failed = False
        except Exception as error:  # noqa: BLE001  (the top of the thread's loop: it must go on)
            # Nothing is lost: the journal has it. Readers get the error, and it is tried again.
            self._failed = True
            kind = StoreFullError if isinstance(error, StoreFullError) else StoreError
            self.watermark.fail(kind(f"the tables cannot follow the journal: {error}"))

    async def _others_projected(self) -> bool:
        """Waits a moment for the leader; returns whether it projected anything."""
        looks = int(FOLLOWER_PATIENCE_S / FOLLOWER_LOOK_S)
        for _ in range(looks):
            before = self.watermark.projected
            await self._read_projected()
            if self.watermark.projected > before:
                return True
            await asyncio.sleep(FOLLOWER_LOOK_S)
        return False

    async def _read_projected(self) -> None:
        projected = await self._connection.read(
            lambda c: c.fetchval("SELECT folded_seq FROM rota.meta WHERE id = 1")
        )
        self.watermark.set_projected(Seq(projected))

    async def _project_next(self) -> bool:
        """Projects one window; returns whether there was any."""
        async with self._turn:  # a load projects too
            return await self._project_window()

    async def _project_window(self) -> bool:
        tail = self._tail
        if tail is None:
            tail, self._tail_since = Tail(self.known, self.watermark.projected), self._loop.time()
        window, whole = await self._next_window(tail)
        if window is None:
            self.watermark.set_appended(self.watermark.projected)
            self._count_projected(self._unprojected_writes)
            return False
        # A long query may hold locks that this needs; the projection itself does not need it yet.
        with suppress(StoreError):
            await self._upkeep(window)
        try:
            done = await self._lock.until(
                self._connection.write(lambda c: self._apply(c, window, tail, whole=whole))
            )
        except BaseException:
            self._forget()  # it may have happened nevertheless
            raise
        if done is None:
            self._unfolded.clear()
            self._forget()
            self._count_projected(0)
            self._company_until = self._loop.time() + self._limits.fold_company_s
            await self._read_projected()
            return True
        self.known.learn(done.changes, self._stamp)
        self._to_sweep |= done.leaves_behind
        self._count_projected(window.writes)
        if done.whole:
            self._tail = self._taken = None
            self.watermark.set_projected(window.last_seq)
        else:
            tail.in_use = False
            self._tail, self._taken = tail, window.end
        return True

    async def _next_window(self, tail: Tail) -> tuple[Window | None, bool]:
        """Returns the next window, and whether all of the tail has to be written with it."""
        after = tail.after if self._taken is None else self._taken.last_seq
        if at_hand := self._unfolded.after(after, POSTGRES_PROJECTION_WINDOW_WRITES):
            window = window_of(at_hand)
            return window, not self._may_wait(tail, window)
        if self._taken is not None:
            return self._taken, True
        return await self._connection.read(lambda c: read_window(c, after)), True

    def _may_wait(self, tail: Tail, window: Window) -> bool:
        """Returns whether jobs that have not ended can be written later."""
        now = self._loop.time()
        return (
            self.leads
            and not self._closing
            and not self.watermark.awaited
            and window.writes >= PROJECTION_FEW_WRITES
            and tail.jobs < FOLD_TAIL_JOBS
            and tail.writes + window.writes < FOLD_TAIL_WRITES
            and now < self._tail_since + FOLD_TAIL_S
            and now >= self._company_until
        )

    def _forget(self) -> None:
        """Forgets what this process knows of the tables: they may have changed."""
        self.known.clear()
        self._tail = self._taken = None

    def _count_projected(self, writes: int) -> None:
        with self._counting:
            self._unprojected_writes = max(0, self._unprojected_writes - writes)
            self._lags_since = self._loop.time()

    async def _apply(
        self, connection: Connection, window: Window, tail: Tail, *, whole: bool
    ) -> WindowResult | None:
        """Writes a window in one transaction. None: another server projected meanwhile, or the
        journal or the tail has changed."""
        if tail.in_use:
            return None  # a repeat after a rollback, which the tail knows nothing of
        tail.in_use = True
        self._lock.taken_by(connection)
        async with connection.transaction():
            before = await take_turn(connection, window, self._plans)
            if not before.fits(window, tail.after) or not self._is_newest(before, tail):
                return None
            options = ProjectionOptions(not self._address.pgbouncer, self.precedence.give_way)
            projection = WindowProjection(connection, window, tail, options)
            done = await projection.run(before.newest, whole=whole)
            self._stamp = await stamp_of(connection)
            return done

    def _is_newest(self, before: Before, tail: Tail) -> bool:
        """Returns whether this process projected last, so that what it remembers is right."""
        if before.stamp == self._stamp:
            return True
        self.known.clear()  # they are looked up again
        return tail is not self._tail

    async def _upkeep(self, window: Window) -> None:
        due = abs(window.last_at - self._upkeep_due) >= UPKEEP_EVERY_MS
        if due or window.last_seq >= self._made_until:
            await self._make_partitions(window.last_seq, window.last_at)
        if due:
            await self._connection.write(
                lambda c: drop_old_journal(c, window.last_at, self._limits)
            )
            self._upkeep_due = window.last_at

    async def _make_partitions(self, newest: Seq, now: Instant | None) -> None:
        await self._connection.write(lambda c: make_partitions(c, newest, now, self._limits))
        self._made_until = Seq(newest + self._limits.journal_partition_records // 2)

    async def _prepare(self) -> None:
        projected, newest = await self._connection.read(
            lambda c: c.fetchrow(
                "SELECT folded_seq, (SELECT max(seq) FROM rota.journal) FROM rota.meta"
            )
        ) or (0, 0)
        self.watermark.set_projected(Seq(projected))
        self.watermark.set_appended(Seq(newest or projected))
        await self._make_partitions(Seq(newest or projected), None)

    async def _load(self, kept: int) -> Snapshot:
        # After an append of unknown outcome only the database knows where the journal ends.
        async with self._turn:
            self._unfolded.clear()
            self._forget()
            await self._prepare()
        snapshot: Snapshot | None = None
        while snapshot is None:
            stamp = await self._connection.read(stamp_of)
            # If nothing is left to project, nothing was written ahead of the watermark either.
            if not await self._project_next():
                read = partial(read_snapshot, kept=kept, stamp=stamp)
                snapshot = await self._connection.read(read)
        return snapshot

    async def _sweep(self) -> None:
        """Removes logs and files of deleted jobs; what fails is found again by the next sweep."""
        found = await self._connection.read(
            lambda c: c.fetch(
                "SELECT execution_id FROM rota.leftovers ORDER BY 1 LIMIT $1", SWEEP_EXECUTIONS
            )
        )
        self._to_sweep = len(found) == SWEEP_EXECUTIONS
        if found:
            ids = [row[0] for row in found]
            await self._connection.write(lambda c: remove_outputs(c, ids))
