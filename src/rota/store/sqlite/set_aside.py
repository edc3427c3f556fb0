"""Reads jobs in quarantine as they are: their rows with the writes that were set aside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from rota.core.model import JobId, JobRecord
from rota.core.outcome import AnyWrite
from rota.store import rows
from rota.store.projection.quarantine import apply_writes, decode_write
from rota.store.sqlite.connect import fetch

_json = msgspec.json.Encoder()
_BY_ID = "IN (SELECT value FROM json_each(?))"


def read_set_aside(
    connection: apsw.Connection, job_ids: Sequence[JobId] | None = None
) -> dict[JobId, JobRecord | None]:
    """Returns those of these jobs that are in quarantine, or all of them; None: it is deleted."""
    quarantined: list[JobId] = [
        row[0] for row in fetch(connection, "SELECT job_id FROM quarantine")
    ]
    if job_ids is not None and quarantined:
        asked = dict.fromkeys(job_ids)
        quarantined = [job_id for job_id in quarantined if job_id in asked]
    if not quarantined:
        return {}
    wanted = (_json.encode(quarantined).decode(),)
    sql = f"SELECT id, life, spec FROM jobs WHERE id {_BY_ID}"
    stored = {row[0]: rows.job(row) for row in connection.execute(sql, wanted)}
    sql = f'SELECT job_id, body FROM quarantined_writes WHERE job_id {_BY_ID} ORDER BY seq, "index"'
    writes: dict[JobId, list[AnyWrite]] = {job_id: [] for job_id in quarantined}
    for job_id, body in connection.execute(sql, wanted):
        writes[job_id].append(decode_write(body))
    return {job_id: apply_writes(stored.get(job_id), aside).job for job_id, aside in writes.items()}


def with_set_aside(
    connection: apsw.Connection, job_ids: Sequence[JobId], found: Iterable[JobRecord]
) -> list[JobRecord]:
    """Returns these jobs, those in quarantine as they are."""
    jobs = {job.id: job for job in found}
    for job_id, job in read_set_aside(connection, job_ids).items():
        if job is not None:
            jobs[job_id] = job
        else:
            jobs.pop(job_id, None)
    return list(jobs.values())
