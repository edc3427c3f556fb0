"""Replays a journal from its first record and lists what each record changed, for the checkers.

The journal has the order of decisions, whatever clocks showed. None of the scheduler's code runs
here: its decisions are what is judged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.core.model import Array, Execution, Gang, Life, Resources, Spec, Worker
from rota.core.outcome import (
    AnyWrite,
    DropJob,
    MoveJob,
    MoveSchedule,
    PutExecution,
    PutJob,
    PutOccurrence,
    PutSchedule,
    PutWorker,
)
from rota.core.schedule_model import Occurrence, Schedule, ScheduleState
from rota.store.protocol import JournalRecord

LEASED = ("claimed", "running")
"""States of an execution that has a lease."""


@dataclass(frozen=True, slots=True)
class JobMove:
    """Change of a job; its first has no state before."""

    seq: int
    job_id: str
    before: Life | None
    after: Life


@dataclass(frozen=True, slots=True)
class ExecutionChange:
    """Change, or beginning, of an execution."""

    seq: int
    before: Execution | None
    after: Execution
    newest_fence: int
    """The highest fence of its job before."""
    spec: Spec | None
    life: Life | None
    """The life of its job at that moment."""


@dataclass(frozen=True, slots=True)
class JobLeases:
    """State and number of leases of a job, at the end of a record that touched it."""

    seq: int
    job_id: str
    state: str
    leases: int


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """Resources in use on a worker, at the end of a record that changed its executions."""

    seq: int
    worker_id: str
    used: Mapping[str, int]
    capacity: Mapping[str, int] | None
    """None: it is not registered."""


@dataclass(frozen=True, slots=True)
class ScheduleMove:
    """Change of a schedule's watermark."""

    seq: int
    schedule_id: str
    before: ScheduleState | None
    after: ScheduleState


@dataclass(slots=True)
class ReplayedJournal:
    """Replay of a journal: all changes in order, and the state at its end."""

    records: Sequence[JournalRecord]
    job_moves: list[JobMove] = field(default_factory=list)
    execution_changes: list[ExecutionChange] = field(default_factory=list)
    job_leases: list[JobLeases] = field(default_factory=list)
    worker_loads: list[WorkerLoad] = field(default_factory=list)
    schedule_moves: list[ScheduleMove] = field(default_factory=list)
    occurrences: list[tuple[int, Occurrence]] = field(default_factory=list)
    lives: dict[str, Life] = field(default_factory=dict)
    """The life of each job, at the end."""
    specs: dict[str, Spec] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    revived: dict[str, None] = field(default_factory=dict)
    """Jobs that were retried by hand."""


def replay(records: Sequence[JournalRecord]) -> ReplayedJournal:
    replayer = _Replayer(ReplayedJournal(records))
    for record in records:
        replayer.take(record)
    return replayer.out


class _Replayer:
    def __init__(self, out: ReplayedJournal) -> None:
        self.out = out
        self._executions: dict[str, Execution] = {}
        self._fences: dict[str, int] = {}
        self._workers: dict[str, Worker] = {}
        self._held: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """By worker, its live executions with their jobs."""
        self._leases: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """By job, its live executions."""
        self._schedule_states: dict[str, ScheduleState] = {}

    def take(self, record: JournalRecord) -> None:
        workers: dict[str, None] = {}
        jobs: dict[str, None] = {}
        for write in record.writes:
            self._write(record.seq, write)
            if isinstance(write, PutExecution):
                workers[write.execution.worker_id] = None
                jobs[write.execution.job_id] = None
            elif isinstance(write, PutJob | MoveJob):
                jobs[write.id] = None
        self._note_ends(record.seq, jobs, workers)

    def _write(self, seq: int, write: AnyWrite) -> None:
        match write:
            case PutJob(id=job_id, spec=spec, life=life):
                self.out.specs[job_id] = spec
                self._move_job(seq, job_id, life)
            case MoveJob(id=job_id, life=life):
                self._move_job(seq, job_id, life)
            case PutExecution(execution=execution):
                self._change_execution(seq, execution)
            case PutWorker(worker=worker):
                self._workers[worker.id] = worker
            case DropJob(id=job_id):
                self.out.lives.pop(job_id, None)
            case PutSchedule(schedule=schedule):
                self.out.schedules[schedule.id] = schedule
                self._move_schedule(seq, schedule.id, schedule.state)
            case MoveSchedule(id=schedule_id, state=state):
                self._move_schedule(seq, schedule_id, state)
            case PutOccurrence(occurrence=occurrence):
                self.out.occurrences.append((seq, occurrence))
            case _:
                return

    def _move_job(self, seq: int, job_id: str, life: Life) -> None:
        self.out.job_moves.append(JobMove(seq, job_id, self.out.lives.get(job_id), life))
        self.out.lives[job_id] = life
        if life.lives > 1:
            self.out.revived[job_id] = None

    def _move_schedule(self, seq: int, schedule_id: str, state: ScheduleState) -> None:
        before = self._schedule_states.get(schedule_id)
        self.out.schedule_moves.append(ScheduleMove(seq, schedule_id, before, state))
        self._schedule_states[schedule_id] = state

    def _change_execution(self, seq: int, execution: Execution) -> None:
        before = self._executions.get(execution.id)
        self._executions[execution.id] = execution
        job_id = execution.job_id
        if execution.state in LEASED:
            self._held[execution.worker_id][execution.id] = job_id
            self._leases[job_id][execution.id] = None
        else:
            self._held[execution.worker_id].pop(execution.id, None)
            self._leases[job_id].pop(execution.id, None)
        newest = self._fences.get(job_id, 0)
        self._fences[job_id] = max(newest, execution.fence)
        spec, life = self.out.specs.get(job_id), self.out.lives.get(job_id)
        change = ExecutionChange(seq, before, execution, newest, spec, life)
        self.out.execution_changes.append(change)

    def _note_ends(self, seq: int, jobs: Iterable[str], workers: Iterable[str]) -> None:
        for job_id in jobs:
            life = self.out.lives.get(job_id)
            if life is not None and not self._is_group(job_id):
                leases = len(self._leases[job_id])
                self.out.job_leases.append(JobLeases(seq, job_id, life.state, leases))
        for worker_id in workers:
            worker = self._workers.get(worker_id)
            capacity = None if worker is None else _amounts(worker.capacity)
            used = self._used(worker_id)
            self.out.worker_loads.append(WorkerLoad(seq, worker_id, used, capacity))

    def _is_group(self, job_id: str) -> bool:
        """Whether the job only stands for those of an array or gang, and has no lease itself."""
        spec = self.out.specs.get(job_id)
        return spec is not None and isinstance(spec.group, Array | Gang)

    def _used(self, worker_id: str) -> Counter[str]:
        used: Counter[str] = Counter()
        for execution_id, job_id in self._held[worker_id].items():
            if job_id in self.out.specs and not self._only_waits(execution_id):
                used.update(_amounts(self.out.specs[job_id].terms.needs.resources))
        return used

    def _only_waits(self, execution_id: str) -> bool:
        """Whether it is prefetched, and another execution still has its resources."""
        one = self._executions[execution_id]
        return one.state == "claimed" and one.behind in self._held[one.worker_id]


def _amounts(resources: Resources) -> Mapping[str, int]:
    named = {
        "cpu": resources.cpu_milli,
        "memory": resources.memory,
        "storage": resources.storage,
        "gpu": resources.gpu_milli,
    }
    return named | {f"custom {name}": amount for name, amount in resources.custom}
