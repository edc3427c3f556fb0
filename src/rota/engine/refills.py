"""Reads spilled jobs back from the store for the scheduler, beside the loop.

The tables may be behind the journal, and nobody waits for them: what newer records say of spilled
jobs is kept here until the tables have it, and put over what is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from operator import attrgetter

import structlog
from msgspec.structs import replace

from rota.core.commands import Refilled
from rota.core.model import JobId, JobRecord
from rota.core.outcome import AnyWrite, DropJob, MoveJob, PutJob, Refill
from rota.engine.limits import EngineLimits
from rota.store.projection.shards import shard_of
from rota.store.protocol import JournalStore, Seq, SpilledJobs, StoreError
from rota.store.table_changes import spill_queue_of

log = structlog.get_logger("rota.engine")
_by_arrival = attrgetter("spec.arrival_number")


class SpillTail:
    """Newest records, as far as they put jobs into spill queues or take them out."""

    def __init__(self) -> None:
        self._records: deque[tuple[Seq, Sequence[JobRecord], Sequence[JobId]]] = deque()

    def note(self, seq: Seq, writes: Iterable[AnyWrite]) -> None:
        """Notes a durable record."""
        spilled: list[JobRecord] = []
        left: list[JobId] = []
        for write in writes:
            if isinstance(write, PutJob) and spill_queue_of(write.life):
                spilled.append(JobRecord(write.id, write.spec, write.life))
            elif isinstance(write, PutJob | MoveJob | DropJob):
                left.append(write.id)
        if spilled or left:
            self._records.append((seq, spilled, left))

    def forget(self, projected: Seq) -> None:
        """Forgets what all tables have."""
        while self._records and self._records[0][0] <= projected:
            self._records.popleft()

    def clear(self) -> None:
        """Forgets all: no job is spilled."""
        self._records.clear()

    def complete(
        self, wanted: Refill, read: Sequence[JobRecord], at: SpilledJobs
    ) -> list[JobRecord]:
        """Returns the next jobs of a spill queue now, given what the tables have of them."""
        jobs = {job.id: job for job in read}
        # Beyond the last job that was read the tables may have more, which come first.
        last = read[-1].spec.arrival_number if len(read) == wanted.limit else None
        for seq, spilled, left in self._records:
            for job in spilled:
                number = job.spec.arrival_number
                if (
                    job.life.line == wanted.spill_queue
                    and number > wanted.after
                    and (last is None or number < last)
                    and _lacks(at, job.id, seq)
                ):
                    jobs[job.id] = job
            for job_id in left:
                if _lacks(at, job_id, seq):
                    jobs.pop(job_id, None)
        return sorted(jobs.values(), key=_by_arrival)[: wanted.limit]


def _lacks(at: SpilledJobs, job_id: JobId, seq: Seq) -> bool:
    return at.positions[shard_of(job_id, len(at.positions))] < seq


class Refills:
    """Runs the reads of spilled jobs; `put` receives the answers, as inputs of the next turn."""

    def __init__(
        self, journal: JournalStore, put: Callable[[Sequence[Refilled]], None], limits: EngineLimits
    ) -> None:
        self._limits = limits
        self._journal = journal
        self._put = put
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._tail = SpillTail()
        self._reads = count()
        self._read_from: dict[int, Seq] = {}
        """How far all tables were when each read under way began: it may see them so."""
        self._spilled_at = Seq(0)
        """The newest record after which any job was spilled."""

    def note(self, seq: Seq, writes: Iterable[AnyWrite], *, spills: bool) -> None:
        """Notes a durable record; `spills`: whether any job is spilled now."""
        if spills:
            self._spilled_at = seq
        seen = min((self._journal.projection.projected, *self._read_from.values()))
        if seen < self._spilled_at:
            # Tables that are behind may show jobs as spilled though none is.
            self._tail.note(seq, writes)
            self._tail.forget(seen)
        else:
            self._tail.clear()

    def fetch(self, wanted: Sequence[Refill]) -> None:
        """Reads jobs for a durable turn."""
        task = asyncio.create_task(self._fetch(wanted), name="rota-refill")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def close(self) -> None:
        """Cancels all reads: the next scheduler asks for itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tail.clear()

    async def _fetch(self, wanted: Sequence[Refill]) -> None:
        left = list(wanted)
        while left:
            try:
                left = await self._read(left)
            except Exception as error:
                # After any error it asks again: workers wait for these jobs, and nobody else asks.
                unexpected = not isinstance(error, StoreError)
                log.warning("refill_failed", reason=str(error), exc_info=unexpected)
                await asyncio.sleep(self._limits.refill_retry_s)

    async def _read(self, wanted: Sequence[Refill]) -> list[Refill]:
        """Reads and answers; returns what must be read on.

        The records that the tables lack as they are read stay in the tail meanwhile.
        """
        number = next(self._reads)
        self._read_from[number] = self._journal.projection.projected
        try:
            return self._answer(wanted, await self._journal.read_spilled(wanted))
        finally:
            del self._read_from[number]

    def _answer(self, wanted: Sequence[Refill], found: SpilledJobs) -> list[Refill]:
        """Answers what was read; returns what must be read on, because all of it had moved."""
        answers: list[Refilled] = []
        left: list[Refill] = []
        for refill, read in zip(wanted, found.jobs, strict=True):
            jobs = self._tail.complete(refill, read, found)
            if not jobs and len(read) == refill.limit:
                left.append(replace(refill, after=read[-1].spec.arrival_number))
            else:
                answers.append(Refilled(refill=refill, jobs=tuple(jobs)))
        if answers:
            self._put(answers)
        return left
