"""What a window of records comes to for triggers and events: the newest of each, and counts."""

from __future__ import annotations

from typing import assert_never

import msgspec

from rota.core.model import TriggerId
from rota.core.records.event_writes import (
    AnyEventWrite,
    DropTrigger,
    PutArrival,
    PutEvent,
    PutHeld,
    PutTrigger,
    ReleaseHeld,
)
from rota.core.records.events import Arrival, ArrivalId, Held, Told, Trigger, reaction


class FoldedEvents(msgspec.Struct):
    """Rows to put; None: to delete."""

    triggers: dict[TriggerId, Trigger | None] = {}
    told: dict[str, Told] = {}
    arrivals: dict[ArrivalId, Arrival] = {}
    held: dict[ArrivalId, Held | None] = {}
    reacted: dict[str, int] = {}
    """How many events were accepted and repeated, and how many verdicts there were of each."""

    def take(self, write: AnyEventWrite) -> None:
        """One more write."""
        match write:
            case PutTrigger():
                self.triggers[write.trigger.id] = write.trigger
            case DropTrigger():
                self.triggers[write.id] = None
            case PutEvent():
                self.told[write.told.key] = write.told
                self._count(reaction(write.told))
            case PutArrival():
                self.arrivals[write.arrival.id] = write.arrival
                self._count(reaction(write.arrival))
            case PutHeld():
                self.held[write.held.id] = write.held
            case ReleaseHeld():
                self.held |= dict.fromkeys(write.ids)
            case _:
                assert_never(write)

    def _count(self, word: str) -> None:
        if word:
            self.reacted[word] = self.reacted.get(word, 0) + 1
