"""The store on SQLite without files and threads, for tests and the simulator.

Each call is carried out at once in the task that makes it and never waits, so a run can be repeated
exactly. Everything is forgotten when the process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

import apsw

from rota.core.model import ExecutionId, Instant, JobRecord
from rota.core.outcome import AnyWrite, Refill
from rota.store.cell_name import agreed_cell_name
from rota.store.files.memory import MemoryArtifacts
from rota.store.limits import LOG_BYTES_PER_EXECUTION, STORE_LIMITS, StoreLimits
from rota.store.protocol import Epoch, LogPage, Seq, StoreFullError, UnknownFateError
from rota.store.protocols.dropping import Dropped
from rota.store.protocols.durability import ONE_DISK, Durability
from rota.store.protocols.nodes import MemoryNodes
from rota.store.sqlite.access import SqliteTokenStore
from rota.store.sqlite.connect import MEMORY, as_store_error, fetch
from rota.store.sqlite.hooks import SqliteHooks
from rota.store.sqlite.load import read_spill_queues
from rota.store.sqlite.logs import SqliteLogs, read_log
from rota.store.sqlite.notes import SqliteNotes
from rota.store.sqlite.objects import SqliteObjectIndex
from rota.store.sqlite.reader import SqliteQueryStore
from rota.store.sqlite.retention import drop_some
from rota.store.sqlite.writer import SqliteJournalStore

T = TypeVar("T")


class MemoryStore:
    """Everything that is remembered, until the process ends."""

    def __init__(
        self, *, log_bytes_max: int = LOG_BYTES_PER_EXECUTION, limits: StoreLimits = STORE_LIMITS
    ) -> None:
        self._limits = limits
        self.logs = _MemoryLogs(log_bytes_max, limits)
        self.artifacts = MemoryArtifacts()
        self.ledger = MemoryJournalStore(self._sweep, limits)
        self.catalog = SqliteQueryStore(self.ledger, self.ledger)
        self.access = SqliteTokenStore(self.ledger, limits)
        self.nodes = MemoryNodes()
        self.hooks = SqliteHooks(self.ledger)
        self.objects = SqliteObjectIndex(self.ledger, self.ledger)
        self.notes = SqliteNotes(self.ledger)

    async def durability(self) -> Durability:
        """None at all, in truth."""
        return ONE_DISK

    async def name_cell(self, name: str) -> str:
        """The cell's name; the first one given stays."""
        return agreed_cell_name(await self.ledger.name_cell(name), name)

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops all finished work that is older."""
        await self.ledger.caught_up()
        dropped, after, more = 0, "", True
        while more:
            step = drop_some(self.ledger.connection, before, after, self._limits)
            dropped, after, more = dropped + step.dropped, step.after, bool(step.after)
        self._sweep()
        return Dropped(dropped)

    async def close(self) -> None:
        """Nothing to give back: servers that are restarted find all of it."""

    def _sweep(self) -> None:
        while execution_ids := self.ledger.leftovers().result():
            self.logs.forget_from_thread(execution_ids)
            self.artifacts.forget_now(execution_ids)
            self.ledger.forget_leftovers(execution_ids).result()


class MemoryJournalStore(SqliteJournalStore):
    """The ledger and the readers' connection in one, with faults to order."""

    def __init__(
        self,
        on_leftovers: Callable[[], None] | None = None,
        limits: StoreLimits = STORE_LIMITS,
    ) -> None:
        super().__init__(MEMORY, on_leftovers, limits=limits)
        self._refuse_next = False
        self._uncertain_next: bool | None = None

    def _start(self) -> None:
        """No thread: what is submitted has been done when `submit` returns."""

    @property
    def connection(self) -> apsw.Connection:
        """The database itself."""
        return self._connection

    @property
    def inbox_size(self) -> int:
        """How many submissions wait for the next leader."""
        return int(fetch(self._connection, "SELECT count(*) FROM inbox")[0][0])

    @property
    def projected(self) -> Seq:
        """The newest record that is in the tables, which are folded when they are read."""
        return self._watermark.appended

    def refuse_next_append(self) -> None:
        """The next append fails and nothing is written, as on a full disk."""
        self._refuse_next = True

    def leave_next_append_uncertain(self, *, written: bool) -> None:
        """The next append's fate is unknown to its caller; in truth it is as `written` says."""
        self._uncertain_next = written

    def land_late(self, epoch: Epoch, at: Instant, body: bytes) -> None:
        """A record that was on its way when the leadership changed takes the next place."""
        seq = Seq(self._watermark.appended + 1)
        fetch(self._connection, "INSERT INTO journal VALUES (?, ?, ?, ?)", (seq, epoch, at, body))
        self._watermark.set_appended(seq)

    async def append(
        self,
        epoch: Epoch,
        seq: Seq,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> None:
        """Adds one record, or the fault that was ordered."""
        if self._refuse_next:
            self._refuse_next = False
            raise StoreFullError("no space left, as the test asked")
        doubt, self._uncertain_next = self._uncertain_next, None
        if doubt is not False:
            await super().append(epoch, seq, at, writes, consumed)
        if doubt is not None:
            raise UnknownFateError("fate unknown, as the test asked")

    async def read_spilled(
        self, wanted: Sequence[Refill], seen: Seq
    ) -> list[tuple[JobRecord, ...]]:
        """The next jobs of each line."""
        return await self.run(lambda c: read_spill_queues(c, wanted, self._bulk))

    async def run(self, read: Callable[[apsw.Connection], T]) -> T:
        """What `read` answers once the tables have caught up."""
        await self.caught_up()
        return await self._soon(lambda: read(self._connection))

    async def caught_up(self) -> None:
        """Folds what is left to fold."""
        while self._watermark.lags:
            self._project_next()

    async def close(self) -> None:
        """Nothing to give back."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Carries it out at once."""
        done: Future[T] = Future()
        try:
            done.set_result(work())
        except apsw.Error as error:
            done.set_exception(as_store_error(error, self._connection))
        except Exception as error:  # noqa: BLE001  (goes to the caller)
            done.set_exception(error)
        return done

    async def _soon(self, work: Callable[[], T]) -> T:
        return self.submit(work).result()


class MemoryTokenStore(SqliteTokenStore):
    """Tokens and the audit trail of a store that has nothing else."""

    def __init__(self) -> None:
        super().__init__(MemoryJournalStore(), STORE_LIMITS)


class _MemoryLogs(SqliteLogs):
    """Logs in a database of their own, as on a disk."""

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
        """Nothing to give back."""
