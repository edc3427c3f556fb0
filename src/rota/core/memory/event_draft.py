"""What a turn has changed of triggers and events, before it is written."""

from __future__ import annotations

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


class EventDraft:
    """The last word on each trigger, event and arrival of this turn."""

    __slots__ = ("arrivals", "held", "released", "told", "triggers")

    def __init__(self) -> None:
        self.triggers: dict[TriggerId, Trigger | None] = {}
        """None: gone."""
        self.told: list[Told] = []
        self.arrivals: dict[ArrivalId, Arrival] = {}
        self.held: dict[ArrivalId, Held] = {}
        self.released: list[ArrivalId] = []

    def reacted(self) -> dict[str, int]:
        """What is counted of this turn, in the words of `reaction`."""
        counts: dict[str, int] = {}
        if not (self.told or self.arrivals):
            return counts
        records: list[Told | Arrival] = [*self.told, *self.arrivals.values()]
        for one in records:
            word = reaction(one)
            if word:
                counts[word] = counts.get(word, 0) + 1
        return counts

    def writes(self) -> list[AnyEventWrite]:
        """As facts, in an order in which they can be applied one after the other."""
        if not (self.triggers or self.told or self.arrivals or self.held or self.released):
            return []
        facts: list[AnyEventWrite] = [
            DropTrigger(trigger_id) if trigger is None else PutTrigger(trigger)
            for trigger_id, trigger in self.triggers.items()
        ]
        facts += [PutEvent(told) for told in self.told]
        facts += [PutArrival(arrival) for arrival in self.arrivals.values()]
        facts += [PutHeld(held) for held in self.held.values()]
        if self.released:
            facts.append(ReleaseHeld(tuple(self.released)))
        return facts
