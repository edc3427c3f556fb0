"""The journal on SQLite and the one thread that writes: appends first, projection when idle.

The row of leader election and the inbox are written here too. A data directory has one server, so
these calls, the same as on PostgreSQL, have less to do.

Why: docs/decisions/0005-sqlite-through-apsw-with-one-writer-thread.md.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from operator import attrgetter
from pathlib import Path
from typing import NoReturn, TypeVar

import apsw
import structlog

from rota.core.limits import FIFO_GROUP_KEPT
from rota.core.model import ExecutionId, Instant, JobId
from rota.core.outcome import AnyWrite, Refill
from rota.store.errors import DamagedError
from rota.store.journal import encode_record, follow_chain, next_head
from rota.store.limits import (
    CHECKPOINT_PAGES,
    INBOX_SET_ASIDE_BODY_BYTES,
    INBOX_SET_ASIDE_MS,
    PROJECTION_BACKLOG_WRITES,
    PROJECTION_IDLE_S,
    PROJECTION_RETRY_S,
    PROJECTION_WINDOW_WRITES,
    STORE_LIMITS,
    SWEEP_EXECUTIONS,
    StoreLimits,
)
from rota.store.projection.bulk_decode import BulkDecoder
from rota.store.projection.shards import Window, shards_behind
from rota.store.projection.watermark import Watermark
from rota.store.protocol import (
    FENCES_PER_LOSS,
    DivergedError,
    Epoch,
    FencedError,
    Head,
    InboxEntry,
    InboxKind,
    JournalRecord,
    LeaderRow,
    Loss,
    Losses,
    ProjectionStatus,
    QuarantinedWork,
    Seq,
    Snapshot,
    SpilledJobs,
    StoreError,
    StoreFullError,
    TablesBehindError,
)
from rota.store.rows import Row
from rota.store.sqlite.connect import (
    SQLITE_ERRORS,
    as_read_error,
    as_store_error,
    fetch,
    fetch_one,
    open_writer,
    run_in_bulk,
)
from rota.store.sqlite.database_file import DatabaseFile
from rota.store.sqlite.load import load_snapshot, read_spill_queues
from rota.store.sqlite.projection import project_window, read_positions, read_window
from rota.store.sqlite.quarantine import (
    is_of_the_data,
    read_quarantined_work,
    repair_jobs,
    set_failed_jobs_aside,
)
from rota.store.sqlite.query_store import ReaderThreads
from rota.store.sqlite.retention import delete_outputs_later
from rota.store.sqlite.set_aside import read_quarantine


def observe(connection: apsw.Connection) -> LeaderRow | None:
    row = LeaderRow(*fetch_one(connection, "SELECT holder, epoch, nonce, address FROM leader"))
    return row if row.epoch else None


def claim(connection: apsw.Connection, holder: str, seen: LeaderRow | None, address: str) -> Epoch:
    found = fetch(
        connection,
        "UPDATE leader SET epoch = epoch + 1, nonce = nonce + 1, holder = ?1, address = ?2"
        " WHERE ?3 IS NULL OR (epoch = ?3 AND nonce = ?4) RETURNING epoch",
        (holder, address, seen.epoch if seen else None, seen.nonce if seen else None),
    )
    if not found:
        raise FencedError("another server claimed first")
    return Epoch(found[0][0])


def renew(connection: apsw.Connection, epoch: Epoch) -> bool:
    connection.execute(
        "UPDATE leader SET nonce = nonce + 1 WHERE epoch = ? AND holder <> ''", (epoch,)
    )
    return connection.changes() == 1


def resign(connection: apsw.Connection, epoch: Epoch) -> None:
    connection.execute(
        "UPDATE leader SET nonce = nonce + 1, holder = '', address = '' WHERE epoch = ?", (epoch,)
    )


def records_after(connection: apsw.Connection, after: Head, limit: int) -> list[JournalRecord]:
    found = fetch(
        connection,
        "SELECT seq, epoch, at, hash, body FROM journal WHERE seq >= ? ORDER BY seq LIMIT ?",
        (after.seq, limit + 1),
    )
    return follow_chain(after, found, limit)


def heads(connection: apsw.Connection, seqs: Sequence[Seq]) -> dict[Seq, bytes]:
    places = ", ".join("?" * len(seqs))
    found = fetch(connection, f"SELECT seq, hash FROM journal WHERE seq IN ({places})", seqs)
    return {Seq(row[0]): row[1] for row in found}


def note_loss(connection: apsw.Connection, loss: Loss) -> None:
    row = (loss.after, loss.at, loss.records)
    connection.execute("INSERT OR REPLACE INTO losses VALUES (?, ?, ?)", row)


def losses(connection: apsw.Connection) -> Losses:
    found = fetch(connection, "SELECT at, records, after FROM losses ORDER BY at")
    each = tuple(Loss(row[0], row[1], Seq(row[2])) for row in found)
    return Losses(len(each) * FENCES_PER_LOSS, each)


def name_cell(connection: apsw.Connection, name: str) -> str:
    if name:
        connection.execute("UPDATE meta SET cell = ? WHERE cell = ''", (name,))
    return str(fetch_one(connection, "SELECT cell FROM meta")[0])


def put_inbox(
    connection: apsw.Connection, body: bytes, key: str | None, job_ids: Sequence[JobId]
) -> InboxEntry:
    found = fetch(connection, f"{_INBOX_ENTRY} WHERE i.key = ?", (key,))
    if not found:
        connection.execute(
            "INSERT INTO inbox (body, key, job_ids) VALUES (?, ?, ?)",
            (body, key, " ".join(job_ids)),
        )
        found = fetch(connection, f"{_INBOX_ENTRY} WHERE i.id = last_insert_rowid()")
    return _inbox_entry(found[0])


def inbox_key(connection: apsw.Connection, key: str) -> InboxEntry | None:
    found = fetch(connection, f"{_INBOX_ENTRY} WHERE i.key = ?", (key,))
    return _inbox_entry(found[0]) if found else None


def inbox_job(connection: apsw.Connection, job_id: JobId) -> InboxEntry | None:
    # Ids all have one length, so none is a part of another.
    found = fetch(connection, f"{_INBOX_ENTRY} WHERE instr(i.job_ids, ?)", (job_id,))
    return _inbox_entry(found[0]) if found else None


def take_inbox(
    connection: apsw.Connection, limit: int, epoch: Epoch, bytes_max: int
) -> list[InboxEntry]:
    found = connection.execute(_TAKE_INBOX, (limit, epoch, bytes_max))
    return [_inbox_entry(row) for row in found]


def set_aside_inbox(
    connection: apsw.Connection,
    reasons: Mapping[int, str],
    at: Instant,
    epoch: Epoch | None,
    most: int,
) -> None:
    with connection:
        for entry_id, reason in reasons.items():
            connection.execute(_SET_ASIDE_INBOX, (entry_id, reason, at, epoch))
        connection.execute(_FORGET_SET_ASIDE, (at - INBOX_SET_ASIDE_MS, most))


def count_inbox_failures(connection: apsw.Connection, entry_ids: Sequence[int]) -> None:
    failed = [(entry_id,) for entry_id in entry_ids]
    count = "UPDATE inbox SET failures = failures + 1 WHERE id IN (VALUES"
    run_in_bulk(connection, count, failed, ")")


def _inbox_entry(row: Row) -> InboxEntry:
    number, body, job_ids, failures, reason, epoch = row[:6]
    return InboxEntry(
        id=number,
        kind=InboxKind.INPUT,
        body=body,
        job_ids=tuple(JobId(one) for one in job_ids.split()),
        failures=failures,
        reason=reason or "",
        is_refused=reason is not None and epoch is None,
    )


_INBOX_ENTRY = """
SELECT i.id, i.body, i.job_ids, i.failures, a.reason, a.epoch
FROM inbox i LEFT JOIN inbox_set_aside a ON a.id = i.id
"""
_TAKE_INBOX = f"""
SELECT * FROM (
    SELECT *, sum(length(body)) OVER (ORDER BY id) - length(body) AS size_before FROM (
        {_INBOX_ENTRY} WHERE a.epoch IS NOT ?2 ORDER BY i.id LIMIT ?1
    )
) WHERE size_before < ?3 ORDER BY id
"""
_SET_ASIDE_INBOX = f"""
INSERT INTO inbox_set_aside (id, body, key, job_ids, reason, at, epoch)
SELECT id, CASE WHEN length(body) <= {INBOX_SET_ASIDE_BODY_BYTES} THEN body END, key, job_ids,
    ?2, ?3, ?4
FROM inbox WHERE id = ?1
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason, at = excluded.at, epoch = excluded.epoch
"""
_FORGET_SET_ASIDE = """
DELETE FROM inbox_set_aside
WHERE (at < ?1 OR id <= (SELECT id FROM inbox_set_aside ORDER BY id DESC LIMIT 1 OFFSET ?2))
    AND id NOT IN (SELECT id FROM inbox)
"""


def drop_inbox(connection: apsw.Connection, entry_ids: Sequence[int]) -> None:
    gone = [(entry_id,) for entry_id in entry_ids]
    run_in_bulk(connection, "DELETE FROM inbox WHERE id IN (VALUES", gone, ")")


T = TypeVar("T")
log = structlog.get_logger("rota.store")
_by_seq = attrgetter("seq")

_KEPT_KINDS: tuple[type[StoreError], ...] = (StoreFullError, DamagedError)
"""Errors of the projection that readers get as they are; others are plain store errors."""
_APPEND = """
INSERT INTO journal (seq, epoch, at, body, hash)
SELECT ?1, ?2, ?3, ?4, ?5 FROM leader
WHERE epoch = ?2 AND (?1 = 1 OR EXISTS (SELECT 1 FROM journal WHERE seq = ?1 - 1 AND hash = ?6))
"""


class SqliteJournalStore:
    """Journal on SQLite, with the thread that writes and projects; readers wait here for it."""

    def __init__(
        self,
        path: Path,
        on_leftovers: Callable[[], None] | None = None,
        vfs: str | None = None,
        limits: StoreLimits = STORE_LIMITS,
    ) -> None:
        self._limits = limits
        self.file = DatabaseFile(path)
        self._connection = open_writer(path, "sqlite", vfs)
        # A checkpoint waits for the disk: it must not happen in the middle of an append.
        self._connection.wal_autocheckpoint(0)
        self._connection.set_wal_hook(self._note_wal)
        self._wal_pages = 0
        self._positions: dict[int, Head] = {}
        try:
            self._watermark = self._read_watermark()
            self._quarantine = read_quarantine(self._connection)
            self._page_bytes = int(self._connection.pragma("page_size"))
            self.file.opened()
        except SQLITE_ERRORS as error:
            self._connection.close()
            raise as_read_error(error, f"cannot use {path}") from error
        except StoreError:
            self._connection.close()
            raise
        self._spill_readers = ReaderThreads(self.file, 1)
        self._bulk = BulkDecoder()
        self._on_leftovers = on_leftovers
        self._unprojected: deque[JournalRecord] = deque()
        """Records that this process appended: they need not be read and decoded again."""
        self._unprojected_writes = 0
        self._trouble = ""
        self._retrying = False
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._puts = 0
        """How many entries were put for the next leader."""
        self._emptied_at: tuple[int, Epoch] | None = None
        """That number, and the epoch, when there was nothing left to take."""
        self._closed = False
        self._submit_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="rota-store-writer", daemon=True)
        self._start()

    def _start(self) -> None:
        self._thread.start()

    @property
    def projection(self) -> ProjectionStatus:
        return ProjectionStatus(self._watermark.projected, len(self._quarantine), self._trouble)

    async def observe(self) -> LeaderRow | None:
        return await self.run_durably(observe)

    async def claim(self, holder: str, seen: LeaderRow | None = None, address: str = "") -> Epoch:
        return await self.run_durably(lambda c: claim(c, holder, seen, address))

    async def renew(self, epoch: Epoch) -> bool:
        return await self.run_durably(lambda c: renew(c, epoch))

    async def resign(self, epoch: Epoch) -> None:
        await self.run_durably(lambda c: resign(c, epoch))

    async def records_after(self, after: Head, limit: int) -> list[JournalRecord]:
        return await self.run_durably(lambda c: records_after(c, after, limit))

    async def heads(self, seqs: Sequence[Seq]) -> dict[Seq, bytes]:
        return await self.run_durably(lambda c: heads(c, seqs))

    async def note_loss(self, loss: Loss) -> None:
        await self.run_durably(lambda c: note_loss(c, loss))

    async def losses(self) -> Losses:
        return await self.run_durably(losses)

    async def quarantine(self) -> list[QuarantinedWork]:
        return await self.run_durably(read_quarantined_work)

    async def repair(self, job_ids: Sequence[JobId] = ()) -> dict[JobId, str]:
        return await self.run_durably(lambda c: self._repair(c, job_ids))

    def _repair(self, connection: apsw.Connection, job_ids: Sequence[JobId]) -> dict[JobId, str]:
        try:
            return repair_jobs(connection, job_ids)
        finally:
            self._quarantine = read_quarantine(connection)

    async def put_inbox(
        self, body: bytes, key: str | None = None, job_ids: Sequence[JobId] = ()
    ) -> InboxEntry:
        self._puts += 1
        return await self.run_durably(lambda c: put_inbox(c, body, key, job_ids))

    async def inbox_key(self, key: str) -> InboxEntry | None:
        return await self.run_durably(lambda c: inbox_key(c, key))

    async def inbox_job(self, job_id: JobId) -> InboxEntry | None:
        return await self.run_durably(lambda c: inbox_job(c, job_id))

    async def take_inbox(self, limit: int, epoch: Epoch | None = None) -> list[InboxEntry]:
        """Remembers an empty inbox: nobody but this process puts entries into it."""
        now = (self._puts, epoch or Epoch(0))
        if self._emptied_at == now:
            return []
        at_once = self._limits.inbox_take_bytes
        found = await self.run_durably(lambda c: take_inbox(c, limit, now[1], at_once))
        if not found:
            self._emptied_at = now
        return found

    async def set_aside_inbox(
        self, reasons: Mapping[int, str], at: Instant, epoch: Epoch | None = None
    ) -> None:
        most = self._limits.inbox_set_aside_max
        await self.run_durably(lambda c: set_aside_inbox(c, reasons, at, epoch, most))

    async def count_inbox_failures(self, entry_ids: Sequence[int]) -> None:
        await self.run_durably(lambda c: count_inbox_failures(c, entry_ids))

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        await self.run_durably(lambda c: drop_inbox(c, entry_ids))

    async def name_cell(self, name: str) -> str:
        return await self.run_durably(lambda c: name_cell(c, name))

    async def load(self, kept: int = FIFO_GROUP_KEPT) -> Snapshot:
        return await self._soon(lambda: self._load(kept))

    async def read_spilled(self, wanted: Sequence[Refill]) -> SpilledJobs:
        """Reads beside the thread that writes."""
        return await self._spill_readers.run(lambda c: read_spill_queues(c, wanted, self._bulk))

    async def append(
        self,
        epoch: Epoch,
        after: Head,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> Head:
        return await self._soon(lambda: self._append(epoch, after, at, writes, consumed))

    async def caught_up(self) -> None:
        """Returns when all that is durable now is in the tables."""
        await self._reached(self._watermark.appended)

    async def _reached(self, seq: Seq) -> None:
        waiter = self._watermark.reached(seq)
        if waiter is not None:
            self.submit(_do_nothing)  # wakes the thread, which then sees that a reader waits
            await asyncio.wrap_future(waiter)

    async def close(self) -> None:
        """Finishes what was asked before, projects the rest and closes the file."""
        with self._submit_lock:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        await self._spill_readers.close()
        await asyncio.to_thread(self._thread.join)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Runs `work` in the writer's thread, in the order of the calls."""
        done: Future[T] = Future()

        def run() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(work())
            except SQLITE_ERRORS as error:
                done.set_exception(as_store_error(error, self._connection))
            except Exception as error:  # noqa: BLE001  (the top of the thread's loop: goes to the caller)
                done.set_exception(error)

        with self._submit_lock:
            if self._closed:
                done.set_exception(StoreError("the store is closed"))
            else:
                self._inbox.put(run)
        return done

    def leftovers(self) -> Future[list[ExecutionId]]:
        """Returns some executions of deleted jobs whose logs and files may still be there."""
        return self.submit(
            lambda: [
                row[0]
                for row in fetch(
                    self._connection, "SELECT * FROM leftovers LIMIT ?", (SWEEP_EXECUTIONS,)
                )
            ]
        )

    def forget_leftovers(self, execution_ids: Sequence[ExecutionId]) -> Future[None]:
        """Forgets executions whose logs and files are deleted."""
        return self.submit(lambda: self._forget_leftovers(execution_ids))

    def _forget_leftovers(self, execution_ids: Sequence[ExecutionId]) -> None:
        gone = [(execution_id,) for execution_id in execution_ids]
        delete = "DELETE FROM leftovers WHERE execution_id IN (VALUES"
        # Both or neither: what an execution has in object storage must be known until it is
        # deleted.
        with self._connection:
            delete_outputs_later(self._connection, execution_ids)
            run_in_bulk(self._connection, delete, gone, ")")

    def _run(self) -> None:
        while True:
            try:
                work = self._inbox.get(timeout=self._patience())
            except queue.Empty:
                self._project_once()
                continue
            if work is None:
                break
            work()
        while self._watermark.lags and not self._trouble:
            self._project_once()
        self._watermark.fail(StoreError("the store is closed"))
        self._connection.close()

    def _patience(self) -> float | None:
        """How long to wait for more work before projecting; None: there is nothing to project."""
        if not self._watermark.lags or self._trouble:
            return None
        if self._unprojected_writes >= PROJECTION_BACKLOG_WRITES:
            self._project_once()
        if self._watermark.awaited or self._unprojected_writes >= PROJECTION_WINDOW_WRITES:
            return 0
        return PROJECTION_IDLE_S

    async def run_durably(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs `work` in the writer's thread; returns once what it wrote is on the disk."""

        def durably() -> T:
            self.file.check()
            self._demand_durability()
            done = work(self._connection)
            self.file.check()
            return done

        return await self._soon(durably)

    async def _soon(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.submit(work))

    def _load(self, kept: int) -> Snapshot:
        self.file.check()
        # After an append of unknown outcome only the file knows where the journal ends.
        self._unprojected.clear()
        self._watermark.set_appended(self._read_watermark().appended)
        self._quarantine = read_quarantine(self._connection)
        return load_snapshot(self._connection, kept)

    def _append(
        self,
        epoch: Epoch,
        after: Head,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int],
    ) -> Head:
        self.file.check()
        body = encode_record(writes)
        head = next_head(after, epoch, at, body)
        self._demand_durability()
        row = (head.seq, epoch, at, body, head.hash, after.hash)
        try:
            if consumed:
                taken = self._append_consuming(row, consumed)
            else:
                # One statement is one transaction: it happens as a whole or not at all.
                self._connection.execute(_APPEND, row)
                taken = self._connection.changes() == 1
        except apsw.ConstraintError:
            raise FencedError(f"place {head.seq} in the journal is taken") from None
        if not taken:
            self._refuse(epoch, head.seq)
        self.file.check()
        self._note_appended(JournalRecord(head.seq, epoch, at, writes, head.hash))
        return head

    def _note_appended(self, record: JournalRecord) -> None:
        self._unprojected.append(record)
        self._watermark.set_appended(record.seq)
        self._unprojected_writes += len(record.writes)
        self._trouble = ""  # the disk takes bytes again: try again

    def _refuse(self, epoch: Epoch, seq: Seq) -> NoReturn:
        current, newest = fetch_one(
            self._connection, "SELECT epoch, (SELECT max(seq) FROM journal) FROM leader"
        )
        if current == epoch:
            raise DivergedError(
                f"the journal ends at {newest or 0} or has another record {seq - 1} than this"
                f" server knows: a record at {seq} would leave a gap"
            )
        raise FencedError(f"epoch {epoch} is over: another server leads")

    def _append_consuming(self, row: Row, consumed: Sequence[int]) -> bool:
        # `with` is a savepoint: both happen, or neither.
        with self._connection:
            self._connection.execute(_APPEND, row)
            taken = self._connection.changes() == 1
            if taken:
                drop_inbox(self._connection, consumed)
        return taken

    def _demand_durability(self) -> None:
        """Makes commits wait for the disk from here on; those of the projection do not."""
        self._connection.pragma("synchronous", "full")

    def _project_once(self) -> None:
        try:
            self._project_next()
            self._checkpoint()
            self._trouble = ""
        except Exception as error:  # noqa: BLE001  (the top of the thread's loop: it must go on)
            # Nothing is lost: the journal has it. Readers get the error, and it is tried again.
            is_sqlite = isinstance(error, SQLITE_ERRORS)
            cause = as_store_error(error, self._connection) if is_sqlite else error
            kind = next((one for one in _KEPT_KINDS if isinstance(cause, one)), TablesBehindError)
            if isinstance(cause, DamagedError):
                # Nobody would see what is accepted from here on.
                self.file.damage = cause
            self._trouble = str(cause) or type(cause).__name__
            self._watermark.fail(kind(f"the tables cannot follow the journal: {self._trouble}"))
            self._try_again_later()

    def _try_again_later(self) -> None:
        """Retries by a timer: the thread may have other work all the time meanwhile."""
        if not self._retrying:
            self._retrying = True
            timer = threading.Timer(PROJECTION_RETRY_S, self.submit, (self._try_again,))
            timer.daemon = True
            timer.start()

    def _try_again(self) -> None:
        self._retrying = False
        if self._watermark.lags:
            self._project_once()

    def _project_next(self) -> bool:
        """Projects the next window into all shards; returns whether there was any."""
        return self._project(self._positions)

    def _project(self, positions: Mapping[int, Head], records_max: int | None = None) -> bool:
        lowest = min(positions.values(), key=_by_seq)
        records = self._records_at_hand(lowest) or read_window(self._connection, lowest)
        records = records[:records_max]
        if not records:
            self._unprojected_writes = 0
            return False
        positions = shards_behind(positions, records[-1].seq)
        window = Window(positions, records, len(self._positions))
        leaves_behind = self._project_or_set_aside(window)
        self._unprojected_writes = max(0, self._unprojected_writes - window.size)
        self._positions |= dict.fromkeys(positions, window.end)
        self._watermark.set_projected(min(head.seq for head in self._positions.values()))
        if leaves_behind and self._on_leftovers is not None:
            self._on_leftovers()
        return True

    def _project_or_set_aside(self, window: Window) -> bool:
        connection, limits = self._connection, self._limits
        # Read each time: a job may have been repaired meanwhile.
        self._quarantine = read_quarantine(connection)
        try:
            return project_window(connection, window, self._quarantine, limits)
        except Exception as error:
            if not is_of_the_data(error):
                raise
            failed = set_failed_jobs_aside(connection, window, self._quarantine)
            if not failed:
                raise
            for job_id, reason in failed.items():
                log.error("job_quarantined", job=job_id, reason=reason)
            self._quarantine = read_quarantine(connection)
        return project_window(connection, window, self._quarantine, limits)

    def _records_at_hand(self, after: Head) -> list[JournalRecord]:
        """Returns the next window of records that this process appended."""
        slowest = min(head.seq for head in self._positions.values())
        while self._unprojected and self._unprojected[0].seq <= slowest:
            self._unprojected.popleft()
        found: list[JournalRecord] = []
        writes, expected = 0, after.seq + 1
        for record in self._unprojected:
            if record.seq < expected:
                continue
            if record.seq != expected or writes >= PROJECTION_WINDOW_WRITES:
                break
            found.append(record)
            writes += len(record.writes)
            expected += 1
        return found

    def _checkpoint(self) -> None:
        if self._wal_pages >= CHECKPOINT_PAGES:
            self._wal_pages = 0
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        self.file.note_wal(pages, self._page_bytes)
        return apsw.SQLITE_OK

    def _read_watermark(self) -> Watermark:
        self._positions = read_positions(self._connection)
        projected = min(head.seq for head in self._positions.values())
        newest = fetch_one(self._connection, "SELECT max(seq) FROM journal")[0]
        return Watermark(projected, Seq(newest or projected))


def _do_nothing() -> None:
    pass
