from __future__ import annotations

from rota.core.commands import ClockJump, Tick
from rota.core.limits import CoreLimits
from rota.core.model import JobState, RateLimit, Stop
from tests.core.asking import HOUR, SECOND, job, retries
from tests.core.world import World, run


def test_a_job_waits_for_its_time() -> None:
    world = World()
    noon = world.now
    world.submit("a", run_at=noon + HOUR)
    assert (world.state("a"), world.life("a").reason) == (JobState.PENDING, "run_at")
    world.advance(noon + HOUR - 1 - world.now)
    assert world.state("a") is JobState.PENDING
    world.advance(1)
    assert (world.state("a"), world.life("a").ready_at) == (JobState.QUEUED, noon + HOUR)


def test_a_time_in_the_past_is_now() -> None:
    world = World()
    world.submit("a", run_at=world.now - HOUR)
    assert world.state("a") is JobState.QUEUED


def test_many_jobs_of_one_moment_are_let_go_over_several_turns() -> None:
    world = World(limits=CoreLimits(timers_per_turn=3))
    midnight = world.now + HOUR
    world.submit_all([job(f"j{number}", run_at=midnight) for number in range(8)])
    world.now = midnight
    for queued in (3, 6, 8):
        world.step(Tick())
        states = [world.state(f"j{number}") for number in range(8)]
        assert states == [JobState.QUEUED] * queued + [JobState.PENDING] * (8 - queued)
        due = world.scheduler.next_due()
        assert (due is not None and due <= world.now) is (queued < 8)


def test_a_time_that_came_while_the_scheduler_was_down_is_caught_up() -> None:
    world = World()
    world.submit("a", run_at=world.now + HOUR)
    world.submit("b", expires_at=world.now + HOUR)
    world.now += 2 * HOUR
    world.restart()
    world.advance(0)
    assert world.state("a") is JobState.QUEUED
    assert world.state("b") is JobState.EXPIRED


def test_a_job_that_has_not_started_in_time_expires() -> None:
    world = World()
    soon = world.now + 10 * SECOND
    world.submit_all(
        [
            job("queued", expires_at=soon),
            job("pending", run_at=world.now + HOUR, expires_at=soon),
            job("dependent", after=["queued"], expires_at=soon + HOUR),
        ]
    )
    world.advance(10 * SECOND - 2)
    assert world.state("queued") is JobState.QUEUED
    world.advance(2)
    assert (world.state("queued"), world.life("queued").reason) == (
        JobState.EXPIRED,
        "expires_at",
    )
    assert world.state("pending") is JobState.EXPIRED
    assert world.state("dependent") is JobState.SKIPPED


def test_a_job_that_started_in_time_does_not_expire() -> None:
    world = World()
    world.register()
    world.submit("a", expires_at=world.now + 10 * SECOND)
    run(world, "a")
    world.advance(10 * SECOND)
    assert world.state("a") is JobState.RUNNING


def test_a_job_expires_while_it_waits_for_its_next_try() -> None:
    world = World()
    world.register()
    world.submit("a", expires_at=world.now + 10 * SECOND, retry=retries(2, delay_ms=HOUR))
    run(world, "a")
    world.complete("a", "failed")
    world.advance(10 * SECOND)
    assert world.state("a") is JobState.EXPIRED


def test_a_job_that_would_have_to_start_again_after_its_time_expires() -> None:
    world = World()
    world.register()
    soon = world.now + 10 * SECOND
    world.submit_all(
        [
            job("lost", expires_at=soon, key="k"),
            job("failed", expires_at=soon, retry=retries(2)),
            job("at-once", expires_at=soon, retry=retries(2)),
            job("next", key="k"),
        ]
    )
    assert world.take() == ["lost", "failed", "at-once"]
    world.advance(11 * SECOND)
    world.complete("failed", "failed")
    world.complete("at-once", "failed", exit_code=75)
    assert world.state("lost") is JobState.RUNNING
    world.advance(10 * SECOND)
    for name in ("lost", "failed", "at-once"):
        assert world.state(name) is JobState.EXPIRED
    assert world.take() == ["next"]


def test_a_job_whose_time_was_over_when_it_came_expires_at_once() -> None:
    world = World()
    world.submit_all([job("a", expires_at=world.now), job("b", after=["a"])])
    assert world.state("a") is JobState.EXPIRED
    assert world.state("b") is JobState.SKIPPED


# The clock is set


def set_clock(world: World, by: int) -> None:
    """Somebody sets the clock; the engine notices at its next turn."""
    world.now += by
    world.step(ClockJump(by=by))


def with_running(**asked: object) -> World:
    """Job `a` runs on worker w1, which has named it."""
    world = World()
    world.register()
    world.submit("a", **asked)
    run(world, "a")
    world.heartbeat(names=["a"])
    return world


def test_a_clock_set_forward_costs_nobody_a_lease() -> None:
    world = with_running()
    world.advance(5 * SECOND)
    set_clock(world, HOUR)
    assert world.state("a") is JobState.RUNNING
    world.advance(12 * SECOND - 1)
    assert world.state("a") is JobState.RUNNING, "it has what was left of its lease"
    world.advance(1)
    assert world.state("a") is JobState.QUEUED


def test_a_clock_set_back_gives_nobody_a_longer_lease() -> None:
    world = with_running()
    world.advance(5 * SECOND)
    set_clock(world, -HOUR)
    world.advance(12 * SECOND)
    assert world.state("a") is JobState.QUEUED


def test_a_poll_waits_as_long_as_it_asked_whatever_the_clock_says() -> None:
    for by in (HOUR, -HOUR):
        world = World()
        world.register()
        poll = world.poll(wait_ms=5 * SECOND)
        set_clock(world, by)
        assert poll not in world.answers
        world.advance(5 * SECOND)
        assert poll in world.answers


def test_times_that_people_named_follow_the_clock() -> None:
    world = World()
    world.submit("at-two", run_at=world.now + 2 * HOUR)
    world.submit("by-three", expires_at=world.now + 3 * HOUR)
    set_clock(world, 2 * HOUR)
    assert world.state("at-two") is JobState.QUEUED
    set_clock(world, -HOUR)
    world.advance(2 * HOUR - 10)
    assert world.state("by-three") is JobState.QUEUED
    world.advance(10)
    assert world.state("by-three") is JobState.EXPIRED


def test_a_clock_set_forward_does_not_time_out_what_runs() -> None:
    world = with_running(timeout_ms=600 * SECOND)
    set_clock(world, HOUR)
    world.advance(5 * SECOND)
    world.heartbeat(names=["a"])
    world.advance(14 * SECOND)
    assert world.execution("a").stop is None
    for _ in range(70):
        world.heartbeat(names=["a"])
        world.advance(10 * SECOND)
    assert world.execution("a").stop is Stop.TIMEOUT, "the length it may run is what it was"


def test_a_clock_set_back_does_not_keep_the_delay_of_a_retry_waiting() -> None:
    for by in (HOUR, -HOUR):
        world = with_running(retry=retries(2, delay_ms=10 * SECOND))
        world.complete("a", "failed")
        set_clock(world, by)
        world.advance(10 * SECOND - 1)
        assert world.state("a") is JobState.PENDING
        world.advance(1)
        assert world.state("a") is JobState.QUEUED


def test_a_clock_set_back_does_not_close_a_rate_limit_for_that_long() -> None:
    for by in (HOUR, -HOUR):
        world = World()
        world.register(cpu=64)
        world.queue(rate_limit=RateLimit(1, 10 * SECOND))
        world.submit_all([job("a"), job("b")])
        run(world, "a")
        set_clock(world, by)
        assert world.take() == []
        world.advance(10 * SECOND)
        assert world.take() == ["b"]


def test_a_clock_set_forward_gives_a_worker_its_time_to_stop_a_job() -> None:
    world = with_running()
    world.cancel("a")
    set_clock(world, HOUR)
    for _ in range(3):
        world.advance(9 * SECOND)
        world.heartbeat(names=["a"])
    world.advance(9 * SECOND)
    assert world.state("a") is JobState.CANCELLING
    set_clock(world, -HOUR)
    for _ in range(8):
        world.advance(3 * SECOND)
        world.heartbeat(names=["a"])
    assert world.state("a") is JobState.CANCELLED


def test_an_answer_that_was_lost_is_given_again_after_the_clock_was_set() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    set_clock(world, HOUR)
    assert world.take(names=[]) == ["a"]


def test_what_was_read_before_the_clock_was_set_back_is_read_again() -> None:
    world = World()
    before = world.recall()
    set_clock(world, -HOUR)
    assert world.scheduler._t.recently_finished.is_stale(before.at, world.now)
