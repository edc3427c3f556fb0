"""Limits that are given, taken away or forgotten while jobs run that were started without them."""

from __future__ import annotations

from rota.core.commands import PutTenantSettings
from rota.core.limits import CoreLimits
from rota.core.model import Quota
from rota.core.policy import DEFAULT
from tests.core.world import World


def test_a_new_limit_of_a_queue_holds_for_terms_that_ran_without_one() -> None:
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


def test_a_new_quota_of_a_tenant_counts_jobs_that_ran_without_one() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=4)
    for name in ("a", "b", "c"):
        world.submit(name)
    assert len(world.take(max_orders=1)) == 1
    world.step(PutTenantSettings(name="default", weight=1.0, quota=Quota(running=2)))
    assert world.take() == ["b"]
    world.complete("a")
    assert world.take() == ["c"]


def test_a_tenant_that_was_forgotten_is_counted_anew_when_it_comes_again() -> None:
    world = World(policy=DEFAULT, limits=CoreLimits(tenants_kept=2))
    world.register(cpu=4)
    for number, name in enumerate(("a", "b", "c", "a", "b", "a")):
        world.submit(f"j{number}", tenant=name)
        assert world.take() == [f"j{number}"]
        world.complete(f"j{number}")
    (left,) = (one for one in world.scheduler.tenants(world.now) if one.tenant.name == "a")
    assert not left.depth
