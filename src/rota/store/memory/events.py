"""Schedules, triggers and what they did, in memory, as the other stores have them in tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rota.core.model import Instant, ScheduleId
from rota.core.records.events import Arrival, ArrivalId, Told
from rota.core.records.schedules import Occurrence
from rota.store.fold import Folded
from rota.store.folding.occasions import Occasions
from rota.store.protocols.queries import ArrivalQuery, EventQuery, OccurrenceQuery


class OccasionTables(Occasions):
    """What is live of them, and the ledgers of what they did."""

    def __init__(self) -> None:
        super().__init__()
        self._occurrences: dict[tuple[ScheduleId, Instant], Occurrence] = {}
        self._told: dict[str, Told] = {}
        self._arrivals: dict[ArrivalId, Arrival] = {}

    def apply(self, folded: Folded) -> None:
        """A window's rows."""
        super().apply(folded)
        self._occurrences |= folded.occurrences
        self._told |= folded.events.told
        self._arrivals |= folded.events.arrivals

    def drop_before(self, before: Instant) -> None:
        """Forgets what became of older instants; events go by an age of their own."""
        self._occurrences = {
            key: one for key, one in self._occurrences.items() if one.nominal >= before
        }

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """A page of a schedule's ledger, newest first."""
        found = [
            one
            for one in self._occurrences.values()
            if one.schedule_id == query.schedule_id
            and (not query.decisions or one.decision in query.decisions)
            and (query.after is None or one.nominal > query.after)
            and (query.before is None or one.nominal < query.before)
        ]
        return sorted(found, key=lambda one: one.nominal, reverse=True)[: query.limit]

    def told(self, keys: Sequence[str]) -> list[Told]:
        """Those that were accepted."""
        return [self._told[key] for key in dict.fromkeys(keys) if key in self._told]

    def find_events(self, query: EventQuery) -> list[Told]:
        """A page of accepted events, newest first."""
        found = [
            one
            for one in self._told.values()
            if query.type in (None, one.type)
            and query.tenant in (None, one.tenant)
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


class MemoryHistories(ABC):
    """The readers' side of the ledgers."""

    @abstractmethod
    def _occasions(self) -> OccasionTables:
        """The tables, which have caught up with the journal."""

    async def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """A page of a schedule's ledger, newest first."""
        return self._occasions().find_occurrences(query)

    async def told(self, keys: Sequence[str]) -> list[Told]:
        """Those of these events that were accepted."""
        return self._occasions().told(keys)

    async def find_events(self, query: EventQuery) -> list[Told]:
        """A page of accepted events, newest first."""
        return self._occasions().find_events(query)

    async def find_arrivals(self, query: ArrivalQuery) -> list[Arrival]:
        """A page of a trigger's ledger, newest first."""
        return self._occasions().find_arrivals(query)
