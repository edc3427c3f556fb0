"""The database's disk fills up under load: nothing accepted is lost, and it goes on by itself."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.cluster import SETTINGS, Cluster
from tests.chaos.small_disk import NoDiskError, SmallDisk
from tests.chaos.storm import Choice, Havoc
from tests.chaos.trial import running
from tests.postgres.server import PostgresServer
from tests.process.cell import until

pytestmark = pytest.mark.chaos

FULL_S = 6.0
LITTLE = {"max_wal_size": "64MB", "min_wal_size": "32MB", "wal_recycle": "off"}


def test_a_full_disk_of_the_database_breaks_no_promise(tmp_path: Path) -> None:
    try:
        disk = SmallDisk()
    except NoDiskError as why:
        pytest.skip(str(why))
    with closing(disk):
        postgres = PostgresServer({**SETTINGS, **LITTLE}, quick=False, within=disk.path)
        with running(Cluster(tmp_path, size=2, backing=postgres), seed=20_261_115) as trial:
            choices = {"disk full": Choice(1, lambda: fill(trial.cluster, postgres, disk))}
            trial.rage(Havoc(choices, seed=0, plan=["disk full"] * 2))
            trial.verdict()


def fill(cluster: Cluster, postgres: PostgresServer, disk: SmallDisk) -> str:
    """Until nothing fits any more, and back."""
    taken = disk.fill()
    time.sleep(FULL_S)
    died = not postgres.is_up()
    disk.free()
    if died:
        # Without space for its log it stops; whoever frees some starts it again.
        until(lambda: _started(postgres), "a database with space again")
    heir, epoch = cluster.leader()
    end = "it died of it" if died else "it lived on"
    return f"{taken:,} bytes taken, {end}; {heir.name} leads in epoch {epoch}"


def _started(postgres: PostgresServer) -> bool:
    try:
        postgres.start()
    except RuntimeError:
        return postgres.is_up()
    return True
