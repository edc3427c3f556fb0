from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.core.model import ExecutionState, JobState, Stop
from rota.core.policy import DEFAULT, STRICT, Policy
from tests.core.asking import AT_MOST_ONCE, SECOND
from tests.core.world import World, run

POLICIES = [DEFAULT, STRICT]


def crowded(policy: Policy, **asked: object) -> World:
    """A worker of 4 cpus with four jobs that may be stopped, the last of them the youngest."""
    world = World(policy=policy)
    world.register(cpu=4)
    for number in range(4):
        world.submit(f"low-{number}", **{"preemptible": True, **asked})
        assert world.take() == [f"low-{number}"]
        world.now += 100
    return world


def names(world: World) -> list[str]:
    return [x.job_id for x in world.ledger.running()]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_youngest_is_stopped_for_one_much_more_urgent_and_runs_again(policy: Policy) -> None:
    world = crowded(policy)
    poll = world.poll(names=names(world), wait_ms=60_000)
    world.submit("urgent", priority=500)
    world.advance(5_000)
    assert poll not in world.answers, "it has not waited long enough"
    world.advance(6_000)
    assert world.answers[poll].cancel == (world.execution("low-3").id,)
    stopped = world.report("low-3", "cancelled")
    assert world.take(completed=[stopped], names=names(world)[:3]) == ["urgent"]
    assert world.execution("low-3").state is ExecutionState.PREEMPTED
    life = world.life("low-3")
    assert (life.state, life.reason, life.attempt) == (JobState.QUEUED, "preempted", 0)
    world.complete("urgent")
    assert world.take() == ["low-3"]


@pytest.mark.parametrize("policy", POLICIES)
def test_those_stopped_do_not_take_their_place_back(policy: Policy) -> None:
    """They have waited for longer, and one of them is told to stop later than the other."""
    world = crowded(policy)
    for _ in range(4):
        world.advance(10_000)
        world.heartbeat(names=names(world))
    world.submit("urgent", cpu=2, priority=500)
    world.poll(names=names(world), wait_ms=60_000)
    world.advance(11_000)
    stops = [x.job_id for x in world.ledger.running() if x.stop is not None]
    assert sorted(stops) == ["low-2", "low-3"]
    first = world.report("low-3", "cancelled")
    assert world.take(completed=[first], names=["low-0", "low-1", "low-2"]) == []
    second = world.report("low-2", "cancelled")
    assert world.take(completed=[second], names=["low-0", "low-1"]) == ["urgent"]


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_is_stopped_who_did_not_agree_or_is_nearly_as_urgent(policy: Policy) -> None:
    for asked in ({"preemptible": False}, {"priority": 450}, {"semantics": AT_MOST_ONCE}):
        world = crowded(policy, **asked)
        world.submit("urgent", priority=500)
        for _ in range(4):
            world.advance(10_000)
            world.heartbeat(names=names(world))
        assert all(x.stop is None for x in world.ledger.running())


def test_the_fewest_are_stopped() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=4)
    world.submit("large", cpu=3, preemptible=True)
    world.take()
    world.now += 100
    world.submit("small", cpu=1, preemptible=True)
    world.take()
    world.submit("urgent", cpu=3, priority=500)
    for _ in range(2):
        world.advance(10_000)
        world.heartbeat(names=names(world))
    assert [x.job_id for x in world.ledger.running() if x.stop] == ["large"]


def test_nobody_is_stopped_in_vain_or_where_the_policy_forbids_it() -> None:
    in_vain = crowded(DEFAULT)
    in_vain.submit("urgent", cpu=5, priority=500)
    forbidden = crowded(replace(DEFAULT, preempt_gap=None))
    forbidden.submit("urgent", priority=500)
    for world in (in_vain, forbidden):
        for _ in range(2):
            world.advance(10_000)
            world.heartbeat(names=names(world))
        assert all(x.stop is None for x in world.ledger.running())


def test_a_worker_that_never_confirms_loses_what_it_was_to_stop_and_it_runs_again() -> None:
    world = crowded(DEFAULT)
    world.submit("urgent", priority=500)
    for _ in range(8):
        world.advance(10_000)
        world.heartbeat(names=[n for n in names(world) if n.startswith("low")])
    assert world.execution("low-3").state is ExecutionState.PREEMPTED
    assert world.life("low-3").attempt == 0


def test_one_that_ended_well_before_it_was_stopped_has_succeeded() -> None:
    world = crowded(DEFAULT)
    world.submit("urgent", priority=500)
    world.advance(10_000)
    world.heartbeat(names=names(world))
    world.complete("low-3")
    assert world.state("low-3") is JobState.SUCCEEDED


def test_one_called_off_while_it_is_stopped_is_cancelled() -> None:
    world = crowded(DEFAULT)
    world.submit("urgent", priority=500)
    world.advance(10_000)
    world.heartbeat(names=names(world))
    world.cancel("low-3")
    world.complete("low-3", "cancelled")
    assert world.state("low-3") is JobState.CANCELLED


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stuck", [{"cpu": 64}, {"capabilities": ("moon",)}, {"gang": 8}])
def test_what_no_worker_could_run_keeps_nobody_from_clearing_one(
    policy: Policy, stuck: dict[str, object]
) -> None:
    world = crowded(policy)
    world.submit("stuck", priority=1000, **stuck)
    world.submit("urgent", priority=500)
    world.advance(11_000)
    poll = world.poll(names=names(world), wait_ms=60_000)
    assert world.answers[poll].cancel == (world.execution("low-3").id,)


def test_a_job_that_starts_elsewhere_leaves_the_place_that_was_cleared_for_it() -> None:
    world = World(policy=DEFAULT)
    world.register("w1", cpu=4)
    world.submit("low", cpu=3, preemptible=True, runs_ms=100 * SECOND)
    run(world, "low", "w1")
    world.submit("urgent", cpu=4, priority=200, runs_ms=SECOND)
    world.submit("small", cpu=1, priority=-5, runs_ms=10_000 * SECOND)
    world.poll("w1", names=["low"], wait_ms=60 * SECOND)
    world.advance(11 * SECOND)
    assert world.execution("low").stop is Stop.PREEMPT
    world.register("w2", cpu=4)
    world.poll("w1", names=["low"], wait_ms=60 * SECOND)
    assert world.take("w2") == ["urgent"]
    assert names(world) == ["low", "urgent"]
