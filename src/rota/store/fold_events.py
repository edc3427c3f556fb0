"""What a window of records comes to for triggers and events: the newest of each, and counts."""

from __future__ import annotations

from typing import assert_never

import msgspec

from rota.core.model import TriggerId
from rota.core.outcome import (
    AnyEventWrite,
    DropTrigger,
    PutBufferedEvent,
    PutEvent,
    PutTrigger,
    PutTriggerDecision,
    ReleaseBufferedEvents,
)
from rota.core.trigger_model import (
    AcceptedEvent,
    BufferedEvent,
    Trigger,
    TriggerDecision,
    TriggerDecisionId,
    counted_as,
)


class EventTableChanges(msgspec.Struct):
    """Rows to put; None: to delete."""

    triggers: dict[TriggerId, Trigger | None] = {}
    accepted: dict[str, AcceptedEvent] = {}
    decisions: dict[TriggerDecisionId, TriggerDecision] = {}
    buffered: dict[TriggerDecisionId, BufferedEvent | None] = {}
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
                self.accepted[write.event.key] = write.event
                self._count(counted_as(write.event))
            case PutTriggerDecision():
                self.decisions[write.decision.id] = write.decision
                self._count(counted_as(write.decision))
            case PutBufferedEvent():
                self.buffered[write.event.id] = write.event
            case ReleaseBufferedEvents():
                self.buffered |= dict.fromkeys(write.ids)
            case _:
                assert_never(write)

    def _count(self, word: str) -> None:
        if word:
            self.reacted[word] = self.reacted.get(word, 0) + 1
