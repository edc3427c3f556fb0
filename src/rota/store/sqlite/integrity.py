"""Checks the files of a data directory for damage: pages, checksums of bodies, and columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw

from rota.store import rows
from rota.store.checksums import opened, row_key
from rota.store.errors import DamagedRowError, StoreError
from rota.store.limits import DAMAGE_FOUND_MAX
from rota.store.sqlite.connect import SQLITE_ERRORS, as_read_error, fetch, open_reader
from rota.store.sqlite.database_file import refuse_lost
from rota.store.sqlite.projection import job_row
from rota.store.sqlite.store import DATABASES
from rota.store.stored_bodies import BODIES, SQLITE_LOG_KEY, StoredBodies


def damage_in(data_dir: Path) -> Iterator[str]:
    """Yields what is damaged; changes nothing, and a server may be using the directory."""
    try:
        refuse_lost(data_dir / "rota.db", data_dir / "logs.db")
    except StoreError as error:
        yield str(error)
    for file, dialect in DATABASES.items():
        path = data_dir / file
        if path.exists():
            yield from _damage_in_file(path, dialect)


def _damage_in_file(path: Path, dialect: str) -> Iterator[str]:
    try:
        connection = open_reader(path)
    except SQLITE_ERRORS as error:
        yield str(as_read_error(error, f"cannot open {path}"))
        return
    try:
        for (line,) in fetch(connection, f"PRAGMA integrity_check({DAMAGE_FOUND_MAX})"):
            if line != "ok":
                yield f"{path}: {line}"
        for stored in BODIES[dialect]:
            yield from _damaged_bodies(connection, stored)
        if dialect == "sqlite":
            yield from _damaged_columns(connection)
    except SQLITE_ERRORS as error:
        yield str(as_read_error(error, f"cannot read {path}"))
    finally:
        connection.close()


def _damaged_bodies(connection: apsw.Connection, stored: StoredBodies) -> Iterator[str]:
    size = len(stored.keys)
    columns = ", ".join((*(SQLITE_LOG_KEY.get(key, key) for key in stored.keys), *stored.bodies))
    for row in connection.execute(f"SELECT {columns} FROM {stored.table}"):
        key = row_key(*row[:size])
        try:
            for body in row[size:]:
                opened(stored.what, key, body)
        except DamagedRowError as error:
            yield str(error)


def _damaged_columns(connection: apsw.Connection) -> Iterator[str]:
    """Yields jobs and executions whose columns, which lists search, are not what their bodies
    say."""
    for row in connection.execute("SELECT * FROM jobs"):
        try:
            job = rows.job((row[0], row[8], row[9]))
        except DamagedRowError:
            continue  # that was said
        written = job_row(job.id, job.spec, job.life)
        if (*row[:8], *row[10:]) != (*written[:8], *written[10:]):
            yield f"the columns of job {job.id} are damaged: they differ from what the job says"
    for row in connection.execute("SELECT * FROM executions"):
        try:
            execution = rows.execution((row[0], row[4]))
        except DamagedRowError:
            continue
        if row[:4] != rows.execution_row(execution)[:4]:
            yield f"the columns of execution {execution.id} are damaged"
    counts = "SELECT line, count FROM lines"
    each = "SELECT line, count(*) FROM jobs WHERE line <> 0 GROUP BY line"
    if fetch(connection, f"{counts} EXCEPT {each}") or fetch(connection, f"{each} EXCEPT {counts}"):
        yield "the table lines is damaged: it does not count the spilled jobs that there are"
