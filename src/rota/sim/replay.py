"""Walks a journal from its first record and lays out what each one changed, for the checkers.

The journal is the order in which things were decided, whatever clocks said. None of the scheduler's
code runs here: what it would have made of the records is what is in doubt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.core.model import Execution, Life, Resources, Spec, Worker
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
from rota.core.records.schedules import Course, Occurrence, Schedule
from rota.store.protocol import JournalRecord

HOLDS = ("claimed", "running")


@dataclass(frozen=True, slots=True)
class Moved:
    """A job went from one life to another; the first one comes from nowhere."""

    seq: int
    job_id: str
    before: Life | None
    after: Life


@dataclass(frozen=True, slots=True)
class Turned:
    """An execution changed, or began."""

    seq: int
    before: Execution | None
    after: Execution
    newest_fence: int
    """The highest fence that its job had been given before."""
    spec: Spec | None
    life: Life | None
    """Of its job, at that moment."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stood at the end of a record that touched it."""

    seq: int
    job_id: str
    state: str
    leases: int


@dataclass(frozen=True, slots=True)
class Holding:
    """What a worker held at the end of a record that gave it something or took it."""

    seq: int
    worker_id: str
    used: Mapping[str, int]
    room: Mapping[str, int] | None
    """None: nobody registered it."""


@dataclass(frozen=True, slots=True)
class Went:
    """A schedule came further."""

    seq: int
    schedule_id: str
    before: Course | None
    after: Course


@dataclass(slots=True)
class Replayed:
    """What a journal comes to."""

    records: Sequence[JournalRecord]
    moves: list[Moved] = field(default_factory=list)
    turns: list[Turned] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    went: list[Went] = field(default_factory=list)
    occurrences: list[tuple[int, Occurrence]] = field(default_factory=list)
    lives: dict[str, Life] = field(default_factory=dict)
    """Of each job, at the end."""
    specs: dict[str, Spec] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)


def replay(records: Sequence[JournalRecord]) -> Replayed:
    """The whole of it."""
    walk = _Walk(Replayed(records))
    for record in records:
        walk.take(record)
    return walk.out


class _Walk:
    def __init__(self, out: Replayed) -> None:
        self.out = out
        self._executions: dict[str, Execution] = {}
        self._fences: dict[str, int] = {}
        self._workers: dict[str, Worker] = {}
        self._held: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """Worker -> its live executions -> their jobs."""
        self._leases: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Job -> its live executions."""
        self._courses: dict[str, Course] = {}

    def take(self, record: JournalRecord) -> None:
        """One record."""
        workers: dict[str, None] = {}
        jobs: dict[str, None] = {}
        for write in record.writes:
            self._write(record.seq, write)
            if isinstance(write, PutExecution):
                workers[write.execution.worker_id] = None
                jobs[write.execution.job_id] = None
            elif isinstance(write, PutJob | MoveJob):
                jobs[write.id] = None
        self._look(record.seq, jobs, workers)

    def _write(self, seq: int, write: AnyWrite) -> None:
        match write:
            case PutJob(id=job_id, spec=spec, life=life):
                self.out.specs[job_id] = spec
                self._move(seq, job_id, life)
            case MoveJob(id=job_id, life=life):
                self._move(seq, job_id, life)
            case PutExecution(execution=execution):
                self._turn(seq, execution)
            case PutWorker(worker=worker):
                self._workers[worker.id] = worker
            case DropJob(id=job_id):
                self.out.lives.pop(job_id, None)
            case PutSchedule(schedule=schedule):
                self.out.schedules[schedule.id] = schedule
                self._go(seq, schedule.id, schedule.course)
            case MoveSchedule(id=schedule_id, course=course):
                self._go(seq, schedule_id, course)
            case PutOccurrence(occurrence=occurrence):
                self.out.occurrences.append((seq, occurrence))
            case _:
                return

    def _move(self, seq: int, job_id: str, life: Life) -> None:
        self.out.moves.append(Moved(seq, job_id, self.out.lives.get(job_id), life))
        self.out.lives[job_id] = life

    def _go(self, seq: int, schedule_id: str, course: Course) -> None:
        self.out.went.append(Went(seq, schedule_id, self._courses.get(schedule_id), course))
        self._courses[schedule_id] = course

    def _turn(self, seq: int, execution: Execution) -> None:
        before = self._executions.get(execution.id)
        self._executions[execution.id] = execution
        job_id = execution.job_id
        if execution.state in HOLDS:
            self._held[execution.worker_id][execution.id] = job_id
            self._leases[job_id][execution.id] = None
        else:
            self._held[execution.worker_id].pop(execution.id, None)
            self._leases[job_id].pop(execution.id, None)
        newest = self._fences.get(job_id, 0)
        self._fences[job_id] = max(newest, execution.fence)
        spec, life = self.out.specs.get(job_id), self.out.lives.get(job_id)
        self.out.turns.append(Turned(seq, before, execution, newest, spec, life))

    def _look(self, seq: int, jobs: Iterable[str], workers: Iterable[str]) -> None:
        for job_id in jobs:
            life = self.out.lives.get(job_id)
            if life is not None:
                leases = len(self._leases[job_id])
                self.out.standings.append(Standing(seq, job_id, life.state, leases))
        for worker_id in workers:
            worker = self._workers.get(worker_id)
            room = None if worker is None else amounts(worker.capacity)
            self.out.holdings.append(Holding(seq, worker_id, self._used(worker_id), room))

    def _used(self, worker_id: str) -> Counter[str]:
        used: Counter[str] = Counter()
        for execution_id, job_id in self._held[worker_id].items():
            if job_id in self.out.specs and not self._only_waits(execution_id):
                used.update(amounts(self.out.specs[job_id].terms.needs.resources))
        return used

    def _only_waits(self, execution_id: str) -> bool:
        """Whether it was given ahead, and the one whose place it waits for is there still."""
        one = self._executions[execution_id]
        return one.state == "claimed" and one.behind in self._held[one.worker_id]


def amounts(resources: Resources) -> Mapping[str, int]:
    """By the name of what it is."""
    named = {
        "cpu": resources.cpu_milli,
        "memory": resources.memory,
        "storage": resources.storage,
        "gpu": resources.gpu_milli,
    }
    return named | {f"custom {name}": amount for name, amount in resources.custom}
