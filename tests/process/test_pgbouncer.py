"""Servers behind a PgBouncer in transaction mode, whose pool is smaller than what they open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.store.postgres.store import open_postgres
from rota.store.protocol import FencedError
from rota.store.queries import ExecutionQuery, JobQuery
from tests.chaos.cluster import Cluster
from tests.postgres.pgbouncer import PgBouncer, pgbouncer
from tests.process.cell import shell
from tests.store.conformance import leading, put, run_of

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.process,
    pytest.mark.skipif(pgbouncer() is None, reason="pgbouncer is not installed"),
]

POOL = 3
_IN_USE = "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}'"


@pytest.fixture
def bouncer() -> Iterator[PgBouncer]:
    made = PgBouncer(POOL)
    yield made
    made.remove()


async def test_stores_that_share_a_small_pool_never_get_each_others_statements(
    bouncer: PgBouncer,
) -> None:
    dsn = bouncer.dsn(bouncer.new_database())
    stores = [await open_postgres(dsn) for _ in range(3)]
    leader = await leading(stores[0])

    async def read(number: int) -> None:
        store = stores[number % 3]
        for _ in range(15):
            jobs = await store.queries.find_jobs(JobQuery(limit=1_000))
            runs = await store.queries.find_executions(ExecutionQuery(limit=1_000))
            assert [job.id for job in jobs] == sorted((job.id for job in jobs), reverse=True)
            assert all(run.job_id == f"job-{run.id[-4:]}" for run in runs)
            await store.logs.append(run_of(number).execution.id, None, b"x")

    async def write() -> None:
        for number in range(60):
            await leader.append(put(number, labels=(("a", "b"),)), run_of(number))
            with pytest.raises(FencedError):
                await stores[1].journal.append(leader.epoch, leader.head, 1, [put(9_999)])

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        for number in range(9):
            group.create_task(read(number))
    assert len(await stores[2].queries.find_jobs(JobQuery(limit=1_000))) == 60
    assert (await stores[2].journal.load()).seq == 60
    assert (await stores[0].logs.read(run_of(1).execution.id, 0, 99)).data == b"x" * 15
    for store in stores:
        await store.close()


def test_a_cell_behind_it_runs_jobs_and_changes_its_leader(tmp_path: Path) -> None:
    bouncer = PgBouncer(POOL)
    with Cluster(tmp_path, size=2, backing=bouncer) as cluster:
        cluster.start_all()
        cluster.worker()
        client = cluster.client(60)
        for round_ in range(2):
            ids = client.submit_many([shell("echo hello", f"job-{round_}-{n}") for n in range(10)])
            for job_id in ids:
                cluster.until_status(client, job_id, "succeeded")
            node, epoch = cluster.leader()
            if round_ == 0:
                assert node.daemon is not None
                node.daemon.kill()
                cluster.leader(after_epoch=epoch)
        in_use = int(bouncer.server.sql(_IN_USE.format(cluster.database)))
        assert 0 < in_use <= POOL
