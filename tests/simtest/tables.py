"""Naive projection of the journal, and the audit that compares every reader's state with it.

Every write is applied at once, in the order of the journal. The product's projection runs in
shards, windows and quarantine, and must come to the same at every moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apsw
from msgspec.structs import replace

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import JobRecord, JobState, Life
from rota.core.outcome import (
    AnyWrite,
    DropJob,
    DropSchedule,
    DropWorker,
    MoveJob,
    MoveSchedule,
    PutExecution,
    PutJob,
    PutKey,
    PutOccurrence,
    PutPolicy,
    PutQueue,
    PutRuntime,
    PutSchedule,
    PutTenant,
    PutWorker,
)
from rota.store import rows
from rota.store.damage import Damage
from rota.store.documents import read_settings
from rota.store.protocol import GENESIS, DivergedError, Head, JournalRecord, Snapshot
from rota.store.sqlite.connect import fetch
from rota.store.sqlite.memory import MemoryJournalStore
from rota.store.sqlite.query_store import SPILLED

EVERYTHING = 10**9


class NaiveTables:
    """Tables after the writes so far."""

    def __init__(self) -> None:
        self.head: Head = GENESIS
        self.jobs: dict[str, JobRecord] = {}
        self.executions: dict[str, Any] = {}
        self.workers: dict[str, Any] = {}
        self.queues: dict[str, Any] = {}
        self.keys: dict[str, Any] = {}
        self.schedules: dict[str, Any] = {}
        self.occurrences: dict[tuple[str, int], Any] = {}
        self.tenants: dict[str, Any] = {}
        self.runtimes: dict[tuple[str, str], Any] = {}
        self.policy: Any = None
        self.submitted = 0
        self.next_arrival_number = 0
        self.finished: Counter[tuple[str, str]] = Counter()
        self.decided: Counter[tuple[str, str]] = Counter()

    def take(self, record: JournalRecord) -> None:
        """Applies the next record."""
        for write in record.writes:
            self._take(write)
        self.head = record.head

    def _take(self, write: AnyWrite) -> None:
        match write:
            case PutJob():
                self.submitted += write.id not in self.jobs
                number = write.spec.arrival_number + 1
                self.next_arrival_number = max(self.next_arrival_number, number)
                self._set(JobRecord(write.id, write.spec, write.life))
            case MoveJob():
                if write.id in self.jobs:
                    life = replace(write.life, line=0)
                    self._set(JobRecord(write.id, self.jobs[write.id].spec, life))
            case DropJob():
                self.jobs.pop(write.id, None)
                gone = [one.id for one in self.executions.values() if one.job_id == write.id]
                for execution_id in gone:
                    del self.executions[execution_id]
            case PutExecution():
                self.executions[write.execution.id] = write.execution
            case PutKey():
                self.keys[write.record.key] = write.record
            case _:
                self._take_other(write)

    def _take_other(self, write: AnyWrite) -> None:
        match write:
            case PutWorker():
                self.workers[write.worker.id] = write.worker
            case DropWorker():
                self.workers.pop(write.id, None)
            case PutQueue():
                self.queues[write.queue.name] = write.queue
            case PutPolicy():
                self.policy = write.policy
            case PutTenant():
                self.tenants[write.tenant.name] = write.tenant
            case PutRuntime():
                self.runtimes[write.runtime.tenant, write.runtime.name] = write.runtime
            case _:
                self._take_schedule(write)

    def _take_schedule(self, write: AnyWrite) -> None:
        match write:
            case PutSchedule():
                self.schedules[write.schedule.id] = write.schedule
            case MoveSchedule():
                moved = replace(self.schedules[write.id], state=write.state)
                self.schedules[write.id] = moved
            case DropSchedule():
                self.schedules.pop(write.id, None)
            case PutOccurrence():
                one = write.occurrence
                self.occurrences[one.schedule_id, one.nominal] = one
                self.decided[one.decision.value, one.skip_reason.value] += 1
            case _:
                raise NotImplementedError(f"no simulated user makes a {type(write).__name__}")

    def _set(self, job: JobRecord) -> None:
        before = self.jobs.get(job.id)
        lives_on = before is None or before.life.state not in JOB_FINAL
        if job.life.state in JOB_FINAL and (lives_on or _has_later_life(job, before)):
            self.finished[job.spec.terms.queue, job.life.state.value] += 1
        self.jobs[job.id] = job

    def spill_counts(self) -> dict[int, int]:
        """Returns how many jobs are in each spill queue."""
        return dict(Counter(line for job in self.jobs.values() if (line := _spill_queue(job.life))))

    def live(self) -> dict[str, Mapping[Any, Any]]:
        """Returns what a load brings, but for spilled jobs."""
        jobs = {job.id: job for job in self.jobs.values() if job.life.state not in JOB_FINAL}
        return {
            "jobs": {name: job for name, job in jobs.items() if not _spill_queue(job.life)},
            "executions": {
                one.id: one for one in self.executions.values() if one.state not in EXECUTION_FINAL
            },
            "workers": self.workers,
            "queues": self.queues,
            "schedules": self.schedules,
            "spill queues": self.spill_counts(),
            "settings": _settings(self.policy, self.tenants, self.runtimes),
            "totals": {
                "submitted": self.submitted,
                "next arrival": self.next_arrival_number,
                **self.finished,
                **{("decided", *word): count for word, count in self.decided.items()},
            },
        }

    def tables(self) -> dict[str, Mapping[Any, Any]]:
        """Returns the contents of all tables."""
        jobs = {name: (job.spec, job.life, _column(job.life)) for name, job in self.jobs.items()}
        labels = (rows.label_rows(job.id, job.spec) for job in self.jobs.values())
        edges = (rows.edge_rows(job.id, job.spec) for job in self.jobs.values())
        return {
            **self.live(),
            "jobs": jobs,
            "executions": self.executions,
            "keys": self.keys,
            "occurrences": self.occurrences,
            "labels": {row: True for each in labels for row in each},
            "edges": {row: True for each in edges for row in each},
        }


def _has_later_life(job: JobRecord, before: JobRecord | None) -> bool:
    return before is not None and job.life.lives > before.life.lives


def _spill_queue(life: Life) -> int:
    return life.line if life.state is JobState.QUEUED else 0


def _column(life: Life) -> tuple[str, int]:
    """Returns the columns `state` and `line` of a job's row."""
    line = _spill_queue(life)
    return (SPILLED if line else life.state.value, line)


def _settings(policy: Any, tenants: Any, runtimes: Any) -> dict[Any, Any]:
    return {"policy": policy, **tenants, **runtimes}


def contents(snapshot: Snapshot) -> dict[str, Mapping[Any, Any]]:
    """Returns a snapshot in the form of `NaiveTables.live`."""
    settings, totals = snapshot.settings, snapshot.totals
    return {
        "jobs": {job.id: job for job in snapshot.jobs if not _spill_queue(job.life)},
        "executions": {one.id: one for one in snapshot.executions},
        "workers": {one.id: one for one in snapshot.workers},
        "queues": {one.name: one for one in snapshot.queues},
        "schedules": {one.id: one for one in snapshot.schedules},
        "spill queues": dict(snapshot.spill_counts),
        "settings": _settings(
            settings.policy,
            {one.name: one for one in settings.tenants},
            {(one.tenant, one.name): one for one in settings.runtimes},
        ),
        "totals": {
            "submitted": totals.submitted,
            "next arrival": snapshot.next_arrival_number,
            **{(queue, state): count for queue, state, count in totals.finished},
            **{("decided", word, why): count for word, why, count in totals.decided},
        },
    }


def stored(connection: apsw.Connection) -> dict[str, Mapping[Any, Any]]:
    """Returns the contents of all tables, in the form of `NaiveTables.tables`."""

    def read(sql: str, decode: Callable[[Any], Any] = tuple) -> list[Any]:
        return [decode(row) for row in fetch(connection, sql)]

    settings = read_settings(read("SELECT kind, name, body FROM settings"), Damage())
    counts = read("SELECT line, sum(count) FROM lines GROUP BY line")
    executions = read("SELECT id, body FROM executions", rows.execution)
    workers = read("SELECT id, body FROM workers", rows.worker)
    queues = read("SELECT name, body FROM queues", rows.queue)
    schedules = read("SELECT id, course, body FROM schedules", rows.schedule)
    keys = read("SELECT key, fingerprint, receipt, at FROM keys", rows.key)
    occurrences = read("SELECT schedule_id, nominal, body FROM occurrences", rows.occurrence)
    return {
        "jobs": {
            row[0]: (rows.spec(row[0], row[1]), rows.life(row[0], row[2]), (row[3], row[4]))
            for row in read("SELECT id, spec, life, state, line FROM jobs")
        },
        "executions": {one.id: one for one in executions},
        "workers": {one.id: one for one in workers},
        "queues": {one.name: one for one in queues},
        "schedules": {one.id: one for one in schedules},
        "keys": {one.key: one for one in keys},
        "occurrences": {(one.schedule_id, one.nominal): one for one in occurrences},
        "labels": dict.fromkeys(read("SELECT key, value, job_id FROM labels"), True),
        "edges": dict.fromkeys(read("SELECT parent, child, condition FROM edges"), True),
        "spill queues": {line: count for line, count in counts if count},
        "settings": _settings(
            settings.policy,
            {one.name: one for one in settings.tenants},
            {(one.tenant, one.name): one for one in settings.runtimes},
        ),
        "totals": _stored_totals(connection),
    }


def _stored_totals(connection: apsw.Connection) -> dict[Any, int]:
    submitted, next_arrival = fetch(
        connection, "SELECT sum(submitted), max(order_next) FROM projection_shards"
    )[0]
    sql = "SELECT queue, state, sum(count) FROM totals GROUP BY queue, state"
    finished = {(row[0], row[1]): row[2] for row in fetch(connection, sql)}
    sql = "SELECT decision, why, count FROM decided"
    decided = {("decided", row[0], row[1]): row[2] for row in fetch(connection, sql)}
    return {"submitted": submitted, "next arrival": next_arrival, **finished, **decided}


def differences(
    found: Mapping[str, Mapping[Any, Any]], wanted: Mapping[str, Mapping[Any, Any]]
) -> Iterator[str]:
    """Yields one difference of each table."""
    for name, table in wanted.items():
        have = found[name]
        for key in dict.fromkeys((*table, *have)):
            if have.get(key) != table.get(key):
                yield f"{name}: {key} is {_short(have.get(key))}, not {_short(table.get(key))}"
                break


def _short(value: Any) -> str:
    return "missing" if value is None else repr(value)[:160]


class TableAudit:
    """Audit of one database: compares what its readers would get with the naive projection."""

    def __init__(self, journal: MemoryJournalStore) -> None:
        self._journal = journal
        self._naive = NaiveTables()

    async def follow(self) -> NaiveTables:
        """Reads the journal to its end; from the beginning if a failover lost records."""
        try:
            records = await self._journal.records_after(self._naive.head, EVERYTHING)
        except DivergedError:
            self._naive = NaiveTables()
            records = await self._journal.records_after(GENESIS, EVERYTHING)
        for record in records:
            self._naive.take(record)
        return self._naive

    async def at(self, head: Head) -> NaiveTables:
        """Returns the projection of the journal up to here."""
        if self._naive.head == head:
            return self._naive
        naive = NaiveTables()
        for record in await self._journal.records_after(GENESIS, head.seq):
            naive.take(record)
        return naive

    async def check_load(self) -> list[str]:
        """Compares a load at this moment, however far each shard of the projection is."""
        naive = await self.follow()
        snapshot = await self._journal.load()
        return [f"a load: {one}" for one in differences(contents(snapshot), naive.live())]

    async def check_tables(self) -> list[str]:
        """Compares the tables, which have all of the journal."""
        naive = await self.follow()
        found = differences(stored(self._journal.connection), naive.tables())
        return [f"the tables: {one}" for one in found]

    async def check_copy(self, name: str, snapshot: Snapshot) -> list[str]:
        """Compares the copy with which a server follows."""
        naive = await self.at(snapshot.head)
        if naive.head != snapshot.head:
            return [f"{name} follows another journal from record {snapshot.seq} on"]
        found = differences(contents(snapshot), naive.live())
        return [f"the copy of {name}: {one}" for one in found]
