"""Whatever is remembered, skipped or done together, jobs start as they would without it."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from rota.core.commands import AnyInput, Cancel, PutQueueSettings, Submit, Tick
from rota.core.limits import QUEUES_KEPT, RESERVE_LOOK, CoreLimits
from rota.core.model import JobState
from rota.core.policy import DEFAULT, BackfillKind, OrderKind, Policy
from tests.core.asking import HOUR, job
from tests.core.world import World

WORKERS = RESERVE_LOOK + 4
"""So many that a job that does not fit may be passed for a while."""
POLICIES = (
    DEFAULT,
    Policy(OrderKind.PRIORITY, BackfillKind.EASY),
    Policy(OrderKind.FAIR, BackfillKind.NONE),
)
ODD: tuple[dict[str, object], ...] = (
    {"gang": 2},
    {"capabilities": ("moon",)},
    {"capabilities": ("cuda",), "gpu": 1},
    {"cpu": 99},
    {"key": "k", "limit": 2},
)
SMALL = {"classes_kept": 2, "fit_cache_max": 2, "long_fifo_group": 1, "terms_pool_max": 2,
         "walks_per_pass": 0}  # fmt: skip
"""Limits of what is remembered or done together. None of them may change an outcome."""


def story(seed: int, limits: CoreLimits) -> list[object]:
    """A busy fleet, in which some wait for longer than they may be passed: all that came of it."""
    rng = random.Random(seed)
    world = World(policy=POLICIES[seed % len(POLICIES)], checked=False, limits=limits)
    for number in range(WORKERS):
        world.register(f"w{number}", cpu=4, gpu=number % 2, capabilities=("cuda",) * (number % 2))
    tenants, step = rng.choice((("a",), ("a", "b", "c"))), rng.choice((5, 200))
    found: list[object] = []
    for turn in range(50):
        world.now += rng.randrange(2 * step)
        jobs = [job(f"{turn}-{n}", **asked(rng, tenants)) for n in range(rng.randrange(1, 16))]
        events: list[AnyInput] = [Submit(jobs=tuple(jobs)), *disturbances(rng, world)]
        events += [poll(rng, world, f"w{n}") for n in rng.sample(range(WORKERS), 10)]
        outcome = world.turn(events)
        found.append((outcome.writes, outcome.answers))
        found.append(sorted(world.scheduler.reservations(world.now), key=repr))
    world.check()
    return found


def asked(rng: random.Random, tenants: tuple[str, ...]) -> dict[str, object]:
    return {
        "cpu": rng.choice((1, 2, 3, 4)),
        "priority": rng.randrange(3),
        "queue": f"q{rng.choice((0, 0, 0, 0, 1, 2, 3))}",
        "tenant": rng.choice(tenants),
        "name": rng.choice(("one", "other")),
        "runs_ms": rng.choice((None, 100, HOUR)),
        **(rng.choice(ODD) if rng.random() < 0.05 else {}),
    }


def disturbances(rng: random.Random, world: World) -> list[AnyInput]:
    """A queue is paused, resumed or limited, and waiting jobs are cancelled until few are left."""
    waiting = [one.id for one in world.ledger.live() if one.life.state == "queued"]
    settings = PutQueueSettings(
        name=f"q{rng.randrange(3)}",
        paused=rng.random() < 0.3,
        max_workers=rng.choice((None, None, 3)),
    )
    gone = rng.sample(waiting, len(waiting) // 3)
    cancelled = [Cancel(job_id=job_id, preloaded=world.recall()) for job_id in gone]
    return [*([settings] if rng.random() < 0.3 else []), *cancelled]


def poll(rng: random.Random, world: World, worker: str) -> AnyInput:
    running = [one for one in world.ledger.running() if one.worker_id == worker]
    done = [world.report(one.job_id) for one in running if rng.random() < 0.6]
    return world.asking(worker, completed=done, max_orders=rng.choice((1, 9, 9)))


@pytest.mark.parametrize("seed", range(9))
def test_a_story_comes_to_the_same_however_little_is_remembered(seed: int) -> None:
    """In every second story tenants' idle accounts of queues are forgotten and begun anew."""
    limits = CoreLimits(queues_kept=seed % 2 or QUEUES_KEPT)
    expected = story(seed, limits)
    for what, few in SMALL.items():
        assert story(seed, replace(limits, **{what: few})) == expected, what


def test_classes_that_became_empty_do_not_fill_memory() -> None:
    world = World(limits=CoreLimits(classes_kept=4))
    world.register()
    for n in range(40):
        world.submit(f"j{n}", queue=f"q{n}")
        assert world.take() == [f"j{n}"]
        world.complete(f"j{n}")
    assert len(world.scheduler._t.ready_queue.classes) == 4


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
