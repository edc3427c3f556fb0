from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.core.commands import Delete, Deregister, SetPolicy
from rota.core.model import JobId, JobState, WorkerId
from rota.core.policy import DEFAULT, FCFS, OrderKind, Policy
from tests.core.asking import HOUR, SECOND, job, retries
from tests.core.world import World, run


def keyed(world: World, *names: str, limit: int = 1, **asked: object) -> None:
    """Jobs of the key `k`."""
    for name in names:
        world.submit(name, key="k", limit=limit, **asked)


def large_worker() -> World:
    """A world with one large worker."""
    world = World()
    world.register(cpu=64)
    return world


def test_no_more_than_the_limit_of_a_key_run_at_once() -> None:
    world = large_worker()
    keyed(world, "a", "b", "c", limit=2)
    world.submit("other")
    assert world.take() == ["a", "b", "other"]
    world.complete("b")
    assert world.take() == ["c"]


def test_keys_of_two_tenants_are_two_keys() -> None:
    world = large_worker()
    keyed(world, "a")
    keyed(world, "b", tenant="acme")
    assert world.take() == ["a", "b"]


def test_jobs_wait_for_a_key_by_priority_then_arrival() -> None:
    world = large_worker()
    keyed(world, "holder", priority=100)
    world.take()
    keyed(world, "late", "later")
    keyed(world, "urgent", priority=5)
    order = []
    while (taken := world.take()) or order == []:
        order += taken
        world.complete("holder" if not order else order[-1])
    assert order == ["urgent", "late", "later"]


def test_a_more_urgent_job_takes_the_slot_of_one_that_has_not_started() -> None:
    world = large_worker()
    keyed(world, "plain")
    keyed(world, "urgent", priority=1)
    assert world.take() == ["urgent"]
    assert world.causes("plain") == ["concurrency", "no_poll"]
    world.complete("urgent")
    assert world.take() == ["plain"]


def test_a_more_urgent_job_waits_for_one_that_runs() -> None:
    world = large_worker()
    keyed(world, "plain")
    world.take()
    keyed(world, "urgent", priority=1)
    assert world.take() == []


def fail_for_good(world: World) -> None:
    world.complete("a", "failed")


def cancel_and_stop(world: World) -> None:
    world.cancel("a")
    world.complete("a", "cancelled")


def delete_and_stop(world: World) -> None:
    world.step(Delete(job_id=JobId("a"), force=True))
    world.complete("a", "cancelled")


@pytest.mark.parametrize("ending", [fail_for_good, cancel_and_stop, delete_and_stop])
def test_however_a_running_job_ends_its_slot_goes_to_the_next(
    ending: Callable[[World], None],
) -> None:
    world = large_worker()
    keyed(world, "a", "b")
    run(world, "a")
    ending(world)
    assert world.take() == ["b"]


def test_a_cancelled_job_keeps_its_slot_until_it_has_stopped() -> None:
    world = large_worker()
    keyed(world, "a", "b")
    run(world, "a")
    world.cancel("a")
    assert world.take() == []


def test_a_job_in_backoff_gives_its_slot_to_the_next_one() -> None:
    world = large_worker()
    keyed(world, "a", retry=retries(2, delay_ms=HOUR))
    keyed(world, "b")
    run(world, "a")
    world.complete("a", "failed")
    assert world.take() == ["b"]


def test_a_waiting_holder_that_is_cancelled_or_expires_gives_its_slot_back() -> None:
    world = large_worker()
    keyed(world, "a", "b", "c", "d")
    world.cancel("a")
    world.step(Delete(job_id=JobId("b"), force=True))
    assert world.take() == ["c"]
    world = large_worker()
    keyed(world, "short", expires_at=world.now + SECOND)
    keyed(world, "next")
    world.advance(SECOND + 1)
    assert world.take() == ["next"]


def test_a_job_that_stops_waiting_for_a_slot_is_skipped() -> None:
    world = large_worker()
    keyed(world, "a", "b", "c")
    run(world, "a")
    world.cancel("b")
    world.complete("a")
    assert world.take() == ["c"]


def test_a_lost_job_runs_again_before_later_jobs_of_its_key() -> None:
    world = large_worker()
    keyed(world, "a", "b")
    run(world, "a")
    world.step(Deregister(worker_id=WorkerId("w1")))
    world.register(cpu=64)
    assert world.take() == ["a"]


def test_a_lost_job_runs_again_after_a_more_urgent_one_of_its_key() -> None:
    world = large_worker()
    keyed(world, "a")
    run(world, "a")
    keyed(world, "urgent", priority=1)
    world.step(Deregister(worker_id=WorkerId("w1")))
    world.register(cpu=64)
    assert world.take() == ["urgent"]
    world.complete("urgent")
    assert world.take() == ["a"]


def test_an_update_of_other_fields_keeps_the_position_for_the_key() -> None:
    world = large_worker()
    keyed(world, "a", "b")
    world.update("a", key="k", labels=[("team", "x")])
    assert world.take() == ["a"]


def test_an_update_that_lowers_the_priority_of_a_holder_gives_its_slot_away() -> None:
    world = large_worker()
    keyed(world, "a", "b")
    world.update("a", key="k", priority=-1)
    assert world.take() == ["b"]


def test_an_update_can_give_a_job_another_key() -> None:
    world = large_worker()
    keyed(world, "a", "b")
    world.update("b", key="another")
    assert world.take() == ["a", "b"]


def test_holders_and_waiting_jobs_of_a_key_are_the_same_after_a_restart() -> None:
    world = large_worker()
    keyed(world, "running")
    run(world, "running")
    keyed(world, "a", "b")
    keyed(world, "urgent", priority=1)
    world.restart()
    assert world.take() == []
    world.complete("running")
    assert world.take() == ["urgent"]
    world.restart()
    assert world.take() == []
    world.complete("urgent")
    assert world.take() == ["a"]


@pytest.mark.parametrize("policy", [FCFS, Policy(OrderKind.PRIORITY)])
def test_a_job_that_waits_for_a_key_gets_its_slot_under_any_policy(policy: Policy) -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=64)
    keyed(world, "running")
    run(world, "running")
    keyed(world, "a", "b")
    keyed(world, "urgent", priority=1)
    world.turn([SetPolicy(policy=policy)])
    order = []
    world.complete("running")
    while taken := world.take():
        order += taken
        world.complete(taken[0])
    assert order == (["a", "b", "urgent"] if policy is FCFS else ["urgent", "a", "b"])


def test_a_holder_loses_its_slot_by_the_order_of_the_current_policy() -> None:
    world = World(policy=Policy(OrderKind.PRIORITY))
    world.register(cpu=64)
    keyed(world, "plain")
    world.turn([SetPolicy(policy=DEFAULT)])
    keyed(world, "urgent", priority=1)
    assert world.take() == ["urgent"]


def test_each_job_obeys_its_own_limit_of_the_key() -> None:
    world = large_worker()
    keyed(world, "a", "b", limit=2)
    keyed(world, "strict", limit=1)
    assert world.take() == ["a", "b"]
    world.complete("a")
    assert world.take() == []
    world.complete("b")
    assert world.take() == ["strict"]


def test_a_key_in_heavy_use_never_passes_its_limit() -> None:
    world = large_worker()
    world.submit_all(
        [job(f"j{n}", key="k", limit=3, priority=n % 5, retry=retries(3)) for n in range(60)]
    )
    running: list[str] = []
    for turn in range(200):
        running += world.take()
        assert len(running) <= 3
        if running:
            how = ("succeeded", "failed", "failed")[turn % 3]
            world.complete(running.pop(turn % len(running)), how)
        world.advance(100)
        world.heartbeat()
    assert not world.scheduler._t.concurrency_keys.groups
    assert {record.life.state for record in world.ledger.jobs.values()} <= {
        JobState.SUCCEEDED,
        JobState.FAILED,
    }
