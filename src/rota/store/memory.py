"""The same store, forgetful: for tests and the simulator. No threads, no files, no surprises.

Writes still pass through the journal's encoding and the fold, as they do everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rota.core.events import Arrival, Told
from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    JobRecord,
    KeyRecord,
    Queue,
    ScheduleId,
    Worker,
    WorkerId,
)
from rota.core.outcome import AnyWrite
from rota.core.schedules import Calendar, Occurrence, Schedule
from rota.store.fold import Folded, Standing, fold, jobs_touched
from rota.store.hooks import MemoryHooks
from rota.store.journal import decode_record, encode_record
from rota.store.limits import LOG_BYTES_PER_EXECUTION
from rota.store.memory_bulk import MemoryArtifacts, MemoryLogs
from rota.store.memory_events import EventTables
from rota.store.protocol import (
    ArrivalQuery,
    Change,
    Direction,
    Edge,
    Epoch,
    EventQuery,
    ExecutionQuery,
    FencedError,
    InboxEntry,
    InboxKind,
    JobQuery,
    JournalRecord,
    LeaderRow,
    OccurrenceQuery,
    Seq,
    Snapshot,
    StoreError,
    StoreFullError,
    Totals,
    UnknownFateError,
)
from rota.store.rows import edges_upstream


class MemoryStore:
    """Everything that is remembered, until the process ends."""

    def __init__(self, *, log_bytes_max: int = LOG_BYTES_PER_EXECUTION) -> None:
        self.logs = MemoryLogs(log_bytes_max)
        self.artifacts = MemoryArtifacts()
        self._tables = _Tables(self.logs, self.artifacts)
        self.ledger = MemoryLedger(self._tables)
        self.catalog = MemoryCatalog(self._tables)
        self.hooks = MemoryHooks()

    async def close(self) -> None:
        """Nothing to give back."""


class _Tables:
    """The journal as bytes, and the tables that follow it."""

    def __init__(self, logs: MemoryLogs, artifacts: MemoryArtifacts) -> None:
        self.journal: list[tuple[Epoch, Instant, bytes]] = []
        self.folded = 0
        self.jobs: dict[JobId, JobRecord] = {}
        self.executions: dict[ExecutionId, Execution] = {}
        self.workers: dict[WorkerId, Worker] = {}
        self.queues: dict[str, Queue] = {}
        self.keys: dict[str, KeyRecord] = {}
        self.submitted = 0
        self.finished: dict[tuple[str, str], int] = {}
        self.order_next = 0
        self.schedules: dict[ScheduleId, Schedule] = {}
        self.occurrences: dict[tuple[ScheduleId, Instant], Occurrence] = {}
        self.calendars: dict[str, Calendar] = {}
        self.decided: dict[tuple[str, str], int] = {}
        self.events = EventTables()
        self._logs = logs
        self._artifacts = artifacts

    def catch_up(self) -> None:
        """All that was appended since the last time is one window."""
        records = [decode_record(body) for _, _, body in self.journal[self.folded :]]
        standings = {
            job_id: Standing(job.life.state, job.life.lives, job.spec.terms.queue)
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
        self._apply_times(folded)
        self.events.apply(folded.events)

    def _apply_times(self, folded: Folded) -> None:
        for schedule_id, course in folded.courses.items():
            if schedule_id in self.schedules:
                moved = replace(self.schedules[schedule_id], course=course)
                self.schedules[schedule_id] = moved
        for schedule_id, schedule in folded.schedules.items():
            if schedule is None:
                self.schedules.pop(schedule_id, None)
            else:
                self.schedules[schedule_id] = schedule
        for name, calendar in folded.calendars.items():
            if calendar is None:
                self.calendars.pop(name, None)
            else:
                self.calendars[name] = calendar
        self.occurrences |= folded.occurrences
        for word, count in folded.decided.items():
            self.decided[word] = self.decided.get(word, 0) + count

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


class MemoryLedger:
    """The engine's side, with faults to order."""

    def __init__(self, tables: _Tables) -> None:
        self._tables = tables
        self._leader = LeaderRow("", Epoch(0), 0)
        self._inbox: dict[int, InboxEntry] = {}
        self._inbox_next = 1
        self._refuse_next = False
        self._doubt_next: bool | None = None

    def refuse_next_append(self) -> None:
        """The next append fails and nothing is written, as on a full disk."""
        self._refuse_next = True

    def doubt_next_append(self, *, written: bool) -> None:
        """The next append's fate is unknown to its caller; in truth it is as `written` says."""
        self._doubt_next = written

    @property
    def folded(self) -> Seq:
        """The newest record that is in the tables, which are folded when they are read."""
        return Seq(len(self._tables.journal))

    async def observe(self) -> LeaderRow | None:
        """The row as it is."""
        return self._leader if self._leader.epoch else None

    async def claim(self, holder: str, seen: LeaderRow | None = None, address: str = "") -> Epoch:
        """Opens a new epoch."""
        row = self._leader
        if seen is not None and seen != row:
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

    async def put_inbox(self, body: bytes) -> int:
        """Keeps a submission for the next leader."""
        entry = InboxEntry(self._inbox_next, InboxKind.INPUT, body)
        self._inbox[entry.id] = entry
        self._inbox_next += 1
        return entry.id

    async def take_inbox(self, limit: int) -> list[InboxEntry]:
        """The oldest entries."""
        return list(self._inbox.values())[:limit]

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        """Removes entries that no append will consume."""
        for entry_id in entry_ids:
            self._inbox.pop(entry_id, None)

    async def load(self) -> Snapshot:
        """Folds what is left to fold, then reads all that is live."""
        tables = self._tables
        tables.catch_up()
        live = [job for job in tables.jobs.values() if job.life.state not in JOB_FINAL]
        return Snapshot(
            seq=Seq(len(tables.journal)),
            jobs=sorted(live, key=lambda job: job.spec.order),
            executions=[x for x in tables.executions.values() if x.state not in EXECUTION_FINAL],
            workers=list(tables.workers.values()),
            queues=list(tables.queues.values()),
            order_next=tables.order_next,
            totals=Totals(
                tables.submitted,
                tuple((queue, state, n) for (queue, state), n in tables.finished.items()),
                tuple((decision, why, n) for (decision, why), n in tables.decided.items()),
                tuple(tables.events.reacted.items()),
            ),
            schedules=[tables.schedules[one] for one in sorted(tables.schedules)],
            calendars=list(tables.calendars.values()),
            triggers=tables.events.triggers(),
            held=tables.events.held(),
        )

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


class MemoryCatalog:
    """The readers' side."""

    def __init__(self, tables: _Tables) -> None:
        self._kept = tables

    async def jobs(self, job_ids: Sequence[JobId]) -> list[JobRecord]:
        """Those that exist."""
        jobs = self._tables.jobs
        return [jobs[job_id] for job_id in dict.fromkeys(job_ids) if job_id in jobs]

    async def find_jobs(self, query: JobQuery) -> list[JobRecord]:
        """A page, newest first."""
        found = [job for job in self._tables.jobs.values() if _matches(job, query)]
        return sorted(found, key=lambda job: job.id, reverse=True)[: query.limit]

    async def executions(self, execution_ids: Sequence[ExecutionId]) -> list[Execution]:
        """Those that exist."""
        executions = self._tables.executions
        return [executions[x] for x in dict.fromkeys(execution_ids) if x in executions]

    async def find_executions(self, query: ExecutionQuery) -> list[Execution]:
        """A page, newest first."""
        found = [
            execution
            for execution in self._tables.executions.values()
            if (query.before is None or execution.id < query.before)
            and query.job_id in (None, execution.job_id)
            and query.worker_id in (None, execution.worker_id)
            and (not query.states or execution.state in query.states)
        ]
        return sorted(found, key=lambda execution: execution.id, reverse=True)[: query.limit]

    async def edges(self, job_ids: Sequence[JobId], direction: Direction) -> list[Edge]:
        """All dependencies that lead into or out of these jobs."""
        wanted = dict.fromkeys(job_ids)
        every = [
            edge for job in self._tables.jobs.values() for edge in edges_upstream(job.id, job.spec)
        ]
        if direction is Direction.UPSTREAM:
            return [edge for edge in every if edge.child in wanted]
        return [edge for edge in every if edge.parent in wanted]

    async def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """A page of a schedule's ledger, newest first."""
        found = [
            one
            for one in self._tables.occurrences.values()
            if one.schedule_id == query.schedule_id
            and (not query.decisions or one.decision in query.decisions)
            and (query.after is None or one.nominal > query.after)
            and (query.before is None or one.nominal < query.before)
        ]
        return sorted(found, key=lambda one: one.nominal, reverse=True)[: query.limit]

    async def told(self, keys: Sequence[str]) -> list[Told]:
        """Those of these events that were accepted."""
        return self._tables.events.told(keys)

    async def find_events(self, query: EventQuery) -> list[Told]:
        """A page of accepted events, newest first."""
        return self._tables.events.find_events(query)

    async def find_arrivals(self, query: ArrivalQuery) -> list[Arrival]:
        """A page of a trigger's ledger, newest first."""
        return self._tables.events.find_arrivals(query)

    async def key(self, key: str) -> KeyRecord | None:
        """What was answered to an idempotency key."""
        return self._tables.keys.get(key)

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


def _matches(job: JobRecord, query: JobQuery) -> bool:
    terms, created_at = job.spec.terms, job.spec.created_at
    return (
        (query.before is None or job.id < query.before)
        and (not query.states or job.life.state in query.states)
        and query.priority in (None, terms.priority)
        and query.queue in (None, terms.queue)
        and query.tenant in (None, terms.tenant)
        and query.name in (None, terms.name)
        and all(label in job.spec.labels for label in query.labels)
        and (query.created_after is None or created_at > query.created_after)
        and (query.created_before is None or created_at < query.created_before)
    )
