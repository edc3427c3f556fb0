"""A database that fails over: nothing accepted is lost, and nobody restarts a server for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from tests.chaos.patroni import TTL_S, Pair
from tests.chaos.storm import Choice, Havoc
from tests.chaos.trial import running

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
def test_a_failover_of_the_database_breaks_no_promise(
    tmp_path: Path, pair: Pair, fate: str
) -> None:
    cluster = Cluster(tmp_path, lease_ttl=LEASE_TTL, backing=pair)
    strike = {"killed": kill, "frozen": freeze}[fate]
    with running(cluster, seed=20_261_115) as trial:
        choices = {f"primary {fate}": Choice(1, lambda: strike(cluster, pair))}
        trial.rage(Havoc(choices, seed=0, plan=list(choices)))
        report = trial.verdict()
        assert len(report.deeds) == 1
        runs = [run.status for job in report.history.jobs for run in job.executions]
        assert "lost" not in runs, "a lease was longer than the failover, and yet it ran out"
        assert cluster.client().cluster().durability == "sync-ha"


def kill(cluster: Cluster, pair: Pair) -> str:
    """The primary's whole machine is gone, and comes back later as a standby."""
    old = pair.primary()
    assert old is not None
    said = old.kill()
    new = pair.until_primary_is_not(old)
    led = _led(cluster)
    old.start()
    pair.until_paired()
    return f"{said}; {new.name} is the primary; {led}"


def freeze(cluster: Cluster, pair: Pair) -> str:
    """The old primary wakes and still believes that it is one."""
    old = pair.primary()
    assert old is not None
    said = old.freeze(1.75 * TTL_S)
    new = pair.until_primary_is_not(old)
    led = _led(cluster)
    pair.until_paired()
    return f"{said}; {new.name} is the primary; {led}"


def _led(cluster: Cluster) -> str:
    heir, epoch = cluster.leader()
    return f"{heir.name} leads in epoch {epoch}"
