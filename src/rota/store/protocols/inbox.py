"""Submissions that wait for a leader: what applications and servers without one left behind."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from rota.core.model import JobId


class InboxKind(StrEnum):
    """Who wrote an inbox entry, and so what its body is."""

    INPUT = "input"
    """A server without a leader: the body is its own encoding."""
    SPEC = "spec"
    """An application, by SQL: the body is JSON, `{"job_id": …, "spec": {…}}`."""


class InboxEntry(msgspec.Struct, frozen=True):
    """A submission that no leader has seen yet; ids give the order of arrival."""

    id: int
    kind: InboxKind
    body: bytes


class Inbox(Protocol):
    """Entries stay until an append consumes them."""

    async def put_inbox(
        self, body: bytes, key: str | None = None, job_ids: Sequence[JobId] = ()
    ) -> InboxEntry:
        """Keeps a submission for the next leader, durably.

        Answers the entry, or the one that has its key already: then nothing was put.
        """
        ...

    async def take_inbox(self, limit: int) -> list[InboxEntry]:
        """The oldest entries; they stay until an append consumes them."""
        ...

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        """Removes entries that no append will consume."""
        ...

    async def inbox_key(self, key: str) -> InboxEntry | None:
        """The entry that has this key."""
        ...

    async def inbox_job(self, job_id: JobId) -> InboxEntry | None:
        """The entry that a job is in."""
        ...
