"""Quarantine in SQLite: finds the jobs that cannot be projected, keeps and repairs them."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import structlog

from rota.core.model import JobId
from rota.core.outcome import AnyWrite
from rota.store.limits import QUARANTINED_WRITE_BYTES_SHOWN, QUARANTINED_WRITES_SHOWN
from rota.store.projection.quarantine import (
    Quarantine,
    QuarantinedJob,
    decode_write,
    find_failing_jobs,
    quarantined_by,
    quarantined_work,
    set_aside,
    wanted_jobs,
)
from rota.store.projection.shards import Window
from rota.store.protocol import QuarantinedWork, StoreError
from rota.store.sqlite.connect import fetch, run_in_bulk
from rota.store.sqlite.projection import write_changes
from rota.store.sqlite.set_aside import read_quarantine, read_quarantined_writes

log = structlog.get_logger("rota.store")


def is_of_the_data(error: BaseException) -> bool:
    """Returns whether a projection failed because of what it wrote, not because of where."""
    if isinstance(error, apsw.Error):
        return isinstance(error, apsw.ConstraintError | apsw.MismatchError | apsw.TooBigError)
    # Anything else is a mistake of this program that some job brings out.
    return isinstance(error, Exception) and not isinstance(error, StoreError | OSError)


_SHOWN = f"""
SELECT job_id, count, seq, length(body),
    CASE WHEN length(body) <= {QUARANTINED_WRITE_BYTES_SHOWN} THEN body END
FROM (
    SELECT *, count(*) OVER (PARTITION BY job_id) AS count,
        row_number() OVER (PARTITION BY job_id ORDER BY seq, "index") AS number
    FROM quarantined_writes
) WHERE number <= {QUARANTINED_WRITES_SHOWN} ORDER BY seq, "index"
"""


def read_quarantined_work(connection: apsw.Connection) -> list[QuarantinedWork]:
    """Returns all jobs that are set aside, with their first writes."""
    return quarantined_work(read_quarantine(connection), fetch(connection, _SHOWN))


def set_failed_jobs_aside(
    connection: apsw.Connection, window: Window, quarantine: Quarantine
) -> dict[JobId, str]:
    """Sets those jobs of a window aside that fail by themselves; returns them with the reasons.

    Raises what failed if it is not about any job.
    """

    async def trial(due: Sequence[Sequence[AnyWrite]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            write_changes(connection, due, min(window.positions))
        finally:
            connection.execute("ROLLBACK")

    due = window.due()
    set_aside(window.records, due, quarantine)
    finding = find_failing_jobs(due, trial, is_of_the_data, len(quarantine))
    try:
        finding.send(None)
    except StopIteration as stop:
        failed: dict[JobId, str] = stop.value
    else:
        raise AssertionError("a trial on SQLite never waits")
    entries = quarantined_by(window.records, due, failed, window.shards)
    run_in_bulk(
        connection,
        "INSERT INTO quarantine VALUES",
        [(one.job_id, one.shard, one.seq, one.at, one.reason) for one in entries],
    )
    return failed


def repair(connection: apsw.Connection, job: QuarantinedJob) -> None:
    """Projects what was set aside of a job; raises what fails, and then nothing has changed."""
    with connection:
        writes = read_quarantined_writes(connection, [job.job_id])
        for table in ("quarantine", "quarantined_writes"):
            connection.execute(f"DELETE FROM {table} WHERE job_id = ?", (job.job_id,))
        write_changes(connection, [[decode_write(one.body) for one in writes]], job.shard)


def repair_jobs(connection: apsw.Connection, job_ids: Sequence[JobId]) -> dict[JobId, str]:
    """Repairs these jobs, all if none is named; returns by job why it failed, if it did."""
    jobs, outcome = wanted_jobs(read_quarantine(connection), job_ids)
    for job in jobs:
        try:
            repair(connection, job)
            outcome[job.job_id] = ""
            log.info("job_repaired", job=job.job_id)
        except Exception as error:
            if not is_of_the_data(error):
                raise
            outcome[job.job_id] = str(error) or type(error).__name__
    return outcome
