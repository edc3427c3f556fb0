"""Seam between a store and the projector, which may be in this process or in another one."""

from __future__ import annotations

from typing import Protocol

from rota.store.protocol import ProjectionStatus, Seq, StoredRecord

KEEPS_ENDING = "the background process keeps ending: see its log"
"""Trouble of a projection whose process ends again and again."""


class Projection(Protocol):
    """Projection of the journal into tables, as a store uses it."""

    @property
    def status(self) -> ProjectionStatus:
        """How far it is, as far as this process knows."""
        ...

    def lead(self, *, leads: bool) -> None:
        """Says whether this server leads: then its projector projects, others only if it does
        not."""
        ...

    def note_appended(self, record: StoredRecord, writes: int) -> None:
        """Notes a record that this process has appended, which has so many writes."""
        ...

    async def reached(self, seq: Seq) -> None:
        """Returns when the tables have record `seq`; wakes the projector for it.

        Raises TablesBehindError after a bounded wait, or the reason why the projection stopped.
        """
        ...

    def look_again(self) -> None:
        """Says that another process has changed the quarantine."""
        ...

    def sweep_soon(self) -> None:
        """Says that deleted jobs have left logs and files."""
        ...

    async def close(self) -> None:
        """Ends it."""
        ...
