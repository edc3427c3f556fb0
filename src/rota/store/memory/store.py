"""The same store, forgetful: for tests and the simulator. No threads, no files, no surprises.

Writes still pass through the journal's encoding and the fold, as they do everywhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.limits import LINE_KEPT
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    JobRecord,
    JobState,
    KeyRecord,
    Queue,
    Worker,
    WorkerId,
)
from rota.core.outcome import AnyWrite, Refill
from rota.store.cell_name import agreed
from rota.store.fold import Folded, Standing, fold, jobs_touched, shelf_of
from rota.store.journal import decode_record, encode_record
from rota.store.limits import LOG_BYTES_PER_EXECUTION, STORE_LIMITS, StoreLimits
from rota.store.memory.access import MemoryAccess
from rota.store.memory.bulk import MemoryArtifacts, MemoryLogs
from rota.store.memory.events import MemoryHistories, OccasionTables
from rota.store.memory.inbox import MemoryInbox
from rota.store.memory.keys import MemoryKeys
from rota.store.memory.match import find, matches, ran
from rota.store.memory.objects import MemoryObjects
from rota.store.protocol import (
    Change,
    Direction,
    Edge,
    Epoch,
    ExecutionQuery,
    FencedError,
    JobQuery,
    JournalRecord,
    LeaderRow,
    Outline,
    Page,
    Seq,
    Snapshot,
    StoreError,
    StoreFullError,
    Totals,
    UnknownFateError,
)
from rota.store.protocols.dropping import Dropped
from rota.store.protocols.durability import ONE_DISK, Durability
from rota.store.protocols.hooks import MemoryHooks
from rota.store.protocols.nodes import MemoryNodes
from rota.store.protocols.notes import MemoryNotes
from rota.store.protocols.queries import Sampled, SampleQuery
from rota.store.protocols.settings import Settings
from rota.store.rows import edges_upstream, outline_of
from rota.store.samples import count_first


class MemoryStore:
    """Everything that is remembered, until the process ends."""

    def __init__(
        self,
        *,
        log_bytes_max: int = LOG_BYTES_PER_EXECUTION,
        limits: StoreLimits = STORE_LIMITS,
    ) -> None:
        self.logs = MemoryLogs(log_bytes_max)
        self.artifacts = MemoryArtifacts()
        self.objects = MemoryObjects()
        self._tables = _Tables(self.logs, self.artifacts, self.objects)
        self.ledger = MemoryLedger(self._tables)
        self.catalog = MemoryCatalog(self._tables)
        self._cell = ""
        self.access = MemoryAccess(limits)
        self.nodes = MemoryNodes()
        self.hooks = MemoryHooks()
        self.notes = MemoryNotes()

    async def durability(self) -> Durability:
        """None at all, in truth."""
        return ONE_DISK

    async def name_cell(self, name: str) -> str:
        """The cell's name; the first one given stays."""
        self._cell = agreed(self._cell or name, name)
        return self._cell

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops all finished work that is older."""
        return Dropped(self._tables.drop_before(before))

    async def close(self) -> None:
        """Nothing to give back."""


class _Tables:
    """The journal as bytes, and the tables that follow it."""

    def __init__(
        self, logs: MemoryLogs, artifacts: MemoryArtifacts, objects: MemoryObjects
    ) -> None:
        self.journal: list[tuple[Epoch, Instant, bytes]] = []
        self.folded = 0
        self.jobs: dict[JobId, JobRecord] = {}
        self.executions: dict[ExecutionId, Execution] = {}
        self.workers: dict[WorkerId, Worker] = {}
        self.queues: dict[str, Queue] = {}
        self.settings = Settings()
        self.keys: dict[str, KeyRecord] = {}
        self.submitted = 0
        self.finished: dict[tuple[str, str], int] = {}
        self.order_next = 0
        self.lines: dict[int, int] = {}
        self.occasions = OccasionTables()
        self._logs = logs
        self._artifacts = artifacts
        self._objects = objects

    def catch_up(self) -> None:
        """All that was appended since the last time is one window."""
        records = [decode_record(body) for _, _, body in self.journal[self.folded :]]
        standings = {
            job_id: Standing(
                job.life.state, job.life.lives, job.spec.terms.queue, shelf_of(job.life)
            )
            for job_id in jobs_touched(records)
            if (job := self.jobs.get(job_id)) is not None
        }
        self._apply(fold(records, standings))
        self.folded = len(self.journal)

    def _apply(self, folded: Folded) -> None:
        self._drop(folded)
        for job_id, spec in folded.specs.items():
            self.jobs[job_id] = JobRecord(job_id, spec, folded.lives[job_id])
        for job_id, life in folded.moves:
            self.jobs[job_id] = JobRecord(job_id, self.jobs[job_id].spec, life)
        self.executions |= folded.executions
        self.queues |= folded.queues
        self.settings = self.settings.after(folded)
        self.keys |= folded.keys
        for worker_id, worker in folded.workers.items():
            if worker is None:
                self.workers.pop(worker_id, None)
            else:
                self.workers[worker_id] = worker
        self.submitted += folded.submitted
        for ended, count in folded.finished.items():
            self.finished[ended] = self.finished.get(ended, 0) + count
        self.order_next = max(self.order_next, folded.order_next)
        self.occasions.apply(folded)
        for line, step in folded.lines.items():
            self.lines[line] = self.lines.get(line, 0) + step
            if not self.lines[line]:
                del self.lines[line]

    def shelf(self, line: int, after: int, limit: int) -> list[JobRecord]:
        """The next jobs of a line, in order of arrival."""
        found = [
            job
            for job in self.jobs.values()
            if shelf_of(job.life) == line and job.spec.order > after
        ]
        return sorted(found, key=lambda job: job.spec.order)[:limit]

    def drop_before(self, before: Instant) -> int:
        """Removes what ended before then; answers how many jobs."""
        self.catch_up()
        old = [
            job.id
            for job in self.jobs.values()
            if job.life.state in JOB_FINAL and (job.life.finished_at or 0) < before
        ]
        self._drop(Folded(dropped=dict.fromkeys(old)))
        self.occasions.drop_before(before)
        return len(old)

    def _drop(self, folded: Folded) -> None:
        gone = list(folded.leftovers)
        if folded.dropped:
            gone += [x.id for x in self.executions.values() if x.job_id in folded.dropped]
        for job_id in folded.dropped:
            self.jobs.pop(job_id, None)
        for execution_id in gone:
            self.executions.pop(execution_id, None)
        self._logs.forget_now(gone)
        self._artifacts.forget_now(gone)
        self._objects.forget_now(gone)


class MemoryLedger(MemoryInbox):
    """The engine's side, with faults to order."""

    def __init__(self, tables: _Tables) -> None:
        super().__init__()
        self._tables = tables
        self._leader = LeaderRow("", Epoch(0), 0)
        self._refuse_next = False
        self._doubt_next: bool | None = None

    def refuse_next_append(self) -> None:
        """The next append fails and nothing is written, as on a full disk."""
        self._refuse_next = True

    def doubt_next_append(self, *, written: bool) -> None:
        """The next append's fate is unknown to its caller; in truth it is as `written` says."""
        self._doubt_next = written

    def land_late(self, epoch: Epoch, at: Instant, writes: Sequence[AnyWrite]) -> None:
        """A record that was on its way when the seat changed hands takes the next place."""
        self._tables.journal.append((epoch, at, encode_record(writes)))

    @property
    def folded(self) -> Seq:
        """The newest record that is in the tables, which are folded when they are read."""
        return Seq(len(self._tables.journal))

    def deciding(self) -> None:
        """Nothing goes on beside the loop."""

    async def observe(self) -> LeaderRow | None:
        """The row as it is."""
        return self._leader if self._leader.epoch else None

    async def claim(self, holder: str, seen: LeaderRow | None = None, address: str = "") -> Epoch:
        """Opens a new epoch."""
        row = self._leader
        if seen is not None and (seen.epoch, seen.nonce) != (row.epoch, row.nonce):
            raise FencedError(f"{row.holder} claimed first")
        self._leader = LeaderRow(holder, Epoch(row.epoch + 1), row.nonce + 1, address)
        return self._leader.epoch

    async def renew(self, epoch: Epoch) -> bool:
        """Says that the holder is alive."""
        row = self._leader
        if row.epoch != epoch or not row.holder:
            return False
        self._leader = LeaderRow(row.holder, epoch, row.nonce + 1, row.address)
        return True

    async def resign(self, epoch: Epoch) -> None:
        """Lets the next one lead at once."""
        if self._leader.epoch == epoch:
            self._leader = LeaderRow("", epoch, self._leader.nonce + 1)

    async def records_after(self, seq: Seq, limit: int) -> list[JournalRecord]:
        """The next records, for a follower's memory."""
        kept = self._tables.journal[seq : seq + limit]
        return [
            JournalRecord(Seq(place), epoch, at, decode_record(body))
            for place, (epoch, at, body) in enumerate(kept, seq + 1)
        ]

    async def shelved(self, wanted: Sequence[Refill], seen: Seq) -> list[tuple[JobRecord, ...]]:
        """The next jobs of each line."""
        self._tables.catch_up()
        return [tuple(self._tables.shelf(one.line, one.after, one.limit)) for one in wanted]

    async def load(self, kept: int = LINE_KEPT) -> Snapshot:
        """Folds what is left to fold, then reads all that is live."""
        tables = self._tables
        tables.catch_up()
        live = [
            job
            for job in tables.jobs.values()
            if job.life.state not in JOB_FINAL and not shelf_of(job.life)
        ]
        for line in tables.lines:
            live += tables.shelf(line, -1, kept)
        plain = Snapshot(
            seq=Seq(len(tables.journal)),
            jobs=sorted(live, key=lambda job: job.spec.order),
            executions=[x for x in tables.executions.values() if x.state not in EXECUTION_FINAL],
            workers=list(tables.workers.values()),
            queues=list(tables.queues.values()),
            settings=tables.settings,
            order_next=tables.order_next,
            totals=Totals(
                tables.submitted,
                tuple((queue, state, n) for (queue, state), n in tables.finished.items()),
            ),
            lines=list(tables.lines.items()),
        )
        return tables.occasions.complete(plain)

    async def append(
        self,
        epoch: Epoch,
        seq: Seq,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> None:
        """Adds one record, or the fault that was ordered."""
        newest = len(self._tables.journal)
        if seq > newest + 1:
            raise StoreError(f"the journal ends at {newest}: a record at {seq} would leave a gap")
        if seq <= newest:
            raise FencedError(f"place {seq} in the journal is taken")
        if epoch != self._leader.epoch:
            raise FencedError(f"epoch {epoch} is over: another server leads")
        if self._refuse_next:
            self._refuse_next = False
            raise StoreFullError("no space left, as the test asked")
        doubt, self._doubt_next = self._doubt_next, None
        if doubt is not False:
            self._tables.journal.append((epoch, at, encode_record(writes)))
            await self.drop_inbox(consumed)
        if doubt is not None:
            raise UnknownFateError("fate unknown, as the test asked")

    async def close(self) -> None:
        """Nothing to give back."""


class MemoryCatalog(MemoryHistories, MemoryKeys):
    """The readers' side."""

    def __init__(self, tables: _Tables) -> None:
        self._kept = tables

    async def jobs(self, job_ids: Sequence[JobId]) -> list[JobRecord]:
        """Those that exist."""
        jobs = self._tables.jobs
        return [jobs[job_id] for job_id in dict.fromkeys(job_ids) if job_id in jobs]

    async def find_jobs(self, query: JobQuery) -> Page[JobRecord]:
        """A page, newest first."""
        return find(self._tables.jobs.values(), query, lambda job: matches(job, query))

    async def outlines(self, job_ids: Sequence[JobId]) -> list[Outline]:
        """Those that exist, without what may be large."""
        return [outline_of(job) for job in await self.jobs(job_ids)]

    async def find_job_ids(self, query: JobQuery) -> Page[JobId]:
        """The ids of a page."""
        found = await self.find_jobs(query)
        return Page((job.id for job in found), found.rest)

    async def count_jobs(self, tenant: str) -> dict[JobState, int]:
        """How many of a tenant are in which state."""
        jobs = self._tables.jobs.values()
        return Counter(job.life.state for job in jobs if job.spec.terms.tenant == tenant)

    async def executions(self, execution_ids: Sequence[ExecutionId]) -> list[Execution]:
        """Those that exist."""
        executions = self._tables.executions
        return [executions[x] for x in dict.fromkeys(execution_ids) if x in executions]

    async def find_executions(self, query: ExecutionQuery) -> Page[Execution]:
        """A page, newest first."""
        return find(self._tables.executions.values(), query, lambda one: ran(one, query))

    async def sample_executions(self, query: SampleQuery) -> list[Sampled]:
        """What the first executions of each stretch are."""
        jobs = self._tables.jobs
        tenants = {one.id: one.spec.terms.tenant for one in jobs.values()}
        return count_first(self._tables.executions.values(), query, tenants)

    async def edges(self, job_ids: Sequence[JobId], direction: Direction) -> list[Edge]:
        """All dependencies that lead into or out of these jobs."""
        wanted = dict.fromkeys(job_ids)
        every = [
            edge for job in self._tables.jobs.values() for edge in edges_upstream(job.id, job.spec)
        ]
        if direction is Direction.UPSTREAM:
            return [edge for edge in every if edge.child in wanted]
        return [edge for edge in every if edge.parent in wanted]

    async def changes_after(self, seq: Seq, limit: int) -> list[Change]:
        """All changes of the next at most `limit` journal records after `seq`."""
        return [
            Change(Seq(place), index, at, write)
            for place, (_, at, body) in enumerate(self._kept.journal[seq : seq + limit], seq + 1)
            for index, write in enumerate(decode_record(body))
        ]

    async def head(self) -> tuple[Seq, Seq]:
        """The oldest and the newest journal position kept."""
        newest = len(self._kept.journal)
        return Seq(min(1, newest)), Seq(newest)

    @property
    def _tables(self) -> _Tables:
        self._kept.catch_up()
        return self._kept

    def _all_keys(self) -> dict[str, KeyRecord]:
        return self._tables.keys

    def _occasions(self) -> OccasionTables:
        return self._tables.occasions
