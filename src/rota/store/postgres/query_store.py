"""Queries of PostgreSQL's tables, once they have caught up with the journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    JobRecord,
    JobState,
    KeyRecord,
)
from rota.core.schedule_model import Occurrence
from rota.core.trigger_model import AcceptedEvent, TriggerDecision
from rota.store import rows
from rota.store.batched_lookup import BatchedLookup, FoundKeys, KeyLookup, KeyStatus
from rota.store.damage import WholePages
from rota.store.journal import decode_record
from rota.store.limits import COUNT_ROWS_MAX, JOBS_PER_LOOKUP
from rota.store.postgres.connect import Address, Connection, DedicatedConnection, ReaderPool
from rota.store.postgres.quarantine import read_set_aside
from rota.store.postgres.schedules_and_events import (
    find_events,
    find_occurrences,
    find_trigger_decisions,
    read_accepted_events,
)
from rota.store.postgres.search import (
    execution_bodies,
    find_executions,
    find_job_ids,
    find_jobs,
    job_bodies,
)
from rota.store.projection.client import Projection
from rota.store.projection.quarantine import AllSetAside, overlay_executions, overlay_page
from rota.store.protocol import Change, Direction, Edge, Outline, Seq, StoreError
from rota.store.queries import (
    EventQuery,
    ExecutionQuery,
    JobQuery,
    OccurrenceQuery,
    Page,
    Sampled,
    SampleQuery,
    TriggerDecisionQuery,
    postgres_sample,
    read_sample,
)
from rota.store.rows import Row

T = TypeVar("T")
Q = TypeVar("Q")

_LAG = """
SELECT min(folded_seq), (SELECT max(seq) FROM rota.journal),
    (extract(epoch FROM now()) * 1000)::bigint, (SELECT count(*) FROM rota.quarantine)
FROM rota.projection_shards
"""
_KEYS_AT_ONCE = """
SELECT (SELECT at FROM rota.journal WHERE seq > m.folded_seq ORDER BY seq LIMIT 1),
    k.key, k.fingerprint, k.receipt, k.at, i.key
FROM rota.projection_shards m LEFT JOIN (
    unnest($1::text[]) v (wanted)
    LEFT JOIN LATERAL (SELECT * FROM rota.keys WHERE key = v.wanted LIMIT 1) k ON true
    LEFT JOIN LATERAL (SELECT key FROM rota.inbox WHERE key = v.wanted LIMIT 1) i ON true
) ON k.key IS NOT NULL OR i.key IS NOT NULL
WHERE m.shard = 0
"""
"""One statement sees one moment: a key is in the tables, or its record is not projected yet, or it
is in the inbox. Keys are looked up one by one: for a table that fills within minutes the planner
has no statistics."""
_PLANNED_ONCE = {
    "default_transaction_read_only": "on",
    # Every submission runs this, and planning takes longer than running it.
    "plan_cache_mode": "force_generic_plan",
    # The plan is kept when the tables are no longer small.
    "enable_seqscan": "off",
}


def key_connection(address: Address) -> DedicatedConnection:
    """Returns the connection for lookups of keys, which run one at a time for all callers."""
    return DedicatedConnection(address, "keys", address.limits.follow_deadline_s, _PLANNED_ONCE)


_DOWNSTREAM = """
SELECT DISTINCT v.id, e.child, e.condition FROM unnest($1::text[]) AS v (id)
CROSS JOIN LATERAL (SELECT child, condition FROM rota.edges WHERE parent = v.id OFFSET 0) e
"""
"""Looks each parent up through the index: for many parents the planner would read all days."""
_COUNTS = """
SELECT state, count(*) FROM (
    SELECT * FROM (
        SELECT state FROM rota.jobs_live WHERE tenant = $1
        UNION ALL SELECT 'queued' FROM rota.jobs_shelved WHERE tenant = $1
        UNION ALL SELECT state FROM rota.jobs_done WHERE tenant = $1
    ) of_tenant LIMIT $2
) counted GROUP BY state
"""


class _Seen(NamedTuple):
    """State of the tables when they had caught up."""

    now: Instant
    """The database's time."""
    may_be_set_aside: bool
    """Whether a job may be in quarantine; while the projection was awaited, one may have come."""


class PostgresQueryStore:
    """Queries of the tables in PostgreSQL, the same on leader and followers."""

    def __init__(
        self, readers: ReaderPool, keys: DedicatedConnection, projection: Projection
    ) -> None:
        self._readers = readers
        self._key_connection = keys
        self._projection = projection
        self._keys = KeyLookup(self._read_keys)
        self._pages = WholePages()
        self._single_jobs = BatchedLookup(self._read_jobs, JOBS_PER_LOOKUP)
        self._below_single_jobs = BatchedLookup(self._read_below, JOBS_PER_LOOKUP)

    async def jobs(self, job_ids: Sequence[JobId]) -> list[JobRecord]:
        """Reads together what callers ask for one by one."""
        if len(job_ids) != 1:
            return [_job(found) for found in (await self._read_jobs(job_ids)).values()]
        found = (await self._single_jobs.look(job_ids)).get(job_ids[0])
        return [] if found is None else [_job(found)]

    async def outlines(self, job_ids: Sequence[JobId]) -> list[Outline]:
        aside = await self._set_aside(job_ids)
        wanted = job_bodies(job_ids, ("state", "queue", "tenant", "name"))
        found = await self._readers.run(lambda c: c.fetch(wanted.sql, *wanted.args))
        plain = [rows.outline(tuple(row)) for row in found if row[0] not in aside]
        return plain + [rows.outline_of(job) for one in aside.values() for job in one.shown]

    async def find_jobs(self, query: JobQuery) -> Page[JobRecord]:
        return await self._pages.read(query, self._find_jobs, rows.job, itemgetter(0))

    async def _find_jobs(self, query: JobQuery) -> Page[Row]:
        now = (await self._caught_up()).now
        return await self._readers.run(lambda c: find_jobs(c, query, now))

    async def find_job_ids(self, query: JobQuery) -> Page[JobId]:
        now = (await self._caught_up()).now
        found = await self._readers.run(lambda c: find_job_ids(c, query, now))
        return Page(map(JobId, found), found.rest)

    async def count_jobs(self, tenant: str) -> dict[JobState, int]:
        found = await self._read(lambda c: c.fetch(_COUNTS, tenant, COUNT_ROWS_MAX))
        return {JobState(state): count for state, count in found}

    async def executions(self, execution_ids: Sequence[ExecutionId]) -> list[Execution]:
        aside = await self._set_aside(None)
        wanted = execution_bodies(execution_ids)
        found = await self._readers.run(lambda c: c.fetch(wanted.sql, *wanted.args))
        executions = [rows.execution(tuple(row)) for row in found]
        return overlay_executions(execution_ids, executions, aside) if aside else executions

    async def find_executions(self, query: ExecutionQuery) -> Page[Execution]:
        seen, aside = await self._caught_up(), None
        if query.job_id is not None and seen.may_be_set_aside:
            of_job = [query.job_id]
            found = await self._readers.run(lambda c: read_set_aside(c, of_job))
            aside = found.get(query.job_id)
        if aside is None:
            return await self._find_executions(query, seen.now)
        longer = replace(query, limit=query.limit + len(aside.executions))
        return overlay_page(await self._find_executions(longer, seen.now), query, aside)

    async def _find_executions(self, query: ExecutionQuery, now: Instant) -> Page[Execution]:
        async def page(asked: ExecutionQuery) -> Page[Row]:
            return await self._readers.run(lambda c: find_executions(c, asked, now))

        return await self._pages.read(query, page, rows.execution, itemgetter(0))

    async def sample_executions(self, query: SampleQuery) -> list[Sampled]:
        sql, args = postgres_sample(query)
        return [read_sample(tuple(row)) for row in await self._read(lambda c: c.fetch(sql, *args))]

    async def edges(self, job_ids: Sequence[JobId], direction: Direction) -> list[Edge]:
        if direction is Direction.UPSTREAM:
            found = await self._bodies(job_ids, "spec")
            return rows.edges_above(found)
        lookup = self._below_single_jobs
        below = await (lookup.look if len(job_ids) == 1 else self._read_below)(job_ids)
        return [edge for job_id in dict.fromkeys(job_ids) for edge in below.get(job_id, ())]

    async def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        return await self._pages.read(
            query, self._reading(find_occurrences), rows.occurrence, itemgetter(1)
        )

    async def accepted_events(self, keys: Sequence[str]) -> list[AcceptedEvent]:
        return await self._read(lambda c: read_accepted_events(c, keys))

    async def find_events(self, query: EventQuery) -> list[AcceptedEvent]:
        return await self._pages.read(
            query, self._reading(find_events), rows.accepted_event, itemgetter(2, 0)
        )

    async def find_trigger_decisions(self, query: TriggerDecisionQuery) -> list[TriggerDecision]:
        return await self._pages.read(
            query, self._reading(find_trigger_decisions), rows.trigger_decision, itemgetter(1)
        )

    async def key(self, key: str) -> KeyRecord | None:
        found = await self._read(
            lambda c: c.fetchrow(
                "SELECT key, fingerprint, receipt, at FROM rota.keys WHERE key = $1", key
            )
        )
        return rows.key(tuple(found)) if found else None

    async def key_at_once(self, key: str) -> KeyStatus:
        return await self._keys.look(key)

    async def keys_after(self, key: str, limit: int) -> list[str]:
        sql = "SELECT key FROM rota.keys WHERE key > $1 ORDER BY key LIMIT $2"
        read = self._readers.run if key else self._read
        return [row[0] for row in await read(lambda c: c.fetch(sql, key, limit))]

    async def _read_keys(self, keys: Sequence[str]) -> FoundKeys:
        def look(connection: Connection) -> Awaitable[Sequence[Any]]:
            return connection.fetch(_KEYS_AT_ONCE, keys)

        try:
            found = await self._key_connection.read(look)
        except StoreError:
            # The lost connection is made again for the next lookup; the readers have others.
            found = await self._readers.run(look)
        return rows.keys_found([tuple(row) for row in found])

    async def changes_after(self, seq: Seq, limit: int) -> list[Change]:
        found = await self._readers.run(
            lambda c: c.fetch(
                "SELECT seq, at, body FROM rota.journal WHERE seq > $1 ORDER BY seq LIMIT $2",
                seq,
                limit,
            )
        )
        return [
            Change(place, index, at, write)
            for place, at, body in found
            for index, write in enumerate(decode_record(body))
        ]

    async def head(self) -> tuple[Seq, Seq]:
        found = await self._readers.run(
            lambda c: c.fetchrow("SELECT min(seq), max(seq) FROM rota.journal")
        )
        assert found is not None
        return Seq(found[0] or 0), Seq(found[1] or 0)

    async def _read_jobs(self, job_ids: Sequence[JobId]) -> dict[JobId, Row | JobRecord]:
        """Returns rows, not records: a damaged one must fail only those who ask for it.

        Of a job in quarantine it returns the record.
        """
        aside = await self._set_aside(job_ids)
        wanted = job_bodies(job_ids, ("life", "spec"))
        found = await self._readers.run(lambda c: c.fetch(wanted.sql, *wanted.args))
        plain = {row[0]: tuple(row) for row in found if row[0] not in aside}
        return plain | {job.id: job for one in aside.values() for job in one.shown}

    def _reading(
        self, find: Callable[[Connection, Q], Awaitable[Sequence[Any]]]
    ) -> Callable[[Q], Awaitable[Page[Any]]]:
        async def page(query: Q) -> Page[Any]:
            return Page(await self._read(lambda c: find(c, query)))

        return page

    async def _read_below(self, job_ids: Sequence[JobId]) -> dict[JobId, list[Edge]]:
        found = await self._read(lambda c: c.fetch(_DOWNSTREAM, job_ids))
        below: dict[JobId, list[Edge]] = {}
        for row in found:
            edge = rows.edge(tuple(row))
            below.setdefault(edge.parent, []).append(edge)
        return below

    async def _bodies(self, job_ids: Sequence[JobId], *columns: str) -> Sequence[Any]:
        wanted = job_bodies(job_ids, columns)
        return await self._read(lambda c: c.fetch(wanted.sql, *wanted.args))

    async def _read(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        await self._caught_up()
        return await self._readers.run(read)

    async def _set_aside(self, job_ids: Sequence[JobId] | None) -> AllSetAside:
        """Returns those of these jobs, or all, that are in quarantine, once the tables have caught
        up.

        To be read before the rows: a job that is repaired between the two is then right in both.
        """
        if not (await self._caught_up()).may_be_set_aside:
            return {}
        return await self._readers.run(lambda c: read_set_aside(c, job_ids))

    async def _caught_up(self) -> _Seen:
        """Waits until the tables have all that is durable."""
        lag = await self._readers.run(lambda c: c.fetchrow(_LAG))
        assert lag is not None
        projected, newest, now, quarantined = lag
        must_wait = newest is not None and newest > projected
        if must_wait:
            await self._projection.reached(newest)
        return _Seen(int(now), must_wait or quarantined > 0)


def _job(found: Row | JobRecord) -> JobRecord:
    return found if isinstance(found, JobRecord) else rows.job(found)
