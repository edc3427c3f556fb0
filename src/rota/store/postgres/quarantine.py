"""Quarantine in PostgreSQL: finds the jobs that cannot be projected, keeps and repairs them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import asyncpg
import structlog

from rota.core.model import JobId, JobRecord
from rota.core.outcome import AnyWrite
from rota.store import rows
from rota.store.damage import Damage
from rota.store.limits import (
    PROJECTION_DEADLINE_S,
    QUARANTINED_WRITE_BYTES_SHOWN,
    QUARANTINED_WRITES_SHOWN,
)
from rota.store.postgres.connect import Address, Connection, DedicatedConnection
from rota.store.postgres.errors import CONNECTION_ERRORS
from rota.store.postgres.plan_cache import PlanCache
from rota.store.postgres.projection import SHARDS, WindowProjection
from rota.store.projection.quarantine import (
    AllSetAside,
    Quarantine,
    QuarantinedJob,
    QuarantinedWrite,
    apply_each,
    decode_write,
    find_failing_jobs,
    quarantined_by,
    quarantined_work,
    set_aside,
    wanted_jobs,
)
from rota.store.projection.shards import Window
from rota.store.protocol import Head, QuarantinedWork, Seq, StoreError

log = structlog.get_logger("rota.store")

_OF_THE_DATA = ("22", "23", "P0", "XX")
"""Classes of SQLSTATE that a row can cause: values and constraints, a trigger that refuses, a
damaged page."""
_PUT = """
INSERT INTO rota.quarantine (job_id, shard, seq, at, reason) VALUES ($1, $2, $3, $4, $5)
"""


def is_of_the_data(error: BaseException) -> bool:
    """Returns whether a projection failed because of what it wrote, not because of where."""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    if isinstance(cause, asyncpg.PostgresError):
        return (cause.sqlstate or "")[:2] in _OF_THE_DATA
    # Anything else but a lost connection is a mistake of this program that some job brings out.
    return isinstance(cause, Exception) and not isinstance(cause, (StoreError, *CONNECTION_ERRORS))


async def read_quarantine(connection: Connection) -> Quarantine:
    """Returns all jobs that are set aside."""
    found = await connection.fetch("SELECT job_id, shard, seq, at, reason FROM rota.quarantine")
    return {row[0]: QuarantinedJob(row[0], row[1], Seq(row[2]), row[3], row[4]) for row in found}


async def read_quarantined_writes(
    connection: Connection, job_ids: Sequence[JobId] | None = None
) -> list[QuarantinedWrite]:
    """Returns the writes of these jobs, or of all, that were set aside, in their order."""
    found = await connection.fetch(
        "SELECT job_id, seq, index, body FROM rota.quarantined_writes"
        " WHERE $1::text[] IS NULL OR job_id = ANY ($1) ORDER BY seq, index, job_id",
        job_ids,
    )
    return [QuarantinedWrite(row[0], Seq(row[1]), row[2], row[3]) for row in found]


_SHOWN = f"""
SELECT job_id, count, seq, octet_length(body),
    CASE WHEN octet_length(body) <= {QUARANTINED_WRITE_BYTES_SHOWN} THEN body END
FROM (
    SELECT *, count(*) OVER (PARTITION BY job_id) AS count,
        row_number() OVER (PARTITION BY job_id ORDER BY seq, index) AS number
    FROM rota.quarantined_writes
) numbered WHERE number <= {QUARANTINED_WRITES_SHOWN} ORDER BY seq, index
"""


async def read_quarantined_work(connection: Connection) -> list[QuarantinedWork]:
    """Returns all jobs that are set aside, with their first writes."""
    jobs = await read_quarantine(connection)
    return quarantined_work(jobs, [tuple(row) for row in await connection.fetch(_SHOWN)])


async def read_set_aside(
    connection: Connection, job_ids: Sequence[JobId] | None = None
) -> AllSetAside:
    """Returns those of these jobs, or all, of which writes were set aside, as of one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        return await set_aside_now(connection, job_ids)


async def set_aside_now(
    connection: Connection, job_ids: Sequence[JobId] | None = None
) -> AllSetAside:
    """Returns the same, inside the caller's transaction."""
    writes = await read_quarantined_writes(connection, job_ids)
    there = list(dict.fromkeys(one.job_id for one in writes))
    stored: list[JobRecord] = []
    for table in ("jobs_live", "jobs_shelved", "jobs_done") if there else ():
        found = await connection.fetch(
            f"SELECT id, life, spec FROM rota.{table} WHERE id = ANY ($1)", there
        )
        stored += Damage().whole(rows.job, map(tuple, found))
    return apply_each(stored, writes)


class _TrialEndedError(Exception):
    """Raised to undo a trial that succeeded."""


async def set_failed_jobs_aside(
    connection: Connection,
    window: Window,
    quarantine: Quarantine,
    plans: PlanCache,
    *,
    copies: bool,
) -> dict[JobId, str] | None:
    """Sets those jobs of a window aside that fail by themselves; returns them with the reasons.

    None: another process projects these shards, or has projected them. Raises what failed if it is
    not about any job.
    """

    async def trial(due: Sequence[Sequence[AnyWrite]]) -> None:
        try:
            async with connection.transaction():
                projection = WindowProjection(connection, window, quarantine, copies=copies)
                await projection.begin(plans)
                await projection.project(due)
                raise _TrialEndedError
        except _TrialEndedError:
            pass

    async with connection.transaction():
        # The locks went with the projection that failed.
        if not await WindowProjection(connection, window, quarantine, copies=copies).lock():
            return None
        due = window.due()
        set_aside(window.records, due, quarantine)
        failed = await find_failing_jobs(due, trial, is_of_the_data, len(quarantine))
        for job in quarantined_by(window.records, due, failed, SHARDS):
            await connection.execute(_PUT, job.job_id, job.shard, job.seq, job.at, job.reason)
    return failed


async def repair(connection: Connection, job: QuarantinedJob, *, copies: bool) -> None:
    """Projects what was set aside of a job; raises what fails, and then nothing has changed."""
    async with connection.transaction():
        found = await connection.fetch(
            "SELECT shard, folded_seq, folded_hash FROM rota.projection_shards"
            " WHERE shard = $1 FOR UPDATE",
            job.shard,
        )
        positions = {row[0]: Head(Seq(row[1]), row[2]) for row in found}
        writes = await read_quarantined_writes(connection, [job.job_id])
        await connection.execute("DELETE FROM rota.quarantine WHERE job_id = $1", job.job_id)
        await connection.execute(
            "DELETE FROM rota.quarantined_writes WHERE job_id = $1", job.job_id
        )
        window = Window(positions, (), SHARDS)
        projection = WindowProjection(connection, window, {}, copies=copies)
        await projection.begin(PlanCache())
        await projection.project([[decode_write(one.body) for one in writes]])


async def repair_jobs(address: Address, job_ids: Sequence[JobId]) -> dict[JobId, str]:
    """Repairs these jobs, all if none is named; returns by job why it failed, if it did."""
    limit_s, copies = address.limits.projection_statement_s, not address.pgbouncer
    connection = DedicatedConnection(
        address, "repair", PROJECTION_DEADLINE_S, {}, statement_s=limit_s
    )
    try:
        jobs, outcome = wanted_jobs(await connection.read(read_quarantine), job_ids)
        for job in jobs:
            try:
                await connection.write(partial(repair, job=job, copies=copies))
                outcome[job.job_id] = ""
                log.info("job_repaired", job=job.job_id)
            except Exception as error:
                if not is_of_the_data(error):
                    raise
                outcome[job.job_id] = str(error) or type(error).__name__
    finally:
        await connection.close()
    return outcome
