from __future__ import annotations

import random

import pytest

from rota.core.commands import AnyInput, Submit
from rota.core.limits import CORE_LIMITS, RESERVE_LOOK, CoreLimits
from rota.core.model import Affinity
from rota.core.policy import DEFAULT, BackfillKind, OrderKind, Policy
from tests.core.asking import HOUR, job
from tests.core.work import work_of
from tests.core.world import World

WORKERS = RESERVE_LOOK + 4
"""So many that who does not fit may be passed for a while."""
POLICIES = (
    DEFAULT,
    Policy(OrderKind.PRIORITY, BackfillKind.EASY),
    Policy(OrderKind.FAIR, BackfillKind.NONE),
)
ODD: tuple[dict[str, object], ...] = ({"gang": 2}, {"capabilities": ("moon",)}, {"cpu": 99})


def story(seed: int, limits: CoreLimits = CORE_LIMITS) -> list[object]:
    """A busy fleet, in which some wait for longer than they may be passed: all that came of it."""
    rng = random.Random(seed)
    world = World(policy=POLICIES[seed % len(POLICIES)], checked=False, limits=limits)
    for number in range(WORKERS):
        world.register(f"w{number}", cpu=4)
    tenants, step = rng.choice((("a",), ("a", "b", "c"))), rng.choice((5, 200))
    found: list[object] = []
    for turn in range(50):
        world.now += rng.randrange(2 * step)
        jobs = [job(f"{turn}-{n}", **asked(rng, tenants)) for n in range(rng.randrange(1, 16))]
        events: list[AnyInput] = [Submit(jobs=tuple(jobs))]
        events += [poll(rng, world, f"w{n}") for n in rng.sample(range(WORKERS), 10)]
        outcome = world.turn(events)
        found.append((outcome.writes, outcome.answers))
        found.append(sorted(world.scheduler.reservations(world.now), key=repr))
    queues = world.scheduler._t.ready_queue._queues.values()
    found.append([(queue.number, queue.stuck, queue.stuck_since) for queue in queues])
    world.check()
    return found


def asked(rng: random.Random, tenants: tuple[str, ...]) -> dict[str, object]:
    return {
        "cpu": rng.choice((1, 2, 3, 4)),
        "priority": rng.randrange(3),
        "tenant": rng.choice(tenants),
        "runs_ms": rng.choice((None, 100, HOUR)),
        **(rng.choice(ODD) if rng.random() < 0.05 else {}),
    }


def poll(rng: random.Random, world: World, worker: str) -> AnyInput:
    running = [one for one in world.ledger.running() if one.worker_id == worker]
    done = [world.report(one.job_id) for one in running if rng.random() < 0.6]
    return world.asking(worker, completed=done, max_orders=rng.choice((1, 9, 9)))


@pytest.mark.parametrize("seed", range(9))
def test_skipping_classes_together_decides_the_same_as_trying_each_job(
    seed: int,
) -> None:
    assert story(seed, CoreLimits(walks_per_pass=0)) == story(seed)


def work_of_a_turn(classes: int, affinity: Affinity | None) -> int:
    """Many workers ask at once, and far more jobs wait, each unlike the others."""
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
    """Also where every second would rather wait: not all the others are passed for each of them."""
    assert work_of_a_turn(12 * WORKERS, affinity) <= 2 * work_of_a_turn(6 * WORKERS, affinity)
