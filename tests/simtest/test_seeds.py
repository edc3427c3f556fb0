"""Runs from seeds: no promise is broken, and equal seeds give runs equal to the last message."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simtest.cluster import Cluster
from tests.simtest.plan import PROFILES, draw, keep
from tests.simtest.run import run
from tests.tidy.tree import ROOT

EVERYDAY = range(1, 21)
FOUND = {
    3: "a worker polled without a pause while the server offered an order whose lease had ended at"
    " the worker before the server knew of its start",
}
"""Seeds that once found a bug, with the bug. They stay for ever."""


@pytest.mark.sim
@pytest.mark.parametrize("seed", [seed for seed in EVERYDAY if seed not in FOUND])
def test_a_run_from_a_seed_breaks_no_promise(seed: int) -> None:
    result = run(draw(seed))
    assert result.ok, [str(verdict) for verdict in result.verdicts]


@pytest.mark.sim
@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_once_found_a_bug_breaks_no_promise(seed: int) -> None:
    result = run(draw(seed))
    assert result.ok, (FOUND[seed], [str(verdict) for verdict in result.verdicts])


@pytest.mark.sim
@pytest.mark.parametrize("profile", PROFILES)
def test_a_cluster_survives_each_profile_of_faults(profile: str) -> None:
    result = run(draw(101, profile=profile, storm_s=15.0))
    assert result.ok, [str(verdict) for verdict in result.verdicts]


@pytest.mark.sim
def test_a_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    def hashes(hash_seed: str) -> bytes:
        command = [sys.executable, "-m", "rota", "verify", "--seeds", "1..3", "--hashes"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(
            [*command, "--minutes", "0.3"], env=environment, capture_output=True, check=True
        )
        return done.stdout

    first = hashes("1")
    assert len(first.splitlines()) == 3
    assert first == hashes("2")


def test_a_run_whose_servers_never_start_fails() -> None:
    def spoil(cluster: Cluster) -> None:
        del cluster.database.store.notes

    result = run(draw(1, profile="calm", storm_s=3.0), spoil)
    assert not result.ok
    assert "a task of server-" in str(result.verdicts[0])


def test_another_seed_gives_another_run() -> None:
    first, second = (run(draw(seed, profile="calm", storm_s=3.0)) for seed in (1, 2))
    assert first.trace_hash != second.trace_hash


def test_leaving_out_a_fault_changes_no_other() -> None:
    plan = draw(1)
    assert len(plan.faults) > 3
    fewer = keep(plan, faults="0,2-3", actions=None)
    assert fewer.faults == (plan.faults[0], *plan.faults[2:4])
    assert fewer.actions == plan.actions


def test_a_run_names_the_command_that_repeats_it() -> None:
    plan = keep(draw(7), faults="1-2", actions="none")
    assert plan.command("all") == "rota verify --seed 7 --faults 1-2 --acts none"
