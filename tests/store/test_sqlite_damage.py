"""Damaged files of a data directory: flipped bytes, truncated and removed files are noticed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from rota.core.lifecycle import JOB_FINAL
from rota.core.model import JobId, JobState, Life
from rota.core.outcome import AnyWrite
from rota.store.protocol import Store, StoreError
from rota.store.sqlite.store import open_sqlite
from tests.example_counts import examples
from tests.store.conformance import leading, put, run_of
from tests.store.naive import terms

JOBS = 60
FLIPS = examples(60, 600)
SEED = 7


async def fill(data: Path) -> None:
    """Jobs in each state, executions, a worker, a queue and logs, all in `rota.db` itself."""
    store = open_sqlite(data)
    leader = await leading(store)
    states = list(JobState)
    for number in range(JOBS):
        state = states[number % len(states)]
        life = Life(state, reason=f"reason {number}", finished_at=5 if state in JOB_FINAL else None)
        writes: list[AnyWrite] = [put(number, life, terms=terms(name=f"job {number}"))]
        if state is JobState.RUNNING:
            writes.append(run_of(number))
        await leader.append(*writes)
    await store.close()


async def answers(store: Store) -> dict[str, Any]:
    """Every job and execution by its id, or the refusal to show it."""
    found: dict[str, Any] = {}
    for number in range(JOBS):
        job_id = JobId(f"job-{number:04}")
        try:
            found[job_id] = await store.queries.jobs([job_id])
        except StoreError as error:
            found[job_id] = error
    return found


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


async def test_a_flipped_byte_never_changes_what_a_job_says(tmp_path: Path) -> None:
    await fill(tmp_path / "whole")
    store = open_sqlite(tmp_path / "whole")
    before = await answers(store)
    await store.close()
    size = (tmp_path / "whole" / "rota.db").stat().st_size
    rng = random.Random(SEED)
    for position in rng.sample(range(size), FLIPS):
        data = tmp_path / str(position)
        shutil.copytree(tmp_path / "whole", data)
        flip(data / "rota.db", position)
        try:
            store = open_sqlite(data)
        except StoreError:
            continue
        after = await answers(store)
        await store.close()
        for job_id, said in after.items():
            assert isinstance(said, StoreError) or said in ([], before[job_id]), position


async def test_a_removed_file_takes_no_more_appends(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path)
    leader = await leading(store)
    await leader.append(put(1))
    for path in tmp_path.glob("rota.db*"):
        path.unlink()
    with pytest.raises(StoreError):
        await leader.append(put(2))
    await store.close()
