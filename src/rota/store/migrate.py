"""Numbered SQL files, applied in order, each recorded with its checksum.

A file that was ever released is never edited: a change of the schema is the next number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import msgspec

from rota.store.protocol import SchemaError, StoreError

_RECORD_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)
"""


class Migration(msgspec.Struct, frozen=True):
    """One step of a schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Tells whether a recorded step is the one we know."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known_migrations(dialect: str) -> list[Migration]:
    """All steps this program brings for a dialect, a folder of `migrations/`."""
    folder = resources.files("rota.store") / "migrations" / dialect
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [
        Migration(int(name.partition("_")[0]), name, (folder / name).read_text("utf-8"))
        for name in names
    ]


def missing_migrations(
    applied: Mapping[int, str], known: Sequence[Migration], where: str
) -> list[Migration]:
    """The steps still to do; refuses a schema this program did not make."""
    newest = known[-1].number if known else 0
    if applied and max(applied) > newest:
        raise left_behind(where, max(applied), newest)
    for step in known:
        if applied.get(step.number, step.checksum) != step.checksum:
            raise SchemaError(
                f"{where} has another schema {step.number} than {step.name} of this program:"
                " it was made by a different build, start that one or use another data directory"
            )
    return [step for step in known if step.number not in applied]


def left_behind(where: str, found: int, newest: int) -> SchemaError:
    """The refusal of a schema that is too new."""
    return SchemaError(
        f"{where} has schema {found}, this program knows up to {newest}:"
        " it was used by a newer version of Rota, start that one"
    )


def migrate_sqlite(connection: apsw.Connection, known: Sequence[Migration]) -> int:
    """Brings a database up to date, all steps or none; answers how many there were to do."""
    where = connection.filename
    if connection.table_exists("main", "migrations"):
        # Looked at without the write lock, so that opening an up-to-date file writes nothing.
        missing = missing_migrations(_applied(connection), known, where)
        if not missing:
            return 0
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_RECORD_TABLE)
        missing = missing_migrations(_applied(connection), known, where)
        for step in missing:
            connection.execute(step.sql).fetchall()
            connection.execute(
                "INSERT INTO migrations (number, name, checksum) VALUES (?, ?, ?)",
                (step.number, step.name, step.checksum),
            )
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return len(missing)


def missing_in_file(path: Path, dialect: str) -> list[Migration]:
    """What `migrate_sqlite` would do to a file, which may not be there yet; changes nothing."""
    known = known_migrations(dialect)
    if not path.exists():
        return known
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        raise StoreError(f"cannot open {path}: {error}") from error
    try:
        applied = _applied(connection) if connection.table_exists("main", "migrations") else {}
    except apsw.Error as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    finally:
        connection.close()
    return missing_migrations(applied, known, str(path))


def _applied(connection: apsw.Connection) -> dict[int, str]:
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT number, checksum FROM migrations"
    ).fetchall()
    return {row[0]: row[1] for row in rows}
