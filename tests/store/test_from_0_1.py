"""Stores of 0.1 (golden/): servers refuse them, and `rota migrate` brings them over whole, once."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from rota.alerts.evaluator import SETTINGS_KEY, STATE_KEY, SavedAlerts
from rota.alerts.rules import AlertSettings
from rota.core.commands import Timing
from rota.core.model import JobId
from rota.core.outcome import JobsAccepted, decode_receipt
from rota.engine.inbox import read_submission
from rota.engine.standby import build_scheduler
from rota.store.files.blobs import Blobs, FolderBlobs
from rota.store.migrate import known_migrations, missing_in_file
from rota.store.object_index import BundleQuery
from rota.store.postgres.connect import parse_address
from rota.store.postgres.durability import check_up
from rota.store.postgres.migrate import migrate_postgres
from rota.store.protocol import GENESIS, Epoch, FencedError, SchemaError
from rota.store.queries import JobQuery
from rota.store.sqlite.store import DATABASES, migrate_directory, open_sqlite
from tests.postgres.cell import Cell
from tests.store.conformance import leading, put
from tests.store.golden_contents import ALL, contents
from tests.store.naive import NaiveStore, assert_same

GOLDEN = Path(__file__).with_name("golden")
COLUMNS = """
SELECT c.relname, c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    a.attcompression::text, (SELECT array_agg(o ORDER BY o) FROM unnest(c.reloptions) o),
    pg_get_expr(d.adbin, d.adrelid)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'rota'::regnamespace AND c.relname !~ '_[0-9]+'
    AND c.relname NOT IN ('jobs_done_by_end', 'jobs_done_rest_finished_at_idx')
ORDER BY 1, a.attnum
"""
"""Days and pieces of the journal are made as time goes on. Two indexes have other options, to the
same effect: `autosummarize` cannot be changed on a table as a whole."""
INDEXES = """
SELECT tablename, indexname, indexdef FROM pg_indexes
WHERE schemaname = 'rota' AND indexname !~ '_[0-9]+'
    AND indexname NOT IN ('jobs_done_by_end', 'jobs_done_rest_finished_at_idx')
ORDER BY 1, 2
"""
FUNCTIONS = """
SELECT proname, pg_get_functiondef(oid), proacl::text FROM pg_proc
WHERE pronamespace = 'rota'::regnamespace ORDER BY 1
"""
VIEWS = """
SELECT viewname, definition, reloptions, relacl::text FROM pg_views
JOIN pg_class ON relname = viewname AND relnamespace = 'rota'::regnamespace
WHERE schemaname = 'rota' ORDER BY 1
"""


def unpack(folder: Path) -> Path:
    """The data directory of 0.1."""
    with tarfile.open(GOLDEN / "0_1_sqlite.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


async def restored() -> Cell:
    """A database with the dump of 0.1."""
    cell = Cell()
    await cell.run(gzip.decompress((GOLDEN / "0_1_postgres.sql.gz").read_bytes()).decode())
    return cell


async def assert_whole(store: Any, blobs: Blobs, recorded: str) -> None:
    """All that 0.1 left is there and is understood, and the store goes on from it."""
    found = json.loads(json.dumps(await contents(store)))
    expected = json.loads((GOLDEN / recorded).read_text())
    for kind, value in expected.items():
        assert found[kind] == value, kind
    assert found.keys() == expected.keys()
    records = await store.journal.records_after(GENESIS, ALL)
    await assert_same(store, NaiveStore(write for record in records for write in record.writes))
    await assert_is_understood(store)
    await assert_files_are_there(store, blobs)
    leader = await leading(store)
    await leader.append(put(1))
    assert len(await store.queries.find_jobs(JobQuery(limit=ALL))) == len(expected["jobs"]) + 1


async def assert_is_understood(store: Any) -> None:
    """Bodies that the store only carries are decoded by the modules that use them."""
    snapshot = await store.journal.load()
    newest = max(record.at for record in await store.journal.records_after(GENESIS, ALL))
    (await build_scheduler(snapshot, Timing(), newest)).check()
    assert isinstance(decode_receipt((await store.queries.key("key-1")).receipt), JobsAccepted)
    entry = await store.journal.inbox_job(JobId("019a85bf-0000-7000-8000-0000000000aa"))
    submission = read_submission(entry)
    assert submission.key.key == "left-key"
    assert submission.jobs[0].spec.terms.name == "left"
    for name, kind in ((SETTINGS_KEY, AlertSettings), (STATE_KEY, SavedAlerts)):
        note = msgspec.msgpack.decode(await store.notes.get(name))
        read: Any = msgspec.convert(note, kind)
        assert msgspec.to_builtins(read) == note, "a field of a note has another name now"


async def assert_files_are_there(store: Any, blobs: Blobs) -> None:
    """The bundle, the large output file and the small one of the job `invoice`."""
    (bundle,) = await store.objects.find_bundles(BundleQuery())
    assert await whole(await blobs.read(bundle.key, 0, bundle.size)) == b"#!/bin/sh\necho hello\n"
    (job,) = await store.queries.find_jobs(JobQuery(name="invoice"))
    (large,) = await store.objects.large_outputs([job.life.execution_id])
    content = await whole(await blobs.read(large.key, 0, large.size))
    assert sha256(content).hexdigest() == large.sha256
    small = await store.artifacts.read(job.life.execution_id, "out.txt")
    assert await whole(small) == b"small output"


async def whole(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


async def test_a_data_directory_of_0_1_comes_over_with_one_migrate(tmp_path: Path) -> None:
    unpack(tmp_path)
    with pytest.raises(SchemaError, match=r"0\.1: stop all servers .* `rota migrate`"):
        open_sqlite(tmp_path)
    for file, dialect in DATABASES.items():
        missing = missing_in_file(tmp_path / file, dialect)
        assert [step.name for step in missing] == ["from_0_1.sql"]
    migrate_directory(tmp_path)
    migrate_directory(tmp_path)  # once more changes nothing
    store = open_sqlite(tmp_path)
    try:
        await assert_whole(store, FolderBlobs(tmp_path / "objects"), "0_1_sqlite.json")
    finally:
        await store.close()


def test_a_data_directory_of_0_1_has_the_baseline_schema_then(tmp_path: Path) -> None:
    migrate_directory(unpack(tmp_path / "old"))
    migrate_directory(tmp_path / "new")
    for file in ("rota.db", "logs.db"):
        assert sqlite_schema(tmp_path / "old" / file) == sqlite_schema(tmp_path / "new" / file)


def sqlite_schema(path: Path) -> dict[str, Any]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = connection.execute(
            "SELECT name, wr, strict FROM pragma_table_list WHERE schema = 'main' ORDER BY 1"
        ).fetchall()
        columns = {
            name: connection.execute(f"SELECT * FROM pragma_table_xinfo('{name}')").fetchall()
            for name, *_ in tables
        }
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY 1"
        ).fetchall()
        steps = connection.execute("SELECT number, checksum FROM migrations").fetchall()
    finally:
        connection.close()
    return {"tables": tables, "columns": columns, "indexes": indexes, "steps": steps}


async def test_a_data_directory_of_0_1_whose_oldest_records_were_deleted_goes_on(
    tmp_path: Path,
) -> None:
    file = apsw.Connection(str(unpack(tmp_path) / "rota.db"))
    file.execute("DELETE FROM journal WHERE seq <= 5")
    file.close()
    migrate_directory(tmp_path)
    store = open_sqlite(tmp_path)
    try:
        await assert_goes_on(store)
    finally:
        await store.close()


async def assert_goes_on(store: Any) -> None:
    """The chain of the kept records is unbroken, and new records follow it."""
    oldest, *_, newest = await store.journal.records_after(GENESIS, ALL)
    assert oldest.seq == 6
    assert await store.journal.records_after(newest.head, ALL) == []
    kept = await store.journal.records_after(oldest.head, ALL)
    assert [record.seq for record in kept] == list(range(7, newest.seq + 1))
    assert (await store.journal.load()).head == newest.head
    leader = await leading(store)
    await leader.append(put(1))
    assert (await store.journal.load()).head == leader.head


@pytest.mark.postgres
async def test_a_database_of_0_1_comes_over_with_one_migrate() -> None:
    cell = await restored()
    with pytest.raises(SchemaError, match=r"0\.1: stop all servers .* `rota migrate`"):
        async with cell.opened():
            pass
    assert (await check_up(cell.dsn)).missing == ("from_0_1.sql",)
    address = parse_address(cell.dsn)
    await migrate_postgres(address, from_0_1=True)
    await migrate_postgres(address, from_0_1=True)  # once more changes nothing
    async with cell.opened() as store:
        await assert_whole(store, store.blobs, "0_1_postgres.json")


@pytest.mark.postgres
async def test_a_database_of_0_1_whose_oldest_records_were_deleted_goes_on() -> None:
    cell = await restored()
    await cell.run("DELETE FROM rota.journal WHERE seq <= 5")
    await migrate_postgres(parse_address(cell.dsn), from_0_1=True)
    async with cell.opened() as store:
        await assert_goes_on(store)


@pytest.mark.postgres
async def test_a_database_of_0_1_has_the_baseline_schema_then() -> None:
    old, new = await restored(), Cell()
    for cell in (old, new):
        await migrate_postgres(parse_address(cell.dsn), from_0_1=True)
    for asked in (COLUMNS, INDEXES, FUNCTIONS, VIEWS):
        async with old.connected() as before, new.connected() as after:
            assert await before.fetch(asked) == await after.fetch(asked)
    steps = "SELECT number, name, checksum FROM rota.migrations"
    (step,) = known_migrations("postgres")
    async with old.connected() as before:
        assert [tuple(row) for row in await before.fetch(steps)] == [
            (step.number, step.name, step.checksum)
        ]


@pytest.mark.postgres
async def test_a_leader_of_0_1_can_append_no_more_after_the_migration() -> None:
    cell = await restored()
    old = Epoch(int(str(await cell.ask("SELECT epoch FROM rota.leader"))))
    await migrate_postgres(parse_address(cell.dsn), from_0_1=True)
    functions = "SELECT count(*) FROM pg_proc WHERE proname IN ('open_shelf', 'open_agenda')"
    assert await cell.ask(functions) == 0, "a program of 0.1 calls these before it leads"
    async with cell.opened() as store:
        head = (await store.journal.load()).head
        with pytest.raises(FencedError):
            await store.journal.append(old, head, 1, [put(1)])
