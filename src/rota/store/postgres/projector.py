"""Projector: keeps PostgreSQL's tables up to date with the journal, in a loop of its own.

Servers run it in their background process. The projector of the leader's server projects; any other
one watches, and takes over when the tables have stood still for a while although the journal has
more. Nothing but row locks is needed for that: a transaction locks the shards that it projects, and
gives up if they are locked, or further than it thought. A projector that was frozen in the middle
of a transaction would block all others: its transaction is ended.

Why: docs/decisions/0031-projection-in-shards-in-a-process-of-its-own.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from rota.core.model import Instant, JobId
from rota.store.journal import ChainReader
from rota.store.limits import (
    POSTGRES_PROJECTION_WINDOW_WRITES,
    PROJECTION_AT_HAND_BYTES,
    PROJECTION_BEHIND_WRITES_MAX,
    PROJECTION_DEADLINE_S,
    PROJECTION_FEW_WRITES,
    PROJECTION_IDLE_LOOK_S,
    PROJECTION_RETRY_S,
    PROJECTION_TICK_S,
    PROJECTION_YIELD_S,
    SWEEP_EXECUTIONS,
    UPKEEP_EVERY_MS,
)
from rota.store.postgres.connect import Address, Connection, DedicatedConnection
from rota.store.postgres.load import read_positions
from rota.store.postgres.logs_and_files import remove_outputs
from rota.store.postgres.partitions import drop_old, drop_old_journal, make_partitions
from rota.store.postgres.plan_cache import PlanCache
from rota.store.postgres.projection import SHARDS, WindowProjection
from rota.store.postgres.quarantine import (
    is_of_the_data,
    read_quarantine,
    set_failed_jobs_aside,
)
from rota.store.projection.quarantine import Quarantine
from rota.store.projection.shards import Window, shards_behind
from rota.store.protocol import (
    DivergedError,
    Dropped,
    Head,
    JournalRecord,
    NewerRecordError,
    ProjectionStatus,
    Seq,
    StoredRecord,
    StoreError,
    StoreFullError,
    TablesBehindError,
)

log = structlog.get_logger("rota.store")

_END_STALLED = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name LIKE 'rota project%' AND datname = current_database()
    AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'
    AND clock_timestamp() - state_change > $1 * interval '1 second'
"""
"""Only sessions that have waited long for their own client: a slow statement is left alone. A role
may end its own sessions, so no further privilege is needed."""
_STATE = """
SELECT (SELECT max(seq) FROM rota.journal), ARRAY(SELECT job_id FROM rota.quarantine ORDER BY 1)
"""


class RecordsAtHand:
    """Newest records as the server appended them: they need not be read from the database.

    They are bounded; what is not here is in the journal. A projection verifies in its transaction
    that the journal has the last of them.
    """

    def __init__(self) -> None:
        self._records: deque[StoredRecord] = deque()
        self._bytes = 0

    def add(self, record: StoredRecord) -> None:
        """Adds the newest record; after a gap, or when they are too large, begins anew."""
        size = len(record.body)
        follows = not self._records or self._records[-1].seq + 1 == record.seq
        if not follows or self._bytes + size > PROJECTION_AT_HAND_BYTES:
            self._records.clear()
            self._bytes = 0
        if size <= PROJECTION_AT_HAND_BYTES:
            self._records.append(record)
            self._bytes += size

    def after(self, head: Head) -> list[JournalRecord]:
        """Returns the next window after `head`; empty: it is not here as a whole."""
        records = self._records
        while records and records[0].seq <= head.seq:
            self._bytes -= len(records.popleft().body)
        if not records or records[0].seq != head.seq + 1:
            return []
        chain_reader, writes, found = ChainReader(head), 0, list[JournalRecord]()
        for one in records:
            if writes >= POSTGRES_PROJECTION_WINDOW_WRITES:
                break
            found.append(chain_reader.read(one.seq, one.epoch, one.at, one.hash, one.body))
            writes += len(found[-1].writes)
        return found


class _Lane:
    """Connection that projects some of the shards, one window after the other."""

    def __init__(self, address: Address, shards: Sequence[int]) -> None:
        self.shards = tuple(shards)
        self.plans = PlanCache()
        # Not waiting for the disk is safe: what a crash undoes is projected again.
        self.connection = DedicatedConnection(
            address,
            f"project {shards[0]}",
            PROJECTION_DEADLINE_S,
            {"synchronous_commit": "off"},
            statement_s=address.limits.projection_statement_s,
        )


class Projector:
    """Projects the journal; all its calls are made in the loop in which it was started."""

    def __init__(
        self,
        address: Address,
        lanes: int = 1,
        changed: Callable[[ProjectionStatus], None] | None = None,
    ) -> None:
        """Sets it up; `changed` is called with each new status."""
        self._address, self._limits = address, address.limits
        self._lanes = [
            _Lane(address, [shard for shard in range(SHARDS) if shard % lanes == lane])
            for lane in range(lanes)
        ]
        self._reader = DedicatedConnection(
            address, "projector", address.limits.follow_deadline_s, {}
        )
        self._changed = changed
        self._positions: dict[int, Head] = {}
        self._appended = self._wanted = Seq(0)
        self._writes = 0
        self._leads = self._stands_in = self._closing = False
        self._advanced_at = self._lags_since = self._projected_at = 0.0
        """By the loop's clock: when the tables last moved, since when they lack something, and when
        this process last projected."""
        self._trouble = ""
        self._quarantine: Quarantine = {}
        self._waiting: list[tuple[Seq, asyncio.Future[None]]] = []
        self._at_hand = RecordsAtHand()
        self._wake = asyncio.Event()
        self._to_sweep, self._stale = True, False
        self._made_until = Seq(0)
        self._upkeep_due: Instant = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads how far journal and tables are, makes partitions, and begins."""
        await self._read_all()
        self._made_until = Seq(self._appended + self._limits.journal_partition_records // 2)
        self._task = asyncio.create_task(self._run(), name="rota-projector")

    # Called by the store

    @property
    def status(self) -> ProjectionStatus:
        """How far it is now."""
        return ProjectionStatus(self._projected, len(self._quarantine), self._trouble)

    def lead(self, *, leads: bool) -> None:
        """Says whether this server leads."""
        if leads != self._leads:
            self._leads = leads
            self._wake.set()

    def note_appended(self, record: StoredRecord, writes: int) -> None:
        """Notes the newest record of the journal, which has so many writes."""
        if record.seq <= self._projected:
            # A failover of the database lost records, and the tables went back with them.
            self._positions, self._appended = {}, Seq(0)
        self._at_hand.add(record)
        self._see_appended(record.seq)
        self._writes += writes
        self._wake.set()

    async def reached(self, seq: Seq) -> None:
        """Returns when the tables have record `seq`; raises TablesBehindError if that takes too
        long."""
        if self._projected >= seq:
            return
        self._see_appended(seq)
        if self._writes > PROJECTION_BEHIND_WRITES_MAX:
            raise TablesBehindError(f"the tables are {self._writes:,} writes behind the journal")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((seq, waiter))
        self._wake.set()
        try:
            async with asyncio.timeout(self._limits.projection_wait_s):
                await waiter
        except TimeoutError:
            raise TablesBehindError(
                f"the tables are behind the journal: record {seq} is not in them yet"
            ) from None
        finally:
            self._waiting = [one for one in self._waiting if one[1] is not waiter]

    def want(self, seq: Seq) -> None:
        """Notes that a reader in another process waits for record `seq`."""
        self._wanted = max(self._wanted, seq)
        self._see_appended(seq)
        self._wake.set()

    @property
    def leads(self) -> bool:
        """Whether this server leads."""
        return self._leads

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops the oldest day of finished work that was over before then, or some of the rest."""
        dropped = await self._lanes[0].connection.write(lambda c: drop_old(c, before))
        self.sweep_soon()
        return dropped

    def look_again(self) -> None:
        """Says that another process has changed the quarantine."""
        self._stale = True
        self._wake.set()

    def sweep_soon(self) -> None:
        """Says that deleted jobs have left logs and files."""
        self._to_sweep = True
        self._wake.set()

    async def start_over(self) -> None:
        """Reads everything anew: the database is not the one that was read before."""
        self._appended = Seq(0)
        self._at_hand = RecordsAtHand()
        await self._read_all()

    async def close(self) -> None:
        """Projects the rest if this server leads, and ends."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._limits.projection_close_s)
            # If the database is away, the journal has the rest, and the next server projects it.
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for connection in (self._reader, *(lane.connection for lane in self._lanes)):
            await connection.close()

    # The loop

    @property
    def _projected(self) -> Seq:
        return min((head.seq for head in self._positions.values()), default=Seq(0))

    @property
    def _lags(self) -> bool:
        return self._projected < self._appended

    @property
    def _awaited(self) -> bool:
        return bool(self._waiting) or self._wanted > self._projected

    @property
    def _projects(self) -> bool:
        return self._leads or self._stands_in

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _see_appended(self, seq: Seq) -> None:
        if seq > self._appended:
            if not self._lags:
                self._lags_since = self._now()
            self._appended = seq

    async def _run(self) -> None:
        try:
            while not self._closing:
                await self._wait()
                await self._work()
            while self._leads and self._lags and not self._trouble:
                await self._work()
        finally:
            self._fail(StoreError("the store is closed"))

    async def _wait(self) -> None:
        """Waits until there is something to do, or to look at."""
        pause_s = self._pause_s()
        if pause_s > 0:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
                # More has come: it may be time, or not yet.
                if (left_s := self._pause_s()) > 0 and not self._awaited:
                    await asyncio.sleep(min(left_s, PROJECTION_TICK_S))

    def _pause_s(self) -> float:
        """Returns how long there is nothing to do, unless something happens."""
        limits, now = self._limits, self._now()
        if self._trouble:
            return PROJECTION_RETRY_S
        if not self._projects:
            return PROJECTION_TICK_S if self._awaited else limits.projection_watch_s
        if not self._lags:
            return 0 if self._to_sweep else PROJECTION_IDLE_LOOK_S
        if self._awaited or self._writes >= limits.projection_begin_writes:
            return 0
        gather_s = (
            limits.postgres_projection_idle_s
            if self._writes < PROJECTION_FEW_WRITES
            else limits.projection_lag_s
        )
        # The first record after a quiet time is projected at once, later ones are gathered.
        return max(0.0, max(self._projected_at, self._lags_since - gather_s) + gather_s - now)

    async def _work(self) -> None:
        try:
            if self._trouble or self._stale or not self._positions or not self._projects:
                self._stale = False
                await self._read_all()
            self._judge_others()
            if self._projects and self._lags:
                await self._project()
            elif self._projects and self._to_sweep:
                await self._sweep()
            self._set_trouble("")
        except Exception as error:
            # Nothing is lost: the journal has it. Readers get the error, and it is tried again.
            self._at_hand = RecordsAtHand()
            unexpected = not isinstance(error, StoreError)
            if str(error) != self._trouble:
                log.error("projection_failed", reason=str(error), exc_info=unexpected)
            self._set_trouble(str(error) or type(error).__name__)
            kind = StoreFullError if isinstance(error, StoreFullError) else TablesBehindError
            self._fail(kind(f"the tables cannot follow the journal: {error}"))

    def _judge_others(self) -> None:
        """Stands in for the leader's projector when the tables have not moved for too long."""
        if self._leads or not self._lags:
            self._stands_in = False
        elif not self._stands_in:
            still_s = self._now() - max(self._advanced_at, self._lags_since)
            self._stands_in = still_s >= self._limits.projection_stand_in_s

    async def _read_all(self) -> None:
        """Reads how far journal and tables are, and what is set aside."""
        positions, newest, aside = await self._reader.read(_read_state)
        self._move(positions)
        self._see_appended(Seq(max(newest, self._projected)))
        if aside != sorted(self._quarantine):
            self._quarantine = await self._reader.read(read_quarantine)
            self._tell()

    def _move(self, positions: dict[int, Head]) -> None:
        """Takes over new positions, and wakes those who wait for them."""
        if positions != self._positions:
            self._advanced_at = self._now()
        self._positions = positions
        if not self._lags:
            self._writes = 0
        reached = [one for one in self._waiting if one[0] <= self._projected]
        for _, waiter in reached:
            if not waiter.done():
                waiter.set_result(None)
        self._tell()

    def _fail(self, error: StoreError) -> None:
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def _set_trouble(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._tell()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed(self.status)

    # Projecting

    async def _project(self) -> None:
        """Projects the next records into all shards that lack them."""
        lowest = min(self._positions.values(), key=lambda head: head.seq)
        records = self._at_hand.after(lowest)
        if not records:
            records = await self._reader.read(lambda c: _read_records(c, lowest))
        if not records:
            self._appended = self._projected
            return
        await self._upkeep(records[-1].seq, records[-1].at)
        began = self._now()
        ends = await asyncio.gather(
            *(self._project_lane(lane, records) for lane in self._lanes), return_exceptions=True
        )
        self._projected_at = self._now()
        if any(end is None for end in ends):
            self._at_hand = RecordsAtHand()  # perhaps the journal does not have them any more
            await self._yield_to_another()
        elif self._stands_in and True in ends:
            log.warning("projecting_for_another", after=lowest.seq, until=records[-1].seq)
        await self._read_all()
        self._writes = max(0, self._writes - sum(len(record.writes) for record in records))
        if self._lags and self._advanced_at >= began:
            self._lags_since = began
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def _project_lane(self, lane: _Lane, records: Sequence[JournalRecord]) -> bool | None:
        """Projects records into the shards of a lane; None: another process does it."""
        of_lane = {shard: self._positions[shard] for shard in lane.shards}
        positions = shards_behind(of_lane, records[-1].seq)
        if not positions:
            return True
        lowest = min(head.seq for head in positions.values())
        missing = [record for record in records if record.seq > lowest]
        window = Window(positions, missing, SHARDS)
        try:
            done = await lane.connection.write(lambda c: self._write(c, lane, window))
        except (NewerRecordError, DivergedError, StoreFullError):
            raise
        except Exception as error:
            if not is_of_the_data(error):
                raise
            return await self._set_aside(lane, window, error)
        self._to_sweep |= bool(done)
        return done is not None or None

    async def _write(self, connection: Connection, lane: _Lane, window: Window) -> bool | None:
        copies = not self._address.pgbouncer
        async with connection.transaction():
            projection = WindowProjection(connection, window, self._quarantine, copies=copies)
            return await projection.run(lane.plans)

    async def _set_aside(self, lane: _Lane, window: Window, error: Exception) -> bool | None:
        """Finds the jobs that cannot be projected and sets them aside; then all others go on.

        None: another process does it.
        """
        copies, quarantine = not self._address.pgbouncer, self._quarantine
        failed = await lane.connection.write(
            lambda c: set_failed_jobs_aside(c, window, quarantine, lane.plans, copies=copies)
        )
        if failed is None:
            return None
        for job_id, reason in failed.items():
            log.error("job_quarantined", job=job_id, reason=reason)
        if not failed:
            raise StoreError(f"a window cannot be projected, though each job can: {error}")
        return True

    async def _yield_to_another(self) -> None:
        """Lets another process that has the locks go on; ends it if it is frozen."""
        self._stands_in = False
        await asyncio.sleep(PROJECTION_YIELD_S)
        if self._now() - self._advanced_at > self._limits.projection_stalled_s:
            stalled_s = self._limits.projection_stalled_s
            await self._reader.read(lambda c: c.fetchval(_END_STALLED, stalled_s))

    # Partitions, and what deleted jobs leave behind

    async def _upkeep(self, newest: Seq, now: Instant) -> None:
        # A long query may hold locks that this needs; the projection itself does not need it yet.
        with suppress(StoreError):
            due = abs(now - self._upkeep_due) >= UPKEEP_EVERY_MS
            if due or newest >= self._made_until:
                await self._make_partitions(newest, now)
            if due:
                await self._lanes[0].connection.write(
                    lambda c: drop_old_journal(c, now, self._limits)
                )
                self._upkeep_due = now

    async def _make_partitions(self, newest: Seq, now: Instant | None) -> None:
        connection = self._lanes[0].connection
        await connection.write(lambda c: make_partitions(c, newest, now, self._limits))
        self._made_until = Seq(newest + self._limits.journal_partition_records // 2)

    async def _sweep(self) -> None:
        """Removes logs and files of deleted jobs; what fails is found again by the next sweep."""
        found = await self._reader.read(
            lambda c: c.fetch(
                "SELECT execution_id FROM rota.leftovers ORDER BY 1 LIMIT $1", SWEEP_EXECUTIONS
            )
        )
        self._to_sweep = len(found) == SWEEP_EXECUTIONS
        if found:
            ids = [row[0] for row in found]
            await self._lanes[0].connection.write(lambda c: remove_outputs(c, ids))


async def _read_state(connection: Connection) -> tuple[dict[int, Head], Seq, list[JobId]]:
    """Returns how far the tables are, the journal's newest record, and which jobs are set aside."""
    positions = await read_positions(connection)
    found = await connection.fetchrow(_STATE)
    assert found is not None, "a SELECT without FROM has one row"
    return positions, Seq(found[0] or 0), found[1]


async def _read_records(connection: Connection, after: Head) -> list[JournalRecord]:
    """Reads the next window after `after`; a record is never split."""
    chain_reader, writes, records = ChainReader(after), 0, list[JournalRecord]()
    while writes < POSTGRES_PROJECTION_WINDOW_WRITES:
        # Records hold from one write to thousands: a few at first, then as many as it takes.
        size = 8 if not records else 64
        found = await connection.fetch(
            "SELECT seq, epoch, at, hash, body FROM rota.journal WHERE seq > $1"
            " ORDER BY seq LIMIT $2",
            chain_reader.head.seq,
            size,
        )
        for row in found:
            records.append(chain_reader.read(*row))
            writes += len(records[-1].writes)
            if writes >= POSTGRES_PROJECTION_WINDOW_WRITES:
                break
        if len(found) < size:
            break
    return records
