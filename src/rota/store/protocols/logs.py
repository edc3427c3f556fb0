"""What may be asked of the place where the output of executions is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rota.core.model import ExecutionId


class LogPage(msgspec.Struct, frozen=True):
    """A piece of a log."""

    data: bytes
    next_offset: int
    size: int
    """How many bytes there are so far."""
    dropped: int = 0
    """How many came after the log was full, and were left out."""


class Logs(Protocol):
    """Bulk text of executions; never goes through the journal."""

    async def append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        """Adds what is new from `offset` on (None: at the end); answers the size after it.

        Bytes already there are left as they are, so a repeat changes nothing; an offset past the
        end adds nothing and answers the size, so that the sender goes on from there. Bytes past the
        cap are not kept but count in this answer, or the sender would offer them for ever.
        """
        ...

    async def read(self, execution_id: ExecutionId, offset: int, limit: int) -> LogPage:
        """At most `limit` bytes from `offset`."""
        ...

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes the logs of these; those that have none are no error."""
        ...
