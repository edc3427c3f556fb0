from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.core.commands import (
    ClosePoll,
    Deregister,
    Drain,
    Heartbeat,
    PutTenantSettings,
    Register,
    Resume,
)
from rota.core.errors import Conflict, NotFound, Superseded
from rota.core.limits import OFFLINE_KEPT_MS
from rota.core.model import JobState, Quota, Resources, WorkerId, WorkerState
from tests.core.asking import AT_MOST_ONCE, SECOND, job, resources
from tests.core.world import World, run

W1 = WorkerId("w1")


def test_a_draining_worker_finishes_what_it_has_and_gets_nothing_new() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    poll = world.poll(names=["a"])
    world.step(Drain(worker_id=W1))
    assert world.ledger.workers[W1].state is WorkerState.DRAINING
    world.submit("b")
    assert world.orders(poll) == []
    assert world.take(names=["a"]) == []
    world.complete("a")
    assert world.state("a") is JobState.SUCCEEDED
    assert world.take() == []
    assert world.causes("b") == ["workers_away"]


def test_a_worker_that_registers_again_takes_work_again() -> None:
    world = World()
    world.register()
    world.step(Drain(worker_id=W1))
    world.register(session="s2")
    world.submit("a")
    assert world.take(session="s2") == ["a"]


def test_a_drain_outlives_a_restart() -> None:
    world = World()
    world.register()
    world.step(Drain(worker_id=W1))
    world.restart()
    world.submit("a")
    assert world.take() == []


def test_draining_twice_changes_nothing_and_draining_nobody_is_refused() -> None:
    world = World()
    world.register()
    world.step(Drain(worker_id=W1))
    world.step(Drain(worker_id=W1))
    assert world.last.writes == []
    with pytest.raises(NotFound):
        world.step(Drain(worker_id=WorkerId("ghost")))
    world.step(Deregister(worker_id=W1))
    with pytest.raises(Conflict, match="is offline"):
        world.step(Drain(worker_id=W1))


def test_a_resumed_worker_gets_work_in_the_poll_that_waits() -> None:
    world = World()
    world.register()
    world.step(Drain(worker_id=W1))
    poll = world.poll()
    world.submit("a")
    assert world.orders(poll) == []
    world.step(Resume(worker_id=W1))
    assert world.orders(poll) == ["a"]
    assert world.ledger.workers[W1].state is WorkerState.ONLINE


def test_resuming_is_for_workers_that_are_there() -> None:
    world = World()
    world.register()
    world.step(Resume(worker_id=W1))
    assert world.last.writes == [], "it takes work already"
    with pytest.raises(NotFound):
        world.step(Resume(worker_id=WorkerId("ghost")))
    world.step(Deregister(worker_id=W1))
    with pytest.raises(Conflict, match="start it again"):
        world.step(Resume(worker_id=W1))


@pytest.mark.parametrize("session", ["s1", None])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_worker_that_left_is_not_heard_before_it_registers_again(
    session: str | None, restarted: bool
) -> None:
    world = World()
    world.register()
    world.submit("a")
    world.step(Deregister(worker_id=W1))
    if restarted:
        world.restart()
    with pytest.raises(NotFound, match="register again"):
        world.step(Heartbeat(worker_id=W1, session=session))
    with pytest.raises(NotFound, match="register again"):
        world.poll(session=session)
    assert world.ledger.workers[W1].state is WorkerState.OFFLINE
    world.register(session="s2")
    assert world.take(session="s2") == ["a"]


def test_a_lost_worker_that_is_heard_again_need_not_register() -> None:
    world = World()
    world.register()
    world.advance(60 * SECOND)
    assert world.ledger.workers[W1].state is WorkerState.OFFLINE
    world.submit("a")
    assert world.take() == ["a"]


def test_a_worker_that_leaves_gives_back_at_once_what_it_had() -> None:
    world = World()
    world.register()
    world.register("w2")
    world.submit("a")
    run(world, "a")
    mine = world.poll("w1", names=["a"])
    other = world.poll("w2")
    world.step(Deregister(worker_id=W1))
    assert mine in world.answers
    assert world.orders(other) == ["a"]
    assert world.life("a").losses == 1
    assert world.ledger.workers[W1].state is WorkerState.OFFLINE


def test_a_newer_registration_ends_the_older_ones_poll_and_its_calls() -> None:
    world = World()
    world.register(session="old")
    poll = world.poll(session="old")
    world.register(session="new")
    refusal = world.answers[poll].refusal
    assert isinstance(refusal, Superseded)
    with pytest.raises(Superseded):
        world.poll(session="old")
    world.submit("a")
    assert world.take(session="new") == ["a"]


def test_what_a_worker_held_is_still_its_own_after_it_registered_again() -> None:
    world = World()
    world.register(session="old")
    world.submit("a")
    run(world, "a")
    world.heartbeat(names=["a"])
    world.register(session="new")
    assert world.heartbeat(names=["a"]).lost == ()
    world.complete("a")
    assert world.state("a") is JobState.SUCCEEDED


def test_a_worker_that_registers_over_and_over_does_not_keep_what_it_never_names() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    world.heartbeat(names=["a"])
    for number in range(10):
        world.advance(5 * SECOND)
        world.register(session=f"crashed-{number}")
    assert (world.state("a"), world.life("a").losses) == (JobState.QUEUED, 1)


def test_an_at_most_once_job_is_not_given_again_to_a_worker_that_was_started_anew() -> None:
    """It may have begun before its worker died: only the same run of it could know."""
    world = World()
    world.register(session="old")
    world.submit("once", semantics=AT_MOST_ONCE)
    world.submit("often")
    assert world.take(session="old") == ["once", "often"]
    world.advance(SECOND)
    assert world.take(session="old", names=[]) == ["once", "often"], "its answer was lost"
    world.register(session="new")
    assert world.take(session="new", names=[]) == ["often"]
    world.advance(20 * SECOND)
    assert (world.state("once"), world.life("once").reason) == (JobState.FAILED, "lost")


def test_a_poll_is_answered_when_its_time_is_over() -> None:
    world = World()
    world.register()
    poll = world.poll(wait_ms=3 * SECOND)
    world.advance(3 * SECOND - 1)
    assert poll not in world.answers
    world.advance(1)
    assert world.answers[poll].orders == ()


def test_a_second_poll_ends_the_first() -> None:
    world = World()
    world.register()
    first = world.poll()
    second = world.poll()
    assert first in world.answers
    world.submit("a")
    assert (world.orders(first), world.orders(second)) == ([], ["a"])


def test_work_does_not_go_to_a_poll_whose_caller_has_gone() -> None:
    world = World()
    world.register()
    poll = world.poll()
    world.step(ClosePoll(poll_id=poll, worker_id=W1))
    world.submit("a")
    assert world.state("a") is JobState.QUEUED
    newer = world.poll()
    world.step(ClosePoll(poll_id=poll, worker_id=W1))
    world.step(ClosePoll(poll_id=poll, worker_id=WorkerId("ghost")))
    assert world.orders(newer) == ["a"]


def test_a_poll_with_reports_is_answered_at_once_with_the_next_work() -> None:
    world = World()
    world.register(cpu=1)
    world.submit_all([job("a"), job("b")])
    run(world, "a")
    poll = world.poll(completed=[world.report("a")], names=[])
    assert world.orders(poll) == ["b"]
    again = world.poll(completed=[world.report("b")], names=[])
    assert again in world.answers, "its reports are durable: it must hear that"


def test_a_forgotten_worker_that_registers_in_the_turn_that_forgets_it_is_known() -> None:
    world = World()
    world.register()
    world.submit("a")
    world.step(Deregister(worker_id=W1))
    world.now += OFFLINE_KEPT_MS
    world.step(Register(worker_id=W1, session="s2", name="w1", capacity=resources(cpu=4)))
    assert W1 in world.ledger.workers
    run(world, "a")
    world.restart()
    world.complete("a")
    assert world.state("a") is JobState.SUCCEEDED


def test_machines_that_come_with_ever_new_amounts_do_not_fill_memory() -> None:
    world = World(checked=False)
    for n in range(3_000):
        world.register(storage=n, session=f"s{n}")
    assert len(world.scheduler._t.fleet.machines) < 1_200
    world.submit("a")
    assert world.take() == ["a"]


def test_a_worker_that_reports_is_answered_at_once_unless_it_is_patient() -> None:
    world = World()
    world.register()
    for name in ("a", "b"):
        world.submit(name)
        run(world, name)
    at_once = world.poll(completed=[world.report("a")])
    assert at_once in world.answers
    patient = world.poll(completed=[world.report("b")], patient=True)
    assert patient not in world.answers
    assert world.state("b") is JobState.SUCCEEDED, "the report counts from now on"
    world.submit("c")
    assert world.orders(patient) == ["c"]


def test_a_patient_worker_that_wants_no_work_is_answered_at_once() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    assert world.poll(completed=[world.report("a")], max_orders=0, patient=True) in world.answers


def test_a_patient_worker_is_told_at_once_of_a_report_that_is_not_taken() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    said = replace(world.report("a"), fence=99)
    poll = world.poll(completed=[said], patient=True)
    assert world.answers[poll].lost == (said.execution_id,)


def test_what_was_asked_for_by_name_and_came_to_nothing_leaves_no_trace_in_a_worker() -> None:
    """Or else each new name would be kept for as long as the worker is there."""
    world = World()
    world.register("w1", cpu=4, custom={"seat": 0})
    fresh = world.scheduler._t.fleet.workers[W1].free_capacity
    for number in range(5):
        job_id = world.submit(custom={f"licence-{number}": 0, "seat": 0})
        assert world.take() == [job_id]
        world.complete(job_id)
    cell = world.scheduler._t.fleet.workers[W1]
    assert cell.free_capacity is fresh
    assert cell.free.custom == ()


def test_a_worker_that_comes_back_without_a_resource_has_none_when_its_last_job_ends() -> None:
    world = World()
    world.may_shrink = True
    world.register("w1", custom={"licence": 1})
    world.step(PutTenantSettings(name="default", quota=Quota(running=3)))
    job_id = world.submit(custom={"licence": 1})
    assert world.take() == [job_id]
    world.register("w1")
    world.complete(job_id)
    world.check()
    assert world.scheduler._t.fleet.workers[W1].free.custom == ()
    assert world.scheduler._t.tenants.entries["default"].used == Resources()
