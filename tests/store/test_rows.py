"""Rows as records: what is read in bulk shares what it can."""

from __future__ import annotations

import msgspec

from rota.core.model import JobId, JobState, Life
from rota.store.rows import JobsInBulk, Row
from tests.core.asking import spec

encode = msgspec.msgpack.encode


def _row(job_id: str) -> Row:
    return (JobId(job_id), encode(Life(JobState.QUEUED)), encode(spec(priority=1)))


def test_jobs_that_are_alike_share_all_but_their_ids() -> None:
    first, second = JobsInBulk().jobs([_row("a"), _row("b")])
    assert first.spec == second.spec == spec(priority=1)
    assert first.life is second.life
    for field in ("terms", "task", "payload", "created_at"):
        assert getattr(first.spec, field) is getattr(second.spec, field), field
