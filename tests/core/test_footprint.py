"""Memory of a waiting job: a million of them must fit."""

from __future__ import annotations

import gc
import tracemalloc
from uuid import UUID

from msgspec.structs import replace

from rota.core.commands import NewJob, Submit, Timing
from rota.core.entries import InternPool
from rota.core.limits import CoreLimits
from rota.core.model import JobId
from rota.core.scheduler import Scheduler
from tests.core.asking import NOON, job, spec
from tests.core.world import World

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


def test_jobs_that_arrive_together_share_one_sort_key() -> None:
    world = World()
    world.submit_all([job("a"), job("b")])
    first, second = world.scheduler._t.jobs.values()
    assert first.sort_key is second.sort_key


def test_more_terms_than_the_pool_holds_leave_nothing_behind() -> None:
    world = World(limits=CoreLimits(terms_pool_max=3))
    world.register(cpu=100)
    names = [f"j{number}" for number in range(20)]
    world.submit_all([job(name, priority=number) for number, name in enumerate(names)])
    world.cancel("j0")
    assert sorted(world.take()) == sorted(names[1:])
    (job_class,) = world.scheduler._t.ready_queue.classes
    assert not job_class.waiting
    assert not job_class.fifo_groups


def test_an_intern_pool_returns_the_first_of_equal_values_until_it_is_full() -> None:
    pool: InternPool[str] = InternPool(2)
    first, again = "ab", "".join(("a", "b"))
    assert pool.same(first) is first
    assert pool.same(again) is first
    pool.same("c")
    pool.same("d")  # one too many: it starts anew
    assert pool.same(again) is again
