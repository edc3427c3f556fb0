"""Long run of a cell under faults: guarantees and availability.

ROTA_SOAK_S says for how long, ROTA_SOAK_PAUSE_S how long the pauses between two faults may be, and
ROTA_SOAK_KINDS which faults, by the beginnings of their names: `leader killed, worker`.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.availability import Probe, Submitter
from tests.chaos.chaos_run import FaultInjector
from tests.chaos.cluster import Cluster
from tests.chaos.cluster_run import running

SOAK_S = float(os.environ.get("ROTA_SOAK_S", "300"))
PAUSE_S = float(os.environ.get("ROTA_SOAK_PAUSE_S", "20"))
KINDS = tuple(kind.strip() for kind in os.environ.get("ROTA_SOAK_KINDS", "").split(","))


@pytest.mark.soak
def test_a_cell_stays_available_while_its_parts_fail(tmp_path: Path) -> None:
    with running(Cluster(tmp_path), seed=secrets.randbelow(1_000_000_000)) as run:
        chaos = run.chaos
        probe = Probe(
            Submitter("knowing all", run.cluster.client_of_all_servers(), chaos.notes),
            Submitter("balanced", run.cluster.client(), chaos.notes),
        )
        probe.warm_up()
        chaos.loads.append(probe)  # type: ignore[arg-type]
        choices = {
            kind: choice for kind, choice in run.faults.every().items() if kind.startswith(KINDS)
        }
        injector = FaultInjector(choices, run.rng.getrandbits(64), pause_s_max=PAUSE_S)
        run.run(injector, seconds=SOAK_S)
        run.verdict()
        starts = (line.at for line in chaos.notes.history.lines if line.event == "begin")
        found = probe.availability(starts, injector.faults)
        print(found.text())  # noqa: T201  (pytest shows it)
    for what, good in found.good.items():
        assert good, f"not once in {found.seconds} s: {what}"
