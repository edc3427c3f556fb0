from __future__ import annotations

import random

import pytest

from rota.core.affinity import Affinity
from rota.core.inputs import AnyInput, Submit
from rota.core.limits import RESERVE_LOOK
from rota.core.plan.backfill import Pass
from rota.core.records.policy import DEFAULT, BackfillKind, OrderKind, Policy
from tests.core.asking import HOUR, job
from tests.core.world import World

WORKERS = RESERVE_LOOK + 4
"""So many that who does not fit may be passed for a while."""
POLICIES = (
    DEFAULT,
    Policy(OrderKind.PRIORITY, BackfillKind.EASY),
    Policy(OrderKind.FAIR, BackfillKind.NONE),
)
ODD: tuple[dict[str, object], ...] = ({"gang": 2}, {"capabilities": ("moon",)}, {"cpu": 99})


def story(seed: int) -> list[object]:
    """A busy fleet, in which some wait for longer than they may be passed: all that came of it."""
    dice = random.Random(seed)
    world = World(policy=POLICIES[seed % len(POLICIES)], checked=False)
    for number in range(WORKERS):
        world.register(f"w{number}", cpu=4)
    tenants, step = dice.choice((("a",), ("a", "b", "c"))), dice.choice((5, 200))
    told: list[object] = []
    for turn in range(50):
        world.now += dice.randrange(2 * step)
        jobs = [job(f"{turn}-{n}", **asked(dice, tenants)) for n in range(dice.randrange(1, 16))]
        events: list[AnyInput] = [Submit(jobs=tuple(jobs))]
        events += [poll(dice, world, f"w{n}") for n in dice.sample(range(WORKERS), 10)]
        outcome = world.turn(events)
        told.append((outcome.writes, outcome.answers))
        told.append(sorted(world.scheduler.places(world.now), key=repr))
    lines = world.scheduler._t.lines._lines.values()
    told.append([(line.number, line.stuck, line.stuck_since) for line in lines])
    world.check()
    return told


def asked(dice: random.Random, tenants: tuple[str, ...]) -> dict[str, object]:
    return {
        "cpu": dice.choice((1, 2, 3, 4)),
        "priority": dice.randrange(3),
        "tenant": dice.choice(tenants),
        "runs_ms": dice.choice((None, 100, HOUR)),
        **(dice.choice(ODD) if dice.random() < 0.05 else {}),
    }


def poll(dice: random.Random, world: World, worker: str) -> AnyInput:
    held = [one for one in world.ledger.running() if one.worker_id == worker]
    done = [world.report(one.job_id) for one in held if dice.random() < 0.6]
    return world.asking(worker, completed=done, max_orders=dice.choice((1, 9, 9)))


@pytest.mark.parametrize("seed", range(9))
def test_who_is_passed_over_with_others_fares_as_if_each_was_tried(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = story(seed)
    monkeypatch.setattr(Pass, "_pass_over", lambda self: None)
    assert story(seed) == at_once


def test_who_would_rather_wait_does_not_make_all_others_be_passed_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(policy=DEFAULT)
    for number in range(WORKERS):
        world.register(f"w{number}", cpu=4, memory=1 << 30)
    walks: list[int] = []
    one_walk = Pass._in_order

    def counted(self: Pass, mask: int) -> object:
        walks.append(mask)
        return one_walk(self, mask)

    monkeypatch.setattr(Pass, "_in_order", counted)
    near = Affinity(prefer=(("zone", ("b",)),))
    jobs = [
        job(f"{n}", cpu=4, memory=n << 20, affinity=near if n % 2 else None)
        for n in range(1, 3 * WORKERS)
    ]
    world.turn([world.asking(f"w{n}") for n in range(WORKERS)] + [Submit(jobs=tuple(jobs))])
    assert len(walks) == 1


def test_where_nobody_has_room_only_the_first_who_waits_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(policy=DEFAULT)
    for number in range(WORKERS):
        world.register(f"w{number}", cpu=4, memory=1 << 30)
    tried: list[str] = []
    one_by_one = Pass._try_head

    def counted(self: Pass, line: object, hopes: int, rest: int) -> object:
        found = one_by_one(self, line, hopes, rest)  # type: ignore[arg-type]
        tried.append("in vain" if found is None else "started")
        return found

    monkeypatch.setattr(Pass, "_try_head", counted)
    jobs = [job(f"{n}", cpu=4, memory=n << 20) for n in range(1, 2 * WORKERS)]
    world.turn([world.asking(f"w{n}") for n in range(WORKERS)] + [Submit(jobs=tuple(jobs))])
    assert tried == ["started"] * WORKERS + ["in vain"]
