"""Naive projection of the journal: dicts of whole records, each write applied as it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import assert_never

from msgspec.structs import replace

from rota.core.commands import Refilled
from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    JobRecord,
    KeyRecord,
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
    MoveJob,
    MoveSchedule,
    PutBufferedEvent,
    PutCalendar,
    PutEvent,
    PutExecution,
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
    Refill,
    ReleaseBufferedEvents,
)
from rota.core.policy import Policy
from rota.core.restore import Stored
from rota.core.schedule_model import Calendar, Occurrence, Schedule
from rota.core.state import SchedulerState
from rota.core.trigger_model import (
    AcceptedEvent,
    BufferedEvent,
    EventDecision,
    Trigger,
    TriggerDecision,
    TriggerDecisionId,
)

RECORDS_BEHIND = 3
"""Records that the tables are behind the journal, for refills that need not be exact."""


class NaiveLedger:
    """Everything that was written and not dropped."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, JobRecord] = {}
        self.executions: dict[ExecutionId, Execution] = {}
        self.workers: dict[WorkerId, Worker] = {}
        self.queues: dict[str, Queue] = {}
        self.keys: dict[str, KeyRecord] = {}
        self.policy: Policy | None = None
        self.tenants: dict[str, Tenant] = {}
        self.runtimes: dict[tuple[str, str], RuntimeStats] = {}
        self.order_next = 1
        self.schedules: dict[ScheduleId, Schedule] = {}
        self.occurrences: dict[tuple[ScheduleId, Instant], Occurrence] = {}
        self.calendars: dict[str, Calendar] = {}
        self.triggers: dict[TriggerId, Trigger] = {}
        self.accepted: dict[str, AcceptedEvent] = {}
        self.decisions: dict[TriggerDecisionId, TriggerDecision] = {}
        self.buffered: dict[TriggerDecisionId, BufferedEvent] = {}
        self._unprojected: deque[Sequence[AnyWrite]] = deque()
        self._spilled: dict[JobId, JobRecord] = {}
        """Spilled jobs, as the tables have them."""

    def append(self, writes: Sequence[AnyWrite]) -> None:
        for write in writes:
            self._apply(write)
        self._unprojected.append(writes)
        self._project(RECORDS_BEHIND)

    def _project(self, kept: int) -> None:
        """Applies all records but the last few to the tables."""
        while len(self._unprojected) > kept:
            for write in self._unprojected.popleft():
                if isinstance(write, PutJob | MoveJob | DropJob):
                    self._spilled.pop(write.id, None)
                if isinstance(write, PutJob) and write.life.line:
                    self._spilled[write.id] = JobRecord(write.id, write.spec, write.life)

    def _apply(self, write: AnyWrite) -> None:
        match write:
            case PutJob():
                self.jobs[write.id] = JobRecord(write.id, write.spec, write.life)
                self.order_next = max(self.order_next, write.spec.arrival_number + 1)
            case MoveJob():
                self.jobs[write.id] = JobRecord(write.id, self.jobs[write.id].spec, write.life)
            case DropJob():
                del self.jobs[write.id]
                kept = {i: x for i, x in self.executions.items() if x.job_id != write.id}
                self.executions = kept
            case PutExecution():
                assert write.execution.job_id in self.jobs, "an execution of no job"
                self.executions[write.execution.id] = write.execution
            case PutWorker():
                self.workers[write.worker.id] = write.worker
            case DropWorker():
                del self.workers[write.id]
            case PutQueue():
                self.queues[write.queue.name] = write.queue
            case PutKey():
                self.keys[write.record.key] = write.record
            case _:
                self._apply_time(write)

    def _apply_time(
        self,
        write: PutSchedule
        | MoveSchedule
        | DropSchedule
        | PutOccurrence
        | PutCalendar
        | DropCalendar
        | AnyEventWrite
        | PutPolicy
        | PutTenant
        | PutRuntime,
    ) -> None:
        match write:
            case PutSchedule():
                self.schedules[write.schedule.id] = write.schedule
            case MoveSchedule():
                before = self.schedules[write.id]
                assert write.state.watermark >= before.state.watermark, "a watermark went back"
                self.schedules[write.id] = replace(before, state=write.state)
            case DropSchedule():
                del self.schedules[write.id]
            case PutOccurrence():
                self._record(write.occurrence)
            case PutCalendar():
                self.calendars[write.calendar.name] = write.calendar
            case DropCalendar():
                del self.calendars[write.name]
            case PutPolicy() | PutTenant() | PutRuntime():
                self._set(write)
            case _:
                self._apply_event(write)

    def _apply_event(self, write: AnyEventWrite) -> None:
        match write:
            case PutTrigger():
                self.triggers[write.trigger.id] = write.trigger
            case DropTrigger():
                del self.triggers[write.id]
            case PutEvent():
                before = self.accepted.get(write.event.key)
                assert (before is None) == (write.event.repeats == 0), "an event was taken twice"
                self.accepted[write.event.key] = write.event
            case PutTriggerDecision():
                self._decide(write.decision)
            case PutBufferedEvent():
                assert write.event.id not in self.buffered, "an event was held twice"
                self.buffered[write.event.id] = write.event
            case ReleaseBufferedEvents():
                for arrival_id in write.ids:
                    del self.buffered[arrival_id]
            case _:
                assert_never(write)

    def _set(self, write: PutPolicy | PutTenant | PutRuntime) -> None:
        match write:
            case PutPolicy():
                self.policy = write.policy
            case PutTenant():
                self.tenants[write.tenant.name] = write.tenant
            case PutRuntime():
                runtime = write.runtime
                self.runtimes[(runtime.tenant, runtime.name)] = runtime
            case _:
                assert_never(write)

    def _decide(self, decision: TriggerDecision) -> None:
        """Checks that a trigger decides about an event once; a buffered one is decided later."""
        before = self.decisions.get(decision.id)
        assert before is None or before.decision is EventDecision.HELD, (
            f"{decision.id} was decided twice"
        )
        if decision.job_id is not None:
            assert decision.job_id in self.jobs, "a trigger's job was not written with it"
        self.decisions[decision.id] = decision

    def _record(self, occurrence: Occurrence) -> None:
        """Checks that an instant has one record, which keeps its job."""
        key = (occurrence.schedule_id, occurrence.nominal)
        before = self.occurrences.get(key)
        assert before is None or before.job_id is None, f"{key} was decided twice"
        if occurrence.job_id is not None:
            assert occurrence.job_id in self.jobs, "an instant's job was not written with it"
        self.occurrences[key] = occurrence

    def live(self) -> list[JobRecord]:
        """Jobs that have not ended, in order of arrival."""
        found = [job for job in self.jobs.values() if job.life.state not in JOB_FINAL]
        return sorted(found, key=lambda job: job.spec.arrival_number)

    def ended(self) -> Iterable[JobRecord]:
        """Jobs that have ended, in order of arrival."""
        found = [job for job in self.jobs.values() if job.life.state in JOB_FINAL]
        return sorted(found, key=lambda job: job.spec.arrival_number)

    def running(self) -> list[Execution]:
        """Executions that have not ended."""
        return [x for x in self.executions.values() if x.state not in EXECUTION_FINAL]

    def spilled_in(self, number: int) -> list[JobRecord]:
        """Jobs in this spill queue, in order of arrival."""
        return [job for job in self.live() if job.life.line == number]

    def spill_queues(self) -> dict[int, int]:
        """Number of jobs in each spill queue."""
        found: dict[int, int] = {}
        for job in self.live():
            if job.life.line:
                found[job.life.line] = found.get(job.life.line, 0) + 1
        return found

    def refill(self, wanted: Refill) -> Refilled:
        """Next jobs of a spill queue, as the tables have them."""
        self._project(0 if wanted.exact else RECORDS_BEHIND)
        queue = [job for job in self._spilled.values() if job.life.line == wanted.spill_queue]
        behind = [job for job in queue if job.spec.arrival_number > wanted.after]
        behind.sort(key=lambda job: job.spec.arrival_number)
        return Refilled(refill=wanted, jobs=tuple(behind[: wanted.limit]))

    def stored(self, kept: int) -> Stored:
        """Records to restore a scheduler from, with the first `kept` jobs of each spill queue."""
        spill_queues = self.spill_queues()
        heads = {job.id: None for number in spill_queues for job in self.spilled_in(number)[:kept]}
        return Stored(
            jobs=[job for job in self.live() if not job.life.line or job.id in heads],
            spill_queues=list(spill_queues.items()),
            executions=self.running(),
            workers=list(self.workers.values()),
            queues=list(self.queues.values()),
            order_next=self.order_next,
            schedules=[self.schedules[one] for one in sorted(self.schedules)],
            calendars=list(self.calendars.values()),
            triggers=[self.triggers[one] for one in sorted(self.triggers)],
            buffered_events=sorted(self.buffered.values(), key=lambda one: (one.at, one.id)),
            policy=self.policy,
            tenants=list(self.tenants.values()),
            runtimes=list(self.runtimes.values()),
        )

    def check_against(self, tables: SchedulerState) -> None:
        """Checks that memory agrees with what was written, record by record.

        Spilled jobs need not be in memory, but are counted there.
        """
        live = {job.id: job for job in self.live()}
        for entry in tables.jobs.values():
            assert entry.record() == live.pop(entry.id)
        spilled: dict[int, int] = {}
        for job in live.values():
            assert job.life.line, f"{job.id} is neither in memory nor spilled"
            spilled[job.life.line] = spilled.get(job.life.line, 0) + 1
        groups = tables.ready_queue.by_spill_queue.items()
        assert {number: group.spilled for number, group in groups if group.spilled} == spilled
        assert {i: entry.execution for i, entry in tables.executions.items()} == {
            x.id: x for x in self.running()
        }
        assert {i: entry.worker for i, entry in tables.fleet.workers.items()} == self.workers
        assert {name: entry.queue for name, entry in tables.queues.items()} == self.queues
        assert tables.next_arrival_number == self.order_next
        schedules = tables.schedule_index
        assert {i: entry.schedule for i, entry in schedules.entries.items()} == self.schedules
        assert schedules.calendars == self.calendars
        entries = tables.trigger_index.entries
        assert {i: entry.trigger for i, entry in entries.items()} == self.triggers
        windows = [window for entry in entries.values() for window in entry.windows.values()]
        assert {i: one for window in windows for i, one in window.events.items()} == self.buffered
