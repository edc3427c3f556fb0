"""What a turn has changed of triggers and events, before it is written."""

from __future__ import annotations

from rota.core.model import TriggerId
from rota.core.records.event_writes import (
    AnyEventWrite,
    DropTrigger,
    PutBufferedEvent,
    PutEvent,
    PutTrigger,
    PutTriggerDecision,
    ReleaseBufferedEvents,
)
from rota.core.records.events import (
    AcceptedEvent,
    BufferedEvent,
    Trigger,
    TriggerDecision,
    TriggerDecisionId,
    counted_as,
)


class EventChanges:
    """The last word on each trigger, event and arrival of this turn."""

    __slots__ = ("accepted", "buffered", "decisions", "released", "triggers")

    def __init__(self) -> None:
        self.triggers: dict[TriggerId, Trigger | None] = {}
        """None: gone."""
        self.accepted: list[AcceptedEvent] = []
        self.decisions: dict[TriggerDecisionId, TriggerDecision] = {}
        self.buffered: dict[TriggerDecisionId, BufferedEvent] = {}
        self.released: list[TriggerDecisionId] = []

    def decision_counts(self) -> dict[str, int]:
        """What is counted of this turn, in the words of `reaction`."""
        counts: dict[str, int] = {}
        if not (self.accepted or self.decisions):
            return counts
        records: list[AcceptedEvent | TriggerDecision] = [*self.accepted, *self.decisions.values()]
        for one in records:
            word = counted_as(one)
            if word:
                counts[word] = counts.get(word, 0) + 1
        return counts

    def writes(self) -> list[AnyEventWrite]:
        """As facts, in an order in which they can be applied one after the other."""
        if not (self.triggers or self.accepted or self.decisions or self.buffered or self.released):
            return []
        facts: list[AnyEventWrite] = [
            DropTrigger(trigger_id) if trigger is None else PutTrigger(trigger)
            for trigger_id, trigger in self.triggers.items()
        ]
        facts += [PutEvent(told) for told in self.accepted]
        facts += [PutTriggerDecision(arrival) for arrival in self.decisions.values()]
        facts += [PutBufferedEvent(held) for held in self.buffered.values()]
        if self.released:
            facts.append(ReleaseBufferedEvents(tuple(self.released)))
        return facts
