"""What became of schedules' instants, of events and of executions in bulk: the readers' side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.core.schedule_model import Occurrence
from rota.core.trigger_model import AcceptedEvent, TriggerDecision
from rota.store.protocols.queries import (
    EventQuery,
    OccurrenceQuery,
    Sampled,
    SampleQuery,
    TriggerDecisionQuery,
)


class Histories(Protocol):
    """The ledgers of schedules and triggers, which outlive whom they are of, and samples."""

    async def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """A page of a schedule's ledger, newest (largest nominal instant) first."""
        ...

    async def accepted_events(self, keys: Sequence[str]) -> list[AcceptedEvent]:
        """Those of these events that were accepted, in no particular order."""
        ...

    async def find_events(self, query: EventQuery) -> list[AcceptedEvent]:
        """A page of accepted events, newest first."""
        ...

    async def find_trigger_decisions(self, query: TriggerDecisionQuery) -> list[TriggerDecision]:
        """A page of a trigger's ledger, newest first."""
        ...

    async def sample_executions(self, query: SampleQuery) -> list[Sampled]:
        """What the first executions of each stretch are, counted; in no particular order.

        Costs what is looked at, however many there are; with a tenant, a look at each one's job.
        """
        ...
