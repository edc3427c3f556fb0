"""Store in memory, for tests and deterministic simulation: SQLite without files and threads.

Each call runs at once in the task that makes it and never waits, so that a simulation can be
repeated exactly. Everything is lost when the process ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeAlias, TypeVar

import apsw

from rota.core.model import ExecutionId, Instant
from rota.core.outcome import AnyWrite, Refill
from rota.store.documents import MemoryNodes
from rota.store.files.artifacts import check_artifact_name
from rota.store.files.blobs import STORAGE_ID_KEY, BlobMissingError, DownloadLink, check_key
from rota.store.files.uploads import SpooledFile
from rota.store.journal import next_head
from rota.store.limits import LOG_BYTES_PER_EXECUTION, OBJECT_BYTES_MAX, STORE_LIMITS, StoreLimits
from rota.store.protocol import (
    GENESIS,
    ONE_DISK,
    Artifact,
    ArtifactTooLargeError,
    Dropped,
    Durability,
    Epoch,
    Head,
    JournalRecord,
    LogPage,
    Seq,
    SpilledJobs,
    StoreFullError,
    UnknownFateError,
    agreed_cell_name,
)
from rota.store.sqlite.connect import SQLITE_ERRORS, as_store_error, fetch
from rota.store.sqlite.database_file import MEMORY
from rota.store.sqlite.documents import SqliteHooks, SqliteNotes
from rota.store.sqlite.journal_store import SqliteJournalStore
from rota.store.sqlite.load import read_spill_queues
from rota.store.sqlite.logs_and_files import SqliteLogs, SqliteObjectIndex, read_log
from rota.store.sqlite.projection import read_positions
from rota.store.sqlite.query_store import SqliteQueryStore
from rota.store.sqlite.retention import drop_some
from rota.store.sqlite.set_aside import read_quarantine
from rota.store.sqlite.tokens import SqliteTokenStore


class MemoryArtifacts:
    """Artifacts kept as byte strings."""

    def __init__(self) -> None:
        self._files: dict[ExecutionId, dict[str, bytes]] = {}

    async def write(
        self, execution_id: ExecutionId, name: str, stream: AsyncIterator[bytes], bytes_max: int
    ) -> Artifact:
        check_artifact_name(name)
        content = bytearray()
        async for piece in stream:
            content += piece
            if len(content) > bytes_max:
                raise ArtifactTooLargeError(f"artifact {name} has more than {bytes_max} bytes")
        self._files.setdefault(execution_id, {})[name] = bytes(content)
        return Artifact(name, len(content))

    async def list(self, execution_id: ExecutionId) -> Sequence[Artifact]:
        files = self._files.get(execution_id, {})
        return [Artifact(name, len(files[name])) for name in sorted(files)]

    async def list_each(self, execution_ids: Sequence[ExecutionId]) -> Sequence[Sequence[Artifact]]:
        return [await self.list(one) for one in execution_ids]

    async def read(self, execution_id: ExecutionId, name: str) -> AsyncIterator[bytes] | None:
        check_artifact_name(name)
        content = self._files.get(execution_id, {}).get(name)
        return None if content is None else _in_one_piece(content)

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        self.forget_now(execution_ids)

    def forget_now(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes all files of these, without waiting."""
        for execution_id in execution_ids:
            self._files.pop(execution_id, None)


class MemoryBlobs:
    """Object storage kept as byte strings."""

    bytes_max = OBJECT_BYTES_MAX

    where = "this server's memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def put(self, key: str, draft: SpooledFile) -> None:
        check_key(key)
        self.objects[key] = draft.path.read_bytes()

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        if key not in self.objects:
            raise BlobMissingError(f"there is no object {key}")
        return _in_one_piece(self.objects[key][start:end])

    async def drop(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """Returns None: memory has no addresses."""
        return None

    async def mark(self, wanted: str) -> str:
        return self.objects.setdefault(STORAGE_ID_KEY, wanted.encode()).decode()

    async def close(self) -> None:
        """Does nothing."""


async def _in_one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content


T = TypeVar("T")
Reached: TypeAlias = Callable[[Seq], Awaitable[None]]
"""Waits until the tables have a record; raises TablesBehindError if that takes too long."""


class MemoryStore:
    """Store of a cell, until the process ends."""

    def __init__(
        self,
        *,
        log_bytes_max: int = LOG_BYTES_PER_EXECUTION,
        limits: StoreLimits = STORE_LIMITS,
        shards: int = 1,
        reached: Reached | None = None,
    ) -> None:
        """Sets it up; with `reached`, readers wait by it for somebody who calls `project_some`."""
        self._limits = limits
        self.logs = _MemoryLogs(log_bytes_max, limits)
        self.artifacts = MemoryArtifacts()
        self.journal = MemoryJournalStore(self._sweep, limits, shards, reached)
        self.queries = SqliteQueryStore(self.journal, self.journal)
        self.tokens = SqliteTokenStore(self.journal, limits)
        self.nodes = MemoryNodes()
        self.hooks = SqliteHooks(self.journal)
        self.objects = SqliteObjectIndex(self.journal, self.journal)
        self.notes = SqliteNotes(self.journal)

    async def durability(self) -> Durability:
        """Says what SQLite on a disk would, though nothing survives the process."""
        return ONE_DISK

    async def name_cell(self, name: str) -> str:
        return agreed_cell_name(await self.journal.name_cell(name), name)

    async def drop_before(self, before: Instant) -> Dropped:
        await self.journal.caught_up()
        dropped, after, more = 0, "", True
        while more:
            step = drop_some(self.journal.connection, before, after, self._limits)
            dropped, after, more = dropped + step.dropped, step.after, bool(step.after)
        self._sweep()
        return Dropped(dropped)

    async def close(self) -> None:
        """Does nothing: servers that are restarted find all of it."""

    def _sweep(self) -> None:
        while execution_ids := self.journal.leftovers().result():
            self.logs.forget_from_thread(execution_ids)
            self.artifacts.forget_now(execution_ids)
            self.journal.forget_leftovers(execution_ids).result()


class MemoryJournalStore(SqliteJournalStore):
    """Journal in memory, whose connection is the readers' too; a test can ask for faults."""

    def __init__(
        self,
        on_leftovers: Callable[[], None] | None = None,
        limits: StoreLimits = STORE_LIMITS,
        shards: int = 1,
        reached: Reached | None = None,
    ) -> None:
        super().__init__(MEMORY, on_leftovers, limits=limits)
        more = [(shard,) for shard in range(1, shards)]
        self._connection.executemany("INSERT INTO projection_shards (shard) VALUES (?)", more)
        self._positions = read_positions(self._connection)
        self._wait_until_reached = reached
        self._refuse_next = False
        self._uncertain_next: bool | None = None

    def _start(self) -> None:
        """Starts no thread: what is submitted has run when `submit` returns."""

    @property
    def connection(self) -> apsw.Connection:
        """The one connection to the database."""
        return self._connection

    @property
    def inbox_size(self) -> int:
        """How many submissions wait for the next leader."""
        return int(fetch(self._connection, "SELECT count(*) FROM inbox")[0][0])

    def refuse_next_append(self) -> None:
        """Makes the next append fail, as on a full disk."""
        self._refuse_next = True

    def leave_next_append_uncertain(self, *, written: bool) -> None:
        """Makes the next append's outcome unknown to its caller; it is as `written` says."""
        self._uncertain_next = written

    def land_late(self, epoch: Epoch, at: Instant, body: bytes) -> Head:
        """Appends a record that was on its way when the leadership changed."""
        head = next_head(self.head(), epoch, at, body)
        row = (head.seq, epoch, at, body, head.hash)
        fetch(self._connection, "INSERT INTO journal VALUES (?, ?, ?, ?, ?)", row)
        self._watermark.set_appended(head.seq)
        return head

    def start_over(self) -> None:
        """Reads anew how far journal and tables are: a test has changed the database."""
        self._unprojected.clear()
        self._watermark = self._read_watermark()
        self._quarantine = read_quarantine(self._connection)

    def head(self) -> Head:
        """Returns where the journal ends."""
        sql = "SELECT seq, hash FROM journal ORDER BY seq DESC LIMIT 1"
        found = fetch(self._connection, sql)
        return Head(Seq(found[0][0]), found[0][1]) if found else GENESIS

    async def append(
        self,
        epoch: Epoch,
        after: Head,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> Head:
        """Adds one record, or fails as the test asked."""
        if self._refuse_next:
            self._refuse_next = False
            raise StoreFullError("no space left, as the test asked")
        uncertain, self._uncertain_next = self._uncertain_next, None
        head = after
        if uncertain is not False:
            head = await super().append(epoch, after, at, writes, consumed)
        if uncertain is not None:
            raise UnknownFateError("outcome unknown, as the test asked")
        return head

    def _note_appended(self, record: JournalRecord) -> None:
        super()._note_appended(record)
        if self._wait_until_reached is not None:
            self._unprojected.clear()  # who projects reads it from the journal

    async def read_spilled(self, wanted: Sequence[Refill]) -> SpilledJobs:
        return await self._soon(lambda: read_spill_queues(self._connection, wanted, self._bulk))

    async def run(self, read: Callable[[apsw.Connection], T]) -> T:
        """Returns what `read` answers; the tables have caught up, unless others project them."""
        if self._wait_until_reached is None:
            await self.caught_up()
        return await self._soon(lambda: read(self._connection))

    async def caught_up(self) -> None:
        """Projects what is left to project, or waits for those who do."""
        if self._wait_until_reached is not None:
            await self._wait_until_reached(self._watermark.appended)
            return
        while self._watermark.lags:
            self._project_next()

    def project_some(self, believed: Mapping[int, Head], records_max: int) -> bool:
        """Projects at most so many records into some shards, which are believed to be there.

        False: they are elsewhere, because another process has projected them.
        """
        self._positions = read_positions(self._connection)
        if any(self._positions[shard] != head for shard, head in believed.items()):
            return False
        self._quarantine = read_quarantine(self._connection)
        try:
            return self._project(believed, records_max)
        except SQLITE_ERRORS as error:
            raise as_store_error(error, self._connection) from error

    def dump(self) -> bytes:
        """Returns the whole database as it is now."""
        return self._connection.serialize("main")

    def restore(self, dumped: bytes) -> None:
        """Replaces the whole database by what it was once, as a failover of a database may."""
        self._connection.deserialize("main", dumped)
        self._emptied_at = None
        self.start_over()

    async def close(self) -> None:
        """Does nothing."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Runs `work` at once."""
        done: Future[T] = Future()
        try:
            done.set_result(work())
        except SQLITE_ERRORS as error:
            done.set_exception(as_store_error(error, self._connection))
        except Exception as error:  # noqa: BLE001  (goes to the caller)
            done.set_exception(error)
        return done

    async def _soon(self, work: Callable[[], T]) -> T:
        return self.submit(work).result()


class MemoryTokenStore(SqliteTokenStore):
    """Tokens and the audit log of a store that has nothing else."""

    def __init__(self) -> None:
        super().__init__(MemoryJournalStore(), STORE_LIMITS)


class _MemoryLogs(SqliteLogs):
    """Logs in memory, in a database of their own."""

    def __init__(self, bytes_max: int, limits: StoreLimits) -> None:
        super().__init__(MEMORY, bytes_max, limits)

    async def append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        return self._append(execution_id, offset, data)

    async def read(self, execution_id: ExecutionId, offset: int, limit: int) -> LogPage:
        return read_log(self._connection, execution_id, offset, limit)

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        self._forget(execution_ids)

    def forget_from_thread(self, execution_ids: Sequence[ExecutionId]) -> None:
        self._forget(execution_ids)

    async def close(self) -> None:
        """Does nothing."""
