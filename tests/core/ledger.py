"""The journal folded the naive way: dicts of whole records, each write applied as it comes."""

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
"""How far the tables are behind the journal, for whoever does not ask to wait for them."""


class NaiveLedger:
    """All that was ever written and not dropped."""

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
        self.told: dict[str, AcceptedEvent] = {}
        self.arrivals: dict[TriggerDecisionId, TriggerDecision] = {}
        self.held: dict[TriggerDecisionId, BufferedEvent] = {}
        self._unfolded: deque[Sequence[AnyWrite]] = deque()
        self._shelved: dict[JobId, JobRecord] = {}
        """As the tables have it."""

    def append(self, writes: Sequence[AnyWrite]) -> None:
        """One record."""
        for write in writes:
            self._apply(write)
        self._unfolded.append(writes)
        self._fold(RECORDS_BEHIND)

    def _fold(self, but: int) -> None:
        """All records but the last few are in the tables."""
        while len(self._unfolded) > but:
            for write in self._unfolded.popleft():
                if isinstance(write, PutJob | MoveJob | DropJob):
                    self._shelved.pop(write.id, None)
                if isinstance(write, PutJob) and write.life.line:
                    self._shelved[write.id] = JobRecord(write.id, write.spec, write.life)

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
                before = self.told.get(write.event.key)
                assert (before is None) == (write.event.repeats == 0), "an event was taken twice"
                self.told[write.event.key] = write.event
            case PutTriggerDecision():
                self._arrive(write.decision)
            case PutBufferedEvent():
                assert write.event.id not in self.held, "an event was held twice"
                self.held[write.event.id] = write.event
            case ReleaseBufferedEvents():
                for arrival_id in write.ids:
                    del self.held[arrival_id]
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

    def _arrive(self, arrival: TriggerDecision) -> None:
        """A trigger decides about an event once; what waits is decided later."""
        before = self.arrivals.get(arrival.id)
        assert before is None or before.decision is EventDecision.HELD, (
            f"{arrival.id} was decided twice"
        )
        if arrival.job_id is not None:
            assert arrival.job_id in self.jobs, "a trigger's job was not written with it"
        self.arrivals[arrival.id] = arrival

    def _record(self, occurrence: Occurrence) -> None:
        """An instant has one record, and once it has a job it keeps it."""
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

    def shelf(self, line: int) -> list[JobRecord]:
        """Jobs in this line of the store, in order of arrival."""
        return [job for job in self.live() if job.life.line == line]

    def lines(self) -> dict[int, int]:
        """How many jobs are in each line."""
        found: dict[int, int] = {}
        for job in self.live():
            if job.life.line:
                found[job.life.line] = found.get(job.life.line, 0) + 1
        return found

    def refill(self, wanted: Refill) -> Refilled:
        """The next jobs of a line, as the tables have it."""
        self._fold(0 if wanted.exact else RECORDS_BEHIND)
        line = [job for job in self._shelved.values() if job.life.line == wanted.spill_queue]
        behind = [job for job in line if job.spec.arrival_number > wanted.after]
        behind.sort(key=lambda job: job.spec.arrival_number)
        return Refilled(refill=wanted, jobs=tuple(behind[: wanted.limit]))

    def stored(self, kept: int) -> Stored:
        """What a scheduler is built from, with the first `kept` jobs of each line."""
        lines = self.lines()
        heads = {job.id: None for line in lines for job in self.shelf(line)[:kept]}
        return Stored(
            jobs=[job for job in self.live() if not job.life.line or job.id in heads],
            spill_queues=list(lines.items()),
            executions=self.running(),
            workers=list(self.workers.values()),
            queues=list(self.queues.values()),
            order_next=self.order_next,
            schedules=[self.schedules[one] for one in sorted(self.schedules)],
            calendars=list(self.calendars.values()),
            triggers=[self.triggers[one] for one in sorted(self.triggers)],
            buffered_events=sorted(self.held.values(), key=lambda one: (one.at, one.id)),
            policy=self.policy,
            tenants=list(self.tenants.values()),
            runtimes=list(self.runtimes.values()),
        )

    def check_against(self, tables: SchedulerState) -> None:
        """Memory and what was written must tell the same story, record by record.

        What is on the shelf need not be in memory, but is counted there.
        """
        live = {job.id: job for job in self.live()}
        for cell in tables.jobs.values():
            assert cell.record() == live.pop(cell.id)
        away: dict[int, int] = {}
        for job in live.values():
            assert job.life.line, f"{job.id} is neither in memory nor on the shelf"
            away[job.life.line] = away.get(job.life.line, 0) + 1
        lanes = tables.ready_queue.by_spill_queue.items()
        assert {number: lane.spilled for number, lane in lanes if lane.spilled} == away
        assert {i: cell.execution for i, cell in tables.executions.items()} == {
            x.id: x for x in self.running()
        }
        assert {i: cell.worker for i, cell in tables.fleet.workers.items()} == self.workers
        assert {name: cell.queue for name, cell in tables.queues.items()} == self.queues
        assert tables.next_arrival_number == self.order_next
        agenda = tables.schedule_index
        assert {i: cell.schedule for i, cell in agenda.entries.items()} == self.schedules
        assert agenda.calendars == self.calendars
        cells = tables.trigger_index.entries
        assert {i: cell.trigger for i, cell in cells.items()} == self.triggers
        windows = [window for cell in cells.values() for window in cell.windows.values()]
        assert {i: one for window in windows for i, one in window.events.items()} == self.held
