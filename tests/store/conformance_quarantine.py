"""Definition of a store: jobs that cannot be projected are set aside, shown, and repaired."""

from __future__ import annotations

from rota.core.model import JobId, JobState, Life
from rota.core.outcome import MoveJob, PutJob
from rota.store.limits import QUARANTINED_WRITE_BYTES_SHOWN, QUARANTINED_WRITES_SHOWN
from rota.store.postgres.store import PostgresStore
from rota.store.protocol import Store
from tests.store.conformance import StoreMaker, leading, project_all, put
from tests.store.naive import QUEUED, terms

BAD, WORSE, GOOD = (JobId(f"job-{number:04}") for number in (1, 2, 3))
REASON = "the test refuses this job"
_POSTGRES = f"""
CREATE OR REPLACE FUNCTION rota.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.name = 'refused' THEN RAISE EXCEPTION '{REASON}'; END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON rota.jobs_live
    FOR EACH ROW EXECUTE FUNCTION rota.refuse();
"""
_SQLITE = f"""
CREATE TRIGGER refuse BEFORE INSERT ON jobs WHEN NEW.name = 'refused'
BEGIN SELECT RAISE(ABORT, '{REASON}'); END
"""


async def run_sql(store: Store, postgres: str, sqlite: str) -> None:
    """Runs a statement as the owner of the tables."""
    if isinstance(store, PostgresStore):
        await store.journal._leader.write(lambda c: c.execute(postgres))
    else:
        await store.journal.run_durably(lambda c: c.execute(sqlite))  # type: ignore[attr-defined]


async def refuse(store: Store) -> None:
    """Has the tables refuse jobs with the name `refused`."""
    await run_sql(store, _POSTGRES, _SQLITE)


async def accept(store: Store) -> None:
    """Has the tables accept all jobs again."""
    postgres = "DROP TRIGGER IF EXISTS refuse ON rota.jobs_live; DROP FUNCTION rota.refuse()"
    await run_sql(store, postgres, "DROP TRIGGER refuse")


def refused(number: int, **given: object) -> PutJob:
    return put(number, terms=terms(name="refused"), **given)


class QuarantineConformance:
    """Jobs that cannot be projected."""

    async def test_a_job_that_cannot_be_projected_is_set_aside_and_others_go_on(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await refuse(store)
            await leader.append(refused(1), put(3), at=77)
            await leader.append(MoveJob(BAD, Life(JobState.PENDING)), at=78)
            await project_all(store)
            assert store.journal.projection.quarantined == 1
            assert [job.id for job in await store.queries.jobs([GOOD])] == [GOOD]
            (found,) = await store.journal.quarantine()
            assert (found.job_id, found.seq, found.at, found.count) == (BAD, 1, 77, 2)
            assert REASON in found.reason
            assert [one.seq for one in found.writes] == [1, 2]
            assert found.writes[0].write == refused(1)
            await accept(store)

    async def test_a_repaired_job_is_in_the_tables_as_it_is_now(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await refuse(store)
            await leader.append(refused(1), put(3))
            await leader.append(MoveJob(BAD, Life(JobState.PENDING)))
            await project_all(store)
            assert REASON in (await store.journal.repair([BAD]))[BAD]
            assert store.journal.projection.quarantined == 1
            await accept(store)
            assert await store.journal.repair([BAD]) == {BAD: ""}
            await leader.append(put(2))
            (job,) = await store.queries.jobs([BAD])
            assert (job.spec.terms.name, job.life.state) == ("refused", JobState.PENDING)
            assert await store.journal.quarantine() == []
            assert store.journal.projection.quarantined == 0

    async def test_all_jobs_are_repaired_if_none_is_named(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await refuse(store)
            await leader.append(refused(1), refused(2))
            await project_all(store)
            await accept(store)
            assert await store.journal.repair() == {BAD: "", WORSE: ""}
            assert len(await store.queries.jobs([BAD, WORSE])) == 2
            assert await store.journal.repair() == {}

    async def test_a_job_that_is_not_set_aside_is_not_repaired(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            await (await leading(store)).append(put(3))
            await project_all(store)
            assert "not in quarantine" in (await store.journal.repair([GOOD]))[GOOD]

    async def test_writes_that_come_after_a_repair_are_projected(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await refuse(store)
            await leader.append(refused(1))
            await project_all(store)
            await accept(store)
            await store.journal.repair([BAD])
            await leader.append(MoveJob(BAD, Life(JobState.PENDING)))
            await project_all(store)
            (job,) = await store.queries.jobs([BAD])
            assert job.life.state is JobState.PENDING

    async def test_only_the_first_writes_are_shown_and_no_large_one(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await refuse(store)
            await leader.append(refused(1, payload=b"x" * QUARANTINED_WRITE_BYTES_SHOWN))
            for _ in range(QUARANTINED_WRITES_SHOWN):
                await leader.append(MoveJob(BAD, QUEUED))
            await project_all(store)
            (found,) = await store.journal.quarantine()
            assert found.count == QUARANTINED_WRITES_SHOWN + 1
            assert len(found.writes) == QUARANTINED_WRITES_SHOWN
            assert found.writes[0].write is None
            assert found.writes[0].size > QUARANTINED_WRITE_BYTES_SHOWN
            assert found.writes[1].write == MoveJob(BAD, QUEUED)
            await accept(store)
