"""Damaged files of a data directory: flipped bytes, truncated, removed and replaced files."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from rota.core.commands import Timing
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import (
    Dependency,
    Execution,
    ExecutionId,
    ExecutionState,
    JobId,
    JobState,
    KeyRecord,
    Life,
    Queue,
    Resources,
    Worker,
    WorkerId,
)
from rota.core.outcome import (
    AnyWrite,
    PutExecution,
    PutKey,
    PutQueue,
    PutSchedule,
    PutWorker,
)
from rota.engine.restorable import restorable
from rota.engine.standby import build_scheduler
from rota.store.errors import DamagedError, DamagedRowError, FileGoneError
from rota.store.protocol import Snapshot, StoreError, Totals
from rota.store.queries import ExecutionQuery, JobQuery
from rota.store.sqlite.database_file import DatabaseFile
from rota.store.sqlite.integrity import damage_in
from rota.store.sqlite.store import SqliteStore, open_sqlite
from tests.example_counts import examples
from tests.store.conformance import Appender, leading, put
from tests.store.conformance_schedules import schedule
from tests.store.conformance_spill import put_spilled
from tests.store.golden_contents import plain
from tests.store.naive import terms

JOBS = 60
FLIPS = examples(150, 3000)
SEED = 7
WORKER = WorkerId("worker-0")


def job_id(number: int) -> JobId:
    return JobId(f"job-{number:04}")


def running(number: int, job_state: JobState = JobState.RUNNING) -> list[AnyWrite]:
    """A running job and its execution."""
    execution_id = ExecutionId(f"execution-{number:04}")
    life = Life(job_state, execution_id=execution_id, worker_id=WORKER, fence=1)
    state = ExecutionState.RUNNING
    execution = Execution(execution_id, job_id(number), WORKER, 1, 1, state, 1)
    return [put(number, life, terms=terms(name=f"job {number}")), PutExecution(execution)]


async def fill(data: Path) -> None:
    """Jobs in each state, some spilled, executions, a worker, a queue, a schedule, logs."""
    store = open_sqlite(data)
    leader = await leading(store)
    await leader.append(
        PutWorker(Worker(WORKER, "w", "s", Resources(cpu_milli=1000))), PutQueue(Queue("default"))
    )
    await leader.append(PutSchedule(schedule()), PutKey(KeyRecord("key", "print", b"receipt", 1)))
    states = list(JobState)
    for number in range(JOBS):
        state = states[number % len(states)]
        if number % 20 == 1:
            await leader.append(put_spilled(number, line=7))
            continue
        if state in (JobState.RUNNING, JobState.CANCELLING):
            await leader.append(*running(number, state))
            continue
        life = Life(state, reason=f"reason {number}", finished_at=5 if state in JOB_FINAL else None)
        await leader.append(put(number, life, terms=terms(name=f"job {number}")))
    await store.logs.append(ExecutionId("execution-0002"), 0, b"a line of output\n" * 50)
    await store.close()


async def read_all(store: SqliteStore) -> dict[str, Any]:
    """What each job, execution, key and log says by its id; an error where it is refused."""
    ids = [job_id(number) for number in range(JOBS)]
    reads: dict[str, Callable[[], Any]] = {
        **{one: lambda one=one: store.queries.jobs([one]) for one in ids},
        "execution": lambda: store.queries.executions([ExecutionId("execution-0002")]),
        "key": lambda: store.queries.key("key"),
        "log": lambda: store.logs.read(ExecutionId("execution-0002"), 0, 10_000),
    }
    return {name: await _or_error(read) for name, read in reads.items()}


async def read_lists(store: SqliteStore) -> dict[str, Any]:
    """What lists say, and what a server loads at its start."""
    reads: dict[str, Callable[[], Any]] = {
        "jobs": lambda: store.queries.find_jobs(JobQuery(limit=JOBS)),
        "queued": lambda: store.queries.find_jobs(JobQuery(states=(JobState.QUEUED,))),
        "named": lambda: store.queries.find_jobs(JobQuery(name="job 3")),
        "executions": lambda: store.queries.find_executions(ExecutionQuery(limit=JOBS)),
        "snapshot": store.journal.load,
    }
    return {name: await _or_error(read) for name, read in reads.items()}


async def _or_error(read: Callable[[], Any]) -> Any:
    try:
        return await read()
    except StoreError as error:
        return error


def flip(path: Path, position: int, bit: int = 4) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def is_told(after: Any) -> bool:
    """Whether what is missing or refused says so itself."""
    if isinstance(after, Snapshot):
        return bool(after.damaged)
    return isinstance(after, StoreError)


def without_counts(said: Any) -> Any:
    """Counts since the beginning have no checksum."""
    if isinstance(said, Snapshot):
        return plain(replace(said, totals=Totals(), next_arrival_number=0))
    return plain(said)


async def assert_noticed(whole: dict[str, Any], lists: dict[str, Any], data: Path) -> None:
    """No job says anything else; what lists lack is told, or `rota doctor` finds it."""
    try:
        store = open_sqlite(data)
    except StoreError:
        return
    try:
        after, lists_after = await read_all(store), await read_lists(store)
    finally:
        await store.close()
    for name, said in after.items():
        assert isinstance(said, StoreError) or said in ([], None, whole[name]), name
    for name, said in lists_after.items():
        for one in () if isinstance(said, StoreError | Snapshot) else said:
            assert one.id not in whole or [one] == whole[one.id], name
    snapshot = lists_after["snapshot"]
    if isinstance(snapshot, Snapshot):
        for job in snapshot.jobs:
            assert [job] == whole[job.id]
        await build_scheduler(snapshot, Timing(), 10)
    silent = [name for name in whole if not is_told(after[name]) and after[name] != whole[name]]
    silent += [
        name
        for name, said in lists_after.items()
        if not is_told(said) and without_counts(said) != without_counts(lists[name])
    ]
    assert not silent or list(damage_in(data)), silent


async def test_a_flipped_byte_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    origin = tmp_path / "whole"
    await fill(origin)
    assert list(damage_in(origin)) == []
    store = open_sqlite(origin)
    whole, lists = await read_all(store), await read_lists(store)
    await store.close()
    size = (origin / "rota.db").stat().st_size
    rng = random.Random(SEED)
    for position in rng.sample(range(size), min(FLIPS, size)):
        data = tmp_path / "flipped"
        shutil.copytree(origin, data)
        flip(data / "rota.db", position, rng.randrange(8))
        try:
            await assert_noticed(whole, lists, data)
        except Exception as error:
            raise AssertionError(f"byte {position}") from error
        shutil.rmtree(data)


def overwrite(data: Path, sql: str, *args: object) -> None:
    """Changes rows of a stopped store by hand."""
    connection = apsw.Connection(str(data / "rota.db"))
    connection.execute(sql, args)
    connection.close()


OF_ANOTHER = """
UPDATE jobs SET spec = (SELECT spec FROM jobs WHERE id = 'job-0000') WHERE id IN (?, ?)
"""
"""Whole bodies, but in the rows of other jobs."""


async def test_a_server_starts_without_the_jobs_whose_rows_are_damaged(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path)
    leader = await leading(store)
    await leader.append(
        PutWorker(Worker(WORKER, "w", "s", Resources(cpu_milli=1000))),
        PutQueue(Queue("default", max_workers=1)),
    )
    needs = (Dependency(job_id(1)),)
    waits = Life(JobState.PENDING, reason="dependencies")
    await leader.append(put(0), put(1), put(2, waits, dependencies=needs))
    for number in range(3, 6):
        await leader.append(*running(number))
    await leader.append(put(6, waits, dependencies=(Dependency(job_id(2)),)))
    await store.close()
    overwrite(tmp_path, OF_ANOTHER, job_id(1), job_id(3))
    overwrite(tmp_path, "UPDATE executions SET body = zeroblob(90) WHERE id = ?", "execution-0004")
    overwrite(tmp_path, "UPDATE queues SET body = body || 'x'")
    store = open_sqlite(tmp_path)
    snapshot = await store.journal.load()
    await store.close()
    assert snapshot.damaged == [
        ("job", "job-0001"), ("job", "job-0003"), ("execution", "execution-0004"),
        ("queue", "default"),
    ]  # fmt: skip
    scheduler = await build_scheduler(snapshot, Timing(), 10)
    scheduler.check()
    known = [number for number in range(7) if scheduler.why(job_id(number), 10) is not None]
    assert known == [0, 5], "2 and 6 wait for 1; 3 is damaged, and so is the execution of 4"
    assert [one.queue.paused for one in scheduler.queues()] == [True], "its limit is not known"


async def test_a_start_with_a_damaged_worker_leaves_its_running_jobs_out(tmp_path: Path) -> None:
    await fill(tmp_path)
    overwrite(tmp_path, "UPDATE workers SET body = zeroblob(9)")
    store = open_sqlite(tmp_path)
    snapshot = await store.journal.load()
    await store.close()
    whole, left_out = restorable(snapshot)
    assert snapshot.executions
    assert list(whole.executions) == []
    assert not [job for job in whole.jobs if job.life.execution_id]
    assert left_out[0] == "the worker worker-0 is damaged"
    assert len(left_out) == 1 + len(snapshot.executions)


async def open_and_append(data: Path) -> tuple[SqliteStore, Appender]:
    store = open_sqlite(data)
    leader = await leading(store)
    await leader.append(put(1))
    await store.queries.jobs([job_id(1)])  # a reader has the file open
    return store, leader


def remove(data: Path) -> None:
    for path in data.glob("rota.db*"):
        path.unlink()


def remove_wal(data: Path) -> None:
    (data / "rota.db-wal").unlink()


def replace_by_copy(data: Path) -> None:
    shutil.copyfile(data / "rota.db", data / "copy")
    (data / "copy").rename(data / "rota.db")


def remove_directory(data: Path) -> None:
    shutil.rmtree(data)


@pytest.mark.parametrize("lose", [remove, remove_wal, replace_by_copy, remove_directory])
async def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    data = tmp_path / "data"
    store, leader = await open_and_append(data)
    lose(data)
    for _ in range(2):
        with pytest.raises(FileGoneError, match=r"rota\.db.* while the server used it"):
            await leader.append(put(2))
    with pytest.raises(FileGoneError):
        await store.journal.load()
    with pytest.raises(FileGoneError):
        await store.queries.jobs([job_id(1)])
    with pytest.raises(FileGoneError):
        await store.notes.put("name", b"body")
    await store.close()


async def test_a_file_that_is_put_back_is_used_again(tmp_path: Path) -> None:
    store, leader = await open_and_append(tmp_path)
    (tmp_path / "rota.db").rename(tmp_path / "elsewhere")
    with pytest.raises(FileGoneError):
        await leader.append(put(2))
    (tmp_path / "elsewhere").rename(tmp_path / "rota.db")
    await store.journal.load()
    await (await leading(store)).append(put(3))
    await store.close()


async def test_a_removed_file_of_logs_takes_no_more_output(tmp_path: Path) -> None:
    store, leader = await open_and_append(tmp_path)
    await store.logs.append(ExecutionId("e"), 0, b"one")
    (tmp_path / "logs.db").unlink()
    with pytest.raises(FileGoneError, match=r"logs\.db is gone"):
        await store.logs.append(ExecutionId("e"), 3, b"two")
    with pytest.raises(FileGoneError):
        await store.logs.read(ExecutionId("e"), 0, 9)
    await leader.append(put(2))
    await store.close()


@pytest.mark.parametrize("empty", [True, False])
async def test_a_start_refuses_a_directory_that_has_lost_its_database(
    tmp_path: Path, *, empty: bool
) -> None:
    store, _ = await open_and_append(tmp_path)
    await store.close()
    (tmp_path / "rota.db").unlink()
    if empty:
        (tmp_path / "rota.db").touch()
    with pytest.raises(FileGoneError, match=r"is missing or empty, but logs\.db is there"):
        open_sqlite(tmp_path)
    assert [line for line in damage_in(tmp_path) if "missing or empty" in line]


async def test_a_truncated_log_of_writes_takes_no_more_appends(tmp_path: Path) -> None:
    store, leader = await open_and_append(tmp_path)
    os.truncate(tmp_path / "rota.db-wal", 100)
    with pytest.raises(DamagedError, match=r"rota\.db-wal was truncated"):
        await leader.append(put(2))
    await store.close()


@pytest.mark.parametrize("kept", [100, 4096, 5000, 3 * 4096, -4096, -1])
async def test_a_truncated_database_is_refused_or_refuses(tmp_path: Path, kept: int) -> None:
    await fill(tmp_path / "whole")
    store = open_sqlite(tmp_path / "whole")
    whole, lists = await read_all(store), await read_lists(store)
    await store.close()
    size = (tmp_path / "whole" / "rota.db").stat().st_size
    os.truncate(tmp_path / "whole" / "rota.db", kept if kept > 0 else size + kept)
    await assert_noticed(whole, lists, tmp_path / "whole")


async def test_a_database_that_is_truncated_while_it_is_used_takes_no_more_appends(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)
    store = open_sqlite(tmp_path)
    os.truncate(tmp_path / "rota.db", 4096)
    with pytest.raises(DamagedError):
        await (await leading(store)).append(put(JOBS + 1))
    await store.close()


async def test_a_damaged_body_is_refused_by_every_read_of_it(tmp_path: Path) -> None:
    await fill(tmp_path)
    overwrite(tmp_path, OF_ANOTHER, job_id(1), job_id(3))
    overwrite(tmp_path, "UPDATE keys SET fingerprint = 'another'")
    overwrite(tmp_path, "UPDATE executions SET body = substr(body, 1, 40)")
    store = open_sqlite(tmp_path)
    refused = [
        name for name, said in (await read_all(store)).items() if isinstance(said, DamagedRowError)
    ]
    await store.close()
    assert refused == [job_id(1), job_id(3), "execution", "key"]


async def test_a_page_of_a_log_that_lacks_a_piece_is_refused(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path)
    log = ExecutionId("e")
    for number in range(3):
        await store.logs.append(log, 4 * number, b"abc\n")
    await store.close()
    connection = apsw.Connection(str(tmp_path / "logs.db"))
    connection.execute("DELETE FROM pieces WHERE start = 4")
    connection.close()
    store = open_sqlite(tmp_path)
    assert (await store.logs.read(log, 8, 9)).data == b"abc\n"
    with pytest.raises(DamagedRowError, match="log of execution e 4"):
        await store.logs.read(log, 0, 12)
    await store.close()


_WAL_BYTES = 4_096


def test_a_log_that_grows_while_it_is_looked_at_is_not_taken_for_truncated(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    path.write_bytes(b"x")
    wal = Path(f"{path}-wal")
    wal.write_bytes(bytes(_WAL_BYTES))
    file = DatabaseFile(path)
    file.opened()
    looked = file._wal_bytes

    def grows_meanwhile() -> int:
        size = looked()
        if size == _WAL_BYTES:
            wal.write_bytes(bytes(2 * _WAL_BYTES))
            file.note_wal(1, _WAL_BYTES)
        return size

    file._wal_bytes = grows_meanwhile  # type: ignore[method-assign]
    file.check()
    wal.write_bytes(bytes(_WAL_BYTES // 2))
    with pytest.raises(DamagedError, match="truncated"):
        file.check()
