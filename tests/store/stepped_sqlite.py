"""SQLite, in memory or in a file, whose projection is made step by step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rota.core.model import Instant
from rota.store.limits import STORE_LIMITS
from rota.store.projection.quarantine import Quarantine
from rota.store.protocol import Head, JournalRecord, Seq
from rota.store.sqlite.connect import MEMORY
from rota.store.sqlite.journal_store import SqliteJournalStore
from rota.store.sqlite.memory import MemoryJournalStore
from rota.store.sqlite.projection import read_positions, read_window
from rota.store.sqlite.query_store import SqliteQueryStore
from rota.store.sqlite.retention import drop_some
from rota.store.sqlite.set_aside import read_quarantine
from tests.store.poison import SqlitePoison
from tests.store.projection_model import CrashError

_NO_END = Seq(1 << 62)


class SteppedJournal(MemoryJournalStore):
    """Journal in memory or in a file; each call runs at once, and projects nothing by itself."""

    def __init__(self, path: Path, shards: int) -> None:
        SqliteJournalStore.__init__(self, path)
        self._refuse_next, self._uncertain_next = False, None
        self._wait_until_reached = None
        self._upto = _NO_END
        for shard in range(shards):
            self.connection.execute(
                "INSERT OR IGNORE INTO projection_shards (shard) VALUES (?)", (shard,)
            )
        self._positions = read_positions(self.connection)

    @property
    def positions(self) -> dict[int, Head]:
        return dict(self._positions)

    def project_once(self, shards: Sequence[int], upto: Seq = _NO_END) -> bool:
        """Projects the next window into these shards; returns whether there was any."""
        positions = {shard: self._positions[shard] for shard in shards}
        if min(head.seq for head in positions.values()) >= upto:
            return False
        self._upto = upto
        try:
            return self._project(positions)
        finally:
            self._upto = _NO_END

    def _records_at_hand(self, after: Head) -> list[JournalRecord]:
        """Returns the records of the next window, as far as the model wants them projected."""
        found = super()._records_at_hand(after) or read_window(self.connection, after)
        return [record for record in found if record.seq <= self._upto]


class SteppedSqlite:
    """Store on SQLite; without a file, a crash only drops what the process knew."""

    def __init__(self, path: Path = MEMORY, shards: int = 1) -> None:
        self._path, self._shards = path, shards
        self.journal = SteppedJournal(path, shards)
        self.queries = SqliteQueryStore(self.journal, self.journal)
        self.poison = SqlitePoison(self.journal)

    async def open(self) -> SteppedSqlite:
        await self.poison.start()
        return self

    async def quarantine(self) -> Quarantine:
        return read_quarantine(self.journal.connection)

    async def positions(self) -> list[Seq]:
        return [head.seq for head in self.journal.positions.values()]

    async def project_all(self) -> None:
        await self.journal.caught_up()

    async def project_some(self, shards: Sequence[int], upto: Seq) -> None:
        while self.journal.project_once(shards, upto):
            pass

    async def project_twice(self, rng: random.Random) -> None:
        """One thread writes: one projector is all there can be."""
        await self.journal.caught_up()

    async def crash_projecting(self, shards: Sequence[int], statements: int) -> None:
        left = statements

        def crash(_cursor: object, sql: str, _bindings: Any) -> bool:
            nonlocal left
            left -= 1
            if left < 0 and sql != "ROLLBACK":
                raise CrashError
            return True

        self.journal.connection.exec_trace = crash
        try:
            with suppress(CrashError):
                while self.journal.project_once(shards):
                    pass
        finally:
            self.journal.connection.exec_trace = None

    async def crash(self, rng: random.Random) -> None:
        if self._path == MEMORY:
            self.journal._unprojected.clear()
            return
        self.journal.connection.close()
        self.journal = SteppedJournal(self._path, self._shards)
        self.queries = SqliteQueryStore(self.journal, self.journal)
        self.poison = SqlitePoison(self.journal)

    async def drop_before(self, before: Instant) -> None:
        connection, after = self.journal.connection, ""
        while after := drop_some(connection, before, after, STORE_LIMITS).after:
            pass

    def close(self) -> None:
        self.journal.connection.close()
