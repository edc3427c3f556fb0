"""Gangs: all members start in one turn or none does, and what happens to one happens to all."""

from __future__ import annotations

import pytest

from rota.core.commands import ClosePoll, PutTenantSettings, SetPolicy
from rota.core.errors import IllegalTransition
from rota.core.ids import member_id
from rota.core.limits import GANG_HOLD_MS
from rota.core.model import JobId, JobState, Quota, WorkerId
from rota.core.outcome import PutExecution
from rota.core.policy import CONSERVATIVE, DEFAULT, STRICT, Policy
from tests.core.asking import AT_MOST_ONCE, SECOND, retries
from tests.core.world import World

POLICIES = pytest.mark.parametrize("policy", [STRICT, DEFAULT, CONSERVATIVE])


def members(gang: str, size: int) -> list[JobId]:
    return [member_id(JobId(gang), index) for index in range(size)]


def two_workers(policy: Policy = STRICT, cpu: int = 2) -> World:
    world = World(policy=policy)
    world.register("w1", cpu=cpu)
    world.register("w2", cpu=cpu)
    return world


def started(world: World, gang: str, size: int) -> list[JobId]:
    """Both workers ask, and the gang starts."""
    world.poll("w1")
    world.poll("w2")
    assert world.state(gang) is JobState.RUNNING
    return members(gang, size)


@POLICIES
def test_a_gang_starts_when_there_is_room_for_all_of_it_and_in_one_turn(policy: Policy) -> None:
    world = two_workers(policy)
    world.submit("g", gang=4)
    first = world.poll("w1")
    assert world.orders(first) == []
    assert world.state("g") is JobState.QUEUED
    second = world.poll("w2")
    assert world.orders(first) + world.orders(second) == members("g", 4)
    assert len([w for w in world.last.writes if isinstance(w, PutExecution)]) == 4
    assert world.life("g").attempt == 1


def test_members_are_told_whom_they_run_with() -> None:
    world = two_workers()
    world.submit("g", gang=3)
    started(world, "g", 3)
    orders = [order for answer in world.answers.values() for order in answer.orders]
    companies = [order.group for order in orders]
    assert [(c.group_id, c.index, c.size) for c in companies if c] == [
        ("g", 0, 3),
        ("g", 1, 3),
        ("g", 2, 3),
    ]
    assert all(c is not None and c.hosts == ("w1", "w1", "w2") for c in companies)


def test_a_worker_that_names_its_machine_is_found_by_that() -> None:
    world = World()
    world.register("w1", cpu=2, labels={"host": "10.0.0.7"})
    world.submit("g", gang=2)
    (order, _) = world.answers[world.poll("w1")].orders
    assert order.group is not None
    assert order.group.hosts == ("10.0.0.7", "10.0.0.7")


def test_a_gang_succeeds_when_all_have_and_returns_what_the_first_returns() -> None:
    world = two_workers()
    world.submit("g", gang=3)
    world.submit("next", after=["g"])
    jobs = started(world, "g", 3)
    world.complete(jobs[0], result=b"42")
    world.complete(jobs[2])
    assert world.state("g") is JobState.RUNNING
    world.restart()
    world.complete(jobs[1])
    assert world.state("g") is JobState.SUCCEEDED
    assert world.life("g").result == b"42"
    assert world.state("next") is JobState.QUEUED


def test_one_that_fails_stops_the_others_and_the_gang_is_tried_again_as_a_whole() -> None:
    world = two_workers()
    world.submit("g", gang=3, retry=retries(2))
    jobs = started(world, "g", 3)
    fences = [world.life(one).fence for one in jobs]
    world.complete(jobs[1], "failed", error=b'{"message":"boom"}')
    assert [world.state(one) for one in jobs] == [
        JobState.CANCELLING,
        JobState.FAILED,
        JobState.CANCELLING,
    ]
    assert world.life(jobs[0]).reason == "gang"
    assert b"member 1 of 3 failed" in (world.life("g").error or b"")
    world.complete(jobs[0], "cancelled")
    world.restart()
    world.complete(jobs[2], "cancelled")
    assert world.state("g") is JobState.PENDING
    world.advance(SECOND)
    jobs = started(world, "g", 3)
    assert world.life("g").attempt == 2
    assert all(world.life(one).fence > fence for one, fence in zip(jobs, fences, strict=True))
    world.complete(jobs[0], "failed")
    world.complete(jobs[1], "cancelled")
    world.complete(jobs[2], "cancelled")
    assert world.state("g") is JobState.FAILED


def test_a_lost_member_takes_the_gang_back_in_line_without_costing_a_try() -> None:
    world = two_workers()
    world.submit("g", gang=4)
    jobs = started(world, "g", 4)
    mine = [one for one in jobs if world.execution(one).worker_id == "w1"]
    while world.state(mine[0]) is JobState.RUNNING:
        world.advance(5 * SECOND)
        world.poll("w1", names=mine)
    for one in mine:
        assert world.state(one) is JobState.CANCELLING
        world.complete(one, "cancelled")
    assert world.state("g") is JobState.QUEUED
    assert (world.life("g").attempt, world.life("g").losses) == (0, 1)
    world.register("w2", cpu=2)
    started(world, "g", 4)


def test_a_gang_that_may_start_once_fails_with_a_lost_worker() -> None:
    world = World()
    world.register(cpu=2)
    world.submit("g", gang=2, semantics=AT_MOST_ONCE)
    world.take()
    world.advance(60 * SECOND)
    assert world.state("g") is JobState.FAILED


def test_cancelling_a_member_cancels_the_gang() -> None:
    world = two_workers()
    world.submit("g", gang=3)
    jobs = started(world, "g", 3)
    world.cancel(jobs[1])
    assert world.state("g") is JobState.CANCELLING
    for one in jobs:
        world.complete(one, "cancelled")
    assert world.state("g") is JobState.CANCELLED
    world.retry("g")
    started(world, "g", 3)


def test_a_gang_keeps_room_until_all_of_it_fits() -> None:
    world = two_workers(DEFAULT)
    world.submit("long", runs_ms=100 * SECOND, cpu=2)
    assert world.take("w1") == ["long"]
    world.submit("g", gang=4, runs_ms=10 * SECOND)
    world.submit("too-long", runs_ms=200 * SECOND)
    world.submit("short", runs_ms=50 * SECOND)
    assert world.take("w2") == ["short"]
    world.complete("short")
    world.complete("long")
    first, second = world.poll("w1"), world.poll("w2")
    assert world.orders(first) + world.orders(second) == members("g", 4)


def test_room_that_a_gang_does_not_use_in_time_is_let_go() -> None:
    world = two_workers(DEFAULT)
    world.submit("g", gang=4)
    world.submit("other", runs_ms=500 * SECOND)
    assert world.take("w1") == []  # w2 has room, but does not ask

    def asks_after(ms: int) -> list[JobId]:
        world.advance(ms)
        world.heartbeat("w2")
        return world.take("w1")

    for _ in range(GANG_HOLD_MS // (5 * SECOND) - 1):
        assert asks_after(5 * SECOND) == []
    assert asks_after(5 * SECOND) == ["other"]


def test_two_gangs_that_need_the_same_room_run_one_after_the_other() -> None:
    world = two_workers(DEFAULT)
    world.submit("g", gang=3)
    world.submit("h", gang=3)
    jobs = started(world, "g", 3)
    assert world.state("h") is JobState.QUEUED
    for one in jobs:
        world.complete(one)
    started(world, "h", 3)


def test_limits_hold_for_the_whole_gang() -> None:
    world = two_workers()
    world.queue(max_workers=2)
    world.submit("g", gang=3)
    world.poll("w1")
    world.poll("w2")
    assert world.state("g") is JobState.QUEUED
    world.queue(max_workers=3)
    assert world.state("g") is JobState.RUNNING
    world.step(PutTenantSettings(name="small", quota=Quota(running=1)))
    world.submit("h", gang=2, tenant="small", cpu=0)
    assert world.state("h") is JobState.QUEUED
    world.step(PutTenantSettings(name="small", quota=Quota(running=2)))
    world.queue(max_workers=9)
    world.poll("w1")
    assert world.state("h") is JobState.RUNNING


def test_a_gang_holds_one_slot_of_its_key() -> None:
    world = two_workers()
    world.submit("g", gang=2, key="k")
    world.submit("h", gang=2, key="k")
    jobs = started(world, "g", 2)
    world.restart()
    world.poll("w1", names=jobs)
    assert world.state("h") is JobState.QUEUED
    for one in jobs:
        world.complete(one)
    world.poll("w1")
    world.poll("w2")
    assert world.state("h") is JobState.RUNNING


def test_a_preempted_member_brings_the_whole_gang_back_in_line() -> None:
    world = World(policy=DEFAULT)
    world.register("w1", cpu=2)
    world.register("w2", cpu=2)
    world.submit("g", gang=4, preemptible=True)
    jobs = started(world, "g", 4)
    world.submit("urgent", priority=900, cpu=2)
    world.poll("w1", names=[one for one in jobs if world.execution(one).worker_id == "w1"])
    world.poll("w2", names=[one for one in jobs if world.execution(one).worker_id == "w2"])
    world.advance(4 * SECOND)
    for _ in range(3):
        for name in ("w1", "w2"):
            held = [one for one in jobs if world.execution(one).worker_id == name]
            world.poll(name, names=held)
        world.advance(4 * SECOND)
    stopping = [one for one in jobs if world.execution(one).stop is not None]
    assert stopping == jobs
    for one in jobs:
        world.complete(one, "cancelled")
    assert world.state("g") is JobState.QUEUED
    assert world.life("g").attempt == 0


def test_a_gang_too_large_for_the_fleet_lets_others_pass() -> None:
    world = two_workers(DEFAULT)
    world.submit("g", gang=5)
    world.submit("b")
    assert world.take("w1") == ["b"]
    assert "gang" in world.causes("g")


def test_why_says_how_many_members_find_no_room() -> None:
    world = two_workers(DEFAULT)
    world.submit("b")
    assert world.take("w1") == ["b"]
    world.submit("g", gang=4)
    cause = world.why("g").causes[0]
    assert cause.code == "gang"
    assert cause.message.startswith("gang short by 1 member: ")
    assert cause.figures["short"] == 1


def test_a_running_gang_cannot_be_changed() -> None:
    world = two_workers()
    world.submit("g", gang=2)
    started(world, "g", 2)
    with pytest.raises(IllegalTransition):
        world.update("g", gang=2, priority=3)


def test_a_poll_that_closes_before_the_gang_is_whole_takes_nothing() -> None:
    world = two_workers()
    world.submit("g", gang=4)
    first = world.poll("w1")
    world.step(ClosePoll(poll_id=first, worker_id=WorkerId("w1")))
    world.poll("w2")
    assert world.state("g") is JobState.QUEUED


def test_another_policy_finds_the_gang_in_line() -> None:
    world = two_workers()
    world.submit("g", gang=4)
    world.step(SetPolicy(policy=DEFAULT))
    started(world, "g", 4)
