from __future__ import annotations

from typing import Any

from rota.core.commands import Tick
from rota.core.limits import CoreLimits
from rota.core.model import JobState
from tests.core.asking import job
from tests.core.world import World

KEPT = 4


def few_classes() -> World:
    """Numbers of classes are used again after four, so that it happens all the time."""
    return World(limits=CoreLimits(classes_kept=KEPT))


def pass_through(world: World, *names: str, **asked: Any) -> None:
    """Jobs of these queues that come, run and end."""
    for name in names:
        world.submit(f"{name}-passing", queue=name, **asked)
        assert world.take() == [f"{name}-passing"]
        world.complete(f"{name}-passing")


def test_the_indexes_of_empty_classes_are_used_again() -> None:
    world = few_classes()
    world.register()
    pass_through(world, *(f"q{n}" for n in range(40)))
    assert len(world.scheduler._t.ready_queue.classes) == KEPT


def test_a_class_with_jobs_keeps_its_index() -> None:
    world = few_classes()
    world.register(cpu=1)
    for n in range(8):
        world.submit(f"waiting-{n}", queue=f"q{n}", cpu=2)
    pass_through(world, *(f"p{n}" for n in range(20)))
    assert len(world.scheduler._t.ready_queue.classes) <= 8 + KEPT
    world.register("big", cpu=2)
    assert world.take("big") == ["waiting-0"]


def test_a_class_with_the_index_of_a_paused_one_is_not_paused() -> None:
    world = few_classes()
    world.register()
    world.submit("p", queue="paused")
    world.queue("paused", paused=True)
    world.cancel("p")
    names = [f"q{n}" for n in range(10)]
    pass_through(world, *names)


def test_a_class_of_a_paused_queue_with_a_used_index_is_paused() -> None:
    world = few_classes()
    world.register()
    world.queue("paused", paused=True)
    pass_through(world, *(f"q{n}" for n in range(KEPT)))
    world.submit("held", queue="paused")
    assert world.take() == []
    assert world.causes("held") == ["queue_paused", "no_poll"]
    pass_through(world, *(f"r{n}" for n in range(KEPT * 2)))
    world.queue("paused", paused=False)
    assert world.take() == ["held"]


def test_resuming_a_queue_does_not_resume_the_class_that_took_its_index() -> None:
    world = few_classes()
    world.register()
    world.submit("a", queue="first")
    world.queue("first", paused=True)
    world.cancel("a")
    world.queue("second", paused=True)
    for n in range(KEPT):
        world.submit(f"held-{n}", queue="second", cpu=1 + n)
    world.queue("first", paused=False)
    assert world.take() == []
    world.queue("second", paused=False)
    assert len(world.take()) == 2


def test_a_class_with_a_used_index_is_placed_by_its_own_needs() -> None:
    """What fits a worker is remembered by number: it must be forgotten with the number."""
    world = few_classes()
    world.register("small", cpu=1)
    world.register("large", cpu=8, gpu=1, capabilities=["cuda"])
    shapes: list[dict[str, Any]] = [
        {"cpu": 1},
        {"cpu": 8},
        {"cpu": 1, "gpu": 1},
        {"cpu": 2, "capabilities": ["cuda"]},
        {"cpu": 5},
        {"cpu": 0.5},
        {"cpu": 8, "gpu": 0.5},
    ]
    for turn in range(30):
        shape = shapes[turn % len(shapes)]
        small = world.poll("small")
        large = world.poll("large")
        world.submit(f"j{turn}", queue=f"q{turn % 11}", **shape)
        plain = shape["cpu"] <= 1 and "gpu" not in shape and "capabilities" not in shape
        assert world.orders(small if plain else large) == [f"j{turn}"]
        world.complete(f"j{turn}")


def test_jobs_of_many_classes_at_once_all_run_in_the_end() -> None:
    world = World(checked=False)
    world.register(cpu=64)
    world.submit_all(
        [job(f"j{n}", queue=f"q{n % 13}", cpu=1 + n % 17, priority=n % 3) for n in range(600)]
    )
    world.queue("q5", paused=True)
    ran = 0
    while taken := world.take():
        for job_id in taken:
            world.complete(job_id)
        ran += len(taken)
        world.check()
    left = [record.id for record in world.ledger.live()]
    assert len(left) == 600 - ran
    assert left == [f"j{n}" for n in range(600) if n % 13 == 5]
    world.queue("q5", paused=False)
    world.step(Tick())
    assert len(world.take(max_orders=1)) == 1
    assert world.state(left[-1]) is JobState.QUEUED
