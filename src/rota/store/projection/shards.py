"""Shards of the projection: which of them each write belongs to, and which writes one still lacks.

Every row of the tables belongs to one shard: that of its job, by a hash of the job's id. What has
no job (workers, queues, settings, keys, schedules, events) belongs to shard 0. A shard says how far
it is in the transaction that writes its rows, so shards may be at different records.

Why: docs/decisions/0031-projection-in-shards-in-a-process-of-its-own.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias
from zlib import crc32

import msgspec

from rota.core.model import JobId
from rota.core.outcome import (
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
from rota.store.protocol import Head, JournalRecord, Seq

Positions: TypeAlias = Mapping[int, Seq]
"""How far each shard is."""


def _of_no_job(_write: AnyWrite) -> None:
    return None


_by_id: Callable[[AnyWrite], JobId] = attrgetter("id")
_JOB_OF: Mapping[type, Callable[[AnyWrite], JobId | None]] = {
    PutJob: _by_id,
    PutGroup: _by_id,
    MoveJob: _by_id,
    DropJob: _by_id,
    PutExecution: attrgetter("execution.job_id"),
    **dict.fromkeys(
        (PutWorker, DropWorker, PutQueue, PutKey, PutPolicy, PutTenant, PutRuntime),
        _of_no_job,
    ),
    **dict.fromkeys(
        (PutSchedule, MoveSchedule, DropSchedule, PutOccurrence, PutCalendar, DropCalendar),
        _of_no_job,
    ),
    **dict.fromkeys(
        (PutTrigger, DropTrigger, PutEvent, PutTriggerDecision, PutBufferedEvent),
        _of_no_job,
    ),
    ReleaseBufferedEvents: _of_no_job,
}
"""By kind of write; a kind that is missing here cannot be projected at all."""


def job_of(write: AnyWrite) -> JobId | None:
    """Returns the job whose rows a write changes; None: it changes rows of no job."""
    return _JOB_OF[type(write)](write)


def shard_of(job_id: JobId | None, shards: int) -> int:
    """Returns the shard that a job's rows belong to, of so many."""
    return 0 if job_id is None else crc32(job_id.encode()) % shards


def jobs_looked_up(records: Iterable[Sequence[AnyWrite]]) -> list[JobId]:
    """Returns the jobs whose stored state must be known before these writes are projected."""
    found: dict[JobId, None] = {}
    for writes in records:
        for write in writes:
            # A short job is five of these and nothing else, so they are tested first.
            if type(write) is PutExecution:
                continue
            if type(write) is MoveJob or type(write) is PutJob:
                found[write.id] = None
            elif (job_id := job_of(write)) is not None:
                found[job_id] = None
    return list(found)


def writes_due(
    records: Sequence[JournalRecord], positions: Positions, shards: int
) -> list[Sequence[AnyWrite]]:
    """Returns, record by record, the writes that the shards in `positions` lack."""
    if not records:
        return []
    newest = max(positions.values())
    if len(positions) == shards and records[0].seq > newest:
        return [record.writes for record in records]
    due: list[Sequence[AnyWrite]] = []
    shard_by_job: dict[JobId | None, int] = {None: 0}
    for record in records:
        lacking = [shard for shard, seq in positions.items() if record.seq > seq]
        if not lacking:
            due.append(())
        elif len(lacking) == shards:
            due.append(record.writes)
        else:
            due.append(_of_shards(record.writes, lacking, shard_by_job, shards))
    return due


def _of_shards(
    writes: Sequence[AnyWrite],
    wanted: Sequence[int],
    shard_by_job: dict[JobId | None, int],
    shards: int,
) -> list[AnyWrite]:
    found: list[AnyWrite] = []
    for write in writes:
        job_id = job_of(write)
        shard = shard_by_job.get(job_id)
        if shard is None:
            shard = shard_by_job[job_id] = shard_of(job_id, shards)
        if shard in wanted:
            found.append(write)
    return found


def shards_behind(positions: Mapping[int, Head], end: Seq) -> dict[int, Head]:
    """Returns those of these shards that do not have record `end` yet.

    Another server may have projected some of them further than a window reaches; these must not
    move back.
    """
    return {shard: head for shard, head in positions.items() if head.seq < end}


class Window(msgspec.Struct):
    """Records of the journal that are to be projected next into some shards."""

    positions: Mapping[int, Head]
    """How far each of these shards is believed to be: before the end of the window."""
    records: Sequence[JournalRecord]
    shards: int
    """How many shards the tables have."""

    def __post_init__(self) -> None:
        if self.records:
            ahead = [shard for shard, head in self.positions.items() if head.seq >= self.end.seq]
            assert not ahead, f"a window to {self.end.seq} would move the shards {ahead} back"

    @property
    def end(self) -> Head:
        """Where the shards are once it is projected."""
        return self.records[-1].head

    @property
    def size(self) -> int:
        """How many writes it has."""
        return sum(len(record.writes) for record in self.records)

    def due(self) -> list[Sequence[AnyWrite]]:
        """Returns the writes that the shards lack, record by record."""
        seqs = {shard: head.seq for shard, head in self.positions.items()}
        return writes_due(self.records, seqs, self.shards)
