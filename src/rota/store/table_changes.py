"""Computes what a window of journal records changes in the tables: the pure half of the projection.

A job that was put, moved and finished within a window becomes one row in its final state.
Projecting records in one window or one by one comes to the same rows, whatever the writes.
The stores bring the rows that were there before, and write the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

import msgspec

from rota.core.lifecycle import JOB_FINAL
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    JobState,
    KeyRecord,
    Life,
    Queue,
    RuntimeStats,
    ScheduleId,
    Spec,
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


class JobStanding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What must be known of a job's row to count submissions, endings and shelves exactly."""

    state: JobState
    lives: int
    queue: str
    line: int = 0
    """The line on whose shelf it is."""


JobStandings: TypeAlias = Mapping[JobId, JobStanding]
AnyScheduleWrite: TypeAlias = (
    PutSchedule | MoveSchedule | DropSchedule | PutOccurrence | PutCalendar | DropCalendar
)

_OF_JOBS = frozenset((PutJob, MoveJob, DropJob))
"""Nobody derives from a write, so its type says what it is: the quickest question there is."""

AnySettingWrite: TypeAlias = PutPolicy | PutTenant | PutRuntime


class TableChanges(msgspec.Struct):
    """What a window comes to. To apply it: delete what was dropped, then put, then move."""

    dropped: dict[JobId, None] = {}
    """Jobs that went, with their executions, labels and edges as of before the window."""
    specs: dict[JobId, Spec] = {}
    """Jobs put in the window; their lives are in `lives`."""
    lives: dict[JobId, Life] = {}
    """The newest life of each job put or moved."""
    executions: dict[ExecutionId, Execution] = {}
    leftovers: list[ExecutionId] = []
    """Executions put in the window that went with their job: they too leave logs and files."""
    workers: dict[WorkerId, Worker | None] = {}
    """None: forgotten."""
    queues: dict[str, Queue] = {}
    keys: dict[str, KeyRecord] = {}
    policy: Policy | None = None
    """The newest, if any was set."""
    tenants: dict[str, Tenant] = {}
    runtimes: dict[tuple[str, str], RuntimeStats] = {}
    submitted: int = 0
    finished: dict[tuple[str, str], int] = {}
    """How many jobs ended, by (queue, state)."""
    next_arrival_number: int = 0
    spill_counts: dict[int, int] = {}
    """How many more jobs are on the shelf of each line, or how many fewer."""
    schedules: dict[ScheduleId, Schedule | None] = {}
    """Put in the window as a whole; None: gone."""
    schedule_states: dict[ScheduleId, ScheduleState] = {}
    """The newest course of each schedule whose plan is what it was."""
    occurrences: dict[tuple[ScheduleId, Instant], Occurrence] = {}
    decided: dict[tuple[str, str], int] = {}
    """How many instants were decided, by (decision, why)."""
    calendars: dict[str, Calendar | None] = {}
    """None: gone."""
    events: EventTableChanges = msgspec.field(default_factory=EventTableChanges)

    @property
    def moves(self) -> Iterable[tuple[JobId, Life]]:
        """Jobs whose spec is what it was."""
        return (item for item in self.lives.items() if item[0] not in self.specs)


def jobs_touched(records: Iterable[Sequence[AnyWrite]]) -> list[JobId]:
    """Whose standings `fold` has to be told."""
    of_jobs: frozenset[type] = _OF_JOBS
    touched: list[Any] = [write for writes in records for write in writes if type(write) in of_jobs]
    return list(dict.fromkeys([write.id for write in touched]))


def spill_queue_of(life: Life | JobStanding) -> int:
    """The line on whose shelf a job with this life is; 0: it is in memory, or has ended."""
    return life.line if life.state is JobState.QUEUED else 0


def project(records: Iterable[Sequence[AnyWrite]], standings: JobStandings) -> TableChanges:
    """What the records come to, given where the jobs they touch stood before them."""
    window = Projection(dict(standings))
    window.take_all(records)
    return window.changes


class Projection:
    """Makes nothing for a write that the outcome does not need: this is done for every one."""

    def __init__(self, standings: dict[JobId, JobStanding]) -> None:
        self.changes = TableChanges()
        self.standings = standings
        """From before the window; whoever was written in it stands as `folded.lives` says."""
        self._executions_of: dict[JobId, list[ExecutionId]] | None = None
        """Known from the first job on that is dropped: mostly there is none."""

    def take_all(self, records: Iterable[Sequence[AnyWrite]]) -> None:
        """The next records of the window, whose jobs' standings are there."""
        move, put_execution, put, take = self._move, self._put_execution, self._put, self._take
        for writes in records:
            for write in writes:
                # A short life is five of these, and nothing else.
                if type(write) is MoveJob:
                    move(write)
                elif type(write) is PutExecution:
                    put_execution(write.execution)
                elif type(write) is PutJob:
                    put(write)
                else:
                    take(write)

    def _take(self, write: AnyWrite) -> None:
        folded = self.changes
        match write:
            case MoveJob():
                self._move(write)
            case PutExecution():
                self._put_execution(write.execution)
            case PutJob():
                self._put(write)
            case DropJob():
                self._drop(write)
            case PutWorker():
                folded.workers[write.worker.id] = write.worker
            case DropWorker():
                folded.workers[write.id] = None
            case PutQueue():
                folded.queues[write.queue.name] = write.queue
            case PutKey():
                folded.keys[write.record.key] = write.record
            case _:
                self._take_schedule(write)

    def _take_schedule(self, write: AnyScheduleWrite | AnyEventWrite | AnySettingWrite) -> None:
        folded = self.changes
        match write:
            case PutSchedule():
                folded.schedules[write.schedule.id] = write.schedule
                folded.schedule_states.pop(write.schedule.id, None)
            case MoveSchedule():
                self._move_schedule(write)
            case DropSchedule():
                folded.schedules[write.id] = None
                folded.schedule_states.pop(write.id, None)
            case PutOccurrence():
                self._decide(write.occurrence)
            case PutCalendar():
                folded.calendars[write.calendar.name] = write.calendar
            case DropCalendar():
                folded.calendars[write.name] = None
            case PutPolicy() | PutTenant() | PutRuntime():
                self._set(write)
            case _:
                folded.events.take(write)

    def _move_schedule(self, write: MoveSchedule) -> None:
        folded = self.changes
        if write.id not in folded.schedules:
            folded.schedule_states[write.id] = write.state
            return
        put = folded.schedules[write.id]
        if put is not None:
            folded.schedules[write.id] = msgspec.structs.replace(put, state=write.state)

    def _decide(self, occurrence: Occurrence) -> None:
        folded = self.changes
        folded.occurrences[(occurrence.schedule_id, occurrence.nominal)] = occurrence
        word = (occurrence.decision.value, occurrence.skip_reason.value)
        folded.decided[word] = folded.decided.get(word, 0) + 1

    def _set(self, write: AnySettingWrite) -> None:
        folded = self.changes
        match write:
            case PutPolicy():
                folded.policy = write.policy
            case PutTenant():
                folded.tenants[write.tenant.name] = write.tenant
            case PutRuntime():
                runtime = write.runtime
                folded.runtimes[(runtime.tenant, runtime.name)] = runtime

    def _put(self, write: PutJob) -> None:
        folded, job_id, spec, life = self.changes, write.id, write.spec, write.life
        before = folded.lives.get(job_id) or self.standings.get(job_id)
        if before is None:
            folded.submitted += 1
        if life.state in JOB_FINAL:
            self._end(job_id, before, life, spec.terms.queue)
        if life.line or (before is not None and before.line):
            self._count_spill_move(before, life)
        folded.specs[job_id] = spec
        folded.lives[job_id] = life
        if spec.arrival_number >= folded.next_arrival_number:
            folded.next_arrival_number = spec.arrival_number + 1

    def _put_execution(self, execution: Execution) -> None:
        self.changes.executions[execution.id] = execution
        if self._executions_of is not None:
            self._executions_of.setdefault(execution.job_id, []).append(execution.id)

    def _move(self, write: MoveJob) -> None:
        folded, job_id, life = self.changes, write.id, write.life
        before = folded.lives.get(job_id) or self.standings.get(job_id)
        if before is None:
            return
        if life.line:
            # Whatever moves is on the shelf no longer: only a job as a whole can be put there.
            life = msgspec.structs.replace(life, line=0)
        if life.state in JOB_FINAL:
            spec = folded.specs.get(job_id)
            queue = self.standings[job_id].queue if spec is None else spec.terms.queue
            self._end(job_id, before, life, queue)
        if before.line and (line := spill_queue_of(before)):
            self._count_spilled(line, -1)
        folded.lives[job_id] = life

    def _drop(self, write: DropJob) -> None:
        folded, job_id = self.changes, write.id
        folded.dropped[job_id] = None
        folded.specs.pop(job_id, None)
        standing = self.standings.pop(job_id, None)
        before = folded.lives.pop(job_id, None) or standing
        if before is not None:
            self._count_spill_move(before, None)
        for execution_id in self._index_executions().pop(job_id, ()):
            execution = folded.executions.get(execution_id)
            if execution is not None and execution.job_id == job_id:
                del folded.executions[execution_id]
                folded.leftovers.append(execution_id)

    def _index_executions(self) -> dict[JobId, list[ExecutionId]]:
        """Those put in the window so far, by their jobs."""
        if self._executions_of is None:
            self._executions_of = {}
            for execution in self.changes.executions.values():
                self._executions_of.setdefault(execution.job_id, []).append(execution.id)
        return self._executions_of

    def _end(
        self, job_id: JobId, before: JobStanding | Life | None, life: Life, queue: str
    ) -> bool:
        """Counts it, once a life, even if the job is written again after it."""
        if before is None or before.state not in JOB_FINAL or life.lives > before.lives:
            ended = (queue, life.state)
            self.changes.finished[ended] = self.changes.finished.get(ended, 0) + 1
            return True
        return False

    def _count_spill_move(self, before: JobStanding | Life | None, life: Life | None) -> None:
        """It leaves one, or comes to one, or both."""
        if before is not None and (line := spill_queue_of(before)):
            self._count_spilled(line, -1)
        if life is not None and (line := spill_queue_of(life)):
            self._count_spilled(line, 1)

    def _count_spilled(self, line: int, step: int) -> None:
        self.changes.spill_counts[line] = self.changes.spill_counts.get(line, 0) + step
