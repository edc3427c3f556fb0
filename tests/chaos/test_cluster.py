"""Guarantees on PostgreSQL while servers, workers, connections and the database fail.

ROTA_CHAOS_SEED repeats a run, ROTA_CHAOS_S makes the long one longer.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.chaos_run import FaultInjector
from tests.chaos.cluster import Cluster
from tests.chaos.cluster_run import running

pytestmark = pytest.mark.chaos

SHORT = (
    *("leader killed", "worker killed", "leader frozen", "leader cut from the database"),
    *("database restarted at once", "journal locked", "all servers killed", "leader stopped"),
)
MEASURED = ("leader killed", "leader frozen", "leader stopped") * 4
"""Often enough to say how long nobody leads."""
CALM_S = 5.0
LONG_S = float(os.environ.get("ROTA_CHAOS_S", "180"))


def test_short_faults_on_a_cluster_break_no_guarantee(tmp_path: Path) -> None:
    with running(Cluster(tmp_path), seed=20_261_115) as run:
        injector = FaultInjector(run.faults.every(), seed=0, plan=SHORT)
        run.run(injector)
        report = run.verdict()
    assert [fault.kind for fault in report.faults] == list(SHORT), report.missed


def test_all_faults_on_a_cluster_break_no_guarantee(tmp_path: Path) -> None:
    """Runs without faults, then every fault once, then three kinds at the same time."""
    with running(Cluster(tmp_path), seed=secrets.randbelow(1_000_000_000)) as run:
        faults = run.faults
        plan = [*faults.every(), *MEASURED]
        run.rng.shuffle(plan)
        run.run(seconds=CALM_S)
        run.run(FaultInjector(faults.every(), seed=0, plan=plan))
        kinds = (faults.servers(), faults.workers(), faults.database())
        injectors = [
            FaultInjector(kind, run.rng.getrandbits(64), pause_s_max=6.0) for kind in kinds
        ]
        run.run(*injectors, seconds=LONG_S)
        report = run.verdict()
    assert len(report.faults) >= len(plan) + LONG_S / 10, report.missed
