"""Schema migrations: numbered SQL files, applied in order, each recorded with its checksum.

A file that was released is never edited: a change of the schema is the next number. The first
release is 0.2.0; until then the baseline itself is edited. `from_0_1.sql` takes the last schema of
0.1 to the baseline; only `rota migrate` applies it, while no server runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from rota.store.checksums import row_key, sealed
from rota.store.journal import hash_records
from rota.store.limits import LOAD_RECORDS_PER_FETCH
from rota.store.protocol import GENESIS, SchemaError, StoreError
from rota.store.stored_bodies import BODIES, SQLITE_LOG_KEY, StoredBodies

_RECORD_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)
"""


class Migration(msgspec.Struct, frozen=True):
    """Step of a schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """The hash by which a recorded step is recognised."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


_NEWEST_OF_0_1 = frozenset(
    {
        (9, "da3578bb0fe9c111141f2ee9f32670fa5b41880e8bb557cefc3aaa1f02545d61"),
        (1, "c5848f26aa5fde1942dfa71e0faf7d7abd4ad1b326ba42406cc99ad7a5f4940e"),
        (13, "15a3bb532022eea18cce81faead8fb93c1e494fe4c88ef736f524d9eb9acd1fa"),
    }
)
"""The last step of 0.1 and its checksum, in rota.db, in logs.db and on PostgreSQL."""
_FROM_0_1 = "from_0_1.sql"


def known_migrations(dialect: str) -> list[Migration]:
    """Returns all numbered steps of a dialect, which is a folder of `migrations/`."""
    folder = _folder(dialect)
    names = sorted(file.name for file in folder.iterdir() if file.name[:1].isdigit())
    return [
        Migration(int(name.partition("_")[0]), name, (folder / name).read_text("utf-8"))
        for name in names
    ]


def step_from_0_1(dialect: str) -> Migration:
    """Returns the step that takes a database of 0.1 to the baseline."""
    return Migration(0, _FROM_0_1, (_folder(dialect) / _FROM_0_1).read_text("utf-8"))


def is_of_0_1(applied: Mapping[int, str]) -> bool:
    """Returns whether these recorded steps are those of the last 0.1."""
    return bool(applied) and max(applied.items()) in _NEWEST_OF_0_1


def pending_migrations(
    applied: Mapping[int, str], known: Sequence[Migration], where: str, dialect: str
) -> list[Migration]:
    """Returns all that `rota migrate` would do; refuses a schema that it cannot take over."""
    if is_of_0_1(applied):
        return [step_from_0_1(dialect), *known[1:]]
    return missing_migrations(applied, known, where)


def _folder(dialect: str) -> Traversable:
    return resources.files("rota.store") / "migrations" / dialect


def missing_migrations(
    applied: Mapping[int, str], known: Sequence[Migration], where: str
) -> list[Migration]:
    """Returns the steps still to do; refuses a schema that this program did not make."""
    if is_of_0_1(applied):
        raise SchemaError(
            f"{where} has the schema of Rota 0.1: stop all servers that use it, make a backup, and"
            " run `rota migrate`"
        )
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
    """Returns the error for a schema that is too new."""
    return SchemaError(
        f"{where} has schema {found}, this program knows up to {newest}:"
        " it was used by a newer version of Rota, start that one"
    )


def migrate_sqlite(
    connection: apsw.Connection, known: Sequence[Migration], *, from_0_1: str = ""
) -> int:
    """Brings a database up to date, all steps or none; returns how many there were to do.

    `from_0_1` is the dialect of a database that may be of 0.1.
    """
    where = connection.filename
    if from_0_1:
        _take_over_0_1(connection, known[0], from_0_1)
    if connection.table_exists("main", "migrations"):
        # Checked without the write lock, so that opening an up-to-date file writes nothing.
        missing = missing_migrations(_applied(connection), known, where)
        if not missing:
            return 0
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_RECORD_TABLE)
        missing = missing_migrations(_applied(connection), known, where)
        for step in missing:
            connection.execute(step.sql).fetchall()
            _record(connection, step)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return len(missing)


def _take_over_0_1(connection: apsw.Connection, baseline: Migration, dialect: str) -> None:
    """Has no effect on any other database."""
    connection.create_scalar_function("sealed", _sealed, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.table_exists("main", "migrations") and is_of_0_1(_applied(connection)):
            for one in BODIES[dialect]:
                _seal(connection, one)
            connection.execute(step_from_0_1(dialect).sql).fetchall()
            if dialect == "sqlite":
                _chain_journal(connection)
            connection.execute(_RECORD_TABLE)
            _record(connection, baseline)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _sealed(*values: Any) -> Any:
    body, *keys = values
    return sealed(row_key(*keys), body)


def _seal(connection: apsw.Connection, stored: StoredBodies) -> None:
    keys = ", ".join(SQLITE_LOG_KEY.get(key, key) for key in stored.keys)
    bodies = ", ".join(f"{body} = sealed({body}, {keys})" for body in stored.bodies)
    connection.execute(f"UPDATE {stored.table} SET {bodies}")


def _chain_journal(connection: apsw.Connection) -> None:
    """Gives the records of 0.1 their hashes; the chain begins with the oldest that is kept."""
    seq, newest = 0, GENESIS.hash
    while found := connection.execute(
        "SELECT seq, epoch, at, body FROM journal WHERE seq > ? ORDER BY seq LIMIT ?",
        (seq, LOAD_RECORDS_PER_FETCH),
    ).fetchall():
        hashes = hash_records(newest, found)
        connection.executemany(
            "UPDATE journal SET hash = ?2 WHERE seq = ?1",
            hashes,
        )
        seq, newest = hashes[-1]
    connection.execute(
        "UPDATE projection_shards SET folded_hash = j.hash FROM journal j WHERE j.seq = folded_seq"
    )


def missing_in_file(path: Path, dialect: str) -> list[Migration]:
    """Returns what `rota migrate` would do to a file, which may not exist yet; changes nothing."""
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
    return pending_migrations(applied, known, str(path), dialect)


def _record(connection: apsw.Connection, step: Migration) -> None:
    connection.execute(
        "INSERT INTO migrations (number, name, checksum) VALUES (?, ?, ?)",
        (step.number, step.name, step.checksum),
    )


def _applied(connection: apsw.Connection) -> dict[int, str]:
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT number, checksum FROM migrations"
    ).fetchall()
    return {row[0]: row[1] for row in rows}
