"""The promises hold while real servers and workers die. ROTA_CHAOS_SEED repeats a chaos."""

from __future__ import annotations

import os
import secrets
import sqlite3
from pathlib import Path

import pytest

from rota.store.journal import decode_record
from rota.store.protocol import Epoch, JournalRecord, Seq
from rota.verify.checkers import broken_promises
from tests.chaos.chaos_run import LEASE_S, ChaosRun, one_server
from tests.process.cell import Cell

SHORT_S = 12.0
LONG_S = 75.0


def run_and_check(folder: Path, seconds: float, seed: int) -> None:
    seed = int(os.environ.get("ROTA_CHAOS_SEED", seed))
    again = f"again: ROTA_CHAOS_SEED={seed}"
    print(again)  # noqa: T201  (pytest shows it when the test fails)
    with Cell(folder, f"{LEASE_S:g}s") as cell:
        cell.up()
        chaos = ChaosRun(cell, seed)
        injector = one_server(cell, chaos.worker_pool, chaos.rng.getrandbits(64))
        chaos.run(seconds, injector)
        history = chaos.settle()
        cell.server.stop()
    kinds = [fault.kind for fault in injector.faults]
    print(f"{len(history.jobs)} jobs, {len(history.lines)} lines, {kinds}")  # noqa: T201
    assert len(kinds) >= seconds / 10, f"too few faults: {kinds}"
    assert len(history.jobs) >= seconds, "too few jobs"
    history.journal = journal_of(cell.data)
    broken = broken_promises(history)
    assert not broken, "\n".join([again, *broken])


def journal_of(data: Path) -> list[JournalRecord]:
    """The whole journal of a stopped cell on SQLite."""
    with sqlite3.connect(data / "rota.db") as database:
        rows = database.execute(
            "SELECT seq, epoch, at, body, hash FROM journal ORDER BY seq"
        ).fetchall()
    database.close()
    return [
        JournalRecord(Seq(seq), Epoch(epoch), at, decode_record(body), newest)
        for seq, epoch, at, body, newest in rows
    ]


@pytest.mark.process
@pytest.mark.slow
def test_a_short_run_with_faults_breaks_no_guarantee(tmp_path: Path) -> None:
    run_and_check(tmp_path, SHORT_S, seed=20_261_115)


@pytest.mark.chaos
@pytest.mark.parametrize("round_", [1, 2])
def test_a_long_run_with_faults_breaks_no_guarantee(tmp_path: Path, round_: int) -> None:
    run_and_check(tmp_path, LONG_S, seed=secrets.randbelow(1_000_000_000))
