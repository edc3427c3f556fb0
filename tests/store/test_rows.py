"""Rows as records: what is read in bulk shares what it can."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from rota.core.model import JobId, JobRecord, JobState, Life
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


def test_a_job_read_among_others_has_all_that_was_stored_of_it() -> None:
    asked = [
        replace(spec(priority=1, labels=[("team", "billing")]), payload=b"[1]", trace="00-abc"),
        replace(spec(priority=2, run_at=5, created_at=7), task=b"{}", order=9),
        replace(spec(priority=2, key="k", limit=3), revision=4, graph_ms=8),
        spec(priority=1, finish_by=9, expires_at=11, count=3),
    ]
    life = Life(JobState.QUEUED, line=7)
    jobs = [JobRecord(JobId(f"j{number}"), one, life) for number, one in enumerate(asked)]
    stored = [(one.id, encode(one.life), encode(one.spec), "more") for one in jobs]
    assert list(JobsInBulk().jobs(stored)) == jobs


def test_a_job_of_another_version_is_read_with_what_this_one_knows() -> None:
    whole = msgspec.msgpack.decode(encode(spec(priority=1)))
    life = encode(Life(JobState.QUEUED))
    newer, older = encode([*whole, "what is that?"]), encode(whole[:5])
    first, second = JobsInBulk().jobs([(JobId("a"), life, newer), (JobId("b"), life, older)])
    assert first.spec == second.spec == spec(priority=1)
