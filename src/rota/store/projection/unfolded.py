"""Records that were appended by this process and are not in the tables yet.

Whoever has just written a record still has what is in it: the fold takes it from here, and need not
read it back and decode it. What is not here, because another process wrote it or memory was thrown
away, is in the journal.
"""

from __future__ import annotations

import threading
from collections import deque

from rota.store.protocol import JournalRecord, Seq


class Unfolded:
    """Added to by whoever appends, taken from by whoever folds, in any thread.

    It holds no more than the journal may be ahead of the tables: appends wait for the fold then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: deque[JournalRecord] = deque()

    def add(self, record: JournalRecord) -> None:
        """It is durable."""
        with self._lock:
            self._records.append(record)

    def after(self, folded: Seq, most_writes: int) -> list[JournalRecord]:
        """The next stretch, of at least one record if it is here; what is folded is forgotten."""
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
        """The journal may say something else by now: it is to be read."""
        with self._lock:
            self._records.clear()
