"""The promises hold while real servers and workers die. ROTA_CHAOS_SEED repeats a storm."""

from __future__ import annotations

import os
import secrets
import sqlite3
from pathlib import Path

import pytest

from rota.store.journal import decode_record
from rota.store.protocol import Epoch, JournalRecord, Seq
from rota.verify.checkers import broken_promises
from tests.chaos.storm import LEASE_S, Storm, one_server
from tests.process.cell import Cell

SHORT_S = 12.0
LONG_S = 75.0


def storm(folder: Path, seconds: float, seed: int) -> None:
    """One storm, and the verdict on it."""
    seed = int(os.environ.get("ROTA_CHAOS_SEED", seed))
    again = f"again: ROTA_CHAOS_SEED={seed}"
    print(again)  # noqa: T201  (pytest shows it when the test fails)
    with Cell(folder, f"{LEASE_S:g}s") as cell:
        cell.up()
        raging = Storm(cell, seed)
        havoc = one_server(cell, raging.crew, raging.dice.getrandbits(64))
        raging.rage(seconds, havoc)
        history = raging.settle()
        cell.server.stop()
    kinds = [deed.kind for deed in havoc.deeds]
    print(f"{len(history.jobs)} jobs, {len(history.lines)} lines, {kinds}")  # noqa: T201
    assert len(kinds) >= seconds / 10, f"hardly a storm: {kinds}"
    assert len(history.jobs) >= seconds, "hardly a load"
    history.journal = journal_of(cell.data)
    broken = broken_promises(history)
    assert not broken, "\n".join([again, *broken])


def journal_of(data: Path) -> list[JournalRecord]:
    """All that a cell on SQLite ever decided, once nobody writes there any more."""
    with sqlite3.connect(data / "rota.db") as database:
        rows = database.execute("SELECT seq, epoch, at, body FROM journal ORDER BY seq").fetchall()
    database.close()
    return [
        JournalRecord(Seq(seq), Epoch(epoch), at, decode_record(body))
        for seq, epoch, at, body in rows
    ]


@pytest.mark.process
@pytest.mark.slow
def test_a_short_storm_breaks_no_promise(tmp_path: Path) -> None:
    storm(tmp_path, SHORT_S, seed=20_261_115)


@pytest.mark.chaos
@pytest.mark.parametrize("round_", [1, 2])
def test_a_long_storm_breaks_no_promise(tmp_path: Path, round_: int) -> None:
    storm(tmp_path, LONG_S, seed=secrets.randbelow(1_000_000_000))
