"""The promises hold while real servers and workers die. ROTA_CHAOS_SEED repeats a storm."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.checker import broken_promises
from tests.chaos.storm import Storm
from tests.process.cell import Cell

SHORT_S = 12.0
LONG_S = 75.0


def storm(folder: Path, seconds: float, seed: int) -> None:
    """One storm, and the verdict on it."""
    seed = int(os.environ.get("ROTA_CHAOS_SEED", seed))
    again = f"again: ROTA_CHAOS_SEED={seed}"
    print(again)  # noqa: T201  (pytest shows it when the test fails)
    with Cell(folder) as cell:
        raging = Storm(cell, seed)
        history = raging.rage(seconds)
    kills = sum(raging.deeds.values())
    print(f"{len(history.records)} jobs, {len(history.lines)} lines, {dict(raging.deeds)}")  # noqa: T201
    assert kills >= seconds / 10, f"hardly a storm: {raging.deeds}"
    assert len(history.records) >= seconds, "hardly a load"
    broken = broken_promises(history)
    assert not broken, "\n".join([again, *broken])


@pytest.mark.process
def test_a_short_storm_breaks_no_promise(tmp_path: Path) -> None:
    storm(tmp_path, SHORT_S, seed=20_261_115)


@pytest.mark.chaos
@pytest.mark.parametrize("round_", [1, 2])
def test_a_long_storm_breaks_no_promise(tmp_path: Path, round_: int) -> None:
    storm(tmp_path, LONG_S, seed=secrets.randbelow(1_000_000_000))
