"""Definition of a store: rows whose bytes are not those that were written."""

from __future__ import annotations

from typing import Any

import pytest

from rota.core.model import ExecutionId, JobId, KeyRecord, Queue
from rota.core.outcome import DropJob, PutKey, PutOccurrence, PutQueue, PutSchedule, Refill
from rota.store.errors import DamagedRowError
from rota.store.queries import ExecutionQuery, JobQuery, OccurrenceQuery
from tests.store.conformance import StoreMaker, leading, put, run_of
from tests.store.conformance_schedules import SCHEDULES, occurrence, schedule
from tests.store.conformance_spill import ids, projected, put_spilled


async def damage(store: Any, table: str, where: str, column: str = "body") -> None:
    """Replaces the end of a stored body by another one of the same length."""
    await store.queries.find_jobs(JobQuery())  # now the tables have caught up
    if hasattr(store.journal, "run_durably"):
        table = {"jobs_live": "jobs", "jobs_shelved": "jobs", "executions_live": "executions"}.get(
            table, table
        )
        other = f"CAST(substr({column}, 1, length({column}) - 1) || x'ff' AS BLOB)"
        sql = f"UPDATE {table} SET {column} = {other} WHERE {where}"
        await store.journal.run_durably(lambda c: c.execute(sql).fetchall())
    else:
        size = f"octet_length({column})"
        other = f"set_byte({column}, {size} - 1, get_byte({column}, {size} - 1) # 255)"
        sql = f"UPDATE rota.{table} SET {column} = {other} WHERE {where}"
        await store.objects._connection.write(lambda c: c.execute(sql))


def job_id(number: int) -> JobId:
    return JobId(f"job-{number:04}")


class DamageConformance:
    """Damaged rows are refused where they are asked for, and hide no other row."""

    async def test_a_damaged_job_is_refused_and_lists_go_on_behind_it(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(*(put(number) for number in range(1, 8)), run_of(1), run_of(2))
            await damage(store, "jobs_live", "id = 'job-0006'", "spec")
            await damage(store, "jobs_live", "id = 'job-0002'", "life")
            await damage(store, "executions_live", "id = 'execution-0002'")
            for number in (2, 6):
                with pytest.raises(DamagedRowError, match=f"job job-000{number} is damaged"):
                    await store.queries.jobs([job_id(number)])
            (whole,) = await store.queries.jobs([job_id(5)])
            assert whole.spec == put(5).spec
            pages = []
            query = JobQuery(limit=3)
            while page := await store.queries.find_jobs(query):
                pages.append(ids(page))
                query = JobQuery(limit=3, before=page[-1].id)
            assert pages == [[7, 5, 4], [3, 1]]
            with pytest.raises(DamagedRowError, match="execution execution-0002 is damaged"):
                await store.queries.executions([ExecutionId("execution-0002")])
            found = await store.queries.find_executions(ExecutionQuery(limit=1))
            assert [one.id for one in found] == ["execution-0001"]

    async def test_a_load_leaves_damaged_rows_out_and_names_them(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1), put(2), run_of(1), run_of(2), PutQueue(Queue("default")))
            await damage(store, "jobs_live", "id = 'job-0002'", "spec")
            await damage(store, "executions_live", "id = 'execution-0001'")
            await damage(store, "queues", "name = 'default'")
            snapshot = await store.journal.load()
            assert ids(snapshot.jobs) == [1]
            assert [one.id for one in snapshot.executions] == ["execution-0002"]
            assert list(snapshot.queues) == []
            assert sorted(snapshot.damaged) == [
                ("execution", "execution-0001"), ("job", "job-0002"), ("queue", "default"),
            ]  # fmt: skip

    async def test_damaged_spilled_jobs_are_counted_where_their_queue_is_read(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(*(put_spilled(number, line=7) for number in range(1, 9)))
            await leader.append(*(put_spilled(number, line=5) for number in range(11, 14)))
            await damage(store, "jobs_shelved", "id IN ('job-0002', 'job-0003')", "spec")
            await damage(store, "jobs_shelved", "id IN ('job-0008', 'job-0013')", "life")
            snapshot = await store.journal.load(3)
            assert ids(snapshot.jobs) == [1, 4, 5, 11, 12]
            assert dict(snapshot.spill_counts) == {7: 6, 5: 2}
            assert len(snapshot.damaged) == 3
            await projected(store, leader)
            read = await store.journal.read_spilled([Refill(7, -1, 2, 1), Refill(5, 12, 9, 2)])
            assert [ids(jobs) for jobs in read.jobs] == [[1, 4], []]
            assert list(read.damaged) == [(2, 3), (13,)]
            read = await store.journal.read_spilled([Refill(7, 5, 9, 3)])
            assert ([ids(jobs) for jobs in read.jobs], list(read.damaged)) == ([[6, 7]], [(8,)])

    async def test_a_damaged_job_can_be_deleted(self, make_store: StoreMaker) -> None:
        labels = (("team", "billing"),)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1, labels=labels), put(2, labels=labels))
            await damage(store, "jobs_live", "id = 'job-0001'", "spec")
            await leader.append(DropJob(job_id(1)))
            assert await store.queries.jobs([job_id(1)]) == []
            assert ids(await store.queries.find_jobs(JobQuery(labels=labels))) == [2]

    async def test_other_damaged_bodies_are_refused_too(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(PutKey(KeyRecord("key", "print", b"receipt", 1)))
            await leader.append(PutSchedule(schedule()))
            await leader.append(*(PutOccurrence(occurrence(number)) for number in range(1, 5)))
            await store.notes.put("note", b"text")
            await damage(store, "keys", "key = 'key'", "receipt")
            await damage(store, "occurrences", "nominal = 3")
            await damage(store, "settings", "name = 'note'")
            with pytest.raises(DamagedRowError, match="idempotency key key is damaged"):
                await store.queries.key("key")
            with pytest.raises(DamagedRowError):
                await store.notes.get("note")
            query = OccurrenceQuery(schedule_id=SCHEDULES[0], limit=3)
            found = await store.queries.find_occurrences(query)
            assert [one.nominal for one in found] == [4, 2, 1]

    async def test_a_damaged_piece_of_a_log_is_refused(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            log = ExecutionId("execution-0001")
            await store.logs.append(log, 0, b"one\n")
            await store.logs.append(log, 4, b"two\n")
            await _damage_log(store)
            assert (await store.logs.read(log, 0, 4)).data == b"one\n"
            with pytest.raises(DamagedRowError, match="log of execution"):
                await store.logs.read(log, 0, 8)


async def _damage_log(store: Any) -> None:
    if hasattr(store.journal, "run_durably"):
        store.logs._connection.execute("UPDATE pieces SET data = x'74776f0a' WHERE start = 4")
    else:
        sql = "UPDATE rota.log_pieces SET data = '\\x74776f0a' WHERE start = 4"
        await store.objects._connection.write(lambda c: c.execute(sql))
