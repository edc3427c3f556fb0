"""Computes what a window of journal records changes in the tables: the pure half of the projection.

A job that was put, moved and finished within a window becomes one row in its final state.
Projecting records in one window or one by one comes to the same rows, whatever the writes.
The stores bring the rows that were there before, and write the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, assert_never

import msgspec

from rota.core.lifecycle import JOB_FINAL
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    JobRecord,
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
    """Changes of the tables of triggers and events; None: delete the row."""

    triggers: dict[TriggerId, Trigger | None] = {}
    accepted: dict[str, AcceptedEvent] = {}
    decisions: dict[TriggerDecisionId, TriggerDecision] = {}
    buffered: dict[TriggerDecisionId, BufferedEvent | None] = {}
    reacted: dict[str, int] = {}
    """How many events were accepted and repeated, and how many decisions there were of each."""

    def take(self, write: AnyEventWrite) -> None:
        """Adds one more write."""
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
    """Part of a job's row that is needed to count submissions, endings and spilled jobs exactly."""

    state: JobState
    lives: int
    queue: str
    line: int = 0
    """The spill queue that it is in; 0: none."""


JobStandings: TypeAlias = Mapping[JobId, JobStanding]
AnyScheduleWrite: TypeAlias = (
    PutSchedule | MoveSchedule | DropSchedule | PutOccurrence | PutCalendar | DropCalendar
)

AnySettingWrite: TypeAlias = PutPolicy | PutTenant | PutRuntime


class TableChanges(msgspec.Struct):
    """Changes of the tables that a window comes to. Apply them by dropping, then putting, then
    moving."""

    dropped: dict[JobId, None] = {}
    """Jobs to delete, with their executions, labels and edges as of before the window."""
    specs: dict[JobId, Spec] = {}
    """Jobs put in the window; their lives are in `lives`."""
    lives: dict[JobId, Life] = {}
    """The newest life of each job put or moved."""
    executions: dict[ExecutionId, Execution] = {}
    leftovers: list[ExecutionId] = []
    """Executions put in the window whose job was dropped: they too leave logs and files."""
    workers: dict[WorkerId, Worker | None] = {}
    """None: removed."""
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
    """How many more jobs are in each spill queue, or how many fewer."""
    schedules: dict[ScheduleId, Schedule | None] = {}
    """Put in the window as a whole; None: removed."""
    schedule_states: dict[ScheduleId, ScheduleState] = {}
    """The newest state of each schedule whose definition is unchanged."""
    occurrences: dict[tuple[ScheduleId, Instant], Occurrence] = {}
    decided: dict[tuple[str, str], int] = {}
    """How many instants were decided, by (decision, skip reason)."""
    calendars: dict[str, Calendar | None] = {}
    """None: removed."""
    events: EventTableChanges = msgspec.field(default_factory=EventTableChanges)

    @property
    def moves(self) -> Iterable[tuple[JobId, Life]]:
        """Jobs that moved, and whose spec is unchanged."""
        return (item for item in self.lives.items() if item[0] not in self.specs)


def standing_of(job: JobRecord) -> JobStanding:
    """Returns the standing of a stored job."""
    life = job.life
    return JobStanding(life.state, life.lives, job.spec.terms.queue, spill_queue_of(life))


def spill_queue_of(life: Life | JobStanding) -> int:
    """Returns the spill queue of a job with this life; 0: it is in memory, or has ended."""
    return life.line if life.state is JobState.QUEUED else 0


def project(records: Iterable[Sequence[AnyWrite]], standings: JobStandings) -> TableChanges:
    """Returns what the records come to, given the standings of the jobs they touch."""
    window = _Window(dict(standings))
    window.take_all(records)
    return window.changes


class _Window:
    """Window of the journal whose writes are applied in memory.

    It allocates nothing that the outcome does not need: this runs for every write.
    """

    def __init__(self, standings: dict[JobId, JobStanding]) -> None:
        self.changes = TableChanges()
        self.standings = standings
        """From before the window; for a job written in it, `changes.lives` is what counts."""
        self._executions_of: dict[JobId, list[ExecutionId]] | None = None
        """Filled when the first job is dropped: mostly there is none."""

    def take_all(self, records: Iterable[Sequence[AnyWrite]]) -> None:
        """Takes the records; the standings of their jobs must be known."""
        move, put_execution, put, take = self._move, self._put_execution, self._put, self._take
        for writes in records:
            for write in writes:
                # A short job is five of these and nothing else, so they are tested first.
                if type(write) is MoveJob:
                    move(write)
                elif type(write) is PutExecution:
                    put_execution(write.execution)
                elif type(write) is PutJob:
                    put(write)
                else:
                    take(write)

    def _take(self, write: AnyWrite) -> None:
        changes = self.changes
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
                changes.workers[write.worker.id] = write.worker
            case DropWorker():
                changes.workers[write.id] = None
            case PutQueue():
                changes.queues[write.queue.name] = write.queue
            case PutKey():
                changes.keys[write.record.key] = write.record
            case _:
                self._take_schedule(write)

    def _take_schedule(self, write: AnyScheduleWrite | AnyEventWrite | AnySettingWrite) -> None:
        changes = self.changes
        match write:
            case PutSchedule():
                changes.schedules[write.schedule.id] = write.schedule
                changes.schedule_states.pop(write.schedule.id, None)
            case MoveSchedule():
                self._move_schedule(write)
            case DropSchedule():
                changes.schedules[write.id] = None
                changes.schedule_states.pop(write.id, None)
            case PutOccurrence():
                self._decide(write.occurrence)
            case PutCalendar():
                changes.calendars[write.calendar.name] = write.calendar
            case DropCalendar():
                changes.calendars[write.name] = None
            case PutPolicy() | PutTenant() | PutRuntime():
                self._set(write)
            case _:
                changes.events.take(write)

    def _move_schedule(self, write: MoveSchedule) -> None:
        changes = self.changes
        if write.id not in changes.schedules:
            changes.schedule_states[write.id] = write.state
            return
        put = changes.schedules[write.id]
        if put is not None:
            changes.schedules[write.id] = msgspec.structs.replace(put, state=write.state)

    def _decide(self, occurrence: Occurrence) -> None:
        changes = self.changes
        changes.occurrences[(occurrence.schedule_id, occurrence.nominal)] = occurrence
        word = (occurrence.decision.value, occurrence.skip_reason.value)
        changes.decided[word] = changes.decided.get(word, 0) + 1

    def _set(self, write: AnySettingWrite) -> None:
        changes = self.changes
        match write:
            case PutPolicy():
                changes.policy = write.policy
            case PutTenant():
                changes.tenants[write.tenant.name] = write.tenant
            case PutRuntime():
                runtime = write.runtime
                changes.runtimes[(runtime.tenant, runtime.name)] = runtime

    def _put(self, write: PutJob) -> None:
        changes, job_id, spec, life = self.changes, write.id, write.spec, write.life
        before = changes.lives.get(job_id) or self.standings.get(job_id)
        # A job of a later life was counted, though retention may have dropped its row.
        if before is None and life.lives == 1:
            changes.submitted += 1
        if life.state in JOB_FINAL:
            self._end(before, life, spec.terms.queue)
        if life.line or (before is not None and before.line):
            self._count_spill_move(before, life)
        changes.specs[job_id] = spec
        changes.lives[job_id] = life
        if spec.arrival_number >= changes.next_arrival_number:
            changes.next_arrival_number = spec.arrival_number + 1

    def _put_execution(self, execution: Execution) -> None:
        self.changes.executions[execution.id] = execution
        if self._executions_of is not None:
            self._executions_of.setdefault(execution.job_id, []).append(execution.id)

    def _move(self, write: MoveJob) -> None:
        changes, job_id, life = self.changes, write.id, write.life
        before = changes.lives.get(job_id) or self.standings.get(job_id)
        if before is None:
            return
        if life.line:
            # A job that moves is spilled no longer: only a job that is put as a whole can be.
            life = msgspec.structs.replace(life, line=0)
        if life.state in JOB_FINAL:
            spec = changes.specs.get(job_id)
            queue = self.standings[job_id].queue if spec is None else spec.terms.queue
            self._end(before, life, queue)
        if before.line and (line := spill_queue_of(before)):
            self._count_spilled(line, -1)
        changes.lives[job_id] = life

    def _drop(self, write: DropJob) -> None:
        changes, job_id = self.changes, write.id
        changes.dropped[job_id] = None
        changes.specs.pop(job_id, None)
        standing = self.standings.pop(job_id, None)
        before = changes.lives.pop(job_id, None) or standing
        if before is not None:
            self._count_spill_move(before, None)
        for execution_id in self._index_executions().pop(job_id, ()):
            execution = changes.executions.get(execution_id)
            if execution is not None and execution.job_id == job_id:
                del changes.executions[execution_id]
                changes.leftovers.append(execution_id)

    def _index_executions(self) -> dict[JobId, list[ExecutionId]]:
        """Groups the executions put in the window so far by their jobs."""
        if self._executions_of is None:
            self._executions_of = {}
            for execution in self.changes.executions.values():
                self._executions_of.setdefault(execution.job_id, []).append(execution.id)
        return self._executions_of

    def _end(self, before: JobStanding | Life | None, life: Life, queue: str) -> None:
        """Counts an end once a life, even if the job is written again."""
        if before is None or before.state not in JOB_FINAL or life.lives > before.lives:
            ended = (queue, life.state)
            self.changes.finished[ended] = self.changes.finished.get(ended, 0) + 1

    def _count_spill_move(self, before: JobStanding | Life | None, life: Life | None) -> None:
        """Counts a job that leaves a spill queue, or enters one, or both."""
        if before is not None and (line := spill_queue_of(before)):
            self._count_spilled(line, -1)
        if life is not None and (line := spill_queue_of(life)):
            self._count_spilled(line, 1)

    def _count_spilled(self, line: int, step: int) -> None:
        self.changes.spill_counts[line] = self.changes.spill_counts.get(line, 0) + step
