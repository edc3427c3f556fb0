"""A process of its own that appends to a store until it is killed or its disk is full."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from rota.core.model import JobState, Life
from rota.core.outcome import AnyWrite, MoveJob
from rota.store.protocol import Seq, StoreFullError
from rota.store.sqlite.store import SqliteStore, open_sqlite
from tests.store.conformance import leading, project_all, put

JOBS_PER_RECORD = 20


def record(seq: int) -> list[AnyWrite]:
    """New jobs, and the end of those of the record before."""
    jobs = [put(JOBS_PER_RECORD * seq + n, payload=b"p" * 500) for n in range(JOBS_PER_RECORD)]
    done = Life(JobState.SUCCEEDED, finished_at=seq)
    before = [put(JOBS_PER_RECORD * (seq - 1) + n).id for n in range(JOBS_PER_RECORD)]
    return [*jobs, *(MoveJob(job_id, done) for job_id in before if seq > 1)]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def append_for_ever(store: SqliteStore) -> None:
    leader = await leading(store)
    while True:
        await leader.append(*record(leader.seq + 1))
        say(str(leader.seq))


async def fill_the_disk(store: SqliteStore, database: Path) -> None:
    leader = await leading(store)
    await leader.append(*record(1))
    await project_all(store)
    room = database.with_name("rota.db-wal").stat().st_size + 300_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    refused = 0
    while refused < 3:
        try:
            await leader.append(*record(leader.seq + 1))
        except StoreFullError:
            refused += 1
    say(f"full after {leader.seq}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (await store.journal.load()).seq == leader.seq
    await leader.append(*record(leader.seq + 1))
    assert len(await store.queries.changes_after(Seq(leader.seq - 1), 1)) == 2 * JOBS_PER_RECORD
    say(f"went on to {leader.seq}")


async def main(task: str, data_dir: Path) -> None:
    store = open_sqlite(data_dir)
    if task == "append":
        await append_for_ever(store)
    else:
        await fill_the_disk(store, data_dir / "rota.db")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
