"""A cell under faults for a long time: no promise breaks, and how much of the time it was there.

ROTA_SOAK_S says for how long, ROTA_SOAK_PAUSE_S how long the pauses between two faults may be.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.availability import Probe
from tests.chaos.cluster import Cluster
from tests.chaos.storm import Havoc
from tests.chaos.trial import running

SOAK_S = float(os.environ.get("ROTA_SOAK_S", "300"))
PAUSE_S = float(os.environ.get("ROTA_SOAK_PAUSE_S", "20"))


@pytest.mark.soak
def test_a_cell_is_there_while_its_parts_fail(tmp_path: Path) -> None:
    with running(Cluster(tmp_path), seed=secrets.randbelow(1_000_000_000)) as trial:
        storm = trial.storm
        probe = Probe(trial.cluster.client(), storm.notes)
        storm.loads.append(probe)  # type: ignore[arg-type]
        havoc = Havoc(trial.faults.every(), trial.dice.getrandbits(64), pause_s_max=PAUSE_S)
        trial.rage(havoc, seconds=SOAK_S)
        trial.verdict()
        lines = storm.notes.history.lines
        found = probe.availability(line.at for line in lines if line.word == "begin")
        print(found.text())  # noqa: T201  (pytest shows it)
    assert found.accepted, "not once was a submit accepted"
    assert found.started, "not once did a job start"
