"""Submissions that wait for a leader, in the forgetful store."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.model import JobId
from rota.store.protocols.inbox import InboxEntry, InboxKind


class MemoryInbox:
    """A part of the ledger: entries by arrival, found by key and by job."""

    def __init__(self) -> None:
        self._inbox: dict[int, InboxEntry] = {}
        self._keys: dict[int, str | None] = {}
        self._jobs: dict[int, Sequence[JobId]] = {}
        self._inbox_next = 1

    async def put_inbox(
        self, body: bytes, key: str | None = None, job_ids: Sequence[JobId] = ()
    ) -> InboxEntry:
        """Keeps a submission for the next leader; the first with a key stays."""
        if key is not None and (first := await self.inbox_key(key)):
            return first
        entry = InboxEntry(self._inbox_next, InboxKind.INPUT, body)
        self._inbox[entry.id] = entry
        self._keys[entry.id], self._jobs[entry.id] = key, job_ids
        self._inbox_next += 1
        return entry

    async def take_inbox(self, limit: int) -> list[InboxEntry]:
        """The oldest entries."""
        return list(self._inbox.values())[:limit]

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        """Removes entries that no append will consume."""
        for entry_id in entry_ids:
            for table in (self._inbox, self._keys, self._jobs):
                table.pop(entry_id, None)

    async def inbox_key(self, key: str) -> InboxEntry | None:
        """The entry that has this key."""
        found = (entry_id for entry_id, known in self._keys.items() if known == key)
        return self._inbox.get(next(found, 0))

    async def inbox_job(self, job_id: JobId) -> InboxEntry | None:
        """The entry that a job is in."""
        found = (entry_id for entry_id, job_ids in self._jobs.items() if job_id in job_ids)
        return self._inbox.get(next(found, 0))
