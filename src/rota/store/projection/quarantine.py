"""Quarantine: sets jobs aside whose writes cannot be projected, so that all others go on.

A job is set aside as a whole: with the write that failed go all its later ones, in their order. Who
reads such a job applies them to its row, so memory and readers lose nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from rota.core.model import Execution, ExecutionId, Instant, JobId, JobRecord
from rota.core.outcome import AnyWrite, DropJob, MoveJob, PutExecution, PutJob, Refill
from rota.store.projection.shards import job_of, shard_of
from rota.store.protocol import JournalRecord, QuarantinedWork, Seq, ShownWrite, StoreError
from rota.store.queries import ExecutionQuery, Page
from rota.store.table_changes import spill_queue_of

QUARANTINED_JOBS_MAX = 100
"""More jobs than these are not the jobs' fault: then the projection stops and says why."""
NOT_THERE = "this job is not in quarantine: perhaps it was repaired before"
"""Why a job that is not set aside is not repaired."""
REASON = "quarantined"
"""The word that a job in quarantine shows as its reason."""


class QuarantineFullError(StoreError):
    """Raised when so many jobs cannot be projected that it is not the jobs' fault."""


_by_arrival = attrgetter("spec.arrival_number")
_by_id = attrgetter("id")
_encode = msgspec.msgpack.Encoder().encode
_decode: msgspec.msgpack.Decoder[AnyWrite] = msgspec.msgpack.Decoder(AnyWrite)


class QuarantinedJob(msgspec.Struct, frozen=True):
    """Job that is set aside."""

    job_id: JobId
    shard: int
    seq: Seq
    """The record whose writes could not be projected."""
    at: Instant
    reason: str


Quarantine = dict[JobId, QuarantinedJob]
"""All jobs that are set aside."""


class QuarantinedWrite(msgspec.Struct, frozen=True):
    """Write of a job that is set aside, as it is stored."""

    job_id: JobId
    seq: Seq
    index: int
    body: bytes


def set_aside(
    records: Sequence[JournalRecord],
    due: list[Sequence[AnyWrite]],
    quarantine: Mapping[JobId, QuarantinedJob],
) -> list[QuarantinedWrite]:
    """Takes the writes of quarantined jobs out of `due`, which belongs to these records."""
    aside: list[QuarantinedWrite] = []
    if not quarantine:
        return aside
    for number, (record, writes) in enumerate(zip(records, due, strict=True)):
        kept: list[AnyWrite] = []
        for index, write in enumerate(writes):
            job_id = job_of(write)
            if job_id is None or job_id not in quarantine:
                kept.append(write)
            else:
                aside.append(QuarantinedWrite(job_id, record.seq, index, _encode(write)))
        if len(kept) != len(writes):
            due[number] = kept
    return aside


Trial = Callable[[Sequence[Sequence[AnyWrite]]], Awaitable[None]]
"""Projects some writes and undoes it; raises what fails."""


async def find_failing_jobs(
    due: Sequence[Sequence[AnyWrite]],
    trial: Trial,
    is_of_the_data: Callable[[BaseException], bool],
    quarantined: int,
) -> dict[JobId, str]:
    """Returns the jobs whose writes fail by themselves, each with the reason.

    Tries ever smaller groups of jobs. Raises what failed if it is not about any job, and
    QuarantineFullError if these and the `quarantined` ones are too many.
    """
    await trial(_writes_of(due, (None,)))
    failed: dict[JobId, str] = {}
    jobs = list(dict.fromkeys(job_of(write) for writes in due for write in writes))
    groups = [[job_id for job_id in jobs if job_id is not None]]
    while groups:
        group = groups.pop()
        try:
            await trial(_writes_of(due, group))
        except Exception as error:
            if not is_of_the_data(error):
                raise
            if len(group) == 1:
                failed[group[0]] = str(error) or type(error).__name__
            else:
                middle = len(group) // 2
                groups += [group[:middle], group[middle:]]
            if quarantined + len(failed) > QUARANTINED_JOBS_MAX:
                raise QuarantineFullError(
                    f"more than {QUARANTINED_JOBS_MAX} jobs cannot be projected: {error}"
                ) from error
    return failed


def _writes_of(
    due: Sequence[Sequence[AnyWrite]], jobs: Collection[JobId | None]
) -> list[list[AnyWrite]]:
    chosen = dict.fromkeys(jobs)
    return [[write for write in writes if job_of(write) in chosen] for writes in due]


def quarantined_by(
    records: Sequence[JournalRecord],
    due: Sequence[Sequence[AnyWrite]],
    failed: Mapping[JobId, str],
    shards: int,
) -> list[QuarantinedJob]:
    """Returns entries of the jobs that failed, each with the first record that is due and writes
    to it."""
    first: dict[JobId, JournalRecord] = {}
    for record, writes in zip(records, due, strict=True):
        for write in writes:
            job_id = job_of(write)
            if job_id is not None and job_id in failed:
                first.setdefault(job_id, record)
    return [
        QuarantinedJob(job_id, shard_of(job_id, shards), record.seq, record.at, failed[job_id])
        for job_id, record in first.items()
    ]


def decode_write(body: bytes) -> AnyWrite:
    """Decodes a write that was set aside."""
    return _decode.decode(body)


def quarantined_work(
    jobs: Mapping[JobId, QuarantinedJob], found: Iterable[tuple[JobId, int, int, int, bytes | None]]
) -> list[QuarantinedWork]:
    """Joins jobs that are set aside with their first writes.

    `found` has (job, how many writes it has, record, bytes, body or None if it is too large).
    """
    counts: dict[JobId, int] = {}
    writes: dict[JobId, list[ShownWrite]] = {}
    for job_id, count, seq, size, body in found:
        counts[job_id] = count
        write = None if body is None else decode_write(body)
        writes.setdefault(job_id, []).append(ShownWrite(Seq(seq), size, write))
    return [
        QuarantinedWork(
            job.job_id, job.seq, job.at, job.reason, counts.get(job_id, 0), writes.get(job_id, ())
        )
        for job_id, job in sorted(jobs.items())
    ]


def wanted_jobs(
    jobs: Mapping[JobId, QuarantinedJob], job_ids: Sequence[JobId]
) -> tuple[list[QuarantinedJob], dict[JobId, str]]:
    """Returns those of these jobs that are set aside, or all; and why not the others."""
    unknown = {job_id: NOT_THERE for job_id in job_ids if job_id not in jobs}
    wanted = dict.fromkeys(job_ids) if job_ids else dict.fromkeys(jobs)
    return sorted((jobs[one] for one in wanted if one in jobs), key=_by_record), unknown


def _by_record(job: QuarantinedJob) -> tuple[Seq, JobId]:
    return job.seq, job.job_id


class SetAside(msgspec.Struct):
    """State of a job in quarantine: its row with the writes that were set aside."""

    job: JobRecord | None
    executions: dict[ExecutionId, Execution] = {}
    """Those that were written since it was set aside."""
    was_dropped: bool = False
    """Whether the executions that the tables have are deleted."""

    @property
    def shown(self) -> list[JobRecord]:
        """The job as readers see it, if there is one."""
        if self.job is None:
            return []
        return [replace(self.job, life=replace(self.job.life, reason=REASON))]


SpilledPart: TypeAlias = tuple[Sequence[JobRecord], Sequence[int]]
"""Jobs of a spill queue, and the arrival numbers of those among them whose rows are damaged."""
AllSetAside: TypeAlias = Mapping[JobId, SetAside]
"""Jobs in quarantine of which writes were set aside."""


def apply_writes(row: JobRecord | None, writes: Iterable[AnyWrite]) -> SetAside:
    """Returns what a job's row and executions would be if its writes had been projected."""
    found = SetAside(row)
    for write in writes:
        match write:
            case PutJob():
                found.job = JobRecord(write.id, write.spec, write.life)
            case MoveJob() if found.job is not None:
                found.job = replace(found.job, life=replace(write.life, line=0))
            case DropJob():
                found = SetAside(None, was_dropped=True)
            case PutExecution():
                found.executions[write.execution.id] = write.execution
            case _:
                continue
    return found


def apply_each(stored: Iterable[JobRecord], writes: Iterable[QuarantinedWrite]) -> AllSetAside:
    """Returns each job that has such writes, given the rows of those that have one."""
    rows = {job.id: job for job in stored}
    writes_of: dict[JobId, list[AnyWrite]] = {}
    for one in writes:
        writes_of.setdefault(one.job_id, []).append(decode_write(one.body))
    return {job_id: apply_writes(rows.get(job_id), each) for job_id, each in writes_of.items()}


def overlay_executions(
    wanted: Iterable[ExecutionId], found: Iterable[Execution], aside: AllSetAside
) -> list[Execution]:
    """Returns executions that were found, those of jobs in quarantine as the journal has them."""
    newer = {x.id: x for one in aside.values() for x in one.executions.values()}
    dropped = [job_id for job_id, one in aside.items() if one.was_dropped]
    kept = [x for x in found if x.id not in newer and x.job_id not in dropped]
    return kept + [newer[one] for one in dict.fromkeys(wanted) if one in newer]


def overlay_spilled(wanted: Refill, found: SpilledPart, aside: AllSetAside) -> SpilledPart:
    """Returns the next jobs of a spill queue, those in quarantine as the journal has them, and the
    arrival numbers of damaged ones.

    `found` must be longer than was asked for by the number of jobs set aside, if the table has as
    many: the end of a short answer is the end of the spill queue.
    """
    jobs = [job for job in found[0] if job.id not in aside]
    moved = [one.job for one in aside.values() if one.job is not None]
    jobs += [
        job
        for job in moved
        if spill_queue_of(job.life) == wanted.spill_queue and job.spec.arrival_number > wanted.after
    ]
    jobs = sorted(jobs, key=_by_arrival)[: wanted.limit]
    if len(jobs) < wanted.limit:
        return jobs, found[1]
    last = jobs[-1].spec.arrival_number
    return jobs, [number for number in found[1] if number < last]


def overlay_page(page: Page[Execution], query: ExecutionQuery, aside: SetAside) -> Page[Execution]:
    """Returns a page of a job's executions, if the job is in quarantine.

    `page` must be longer than was asked for by the number of executions set aside.
    """
    found = [] if aside.was_dropped else [x for x in page if x.id not in aside.executions]
    found += [
        x
        for x in aside.executions.values()
        if (query.worker_id is None or x.worker_id == query.worker_id)
        and (not query.states or x.state in query.states)
        and (query.before is None or x.id < query.before)
        and (page.rest is None or x.id >= page.rest)
    ]
    found.sort(key=_by_id, reverse=True)
    is_whole = len(found) <= query.limit
    return Page(found[: query.limit], page.rest if is_whole else None)
