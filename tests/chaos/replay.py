"""Walks a journal from its first record and names what no honest leader would have written.

The journal is the order in which things were decided, whatever clocks said. What must hold of
every prefix of it is checked here with code of its own: none of the scheduler's runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rota.core.lifecycle import EXECUTION_TRANSITIONS, JOB_TRANSITIONS, JobVerb
from rota.core.model import Execution, Life, Resources, Semantics, Spec, Worker
from rota.core.outcome import AnyWrite, DropJob, MoveJob, PutExecution, PutJob, PutWorker
from rota.store.protocol import JournalRecord

HOLDS = ("claimed", "running")
RUNS = ("running", "cancelling")
FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


def _reachable(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, None]]:
    """Where one record may take a thing: it tells only the last of a turn's moves."""
    steps: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for source, target in pairs:
        steps[source][target] = None
    reached: dict[str, dict[str, None]] = {}
    for source in list(steps):
        found: dict[str, None] = {}
        line = list(steps[source])
        while line:
            state = line.pop()
            if state not in found:
                found[state] = None
                line.extend(steps[state])
        reached[source] = found
    return reached


JOB_WAYS = _reachable(
    (source, target)
    for (source, verb), target in JOB_TRANSITIONS.items()
    if verb is not JobVerb.REVIVE
)
EXECUTION_WAYS = _reachable(
    (source, target) for (source, _), target in EXECUTION_TRANSITIONS.items()
)


def broken_journal(
    records: Sequence[JournalRecord], shown: Mapping[str, str] | None = None
) -> list[str]:
    """A sentence for each promise that the journal itself breaks.

    `shown` is what readers are told of each job at the end: it must be what the journal comes to.
    """
    replay = _Replay()
    broken = [
        *_places(records),
        *(found for record in records for found in replay.apply(record)),
    ]
    return broken if shown is None else [*broken, *replay.unlike(shown)]


def _places(records: Sequence[JournalRecord]) -> Iterator[str]:
    for before, after in pairwise(records):
        if after.seq != before.seq + 1:
            yield f"record {after.seq} follows {before.seq}"
        if after.epoch < before.epoch:
            yield f"record {after.seq} is of epoch {after.epoch}, after one of {before.epoch}"


class _Replay:
    """What the records so far come to."""

    def __init__(self) -> None:
        self._specs: dict[str, Spec] = {}
        self._lives: dict[str, Life] = {}
        self._executions: dict[str, Execution] = {}
        self._fences: dict[str, int] = {}
        self._runs_in_life: Counter[tuple[str, int]] = Counter()
        self._workers: dict[str, Worker] = {}
        self._held: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """Worker -> its live executions -> their jobs."""
        self._leases: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Job -> its live executions."""

    def apply(self, record: JournalRecord) -> Iterator[str]:
        """One record; what is wrong with it, and with how things stand after it."""
        touched: dict[str, None] = {}
        jobs: dict[str, None] = {}
        for write in record.writes:
            for broken in self._write(write):
                yield f"record {record.seq}: {broken}"
            if isinstance(write, PutExecution):
                touched[write.execution.worker_id] = None
                jobs[write.execution.job_id] = None
            elif isinstance(write, PutJob | MoveJob):
                jobs[write.id] = None
        for broken in (*self._one_lease(jobs), *self._within_capacity(touched)):
            yield f"record {record.seq}: {broken}"

    def unlike(self, shown: Mapping[str, str]) -> Iterator[str]:
        """Where the tables and the journal differ."""
        for job_id, life in self._lives.items():
            told = shown.get(job_id, "nowhere")
            if told != life.state:
                yield f"job {job_id} is {life.state} by the journal and {told} by the tables"
        for job_id in shown:
            if job_id not in self._lives:
                yield f"job {job_id} is in the tables and not in the journal"

    def _write(self, write: AnyWrite) -> Iterator[str]:
        match write:
            case PutJob(id=job_id, spec=spec, life=life):
                self._specs[job_id] = spec
                yield from self._move(job_id, life)
            case MoveJob(id=job_id, life=life):
                yield from self._move(job_id, life)
            case PutExecution(execution=execution):
                yield from self._execution(execution)
            case PutWorker(worker=worker):
                self._workers[worker.id] = worker
            case DropJob(id=job_id):
                self._lives.pop(job_id, None)
            case _:
                return

    def _move(self, job_id: str, life: Life) -> Iterator[str]:
        before = self._lives.get(job_id)
        self._lives[job_id] = life
        if before is None:
            return
        revived = life.lives > before.lives and before.state != "succeeded"
        same = life.state == before.state and life.state not in FINAL
        legal = same or revived or life == before or life.state in JOB_WAYS.get(before.state, ())
        if not legal:
            yield f"job {job_id} went from {before.state} to {life.state}"
        if life.fence < before.fence:
            yield f"job {job_id} went from fence {before.fence} back to {life.fence}"

    def _execution(self, execution: Execution) -> Iterator[str]:
        before = self._executions.get(execution.id)
        self._executions[execution.id] = execution
        if execution.state in HOLDS:
            self._held[execution.worker_id][execution.id] = execution.job_id
            self._leases[execution.job_id][execution.id] = None
        else:
            self._held[execution.worker_id].pop(execution.id, None)
            self._leases[execution.job_id].pop(execution.id, None)
        if before is not None:
            legal = execution.state in EXECUTION_WAYS.get(before.state, ())
            if not legal and execution.state != before.state:
                yield f"execution {execution.id} went from {before.state} to {execution.state}"
            return
        yield from self._begun(execution)

    def _begun(self, execution: Execution) -> Iterator[str]:
        job_id = execution.job_id
        newest = self._fences.get(job_id, 0)
        self._fences[job_id] = max(newest, execution.fence)
        if execution.fence <= newest:
            yield f"job {job_id} was given fence {execution.fence} after {newest}"
        spec, life = self._specs.get(job_id), self._lives.get(job_id)
        if spec is None or life is None:
            yield f"execution {execution.id} is of job {job_id}, which nobody submitted"
            return
        self._runs_in_life[job_id, life.lives] += 1
        runs = self._runs_in_life[job_id, life.lives]
        if spec.terms.semantics is Semantics.AT_MOST_ONCE and runs > 1:
            yield f"job {job_id} may start once and was given out {runs} times"

    def _one_lease(self, jobs: Iterable[str]) -> Iterator[str]:
        for job_id in jobs:
            life = self._lives.get(job_id)
            if life is None:
                continue
            leases = len(self._leases[job_id])
            if leases > 1:
                yield f"job {job_id} has {leases} leases at once"
            if bool(leases) != (life.state in RUNS):
                yield f"job {job_id} is {life.state} with {leases} leases"

    def _within_capacity(self, workers: Iterable[str]) -> Iterator[str]:
        for worker_id in workers:
            worker = self._workers.get(worker_id)
            if worker is None:
                yield f"worker {worker_id} was given work, and nobody registered it"
                continue
            used: Counter[str] = Counter()
            for job_id in self._held[worker_id].values():
                if job_id in self._specs:
                    used.update(_amounts(self._specs[job_id].terms.needs.resources))
            room = _amounts(worker.capacity)
            for kind, amount in used.items():
                if amount > room.get(kind, 0):
                    yield f"worker {worker.name} has {room.get(kind, 0)} {kind} and gave {amount}"


def _amounts(resources: Resources) -> Mapping[str, int]:
    named = {
        "cpu": resources.cpu_milli,
        "memory": resources.memory,
        "storage": resources.storage,
        "gpu": resources.gpu_milli,
    }
    return named | {f"custom {name}": amount for name, amount in resources.custom}


class Handover(NamedTuple):
    """One leader after another, by their own records; on one machine their clocks are one."""

    epoch: int
    silent_from: int
    """When the old one's last record was made, in milliseconds."""
    opened: int
    """When the new one's first was."""
    working: int | None
    """When the new one first took a job or gave one out."""


def handovers(records: Sequence[JournalRecord]) -> list[Handover]:
    """Every change of leader that the journal has seen."""
    found = []
    for place, (before, after) in enumerate(pairwise(records), start=1):
        if after.epoch == before.epoch:
            continue
        works = (
            record.at
            for record in records[place:]
            if record.epoch == after.epoch and any(map(_is_work, record.writes))
        )
        found.append(Handover(after.epoch, before.at, after.at, next(works, None)))
    return found


def _is_work(write: AnyWrite) -> bool:
    if isinstance(write, PutExecution):
        return write.execution.state in HOLDS
    return isinstance(write, PutJob)
