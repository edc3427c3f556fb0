"""Triggers and events in memory, as the other stores have them in tables."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.events import Arrival, ArrivalId, Held, Told, Trigger
from rota.core.model import TriggerId
from rota.store.fold_events import FoldedEvents
from rota.store.queries import ArrivalQuery, EventQuery


class EventTables:
    """What the fold of the journal comes to."""

    def __init__(self) -> None:
        self._triggers: dict[TriggerId, Trigger] = {}
        self._told: dict[str, Told] = {}
        self._arrivals: dict[ArrivalId, Arrival] = {}
        self._held: dict[ArrivalId, Held] = {}
        self.reacted: dict[str, int] = {}

    def apply(self, folded: FoldedEvents) -> None:
        """A window's rows."""
        for trigger_id, trigger in folded.triggers.items():
            if trigger is None:
                self._triggers.pop(trigger_id, None)
            else:
                self._triggers[trigger_id] = trigger
        for arrival_id, held in folded.held.items():
            if held is None:
                self._held.pop(arrival_id, None)
            else:
                self._held[arrival_id] = held
        self._told |= folded.told
        self._arrivals |= folded.arrivals
        for word, count in folded.reacted.items():
            self.reacted[word] = self.reacted.get(word, 0) + count

    def triggers(self) -> list[Trigger]:
        """All, in order of creation."""
        return [self._triggers[one] for one in sorted(self._triggers)]

    def held(self) -> list[Held]:
        """All events that wait, in order of arrival."""
        return sorted(self._held.values(), key=lambda one: (one.at, one.id))

    def told(self, keys: Sequence[str]) -> list[Told]:
        """Those that were accepted."""
        return [self._told[key] for key in dict.fromkeys(keys) if key in self._told]

    def find_events(self, query: EventQuery) -> list[Told]:
        """A page of accepted events, newest first."""
        found = [
            one
            for one in self._told.values()
            if query.type in (None, one.type)
            and (query.before is None or (one.at, one.key) < query.before)
        ]
        return sorted(found, key=lambda one: (one.at, one.key), reverse=True)[: query.limit]

    def find_arrivals(self, query: ArrivalQuery) -> list[Arrival]:
        """A page of a trigger's ledger, newest first."""
        found = [
            one
            for one in self._arrivals.values()
            if one.trigger_id == query.trigger_id
            and (not query.verdicts or one.verdict in query.verdicts)
            and (query.before is None or one.id < query.before)
        ]
        return sorted(found, key=lambda one: one.id, reverse=True)[: query.limit]
