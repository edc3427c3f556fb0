"""A cell under faults for a long time: no promise breaks, and how much of the time it was there.

ROTA_SOAK_S says for how long, ROTA_SOAK_PAUSE_S how long the pauses between two faults may be, and
ROTA_SOAK_KINDS which faults, by the beginnings of their names: `leader killed, worker`.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.availability import Probe, Submitter
from tests.chaos.cluster import Cluster
from tests.chaos.storm import Havoc
from tests.chaos.trial import running

SOAK_S = float(os.environ.get("ROTA_SOAK_S", "300"))
PAUSE_S = float(os.environ.get("ROTA_SOAK_PAUSE_S", "20"))
KINDS = tuple(kind.strip() for kind in os.environ.get("ROTA_SOAK_KINDS", "").split(","))


@pytest.mark.soak
def test_a_cell_is_there_while_its_parts_fail(tmp_path: Path) -> None:
    with running(Cluster(tmp_path), seed=secrets.randbelow(1_000_000_000)) as trial:
        storm = trial.storm
        probe = Probe(
            Submitter("knowing all", trial.cluster.knowing_client(), storm.notes),
            Submitter("balanced", trial.cluster.client(), storm.notes),
        )
        probe.warm_up()
        storm.loads.append(probe)  # type: ignore[arg-type]
        choices = {
            kind: choice for kind, choice in trial.faults.every().items() if kind.startswith(KINDS)
        }
        havoc = Havoc(choices, trial.dice.getrandbits(64), pause_s_max=PAUSE_S)
        trial.rage(havoc, seconds=SOAK_S)
        trial.verdict()
        starts = (line.at for line in storm.notes.history.lines if line.event == "begin")
        found = probe.availability(starts, havoc.deeds)
        print(found.text())  # noqa: T201  (pytest shows it)
    for what, good in found.good.items():
        assert good, f"not once in {found.seconds} s: {what}"
