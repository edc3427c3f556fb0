from __future__ import annotations

import pytest

from rota.core.commands import Submit
from rota.core.limits import RESERVE_LOOK
from rota.core.model import Affinity, JobState
from rota.core.outcome import Outcome
from rota.core.policy import DEFAULT
from tests.core.asking import job
from tests.core.work import work_of
from tests.core.world import World

WORKERS = RESERVE_LOOK + 4
"""So many that a job that does not fit may be passed for a while."""


def drained(world: World, worker_id: str = "w1") -> list[str]:
    """The order in which one worker is given everything, one at a time."""
    order: list[str] = []
    while taken := world.take(worker_id, max_orders=1):
        order += taken
        world.complete(taken[0])
    return order


def test_equals_are_served_first_come_first_served() -> None:
    world = World()
    world.register()
    for name in ("c", "a", "b"):
        world.submit(name)
    assert drained(world) == ["c", "a", "b"]


def test_a_higher_priority_goes_first_whatever_it_needs() -> None:
    world = World()
    world.register()
    world.submit("low", priority=-5)
    world.submit("middle", cpu=2)
    world.submit("late-middle", cpu=1)
    world.submit("high", priority=7, cpu=3)
    assert drained(world) == ["high", "middle", "late-middle", "low"]


def test_jobs_of_a_queue_with_higher_priority_go_before_all_others() -> None:
    world = World()
    world.register()
    world.queue("express", priority=1)
    world.submit("urgent", priority=1000, queue="default")
    world.submit("plain", priority=-1000, queue="express")
    assert drained(world) == ["plain", "urgent"]


def test_the_priority_of_a_queue_can_be_changed_while_jobs_wait() -> None:
    world = World()
    world.register()
    world.submit("a", queue="one")
    world.submit("b", queue="two")
    world.queue("two", priority=1)
    assert drained(world) == ["b", "a"]


def test_a_job_that_does_not_fit_now_does_not_delay_a_smaller_one() -> None:
    world = World()
    world.register(cpu=4)
    world.submit("first", cpu=3)
    world.take()
    world.submit("big", cpu=2, priority=5)
    world.submit("small", cpu=1)
    assert world.take() == ["small"]
    assert world.state("big") is JobState.QUEUED


def test_a_retried_job_keeps_its_place_before_those_that_came_later() -> None:
    world = World()
    world.register()
    world.submit("old", cpu=4)
    world.take()
    world.submit("new", cpu=4)
    world.advance(20_000)
    assert world.life("old").reason == "lost"
    world.heartbeat()
    assert drained(world) == ["old", "new"]


def test_one_poll_is_filled_in_order_up_to_its_maximum() -> None:
    world = World()
    world.register(cpu=4)
    world.submit_all([job(f"j{n}", priority=n) for n in range(6)])
    assert world.take(max_orders=3) == ["j5", "j4", "j3"]
    assert world.take(max_orders=3) == ["j2"]


def cost_of_a_decision(world: World) -> int:
    """The work of a turn in which one job starts."""
    found: list[Outcome] = []
    poll = world.asking(max_orders=1)
    cost = work_of(lambda: found.append(world.scheduler.turn([poll], world.now)))
    world.ledger.append(found[0].writes)
    (order,) = found[0].answers[0].orders
    world.complete(order.execution.job_id)
    return cost


def test_a_decision_costs_the_same_however_many_jobs_wait() -> None:
    costs = {}
    for waiting in (10, 1_000, 30_000):
        world = World(checked=False)
        world.register()
        world.submit_all([job(f"j{n}", priority=n % 7, cpu=1 + n % 3) for n in range(waiting)])
        costs[waiting] = max(cost_of_a_decision(world) for _ in range(5))
    assert costs[30_000] <= costs[10], f"calls by backlog: {costs}"


def test_the_keys_of_many_cancelled_jobs_are_removed() -> None:
    world = World(checked=False)
    world.submit_all([job(f"j{n}") for n in range(2_000)])
    for n in range(1, 2_000):
        world.scheduler.turn([], world.now)
        world.cancel(f"j{n}")
    (class_queue,) = world.scheduler._t.ready_queue._queues.values()
    assert class_queue.waiting == 1
    assert class_queue.jobs.size < 100
    world.check()


def work_of_a_turn(classes: int, affinity: Affinity | None) -> int:
    """Many workers poll at once, and far more jobs wait, each of another class."""
    world = World(policy=DEFAULT, checked=False)
    for number in range(WORKERS):
        world.register(f"w{number}", cpu=4, memory=1 << 30)
    jobs = [
        job(f"{n}", cpu=4, memory=n << 20, affinity=affinity if n % 2 else None)
        for n in range(1, classes)
    ]
    world.turn([Submit(jobs=tuple(jobs))])
    polls = [world.asking(f"w{number}") for number in range(WORKERS)]
    return work_of(lambda: world.scheduler.turn(polls, world.now))


@pytest.mark.parametrize("affinity", [None, Affinity(prefer=(("zone", ("b",)),))])
def test_twice_as_many_classes_that_wait_for_a_busy_fleet_cost_no_more_than_twice_the_work(
    affinity: Affinity | None,
) -> None:
    """Also where every second job waits for a preferred worker: not all the others are passed for
    each."""
    assert work_of_a_turn(12 * WORKERS, affinity) <= 2 * work_of_a_turn(6 * WORKERS, affinity)
