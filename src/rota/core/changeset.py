"""Changeset: everything that changed in one turn, as the facts of its journal record."""

from __future__ import annotations

from rota.core.entries import JobEntry
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    KeyRecord,
    Millis,
    Queue,
    RuntimeStats,
    ScheduleId,
    Tenant,
    TriggerId,
    Worker,
    WorkerId,
)
from rota.core.outcome import (
    AnyEventWrite,
    AnyWrite,
    DropCalendar,
    DropJob,
    DropSchedule,
    DropTrigger,
    DropWorker,
    Ended,
    MoveJob,
    MoveSchedule,
    PollAnswer,
    PutBufferedEvent,
    PutCalendar,
    PutEvent,
    PutExecution,
    PutGroup,
    PutJob,
    PutKey,
    PutOccurrence,
    PutPolicy,
    PutQueue,
    PutRuntime,
    PutSchedule,
    PutTenant,
    PutTrigger,
    PutTriggerDecision,
    PutWorker,
    ReleaseBufferedEvents,
)
from rota.core.policy import Policy
from rota.core.schedule_model import Calendar, Occurrence, Schedule, ScheduleState
from rota.core.trigger_model import (
    AcceptedEvent,
    BufferedEvent,
    Trigger,
    TriggerDecision,
    TriggerDecisionId,
    counted_as,
)


class EventChanges:
    """Changes of one turn to triggers, events and decisions; the last state of each counts."""

    __slots__ = ("accepted", "buffered", "decisions", "released", "triggers")

    def __init__(self) -> None:
        self.triggers: dict[TriggerId, Trigger | None] = {}
        """None: deleted."""
        self.accepted: list[AcceptedEvent] = []
        self.decisions: dict[TriggerDecisionId, TriggerDecision] = {}
        self.buffered: dict[TriggerDecisionId, BufferedEvent] = {}
        self.released: list[TriggerDecisionId] = []

    def decision_counts(self) -> dict[str, int]:
        """Counts for metrics: events accepted and repeated, and decisions of each kind."""
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
        """Facts in an order in which they can be applied one after the other."""
        if not (self.triggers or self.accepted or self.decisions or self.buffered or self.released):
            return []
        facts: list[AnyEventWrite] = [
            DropTrigger(trigger_id) if trigger is None else PutTrigger(trigger)
            for trigger_id, trigger in self.triggers.items()
        ]
        facts += [PutEvent(event) for event in self.accepted]
        facts += [PutTriggerDecision(decision) for decision in self.decisions.values()]
        facts += [PutBufferedEvent(event) for event in self.buffered.values()]
        if self.released:
            facts.append(ReleaseBufferedEvents(tuple(self.released)))
        return facts


class Changeset:
    """Changes of one turn; the last state of each counts, so a job put and moved is one write."""

    __slots__ = (
        "answers",
        "calendars",
        "deadlines",
        "dropped",
        "dropped_schedules",
        "dropped_workers",
        "ends",
        "events",
        "executions",
        "keys",
        "moved",
        "occurrences",
        "policy",
        "put",
        "queues",
        "runtimes",
        "schedule_states",
        "schedules",
        "submitted",
        "tenants",
        "waits",
        "workers",
    )

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.policy: Policy | None = None
        self.tenants: dict[str, Tenant] = {}
        self.runtimes: dict[tuple[str, str], RuntimeStats] = {}
        self.workers: dict[WorkerId, Worker] = {}
        self.dropped_workers: dict[WorkerId, None] = {}
        self.put: dict[JobId, JobEntry] = {}
        self.moved: dict[JobId, JobEntry] = {}
        self.dropped: dict[JobId, None] = {}
        self.executions: dict[ExecutionId, Execution] = {}
        self.keys: list[KeyRecord] = []
        self.calendars: dict[str, Calendar | None] = {}
        self.schedules: dict[ScheduleId, Schedule] = {}
        self.schedule_states: dict[ScheduleId, ScheduleState] = {}
        self.dropped_schedules: dict[ScheduleId, None] = {}
        self.occurrences: dict[tuple[ScheduleId, Instant], Occurrence] = {}
        self.events = EventChanges()
        self.answers: list[PollAnswer] = []
        self.waits: list[Millis] = []
        self.ends: list[Ended] = []
        self.submitted = 0
        self.deadlines: dict[str, int] = {}
        """How many jobs became at risk of missing their deadline, met it, or missed it."""

    def writes(self) -> list[AnyWrite]:
        """Facts in an order in which they can be applied one after the other."""
        put = self.put
        facts = self._settings()
        facts += [
            (PutJob if entry.spec.group is None else PutGroup)(job_id, entry.spec, entry.life)
            for job_id, entry in put.items()
        ]
        facts += [
            MoveJob(job_id, entry.life) for job_id, entry in self.moved.items() if job_id not in put
        ]
        facts += [PutExecution(execution) for execution in self.executions.values()]
        # The rest is empty in most turns, and a turn may be about one job only.
        if self.dropped or self.keys:
            facts += [DropJob(job_id) for job_id in self.dropped]
            facts += [PutKey(record) for record in self.keys]
        if self.calendars or self.schedules or self.schedule_states or self.occurrences:
            facts += self._schedule_writes()
        if self.dropped_schedules:
            facts += [DropSchedule(schedule_id) for schedule_id in self.dropped_schedules]
        facts += self.events.writes()
        return facts

    def _settings(self) -> list[AnyWrite]:
        facts: list[AnyWrite] = []
        if self.queues or self.tenants or self.runtimes or self.policy is not None:
            facts += [PutQueue(queue) for queue in self.queues.values()]
            if self.policy is not None:
                facts.append(PutPolicy(self.policy))
            facts += [PutTenant(tenant) for tenant in self.tenants.values()]
            facts += [PutRuntime(runtime) for runtime in self.runtimes.values()]
        if self.workers or self.dropped_workers:
            facts += [PutWorker(worker) for worker in self.workers.values()]
            facts += [DropWorker(worker_id) for worker_id in self.dropped_workers]
        return facts

    def _schedule_writes(self) -> list[AnyWrite]:
        facts: list[AnyWrite] = [
            DropCalendar(name) if calendar is None else PutCalendar(calendar)
            for name, calendar in self.calendars.items()
        ]
        facts += [PutSchedule(schedule) for schedule in self.schedules.values()]
        facts += [
            MoveSchedule(schedule_id, state) for schedule_id, state in self.schedule_states.items()
        ]
        facts += [PutOccurrence(occurrence) for occurrence in self.occurrences.values()]
        return facts
