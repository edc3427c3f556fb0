"""Raw limit: it writes the same rows as the store."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from benchmarks.lives import whole_lives
from benchmarks.raw import (
    postgres_in_place,
    postgres_material,
    postgres_projected,
    sqlite_material,
    sqlite_projected,
)
from tests.postgres.server import shared_server

LIVES = 2_000


def test_the_raw_limit_on_sqlite_writes_the_rows_of_the_store(tmp_path: Path) -> None:
    material = sqlite_material(tmp_path / "made", whole_lives(LIVES))
    sqlite_projected(tmp_path, material)
    by_hand = apsw.Connection(str(tmp_path / "raw.db"))
    for table, rows in (("jobs", material.jobs), ("executions", material.executions)):
        found = list(by_hand.execute(f"SELECT * FROM {table} ORDER BY id"))
        assert len(found) == LIVES
        assert found == sorted(rows)
    bodies = [body for (body,) in by_hand.execute("SELECT body FROM journal ORDER BY seq")]
    assert bodies == list(material.bodies)
    by_hand.close()


@pytest.mark.slow
@pytest.mark.postgres
async def test_the_raw_limit_on_postgres_writes_the_rows_of_the_store() -> None:
    server = shared_server()
    database = server.new_database()
    dsn = server.dsn(database)
    material = await postgres_material(dsn, whole_lives(LIVES))
    for write in (postgres_projected, postgres_in_place):
        await write(dsn, material)
        for table in ("jobs", "executions"):
            theirs, ours = f"rota.{table}_done", f"raw.{table}"
            differing = f"(SELECT * FROM {theirs} EXCEPT SELECT * FROM {ours})"
            assert server.sql(f"SELECT count(*) FROM {ours}", database) == str(LIVES)
            assert server.sql(f"SELECT count(*) FROM {differing} x", database) == "0"
