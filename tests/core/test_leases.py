from __future__ import annotations

import msgspec
import pytest

from rota.core.commands import Complete
from rota.core.errors import NotFound, StaleFence
from rota.core.limits import LOSSES_MAX, OFFLINE_KEPT_MS
from rota.core.model import ExecutionState, JobId, JobState, WorkerState
from tests.core.asking import AT_MOST_ONCE, HOUR, SECOND, job
from tests.core.world import World, run

TTL = 15 * SECOND
GRACE = 2 * SECOND


def with_running(**asked: object) -> World:
    """Job `a` runs on worker w1, which has named it."""
    world = World()
    world.register()
    world.submit("a", **asked)
    run(world, "a")
    world.heartbeat(names=["a"])
    return world


def test_an_execution_is_claimed_until_its_worker_names_it() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    assert world.execution("a").state is ExecutionState.CLAIMED
    world.advance(SECOND)
    world.heartbeat(names=["a"])
    execution = world.execution("a")
    assert (execution.state, execution.started_at) == (ExecutionState.RUNNING, world.now)


def test_a_bare_heartbeat_writes_nothing() -> None:
    world = with_running()
    world.advance(SECOND)
    world.heartbeat(names=["a"])
    assert world.last.writes == []


def test_a_worker_that_goes_silent_loses_its_lease_and_the_job_runs_again() -> None:
    world = with_running()
    world.advance(TTL + GRACE - 1)
    assert world.state("a") is JobState.RUNNING
    world.advance(1)
    assert (world.state("a"), world.life("a").reason) == (JobState.QUEUED, "lost")
    lost = world.execution("a")
    assert (lost.state, lost.ended_at) == (ExecutionState.LOST, world.now)
    world.register("w2")
    run(world, "a", "w2")
    again = world.execution("a")
    assert again.fence == lost.fence + 1
    assert again.attempt == lost.attempt == 1, "a lost worker's try does not count"


@pytest.mark.parametrize("names", [["a"], None])
def test_a_heartbeat_renews_the_lease(names: list[str] | None) -> None:
    world = with_running()
    for _ in range(10):
        world.advance(10 * SECOND)
        world.heartbeat(names=names)
    assert world.state("a") is JobState.RUNNING


def test_a_poll_renews_the_lease() -> None:
    world = with_running()
    for _ in range(10):
        world.advance(10 * SECOND)
        world.poll(names=["a"])
    assert world.state("a") is JobState.RUNNING


def test_saying_that_nothing_runs_renews_nothing() -> None:
    world = with_running()
    for _ in range(3):
        world.advance(8 * SECOND)
        world.heartbeat(names=[])
    assert world.state("a") is JobState.QUEUED
    assert world.ledger.workers["w1"].state is WorkerState.ONLINE


def test_saying_nothing_of_what_runs_renews_only_what_was_named_before() -> None:
    world = World()
    world.register()
    world.submit("named")
    world.submit("never-named")
    world.take()
    world.heartbeat(names=["named"])
    for _ in range(4):
        world.advance(5 * SECOND)
        world.heartbeat(names=None)
    assert world.state("named") is JobState.RUNNING
    assert world.state("never-named") is JobState.QUEUED


def test_a_stale_completion_is_refused_and_the_newer_execution_is_untouched() -> None:
    world = with_running()
    stale = world.report("a")
    world.advance(TTL + GRACE)
    world.register("w2")
    run(world, "a", "w2")
    before = (world.life("a"), world.execution("a"))
    with pytest.raises(NotFound):
        world.step(Complete(completion=stale))
    assert world.last.writes == []
    poll = world.poll("w1", completed=[stale], names=[])
    assert world.answers[poll].lost == (stale.execution_id,)
    assert (world.life("a"), world.execution("a")) == before


def test_a_completion_with_another_fence_is_refused() -> None:
    world = with_running()
    with pytest.raises(StaleFence):
        world.complete("a", fence=world.execution("a").fence + 1)
    assert world.state("a") is JobState.RUNNING


def test_the_same_completion_again_is_answered_again_and_changes_nothing() -> None:
    world = with_running()
    report = world.report("a", result=b'{"x":1}')
    world.step(Complete(completion=report))
    world.advance(5 * SECOND)
    world.step(Complete(completion=report))
    assert world.last.writes == []
    with pytest.raises(StaleFence, match="already ended: succeeded"):
        world.step(Complete(completion=msgspec.structs.replace(report, state="failed")))


def test_what_a_worker_names_but_does_not_hold_is_lost_to_it() -> None:
    world = with_running()
    world.register("w2")
    execution = world.execution("a")
    assert world.heartbeat("w2", names=["a"]).lost == (execution.id,)
    assert world.heartbeat("w1", names=["a"]).lost == ()
    poll = world.poll("w2", names=["a"])
    assert world.answers[poll].lost == (execution.id,), "and is told so at once"


def test_an_at_most_once_job_fails_when_its_worker_is_lost() -> None:
    world = with_running(semantics=AT_MOST_ONCE)
    world.advance(TTL + GRACE)
    life = world.life("a")
    assert (life.state, life.reason, life.fence) == (JobState.FAILED, "lost", 1)
    assert b"at most once" in (life.error or b"")


def test_a_job_that_loses_every_worker_becomes_a_dead_letter() -> None:
    world = World()
    world.submit("a")
    for number in range(1, LOSSES_MAX + 1):
        assert world.state("a") is JobState.QUEUED
        world.register(f"w{number}")
        run(world, "a", f"w{number}")
        assert world.life("a").attempt == 1
        world.advance(TTL + GRACE)
        assert world.life("a").losses == number
    life = world.life("a")
    assert (life.state, life.reason, life.fence) == (JobState.FAILED, "lost", LOSSES_MAX)
    assert msgspec.json.decode(life.error or b"")["message"] == (
        "its worker was lost 5 times: it may be what kills them"
    )


def test_an_order_whose_answer_was_lost_is_given_again() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    first = world.execution("a")
    world.advance(SECOND)
    assert world.take(names=[]) == ["a"]
    assert world.execution("a") == first, "the same execution, not another"
    world.heartbeat(names=["a"])
    assert world.take(names=["a"]) == []


def test_naming_what_is_over_does_not_hide_an_order_that_was_lost() -> None:
    world = World()
    world.register()
    world.submit("over")
    run(world, "over")
    over = world.execution("over").id
    world.complete("over")
    world.submit("a")
    run(world, "a")
    assert world.take(names=[over]) == ["a"]


def test_an_order_is_not_given_again_to_a_worker_that_does_not_say_what_it_runs() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    assert world.take() == []


def test_an_order_that_is_never_named_is_taken_back_after_a_while() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    for _ in range(20):
        world.advance(5 * SECOND)
        world.take(names=[])
        if world.execution("a").fence > 1:
            break
    assert world.life("a").losses == 1
    assert world.ledger.executions[world.scheduler.workers(world.now)[0].executions[0]].fence == 2


def test_a_silent_worker_is_offline_then_forgotten_and_can_come_back_before() -> None:
    world = World()
    world.register()
    world.advance(TTL + GRACE)
    gone = world.ledger.workers["w1"]
    assert (gone.state, gone.gone_at) == (WorkerState.OFFLINE, world.now)
    world.advance(HOUR)
    world.submit("a")
    assert world.take() == ["a"]
    assert world.ledger.workers["w1"].state is WorkerState.ONLINE
    world.complete("a")
    world.advance(TTL + GRACE + OFFLINE_KEPT_MS)
    assert "w1" not in world.ledger.workers
    with pytest.raises(NotFound, match="there is no worker w1"):
        world.poll()


def test_a_poll_that_waits_does_not_keep_a_dead_worker_alive() -> None:
    world = World()
    world.register()
    poll = world.poll(wait_ms=HOUR)
    world.advance(TTL + GRACE)
    assert world.answers[poll].orders == ()
    assert world.ledger.workers["w1"].state is WorkerState.OFFLINE


def test_a_lease_counts_from_the_answer_not_from_the_poll() -> None:
    world = World()
    world.register()
    poll = world.poll(wait_ms=5 * SECOND)
    world.advance(4 * SECOND)
    world.submit("a")
    assert world.orders(poll) == ["a"]
    claimed = world.now
    world.advance(TTL + GRACE - 1)
    assert world.state("a") is JobState.RUNNING
    world.advance(1)
    assert world.state("a") is JobState.QUEUED
    assert world.now == claimed + TTL + GRACE


def test_waiting_for_a_late_lease_to_end_does_not_wake_the_scheduler_over_and_over() -> None:
    world = World()
    world.register()
    world.poll(wait_ms=5 * SECOND)
    world.advance(4 * SECOND)
    world.submit("a")
    world.advance(TTL + GRACE)
    assert world.state("a") is JobState.QUEUED
    assert world.ticks < 10


def test_what_a_lost_worker_held_comes_back_exactly_once() -> None:
    world = World()
    world.register(cpu=2)
    world.submit_all([job("a"), job("b"), job("c")])
    world.take()
    report = world.report("a")
    world.advance(TTL + GRACE)
    with pytest.raises(NotFound):
        world.step(Complete(completion=report))
    assert world.take() == ["a", "b"]
    glance = world.scheduler.worker(world.ledger.workers["w1"].id, world.now)
    assert glance is not None
    assert glance.used.cpu_milli == 2_000


def test_a_worker_that_misses_beats_is_unhealthy_before_it_is_lost() -> None:
    world = World()
    world.register()
    world.advance(10 * SECOND)
    assert [glance.healthy for glance in world.scheduler.workers(world.now)] == [True]
    world.advance(1)
    assert [glance.healthy for glance in world.scheduler.workers(world.now)] == [False]


def test_a_restart_gives_every_lease_its_whole_length_again() -> None:
    world = with_running()
    world.advance(TTL)
    world.restart()
    world.advance(TTL + GRACE - 1)
    assert world.state("a") is JobState.RUNNING
    world.heartbeat(names=["a"])
    world.complete("a")
    assert world.state("a") is JobState.SUCCEEDED
    assert world.scheduler.why(JobId("a"), world.now) is None
