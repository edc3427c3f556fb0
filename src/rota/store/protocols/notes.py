"""Small notes that are set for the whole cell beside the journal, in the table of settings.

For what no decision depends on and what must stay out of the journal, which many may read: rules
of alerts, and the addresses, with their secrets, of those who are told.
"""

from __future__ import annotations

from typing import Protocol

NOTE_KIND = "note"
"""Of their rows: what the fold writes into the same table is of other kinds."""


class Notes(Protocol):
    """Notes by name; every call goes to the store, so all servers of a cell agree."""

    async def put(self, name: str, body: bytes) -> None:
        """Durable when it returns; in place of one of the same name."""
        ...

    async def get(self, name: str) -> bytes | None:
        """One of them."""
        ...
