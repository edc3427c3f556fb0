"""Memory of a waiting job: a million of them must fit."""

from __future__ import annotations

import gc
import tracemalloc
from uuid import UUID

from msgspec.structs import replace

from rota.core.commands import NewJob, Submit, Timing
from rota.core.model import JobId
from rota.core.scheduler import Scheduler
from tests.core.asking import NOON, spec

BATCHES = 4


def _batch(first: int) -> Submit:
    """A thousand jobs, each with an id and a task of its own."""
    return Submit(
        jobs=tuple(
            NewJob(
                id=JobId(str(UUID(int=number))),
                spec=replace(
                    spec(priority=number % 5, cpu=1 + number % 4),
                    task=f'{{"kind":"noop","n":{number:06}}}'.encode(),
                ),
            )
            for number in range(first, first + 1_000)
        )
    )


def test_a_waiting_job_takes_less_than_half_a_kilobyte() -> None:
    scheduler = Scheduler(Timing(), NOON)
    scheduler.turn([_batch(0)], NOON)  # what all of them share is there
    tracemalloc.start()
    try:
        for batch in range(1, BATCHES + 1):
            scheduler.turn([_batch(batch * 1_000)], NOON + batch)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert scheduler.live_jobs() == 1_000 * (1 + BATCHES)
    assert used / (1_000 * BATCHES) < 500
