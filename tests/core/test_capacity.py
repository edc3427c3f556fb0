"""Capacity: workers needed to clear the backlog, from sums, within all limits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.capacity import Demand, QueueDemand, slots_for
from rota.core.commands import MemoryWindow, PutTenantSettings, Timing
from rota.core.model import Quota, RateLimit, Resources
from tests.core.asking import GIB, SECOND, job
from tests.core.work import work_of
from tests.core.world import World, run
from tests.example_counts import examples

TARGET = 300 * SECOND
MINUTE = 60 * SECOND
NO_ARRIVALS = 400 * SECOND
"""After so long without any, what came before is no arrival any more."""


def look(world: World, size: Resources | None = None, target: int = TARGET) -> Demand:
    return world.scheduler.demand(target, size, world.now)


def queue(demand: Demand, name: str = "default") -> QueueDemand:
    return next(one for one in demand.queues if one.name == name)


def waiting(world: World, count: int, **asked: object) -> None:
    world.submit_all([job(f"{asked.get('name', 'j')}-{n}", **asked) for n in range(count)])


def quiet(world: World) -> None:
    """Lets so much time pass that nothing counts as coming in; workers stay."""
    end = world.now + NO_ARRIVALS
    while world.now < end:
        world.now += 10 * SECOND
        for worker_id, entry in world.scheduler._t.fleet.workers.items():
            if entry.worker.state == "online":
                world.heartbeat(worker_id)
        world.advance(0)


def test_enough_workers_to_run_all_in_time() -> None:
    world = World()
    world.register("w1", cpu=4)
    waiting(world, 100, runs_ms=MINUTE)
    quiet(world)
    demand = look(world)
    # A slot runs five of them in five minutes: 20 slots, 4 on each worker.
    assert demand.workers.needed == 5
    assert (demand.workers.online, demand.workers.idle, demand.workers.add) == (1, 1, 4)
    (shape,) = queue(demand).shapes
    assert (shape.shape.jobs, shape.shape.work, shape.per_worker) == (100, 100 * MINUTE, 4)


def test_jobs_longer_than_the_target_at_least_begin() -> None:
    world = World()
    world.register("w1", cpu=1)
    waiting(world, 3, runs_ms=3600 * SECOND)
    quiet(world)
    assert look(world).workers.needed == 3


def test_an_idle_cell_needs_no_workers_and_may_remove_idle_ones() -> None:
    world = World()
    world.register("w1")
    world.register("w2")
    count = look(world).workers
    assert (count.needed, count.idle, count.remove, count.add) == (0, 2, 2, 0)


def test_a_worker_with_a_running_job_is_needed_and_not_idle() -> None:
    world = World()
    world.register("w1")
    world.register("w2")
    world.submit("j", runs_ms=3600 * SECOND)
    run(world, "j")
    count = look(world).workers
    assert (count.needed, count.online, count.idle, count.remove) == (1, 2, 1, 1)


def test_a_new_batch_does_not_count_as_an_arrival_rate() -> None:
    world = World()
    world.register("w1", cpu=1)
    waiting(world, 10, runs_ms=MINUTE)
    assert look(world).workers.needed == 2
    world.advance(15 * SECOND)
    assert look(world).workers.needed == 2


def test_expected_arrivals_count_before_they_wait() -> None:
    world = World()
    world.register("w1", cpu=1)
    for _ in range(60):
        world.submit(runs_ms=10 * SECOND)
        world.take("w1", max_orders=1)
        for running in list(world.scheduler._t.executions.values()):
            world.complete(running.execution.job_id)
        world.advance(5 * SECOND)
    shape = queue(look(world)).shapes[0]
    assert shape.shape.jobs == 0
    assert 0.15 < shape.shape.jobs_per_s < 0.25
    assert 1.5 < shape.shape.work_per_s < 2.5
    assert look(world).workers.needed in (2, 3)


def test_a_paused_queue_needs_no_workers() -> None:
    world = World()
    world.register("w1")
    world.queue(paused=True)
    waiting(world, 50)
    assert look(world).workers.needed == 0
    assert queue(look(world)).shapes[0].shape.jobs == 50


def test_a_queue_needs_no_more_workers_than_max_workers() -> None:
    world = World()
    world.register("w1", cpu=1)
    world.queue(max_workers=3)
    waiting(world, 1000, runs_ms=MINUTE)
    assert look(world).workers.needed == 3


def test_a_rate_limit_bounds_the_workers_that_a_queue_needs() -> None:
    world = World()
    world.register("w1", cpu=1)
    world.queue(rate_limit=RateLimit(1, SECOND))
    waiting(world, 1000, runs_ms=10 * SECOND)
    assert look(world).workers.needed == 10


def test_a_tenants_quota_bounds_the_workers_that_it_needs() -> None:
    world = World()
    world.register("w1", cpu=1)
    world.step(PutTenantSettings(name="small", quota=Quota(running=2)))
    waiting(world, 500, runs_ms=MINUTE, tenant="small")
    quiet(world)
    assert look(world).workers.needed == 2


def test_jobs_count_for_the_worker_type_they_would_start_on() -> None:
    world = World()
    world.register("cpu-1", cpu=4)
    world.register("gpu-1", cpu=4, gpu=1)
    waiting(world, 40, runs_ms=TARGET)
    waiting(world, 3, runs_ms=TARGET, gpu=1, name="train")
    quiet(world)
    needed = {
        worker_type.capacity.gpu_milli: worker_type.workers.needed
        for worker_type in look(world).worker_types
    }
    assert needed == {0: 10, 1000: 3}


def test_a_worker_reserved_for_gpu_jobs_does_not_count_for_plain_jobs() -> None:
    world = World()
    world.register("gpu-1", cpu=4, gpu=1, only=("gpu",))
    waiting(world, 8, runs_ms=TARGET)
    quiet(world)
    demand = look(world)
    (shape,) = queue(demand).shapes
    assert (shape.worker_type, shape.stranded) == (None, 8)
    assert demand.workers.needed == 0  # more workers like that would not help


def test_demand_can_be_computed_for_a_given_size_of_worker() -> None:
    world = World()
    waiting(world, 64, runs_ms=TARGET, cpu=2, memory=GIB)
    quiet(world)
    big = Resources(cpu_milli=16_000, memory=64 * GIB)
    assert look(world, big).workers.needed == 8
    assert look(world).workers.needed == 64


def test_offline_workers_show_the_size_of_a_worker() -> None:
    world = World()
    world.register("w1", cpu=4)
    world.advance(MINUTE)
    waiting(world, 8, runs_ms=TARGET)
    quiet(world)
    count = look(world).workers
    assert (count.online, count.needed) == (0, 2)


def test_spilled_jobs_count_as_backlog() -> None:
    window = MemoryWindow(jobs=50, fifo_group=5, refill=10)
    world = World(timing=Timing(window=window))
    world.register("w1", cpu=1)
    waiting(world, 300, runs_ms=MINUTE)
    shelved = world.scheduler._t.ready_queue.spilled
    assert shelved > 100
    quiet(world)
    (shape,) = queue(look(world)).shapes
    assert shape.shape.jobs == 300
    assert abs(shape.shape.work - 300 * MINUTE) <= 0.07 * 300 * MINUTE
    assert look(world).workers.needed in range(56, 65)


def work_of_a_look(jobs: int) -> int:
    world = World(checked=False)
    world.register("w1")
    waiting(world, jobs, runs_ms=MINUTE)
    assert queue(look(world)).shapes[0].shape.work == jobs * MINUTE
    return work_of(lambda: look(world))


def test_demand_costs_the_same_however_many_jobs_wait() -> None:
    assert work_of_a_look(1_000) <= work_of_a_look(10)


@settings(max_examples=examples(40, 500), deadline=None)
@given(st.lists(st.integers(1, 600_000), min_size=1, max_size=40), st.integers(1_000, 600_000))
def test_equal_jobs_in_those_slots_end_in_time(lengths: list[int], target: int) -> None:
    """Exact where all are alike; for the others the work is enough for the slots."""
    jobs, length = len(lengths), lengths[0]
    slots = slots_for(jobs, jobs * length, target)
    rounds = -(-jobs // slots)
    assert slots == jobs or rounds * length <= target
    assert slots == 1 or -(-jobs // (slots - 1)) * length > target
    mixed = slots_for(jobs, sum(lengths), target)
    assert mixed == jobs or mixed * target >= sum(lengths)
