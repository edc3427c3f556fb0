"""The promises hold on PostgreSQL while servers, workers, wires and the database itself fail.

ROTA_CHAOS_SEED repeats a storm, ROTA_CHAOS_S makes the long one longer.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from tests.chaos.storm import Havoc
from tests.chaos.trial import running

pytestmark = pytest.mark.chaos

SHORT = (
    *("leader killed", "worker killed", "leader frozen", "leader cut from the database"),
    *("database restarted at once", "journal locked", "all servers killed", "leader stopped"),
)
MEASURED = ("leader killed", "leader frozen", "leader stopped") * 4
"""Often enough to say how long nobody leads."""
CALM_S = 5.0
LONG_S = float(os.environ.get("ROTA_CHAOS_S", "180"))


def test_a_short_storm_on_a_cluster_breaks_no_promise(tmp_path: Path) -> None:
    with running(Cluster(tmp_path), seed=20_261_115) as trial:
        havoc = Havoc(trial.faults.every(), seed=0, plan=SHORT)
        trial.rage(havoc)
        report = trial.verdict()
    assert [deed.kind for deed in report.deeds] == list(SHORT), report.missed


def test_a_long_storm_on_a_cluster_breaks_no_promise(tmp_path: Path) -> None:
    """First calm, then every fault once, then three kinds of them at once."""
    with running(Cluster(tmp_path), seed=secrets.randbelow(1_000_000_000)) as trial:
        faults = trial.faults
        plan = [*faults.every(), *MEASURED]
        trial.dice.shuffle(plan)
        trial.rage(seconds=CALM_S)
        trial.rage(Havoc(faults.every(), seed=0, plan=plan))
        kinds = (faults.servers(), faults.workers(), faults.database())
        storms = [Havoc(kind, trial.dice.getrandbits(64), pause_s_max=6.0) for kind in kinds]
        trial.rage(*storms, seconds=LONG_S)
        report = trial.verdict()
    assert len(report.deeds) >= len(plan) + LONG_S / 10, report.missed
