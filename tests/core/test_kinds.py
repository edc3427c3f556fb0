"""What is looked up once for all jobs of a kind, and must not outlive what it was looked up for."""

from __future__ import annotations

from typing import Any

import pytest

from rota.core import order_fair, tenants
from rota.core.inputs import PutTenantSettings
from rota.core.model import JobId, Quota
from rota.core.order_fair import FairOrder
from rota.core.policy import DEFAULT
from tests.core.world import World


def test_a_limit_that_a_queue_is_given_holds_for_kinds_of_jobs_that_ran_without_one() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=4)
    for name in ("a", "b", "c"):
        world.submit(name)
    assert len(world.take(max_orders=1)) == 1
    world.queue("default", max_workers=2)
    assert world.take() == ["b"]
    world.complete("a")
    assert world.take() == ["c"]
    world.queue("default", cleared=("max_workers",))
    world.submit("d")
    assert world.take() == ["d"]


def test_a_quota_that_a_tenant_is_given_counts_what_ran_without_one() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=4)
    for name in ("a", "b", "c"):
        world.submit(name)
    assert len(world.take(max_orders=1)) == 1
    world.step(PutTenantSettings(name="default", weight=1.0, quota=Quota(running=2)))
    assert world.take() == ["b"]
    world.complete("a")
    assert world.take() == ["c"]


def test_what_a_tenant_holds_is_counted_from_when_it_is_given_a_quota_of_any_kind() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=4)
    world.submit("a")
    world.take(max_orders=1)
    world.step(PutTenantSettings(name="default", weight=1.0, quota=Quota(queued=9)))
    world.submit("b")
    assert world.take() == ["b"]
    world.complete("a")
    (tenant,) = world.scheduler._t.tenants.cells.values()
    assert tenant.used.cpu_milli == 1_000


def test_a_tenant_that_was_forgotten_is_counted_anew_when_it_comes_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(tenants, "TENANTS_KEPT", 2)
    world = World(policy=DEFAULT)
    world.register(cpu=4)
    for number, name in enumerate(("a", "b", "c", "a", "b", "a")):
        world.submit(f"j{number}", tenant=name)
        assert world.take() == [f"j{number}"]
        world.complete(f"j{number}")
    (left,) = (one for one in world.scheduler.tenants(world.now) if one.tenant.name == "a")
    assert not left.depth


@pytest.mark.parametrize("kept", [1, 2, 64])
def test_who_is_charged_is_the_same_whether_it_was_looked_up_before_or_now(
    monkeypatch: Any, kept: int
) -> None:
    """Though a tenant's account of a queue is forgotten when others come, and begun anew."""
    monkeypatch.setattr(order_fair, "QUEUES_KEPT", kept)
    # Unchecked: checking asks for the account of every queue.
    remembers, looks_up = (World(policy=DEFAULT, checked=False) for _ in range(2))
    found: list[object] = []
    for world in (remembers, looks_up):
        kinds = world.scheduler._t.kinds
        world.register(cpu=8)
        for number in range(30):
            world.advance(1_000)
            if world is looks_up:
                kinds.forget()
            world.submit(f"j{number}", queue=f"q{number * 7 % 5}", cpu=1 + number % 2)
            ended = [world.report(JobId(f"j{number - 4}"))] if number >= 4 else []
            world.poll(completed=ended, wait_ms=0)
        order = world.scheduler._t.lines.order
        assert isinstance(order, FairOrder)
        found.append(order.standings(world.now))
    assert found[0] == found[1]
