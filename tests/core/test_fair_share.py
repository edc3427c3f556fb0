from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.core.commands import PutTenantSettings, SetPolicy, Timing
from rota.core.model import JobId, Quota
from rota.core.policy import DEFAULT, STRICT, BackfillKind, OrderKind, Policy
from tests.core.asking import HOUR, NOON, job
from tests.core.replay import Replay, Work
from tests.core.work import work_of
from tests.core.world import World

FAIR = replace(DEFAULT, backfill=BackfillKind.GREEDY)
PATIENT = Timing(lease_ttl_ms=100 * HOUR)
"""Workers that are silent for long are not lost."""
IN_TURN = replace(FAIR, order=OrderKind.ROUND_ROBIN)


def set_tenant(world: World, name: str, weight: float = 1.0, quota: Quota | None = None) -> None:
    world.step(PutTenantSettings(name=name, weight=weight, quota=quota))


def served(world: World, count: int) -> list[str]:
    """The tenants of the next jobs, each of which runs for a second."""
    found = []
    for _ in range(count):
        (taken,) = world.take(max_orders=1)
        found.append(world.record(taken).spec.terms.tenant)
        world.now += 1_000
        world.complete(taken)
    return found


def test_a_new_tenant_waits_for_one_round_however_much_another_has_queued() -> None:
    world = World(policy=FAIR, checked=False)
    world.register(cpu=1)
    world.submit_all([job(f"a{n}", tenant="a") for n in range(5_000)])
    served(world, 20)
    world.submit_all([job("b0", tenant="b")])
    assert "b" in served(world, 2)


def test_tenants_are_served_by_their_weights() -> None:
    world = World(policy=FAIR, checked=False)
    world.register(cpu=1)
    set_tenant(world, "b", weight=3.0)
    for tenant in "ab":
        world.submit_all([job(f"{tenant}{n}", tenant=tenant, runs_ms=1_000) for n in range(300)])
    found = served(world, 200)
    assert abs(found.count("b") - 150) <= 3
    for start in range(0, 200, 20):
        assert 14 <= found[start : start + 20].count("b") <= 16


def test_the_shares_of_two_tenants_stay_near_their_weights_at_any_time() -> None:
    """1:3 to a fiftieth over any stretch of more than twenty run times, lengths mixed."""
    replay = Replay(DEFAULT, {"w": {"cpu": 12}}, lambda _: None)
    set_tenant(replay.world, "b", weight=3.0)
    works = []
    for number in range(1_000):
        runs = 1_000 * (1 + number * 7 % 9)
        tenant = "a" if number % 4 == 0 else "b"
        works.append(Work(0, runs, {"tenant": tenant, "runs_ms": runs}))
    replay.run(works)
    starts = [(replay.started[JobId(f"j{number}")], work) for number, work in enumerate(works)]
    last = max(at for at, _ in starts)
    for begin in range(0, last - 120_000, 10_000):
        end, had = begin + 120_000, {"a": 0, "b": 0}
        for at, work in starts:
            had[work.asked["tenant"]] += max(0, min(end, at + work.runs) - max(begin, at))
        assert abs(had["b"] / (had["a"] + had["b"]) - 0.75) <= 0.02


@pytest.mark.parametrize("policy", [FAIR, DEFAULT])
def test_fair_share_counts_the_dominant_share_of_a_job(policy: Policy) -> None:
    """One tenant's jobs take a quarter of the cpus, the other's half of the memory."""
    taken = {"a": 0.0, "b": 0.0}
    replay = Replay(policy, {"w": {"cpu": 8, "memory": 8}}, lambda _: None)
    many = {"a": {"cpu": 2, "memory": 1}, "b": {"cpu": 1, "memory": 4}}
    works = [
        Work(0, 1_000, {"tenant": tenant, "runs_ms": 1_000, **asked})
        for _ in range(100)
        for tenant, asked in many.items()
    ]
    replay.run(works)
    half = sorted(replay.started.values())[len(works) // 2]
    for job_id, at in replay.started.items():
        if at <= half:
            tenant = works[int(job_id[1:])].asked["tenant"]
            taken[tenant] += 0.25 if tenant == "a" else 0.5
    assert taken["a"] / taken["b"] == pytest.approx(1.0, rel=0.1)


def test_an_idle_tenants_share_is_used_by_others_and_comes_back() -> None:
    world = World(policy=FAIR, checked=False)
    world.register(cpu=1)
    world.submit_all([job(f"a{n}", tenant="a") for n in range(400)])
    assert served(world, 100) == ["a"] * 100
    world.submit_all([job(f"b{n}", tenant="b") for n in range(200)])
    assert 47 <= served(world, 100).count("b") <= 53, "no debt of the loan, no credit either"


def test_a_wrong_run_time_estimate_holds_no_tenant_back() -> None:
    """Its jobs are thought to run for hours, and end at once: the next tenant must not wait."""
    world = World(policy=FAIR, checked=False)
    world.register(cpu=4)
    world.submit_all([job(f"a{n}", tenant="a", runs_ms=10 * HOUR) for n in range(40)])
    taken = world.take(max_orders=4)
    world.submit_all([job(f"b{n}", tenant="b") for n in range(40)])
    for one in taken:
        world.complete(one)
    assert served(world, 12).count("b") >= 5


def used(world: World, tenant: str) -> float:
    (found,) = [one for one in world.scheduler.tenants(world.now) if one.tenant.name == tenant]
    return found.used


def test_a_tenants_usage_decays_and_is_never_more_than_it_used() -> None:
    world = World(policy=replace(FAIR, half_life_ms=HOUR), checked=False, timing=PATIENT)
    world.register(cpu=4)
    world.submit("a", tenant="a", runs_ms=24 * HOUR)
    world.take()
    world.now += 60_000
    world.complete("a")
    assert used(world, "a") == pytest.approx(60_000 / 4, rel=0.02)
    world.now += 3 * HOUR
    assert used(world, "a") == pytest.approx(60_000 / 4 / 8, rel=0.02)


def test_a_tenant_that_had_more_waits_until_the_other_has_had_as_much() -> None:
    world = World(policy=FAIR, checked=False, timing=PATIENT)
    world.register(cpu=1)
    for tenant, runs_ms in (("a", 60_000), ("b", 1_000)):
        jobs = [job(f"{tenant}{n}", tenant=tenant, runs_ms=runs_ms) for n in range(100)]
        world.submit_all(jobs)
    (taken,) = world.take(max_orders=1)
    assert taken == "a0"
    world.now += 60_000
    world.complete(taken)
    assert served(world, 59) == ["b"] * 59
    assert "a" in served(world, 3)


def test_inside_a_tenant_priority_is_waiting_time() -> None:
    world = World(policy=FAIR)
    world.register(cpu=1)
    world.submit_all([job("old", created_at=NOON - 2 * HOUR)])
    world.submit_all([job("urgent", priority=100)])
    world.submit_all([job("plain")])
    order = []
    for _ in range(3):
        order += world.take(max_orders=1)
        world.complete(order[-1])
    assert order == ["old", "urgent", "plain"]


def test_a_long_job_lets_shorter_ones_that_come_soon_go_first() -> None:
    world = World(policy=replace(FAIR, beta=3.0))
    world.register(cpu=1)
    world.submit_all([job("long", runs_ms=HOUR)])
    world.submit_all([job("short", runs_ms=60_000, created_at=NOON + HOUR)])
    world.submit_all([job("later", runs_ms=60_000, created_at=NOON + 4 * HOUR)])
    order = []
    for _ in range(3):
        order += world.take(max_orders=1)
        world.complete(order[-1])
    assert order == ["short", "long", "later"]


def test_queues_of_one_tenant_share_by_weight_and_one_with_priority_goes_first() -> None:
    world = World(policy=FAIR, checked=False)
    world.register(cpu=1)
    world.queue("heavy", weight=2.0)
    for queue in ("heavy", "light"):
        world.submit_all([job(f"{queue}{n}", queue=queue) for n in range(90)])
    found = []
    for _ in range(60):
        (taken,) = world.take(max_orders=1)
        found.append(world.record(taken).spec.terms.queue)
        world.now += 1_000
        world.complete(taken)
    assert abs(found.count("heavy") - 40) <= 2
    world.queue("light", priority=1)
    assert world.take(max_orders=1)[0].startswith("light")


def test_round_robin_gives_every_tenant_one_job_in_turn() -> None:
    world = World(policy=IN_TURN)
    world.register(cpu=1)
    for tenant in "abc":
        world.submit_all([job(f"{tenant}{n}", tenant=tenant) for n in range(5)])
    found = served(world, 15)
    for start in range(0, 15, 3):
        assert sorted(found[start : start + 3]) == ["a", "b", "c"]


def test_a_restart_remembers_what_tenants_used() -> None:
    world = World(policy=FAIR, checked=False, timing=PATIENT)
    world.register(cpu=1)
    world.submit_all([job(f"{tenant}0", tenant=tenant, runs_ms=1_000) for tenant in "ab"])
    world.submit_all([job(f"a{n}", tenant="a", runs_ms=300_000) for n in range(1, 9)])
    served(world, 2)
    for _ in range(3):
        (taken,) = world.take(max_orders=1)
        world.now += 300_000
        world.complete(taken)
    world.take(max_orders=1)
    before = used(world, "a")
    assert before > 0
    world.restart()
    assert used(world, "a") == pytest.approx(before, rel=0.02)


def work_beside_tenants_that_wait(others: int) -> int:
    """The work of a turn that starts a job, where so many tenants wait for a larger worker."""
    world = World(policy=FAIR, checked=False)
    world.register(cpu=1)
    waiting = [job(f"big{n}", tenant=f"t{n}", cpu=2) for n in range(others)]
    world.submit_all([*waiting, *(job(f"s{n}", tenant="small") for n in range(30))])
    assert served(world, 10) == ["small"] * 10
    poll = world.asking(max_orders=1)
    return work_of(lambda: world.scheduler.turn([poll], world.now))


def test_tenants_without_a_job_that_fits_are_skipped_together() -> None:
    assert work_beside_tenants_that_wait(2_000) <= 2 * work_beside_tenants_that_wait(200)


def test_the_policy_can_be_changed_while_jobs_wait() -> None:
    world = World(policy=FAIR)
    world.register(cpu=1)
    world.submit_all([job(f"a{n}", tenant="a") for n in range(3)])
    world.submit_all([job("b", tenant="b", priority=-5)])
    world.step(SetPolicy(policy=STRICT))
    taken = []
    for _ in range(4):
        taken += world.take(max_orders=1)
        world.complete(taken[-1])
    assert taken == ["a0", "a1", "a2", "b"]
    world.step(SetPolicy(policy=IN_TURN))
    world.restart()
    assert world.scheduler.policy == IN_TURN


@pytest.mark.parametrize("policy", [FAIR, STRICT, IN_TURN, replace(FAIR, order=OrderKind.FIFO)])
def test_quotas_hold_under_every_order(policy: Policy) -> None:
    world = World(policy=policy)
    world.register(cpu=8, memory=8)
    set_tenant(world, "a", quota=Quota(running=3, cpu_milli=4_000))
    world.submit_all([job(f"a{n}", tenant="a", cpu=2, priority=9) for n in range(3)])
    world.submit_all([job("small", tenant="a", cpu=1), job("b", tenant="b", cpu=1)])
    assert sorted(world.take()) == ["a0", "a1", "b"]
    assert world.causes("a2")[0] == "quota_cpu"
    world.complete("a0")
    assert world.take() == ["a2"]
    set_tenant(world, "a", quota=Quota(running=3))
    assert world.take() == ["small"]
    world.submit_all([job("more", tenant="a", cpu=1)])
    assert world.take() == []
    assert "quota_running" in world.causes("more")
    set_tenant(world, "a")
    assert world.take() == ["more"]
