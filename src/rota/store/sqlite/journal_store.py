"""The journal on SQLite and the one thread that writes: appends first, projection when idle.

The row of leader election and the inbox are written here too. A data directory has one server, so
these calls, the same as on PostgreSQL, have less to do.

Why: docs/decisions/0005-sqlite-through-apsw-with-one-writer-thread.md.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import apsw

from rota.core.limits import FIFO_GROUP_KEPT
from rota.core.model import ExecutionId, Instant, JobId
from rota.core.outcome import AnyWrite, Refill
from rota.store.errors import DamagedError
from rota.store.journal import decode_record, encode_record
from rota.store.limits import (
    CHECKPOINT_PAGES,
    PROJECTION_BACKLOG_WRITES,
    PROJECTION_IDLE_S,
    PROJECTION_RETRY_S,
    PROJECTION_WINDOW_WRITES,
    STORE_LIMITS,
    SWEEP_EXECUTIONS,
    StoreLimits,
)
from rota.store.projection.bulk_decode import BulkDecoder
from rota.store.projection.unfolded import Unfolded
from rota.store.projection.watermark import Watermark
from rota.store.protocol import (
    Epoch,
    FencedError,
    InboxEntry,
    InboxKind,
    JournalRecord,
    LeaderRow,
    Seq,
    Snapshot,
    SpilledJobs,
    StoreError,
    StoreFullError,
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
from rota.store.sqlite.load import read_snapshot, read_spill_queues
from rota.store.sqlite.projection import project_window, read_window, window_of
from rota.store.sqlite.query_store import ReaderThreads
from rota.store.sqlite.retention import delete_outputs_later


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


def records_after(connection: apsw.Connection, seq: Seq, limit: int) -> list[JournalRecord]:
    found = connection.execute(
        "SELECT seq, epoch, at, body FROM journal WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit)
    )
    return [JournalRecord(row[0], row[1], row[2], decode_record(row[3])) for row in found]


def name_cell(connection: apsw.Connection, name: str) -> str:
    if name:
        connection.execute("UPDATE meta SET cell = ? WHERE cell = ''", (name,))
    return str(fetch_one(connection, "SELECT cell FROM meta")[0])


def put_inbox(
    connection: apsw.Connection, body: bytes, key: str | None, job_ids: Sequence[JobId]
) -> InboxEntry:
    found = fetch(connection, "SELECT id, body FROM inbox WHERE key = ?", (key,))
    if not found:
        found = fetch(
            connection,
            "INSERT INTO inbox (body, key, job_ids) VALUES (?, ?, ?) RETURNING id, body",
            (body, key, " ".join(job_ids)),
        )
    return InboxEntry(found[0][0], InboxKind.INPUT, found[0][1])


def inbox_key(connection: apsw.Connection, key: str) -> InboxEntry | None:
    found = fetch(connection, "SELECT id, body FROM inbox WHERE key = ?", (key,))
    return InboxEntry(found[0][0], InboxKind.INPUT, found[0][1]) if found else None


def inbox_job(connection: apsw.Connection, job_id: JobId) -> InboxEntry | None:
    # Ids all have one length, so none is a part of another.
    found = fetch(connection, "SELECT id, body FROM inbox WHERE instr(job_ids, ?)", (job_id,))
    return InboxEntry(found[0][0], InboxKind.INPUT, found[0][1]) if found else None


def take_inbox(connection: apsw.Connection, limit: int) -> list[InboxEntry]:
    found = connection.execute("SELECT id, body FROM inbox ORDER BY id LIMIT ?", (limit,))
    return [InboxEntry(row[0], InboxKind.INPUT, row[1]) for row in found]


def drop_inbox(connection: apsw.Connection, entry_ids: Sequence[int]) -> None:
    gone = [(entry_id,) for entry_id in entry_ids]
    run_in_bulk(connection, "DELETE FROM inbox WHERE id IN (VALUES", gone, ")")


T = TypeVar("T")

_KEPT_KINDS: tuple[type[StoreError], ...] = (StoreFullError, DamagedError)
"""Errors of the projection that readers get as they are; others are plain store errors."""
_APPEND = """
INSERT INTO journal (seq, epoch, at, body) SELECT ?1, ?2, ?3, ?4 FROM leader WHERE epoch = ?2
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
        try:
            self._watermark = self._read_watermark()
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
        self._unfolded = Unfolded()
        self._unprojected_writes = 0
        self._projection_failed = False
        self._retrying = False
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._puts, self._emptied_at = 0, -1
        """How many entries were put for the next leader, and that number when none was left."""
        self._closed = False
        self._submit_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="rota-store-writer", daemon=True)
        self._start()

    def _start(self) -> None:
        self._thread.start()

    @property
    def projected(self) -> Seq:
        return self._watermark.projected

    def deciding(self) -> None:
        """Does nothing: the writer's thread has to append as well, and gives way to nobody."""

    async def observe(self) -> LeaderRow | None:
        return await self.run_durably(observe)

    async def claim(self, holder: str, seen: LeaderRow | None = None, address: str = "") -> Epoch:
        return await self.run_durably(lambda c: claim(c, holder, seen, address))

    async def renew(self, epoch: Epoch) -> bool:
        return await self.run_durably(lambda c: renew(c, epoch))

    async def resign(self, epoch: Epoch) -> None:
        await self.run_durably(lambda c: resign(c, epoch))

    async def records_after(self, seq: Seq, limit: int) -> list[JournalRecord]:
        return await self.run_durably(lambda c: records_after(c, seq, limit))

    async def put_inbox(
        self, body: bytes, key: str | None = None, job_ids: Sequence[JobId] = ()
    ) -> InboxEntry:
        self._puts += 1
        return await self.run_durably(lambda c: put_inbox(c, body, key, job_ids))

    async def inbox_key(self, key: str) -> InboxEntry | None:
        return await self.run_durably(lambda c: inbox_key(c, key))

    async def inbox_job(self, job_id: JobId) -> InboxEntry | None:
        return await self.run_durably(lambda c: inbox_job(c, job_id))

    async def take_inbox(self, limit: int) -> list[InboxEntry]:
        """Remembers an empty inbox: nobody but this process puts entries into it."""
        puts = self._puts
        if self._emptied_at == puts:
            return []
        found = await self.run_durably(lambda c: take_inbox(c, limit))
        if not found:
            self._emptied_at = puts
        return found

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        await self.run_durably(lambda c: drop_inbox(c, entry_ids))

    async def name_cell(self, name: str) -> str:
        return await self.run_durably(lambda c: name_cell(c, name))

    async def load(self, kept: int = FIFO_GROUP_KEPT) -> Snapshot:
        return await self._soon(lambda: self._load(kept))

    async def read_spilled(self, wanted: Sequence[Refill], seen: Seq) -> list[SpilledJobs]:
        """Reads beside the thread that writes."""
        await self._reached(seen)
        return await self._spill_readers.run(lambda c: read_spill_queues(c, wanted, self._bulk))

    async def append(
        self,
        epoch: Epoch,
        seq: Seq,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> None:
        await self._soon(lambda: self._append(epoch, seq, at, writes, consumed))

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
        while self._watermark.lags and not self._projection_failed:
            self._project_once()
        self._watermark.fail(StoreError("the store is closed"))
        self._connection.close()

    def _patience(self) -> float | None:
        """How long to wait for more work before projecting; None: there is nothing to project."""
        if not self._watermark.lags or self._projection_failed:
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
        self._unfolded.clear()
        self._watermark.set_appended(self._read_watermark().appended)
        while self._project_next():
            pass
        return read_snapshot(self._connection, kept)

    def _append(
        self,
        epoch: Epoch,
        seq: Seq,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int],
    ) -> None:
        newest = self._watermark.appended
        if seq > newest + 1:
            raise StoreError(f"the journal ends at {newest}: a record at {seq} would leave a gap")
        self.file.check()
        self._demand_durability()
        row = (seq, epoch, at, encode_record(writes))
        try:
            if consumed:
                taken = self._append_consuming(row, consumed)
            else:
                # One statement is one transaction: it happens as a whole or not at all.
                self._connection.execute(_APPEND, row)
                taken = self._connection.changes() == 1
        except apsw.ConstraintError:
            raise FencedError(f"place {seq} in the journal is taken") from None
        if not taken:
            raise FencedError(f"epoch {epoch} is over: another server leads")
        self.file.check()
        self._unfolded.add(JournalRecord(seq, epoch, at, writes))
        self._watermark.set_appended(seq)
        self._unprojected_writes += len(writes)
        self._projection_failed = False  # the disk takes bytes again: try again

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
            self._projection_failed = False
        except Exception as error:  # noqa: BLE001  (the top of the thread's loop: it must go on)
            # Nothing is lost: the journal has it. Readers get the error, and it is tried again.
            self._projection_failed = True
            is_sqlite = isinstance(error, SQLITE_ERRORS)
            cause = as_store_error(error, self._connection) if is_sqlite else error
            kind = next((one for one in _KEPT_KINDS if isinstance(cause, one)), StoreError)
            if isinstance(cause, DamagedError):
                # Nobody would see what is accepted from here on.
                self.file.damage = cause
            self._watermark.fail(kind(f"the tables cannot follow the journal: {cause}"))
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
        projected = self._watermark.projected
        at_hand = self._unfolded.after(projected, PROJECTION_WINDOW_WRITES)
        window = window_of(at_hand) if at_hand else read_window(self._connection, projected)
        if window is None:
            self._unprojected_writes = 0
            return False
        leaves_behind = project_window(self._connection, window, self._limits)
        self._unprojected_writes = max(0, self._unprojected_writes - window.writes)
        self._watermark.set_projected(window.last_seq)
        if leaves_behind and self._on_leftovers is not None:
            self._on_leftovers()
        return True

    def _checkpoint(self) -> None:
        if self._wal_pages >= CHECKPOINT_PAGES:
            self._wal_pages = 0
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        self.file.note_wal(pages, self._page_bytes)
        return apsw.SQLITE_OK

    def _read_watermark(self) -> Watermark:
        projected, newest = fetch_one(
            self._connection, "SELECT folded_seq, (SELECT max(seq) FROM journal) FROM meta"
        )
        return Watermark(Seq(projected), Seq(newest or projected))


def _do_nothing() -> None:
    pass
