"""Terms cache: entries for alike jobs are not used after what they depend on has changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import NewJob, PutTenantSettings, Submit, Timing
from rota.core.limits import CoreLimits
from rota.core.model import JobId, Quota, RuntimeStats
from rota.core.policy import DEFAULT
from rota.core.ready_queue.fair_share import FairOrder
from tests.core.asking import HOUR, job, spec
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


def test_what_a_tenant_holds_is_counted_from_when_it_is_given_a_quota_of_any_kind() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=4)
    world.submit("a")
    world.take(max_orders=1)
    world.step(PutTenantSettings(name="default", weight=1.0, quota=Quota(queued=9)))
    world.submit("b")
    assert world.take() == ["b"]
    world.complete("a")
    (tenant,) = world.scheduler._t.tenants.entries.values()
    assert tenant.used.cpu_milli == 1_000


def test_a_tenant_that_was_forgotten_is_counted_anew_when_it_comes_again() -> None:
    world = World(policy=DEFAULT, limits=CoreLimits(tenants_kept=2))
    world.register(cpu=4)
    for number, name in enumerate(("a", "b", "c", "a", "b", "a")):
        world.submit(f"j{number}", tenant=name)
        assert world.take() == [f"j{number}"]
        world.complete(f"j{number}")
    (left,) = (one for one in world.scheduler.tenants(world.now) if one.tenant.name == "a")
    assert not left.depth


@pytest.mark.parametrize("kept", [1, 2, 64])
def test_the_charged_account_is_the_same_from_the_cache_and_from_the_order(
    kept: int,
) -> None:
    """Though a tenant's account of a queue is forgotten when others come, and begun anew."""
    limits = CoreLimits(queues_kept=kept)
    # Unchecked: checking asks for the account of every queue.
    remembers, looks_up = (World(policy=DEFAULT, checked=False, limits=limits) for _ in range(2))
    found: list[object] = []
    for world in (remembers, looks_up):
        entries = world.scheduler._t.terms
        world.register(cpu=8)
        for number in range(30):
            world.advance(1_000)
            if world is looks_up:
                entries.forget()
            world.submit(f"j{number}", queue=f"q{number * 7 % 5}", cpu=1 + number % 2)
            ended = [world.report(JobId(f"j{number - 4}"))] if number >= 4 else []
            world.poll(completed=ended, wait_ms=0)
        order = world.scheduler._t.ready_queue.order
        assert isinstance(order, FairOrder)
        found.append(order.balances(world.now))
    assert found[0] == found[1]


_NAMES = st.sampled_from(["a", "b", "c", "d"])
_RUNS = st.sampled_from([0, 5, 900, 40_000, 3_600_000])


@given(
    st.lists(st.tuples(st.booleans(), _NAMES, st.lists(_RUNS, min_size=1, max_size=3))),
    st.sampled_from([None, 2_000]),
)
def test_cached_terms_follow_the_run_time_estimate_of_their_name(
    heard: list[tuple[bool, str, list[int]]], timeout_ms: int | None
) -> None:
    """Whatever is learned, loaded, or forgotten because too many names came."""
    world = World(policy=DEFAULT, limits=CoreLimits(runtimes_kept=3))
    world.submit("first")
    entries, known = world.scheduler._t.terms, world.scheduler._t.runtime_estimates
    terms = [job("j", name=name, timeout_ms=timeout_ms).spec.terms for name in "abcd"]
    for is_loaded, name, runs in heard:
        if is_loaded:
            known.restore(RuntimeStats("default", name, tuple(runs[:2])))
        else:
            known.learn(job("j", name=name).spec.terms, runs)
        assert [entries.of(one).estimate(known) for one in terms] == [
            known.estimate(one) for one in terms
        ]


def test_removing_the_head_by_its_handle_equals_removing_any_job() -> None:
    """Also for the last of its FIFO group, with single urgent jobs or many waiting ones."""
    found: list[object] = []
    for leaves_at_once in (True, False):
        world, started = World(policy=DEFAULT), list[list[JobId]]()
        world.register(cpu=4)
        for number in range(60):
            world.advance(1_000)
            for half in ("a", "b"):
                world.submit(f"j{number}{half}", priority=number * 7 % 5, cpu=1 + number % 2)
            running = [one.job_id for one in world.ledger.running()]
            ended = [world.report(one) for one in running[: number % 3]]
            if not leaves_at_once:
                world.scheduler._t.terms.forget()  # so nobody knows where it stands
            started.append(world.take(completed=ended))
        groups = [sorted(one.fifo_groups) for one in world.scheduler._t.ready_queue.classes]
        found.append((started, groups))
    assert found[0] == found[1]


def batch(*groups: tuple[str, str]) -> Submit:
    """Jobs by name; those of a group share what they ask for, as neighbours in a request do."""
    jobs: list[NewJob] = []
    for name, ids in groups:
        asked = spec(name=name)
        jobs += [NewJob(id=JobId(job_id), spec=asked) for job_id in ids]
    return Submit(jobs=tuple(jobs))


def test_a_batch_that_empties_the_pool_of_terms_stays_in_one_fifo_group() -> None:
    limits = CoreLimits(terms_pool_max=4)
    world = World(timing=Timing(lease_ttl_ms=100 * HOUR), limits=limits)
    world.register(cpu=64)
    world.step(batch(("a", "12")))
    world.poll(
        completed=[world.report(one) for one in world.take(max_orders=64)], max_orders=0, wait_ms=0
    )
    world.step(batch(("a", "34"), ("b", "5"), ("c", "6"), ("d", "7"), ("e", "8"), ("a", "9")))
    known = world.scheduler._t.jobs
    assert known[JobId("3")].spec.terms is known[JobId("4")].spec.terms
    assert len(world.take(max_orders=64)) == 7, "and what is counted is right after every step"
