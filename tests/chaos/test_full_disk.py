"""Full disk of the database under load: no accepted job is lost, and work continues by itself."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.chaos_run import Choice, FaultInjector
from tests.chaos.cluster import SETTINGS, Cluster
from tests.chaos.cluster_run import running
from tests.chaos.small_disk import NoDiskError, SmallDisk
from tests.postgres.server import PostgresServer
from tests.process.cell import until

pytestmark = pytest.mark.chaos

FULL_S = 6.0
LITTLE = {"max_wal_size": "64MB", "min_wal_size": "32MB", "wal_recycle": "off"}


def test_a_full_disk_of_the_database_breaks_no_guarantee(tmp_path: Path) -> None:
    try:
        disk = SmallDisk()
    except NoDiskError as why:
        pytest.skip(str(why))
    with closing(disk):
        postgres = PostgresServer({**SETTINGS, **LITTLE}, quick=False, within=disk.path)
        with running(Cluster(tmp_path, size=2, database_server=postgres), seed=20_261_115) as run:
            choices = {"disk full": Choice(1, lambda: fill(run.cluster, postgres, disk))}
            run.run(FaultInjector(choices, seed=0, plan=["disk full"] * 2))
            run.verdict()


def fill(cluster: Cluster, postgres: PostgresServer, disk: SmallDisk) -> str:
    taken = disk.fill()
    time.sleep(FULL_S)
    died = not postgres.is_up()
    disk.free()
    if died:
        # Without space for its log it stops; whoever frees some starts it again.
        until(lambda: _started(postgres), "a database with space again")
    new_leader, epoch = cluster.leader()
    end = "it died of it" if died else "it lived on"
    return f"{taken:,} bytes taken, {end}; {new_leader.name} leads in epoch {epoch}"


def _started(postgres: PostgresServer) -> bool:
    try:
        postgres.start()
    except RuntimeError:
        return postgres.is_up()
    return True
