"""Ids of executions: UUIDs of their time, all different, and the same in every replay."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from rota.api.ids import IdMint
from rota.core.ids import execution_id, member_id
from rota.core.model import JobId

NOW = 1_767_600_000_000


def test_an_execution_has_a_uuid_of_its_own_time() -> None:
    job_id = JobId(IdMint("berlin").mint(NOW))
    for fence in (1, 2, 3):
        found = UUID(execution_id(job_id, fence, NOW + 5_000))
        assert (found.version, found.variant) == (7, UUID(job_id).variant)
        assert found.int >> 80 == NOW + 5_000
        assert f"{found}"[15:18] == job_id[15:18] != "000", "the cell is that of the job"


def test_the_first_execution_id_ends_like_its_job_id() -> None:
    job_id = JobId(IdMint().mint(NOW))
    assert execution_id(job_id, 1, NOW + 7)[20:] == job_id[20:]
    assert execution_id(job_id, 2, NOW + 7)[20:] != job_id[20:]


@given(st.integers(1, 300), st.integers(0, 3))
def test_execution_ids_of_one_moment_differ_from_each_other_and_from_job_ids(
    count: int, later: int
) -> None:
    mint = IdMint()
    jobs = [JobId(one) for one in mint.mint_many(NOW, count)]
    jobs += [member_id(jobs[0], index) for index in range(count)]
    firsts = [execution_id(job_id, 1, NOW + later) for job_id in jobs]
    others = [execution_id(job_id, fence, NOW + later) for job_id in jobs for fence in (2, 3)]
    assert len({*jobs, *firsts, *others}) == 4 * len(jobs)


def test_jobs_with_ids_of_another_form_get_execution_ids_too() -> None:
    found = execution_id(JobId("job-1"), 1, NOW)
    assert UUID(found).version == 7
    assert found == execution_id(JobId("job-1"), 1, NOW)
    assert found != execution_id(JobId("job-2"), 1, NOW)
