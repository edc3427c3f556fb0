"""What a turn has changed so far, before it is written: the last word on each thing counts."""

from __future__ import annotations

from rota.core.memory.cells import JobCell
from rota.core.memory.event_draft import EventDraft
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    KeyRecord,
    Millis,
    Queue,
    Runtime,
    ScheduleId,
    Tenant,
    Worker,
    WorkerId,
)
from rota.core.outcome import (
    Answer,
    AnyWrite,
    DropCalendar,
    DropJob,
    DropSchedule,
    DropWorker,
    Ended,
    MoveJob,
    MoveSchedule,
    PutCalendar,
    PutExecution,
    PutKey,
    PutOccurrence,
    PutPolicy,
    PutQueue,
    PutRuntime,
    PutSchedule,
    PutTenant,
    PutWorker,
)
from rota.core.records.job_writes import PutBand, PutJob
from rota.core.records.policy import Policy
from rota.core.records.schedules import Calendar, Course, Occurrence, Schedule


class Draft:
    """The changes of one turn. A job put and moved within it becomes one write."""

    __slots__ = (
        "answers",
        "calendars",
        "courses",
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
        self.runtimes: dict[tuple[str, str], Runtime] = {}
        self.workers: dict[WorkerId, Worker] = {}
        self.dropped_workers: dict[WorkerId, None] = {}
        self.put: dict[JobId, JobCell] = {}
        self.moved: dict[JobId, JobCell] = {}
        self.dropped: dict[JobId, None] = {}
        self.executions: dict[ExecutionId, Execution] = {}
        self.keys: list[KeyRecord] = []
        self.calendars: dict[str, Calendar | None] = {}
        self.schedules: dict[ScheduleId, Schedule] = {}
        self.courses: dict[ScheduleId, Course] = {}
        self.dropped_schedules: dict[ScheduleId, None] = {}
        self.occurrences: dict[tuple[ScheduleId, Instant], Occurrence] = {}
        self.events = EventDraft()
        self.answers: list[Answer] = []
        self.waits: list[Millis] = []
        self.ends: list[Ended] = []
        self.submitted = 0
        self.deadlines: dict[str, int] = {}
        """How many jobs are at risk, met theirs, or missed it, as of this turn."""

    def writes(self) -> list[AnyWrite]:
        """As facts, in an order in which they can be applied one after the other."""
        put = self.put
        facts = self._settings()
        facts += [
            (PutJob if cell.spec.band is None else PutBand)(job_id, cell.spec, cell.life)
            for job_id, cell in put.items()
        ]
        facts += [
            MoveJob(job_id, cell.life) for job_id, cell in self.moved.items() if job_id not in put
        ]
        facts += [PutExecution(execution) for execution in self.executions.values()]
        # What follows is empty in most turns, and a turn may be one job only.
        if self.dropped or self.keys:
            facts += [DropJob(job_id) for job_id in self.dropped]
            facts += [PutKey(record) for record in self.keys]
        if self.calendars or self.schedules or self.courses or self.occurrences:
            facts += self._times()
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

    def _times(self) -> list[AnyWrite]:
        facts: list[AnyWrite] = [
            DropCalendar(name) if calendar is None else PutCalendar(calendar)
            for name, calendar in self.calendars.items()
        ]
        facts += [PutSchedule(schedule) for schedule in self.schedules.values()]
        facts += [MoveSchedule(schedule_id, course) for schedule_id, course in self.courses.items()]
        facts += [PutOccurrence(occurrence) for occurrence in self.occurrences.values()]
        return facts
