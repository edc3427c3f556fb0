"""Reads spilled jobs back from the store for the scheduler, beside the loop.

The tables may be behind the journal, and nobody waits for them: what newer records say of spilled
jobs is kept here until the tables have it, and put over what is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import structlog
from msgspec.structs import replace

from rota.core.commands import Refilled
from rota.core.model import JobId, JobRecord, Millis
from rota.core.outcome import AnyWrite, DropJob, MoveJob, PutJob, Refill
from rota.engine.limits import EngineLimits
from rota.engine.ports import Clock
from rota.store.projection.shards import shard_of
from rota.store.protocol import JournalStore, Seq, SpilledJobs, StoreError
from rota.store.table_changes import spill_queue_of

log = structlog.get_logger("rota.engine")
_by_arrival = attrgetter("spec.arrival_number")


class SpillTail:
    """Newest records, as far as they put jobs into spill queues or take them out."""

    def __init__(self) -> None:
        self._records: deque[tuple[Seq, Mapping[JobId, JobRecord | None]]] = deque()
        """By record: each job that it puts into a spill queue, or takes out (None)."""

    def note(self, seq: Seq, writes: Iterable[AnyWrite]) -> None:
        """Notes a durable record."""
        moved: dict[JobId, JobRecord | None] = {}
        for write in writes:
            if isinstance(write, PutJob) and spill_queue_of(write.life):
                moved[write.id] = JobRecord(write.id, write.spec, write.life)
            elif isinstance(write, PutJob | MoveJob | DropJob):
                moved[write.id] = None
        if moved:
            self._records.append((seq, moved))

    def forget(self, projected: Seq) -> None:
        """Forgets what all tables have."""
        while self._records and self._records[0][0] <= projected:
            self._records.popleft()

    def clear(self) -> None:
        """Forgets all: no table has a job that is spilled no longer."""
        self._records.clear()

    def complete(
        self, wanted: Refill, read: Sequence[JobRecord], at: SpilledJobs
    ) -> list[JobRecord]:
        """Returns the next jobs of a spill queue now, given what the tables have of them."""
        jobs = {job.id: job for job in read}
        # Beyond the last job that was read the tables may have more, which come first.
        last = read[-1].spec.arrival_number if len(read) == wanted.limit else None
        for seq, moved in self._records:
            for job_id, job in moved.items():
                if not _lacks(at, job_id, seq):
                    continue
                if job is not None and _is_among(job, wanted, last):
                    jobs[job_id] = job
                else:
                    jobs.pop(job_id, None)
        return sorted(jobs.values(), key=_by_arrival)[: wanted.limit]


def _is_among(job: JobRecord, wanted: Refill, last: int | None) -> bool:
    number = job.spec.arrival_number
    return (
        job.life.line == wanted.spill_queue
        and number > wanted.after
        and (last is None or number < last)
    )


def _lacks(at: SpilledJobs, job_id: JobId, seq: Seq) -> bool:
    return at.positions[shard_of(job_id, len(at.positions))] < seq


class Refills:
    """Runs the reads of spilled jobs; `put` receives the answers, as inputs of the next turn."""

    def __init__(
        self,
        journal: JournalStore,
        put: Callable[[Sequence[Refilled]], None],
        clock: Clock,
        limits: EngineLimits,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._journal = journal
        self._put = put
        self._tasks: dict[asyncio.Task[None], Seq] = {}
        """Each with a record that the tables had when its newest read began."""
        self._since: dict[asyncio.Task[None], Millis] = {}
        """With the time at which each began, by the steady clock."""
        self._tail = SpillTail()
        self._spills, self._spilled_until = False, Seq(0)

    def note(self, seq: Seq, writes: Iterable[AnyWrite], *, spills: bool) -> None:
        """Notes a durable record; `spills`: whether any job is spilled now."""
        if spills or self._spills:
            self._spilled_until = seq
        self._spills = spills
        # What is read may be as old as the read.
        projected = min((self._journal.projection.projected, *self._tasks.values()))
        if projected >= self._spilled_until:
            self._tail.clear()
            return
        self._tail.note(seq, writes)
        self._tail.forget(projected)

    def fetch(self, wanted: Sequence[Refill]) -> None:
        """Reads jobs for a durable turn."""
        task = asyncio.create_task(self._fetch(wanted), name="rota-refill")
        self._tasks[task] = self._journal.projection.projected
        self._since[task] = self._clock.steady()
        task.add_done_callback(self._ended)

    def waiting_ms(self) -> Millis:
        """Returns for how long the oldest read has been under way; 0: none is."""
        return self._clock.steady() - min(self._since.values()) if self._since else 0

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._since.pop(task, None)

    async def close(self) -> None:
        """Cancels all reads: the next scheduler asks for itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tail.clear()
        self._spills, self._spilled_until = False, Seq(0)

    async def _fetch(self, wanted: Sequence[Refill]) -> None:
        left, task = list(wanted), asyncio.current_task()
        assert task is not None
        while left:
            self._tasks[task] = self._journal.projection.projected
            try:
                found = await self._journal.read_spilled(left)
            except Exception as error:
                # After any error it asks again: workers wait for these jobs, and nobody else asks.
                unexpected = not isinstance(error, StoreError)
                log.warning("refill_failed", reason=str(error), exc_info=unexpected)
                await asyncio.sleep(self._limits.refill_retry_s)
                continue
            left = self._answer(left, found)

    def _answer(self, wanted: Sequence[Refill], found: SpilledJobs) -> list[Refill]:
        """Answers what was read; returns what must be read on, because all of it had moved."""
        answers: list[Refilled] = []
        left: list[Refill] = []
        for number, (refill, read) in enumerate(zip(wanted, found.jobs, strict=True)):
            jobs = self._tail.complete(refill, read, found)
            damaged = found.damaged[number] if found.damaged else ()
            if damaged:
                log.error("stored_row_damaged", queue=refill.spill_queue, arrival_numbers=damaged)
            if not jobs and len(read) == refill.limit:
                left.append(replace(refill, after=read[-1].spec.arrival_number))
            else:
                answers.append(Refilled(refill=refill, jobs=tuple(jobs), damaged=damaged))
        if answers:
            self._put(answers)
        return left
