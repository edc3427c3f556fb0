"""Records that this process appended and that are not projected yet.

The projection takes them from here, and need not read and decode them. What is not here, because
another process wrote it or memory was dropped, is in the journal.
"""

from __future__ import annotations

import threading
from collections import deque

from rota.store.protocol import JournalRecord, Seq


class Unfolded:
    """Queue of appended records, filled by appends and read by the projection, in any thread.

    It is bounded, as appends wait when the journal is too far ahead of the tables.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: deque[JournalRecord] = deque()

    def add(self, record: JournalRecord) -> None:
        """Adds a record that is durable."""
        with self._lock:
            self._records.append(record)

    def after(self, folded: Seq, most_writes: int) -> list[JournalRecord]:
        """Returns the next records, at least one if it is here; drops those that are projected."""
        found: list[JournalRecord] = []
        writes, expected = 0, folded + 1
        with self._lock:
            while self._records and self._records[0].seq <= folded:
                self._records.popleft()
            for record in self._records:
                if record.seq != expected or writes >= most_writes:
                    break
                found.append(record)
                writes += len(record.writes)
                expected += 1
        return found

    def clear(self) -> None:
        """Drops all: the journal may have changed, and is to be read."""
        with self._lock:
            self._records.clear()
