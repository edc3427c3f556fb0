"""Failover of the database: no accepted job is lost, and no server needs a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.chaos_run import Choice, FaultInjector
from tests.chaos.cluster import Cluster
from tests.chaos.cluster_run import running
from tests.chaos.patroni import TTL_S, Pair

pytestmark = [pytest.mark.chaos, pytest.mark.ha]

LEASE_TTL = "60s"
"""Longer than a failover of the database takes, so that running jobs live through it."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    if lacking := Pair.lacking():
        pytest.skip(lacking)
    both = Pair()
    try:
        both.start()
        yield both
    finally:
        both.keep_log(tmp_path)
        both.remove()


@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_a_failover_of_the_database_breaks_no_guarantee(
    tmp_path: Path, pair: Pair, fate: str
) -> None:
    cluster = Cluster(tmp_path, lease_ttl=LEASE_TTL, database_server=pair)
    strike = {"killed": kill, "frozen": freeze}[fate]
    with running(cluster, seed=20_261_115) as run:
        choices = {f"primary {fate}": Choice(1, lambda: strike(cluster, pair))}
        run.run(FaultInjector(choices, seed=0, plan=list(choices)))
        report = run.verdict()
        assert len(report.faults) == 1
        runs = [run.status for job in report.history.jobs for run in job.executions]
        assert "lost" not in runs, "a lease was longer than the failover, and yet it ran out"
        assert cluster.client().cluster().durability == "sync-ha"


def kill(cluster: Cluster, pair: Pair) -> str:
    """Kills the primary, which returns later as a standby."""
    old = pair.primary()
    assert old is not None
    effect = old.kill()
    new = pair.until_primary_is_not(old)
    led = _led(cluster)
    old.start()
    pair.until_paired()
    return f"{effect}; {new.name} is the primary; {led}"


def freeze(cluster: Cluster, pair: Pair) -> str:
    """Freezes the primary, which wakes as a former primary."""
    old = pair.primary()
    assert old is not None
    effect = old.freeze(1.75 * TTL_S)
    new = pair.until_primary_is_not(old)
    led = _led(cluster)
    pair.until_paired()
    return f"{effect}; {new.name} is the primary; {led}"


def _led(cluster: Cluster) -> str:
    new_leader, epoch = cluster.leader()
    return f"{new_leader.name} leads in epoch {epoch}"
