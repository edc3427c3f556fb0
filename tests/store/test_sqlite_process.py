"""SQLite through the death of its process and a disk without room."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from rota.core.outcome import AnyWrite
from rota.store.protocol import Seq
from rota.store.sqlite.store import open_sqlite
from tests.store.child import record
from tests.store.naive import NaiveStore, assert_same

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.process


def child(task: str, data_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.child", task, str(data_dir)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


async def journal_of(data_dir: Path) -> list[list[AnyWrite]]:
    """All records kept, once the tables were found to equal their fold."""
    store = open_sqlite(data_dir)
    try:
        changes = await store.queries.changes_after(Seq(0), 1_000_000)
        records: list[list[AnyWrite]] = [[] for _ in range(changes[-1].seq)]
        for change in changes:
            records[change.seq - 1].append(change.write)
        await assert_same(store, NaiveStore(change.write for change in changes))
        return records
    finally:
        await store.close()


@pytest.mark.parametrize("appends", [1, 7, 30])
async def test_a_killed_process_loses_nothing_it_acknowledged_and_leaves_nothing_half(
    tmp_path: Path, appends: int
) -> None:
    acknowledged = 0
    for life in range(2):
        with child("append", tmp_path) as process:
            assert process.stdout is not None
            for line in process.stdout:
                acknowledged = int(line)
                if acknowledged >= appends * (life + 1):
                    process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        records = await journal_of(tmp_path)
        assert len(records) >= acknowledged
        assert records == [record(seq) for seq in range(1, len(records) + 1)]


async def test_a_full_disk_is_answered_and_nothing_is_damaged(tmp_path: Path) -> None:
    with child("fill", tmp_path) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    full, went_on = said.splitlines()
    newest = int(full.removeprefix("full after ")) + 1
    assert went_on == f"went on to {newest}"
    assert await journal_of(tmp_path) == [record(seq) for seq in range(1, newest + 1)]
    connection = apsw.Connection(str(tmp_path / "rota.db"))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
