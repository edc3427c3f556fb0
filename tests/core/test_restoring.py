from __future__ import annotations

from rota.core.commands import Deregister, Timing
from rota.core.limits import OFFLINE_KEPT_MS
from rota.core.model import JobId, JobRecord, JobState, Life, Queue, WorkerId
from rota.core.restore import Stored
from rota.core.scheduler import Scheduler
from tests.core.asking import HOUR, NOON, SECOND, job, retries, spec
from tests.core.world import World, run


def busy() -> World:
    """A bit of everything."""
    world = World()
    world.register("w1", cpu=4)
    world.register("w2", cpu=8, gpu=1)
    world.queue("narrow", max_workers=1)
    world.queue("held", paused=True)
    world.submit_all(
        [
            job("running"),
            job("claimed", cpu=2),
            job("narrow-1", queue="narrow"),
            job("narrow-2", queue="narrow"),
            job("held", queue="held"),
            job("later", run_at=world.now + HOUR, expires_at=world.now + 2 * HOUR),
            job("below", after=["running", ("claimed", "finished")]),
            job("keyed-1", key="k", cpu=16),
            job("keyed-2", key="k"),
            job("big", cpu=7, priority=3),
        ]
    )
    world.take("w1", max_orders=4)
    world.heartbeat("w1", names=["running"])
    return world


def test_nothing_is_written_by_a_restart_and_memory_is_what_it_was() -> None:
    world = busy()
    before = {entry.id: entry.record() for entry in world.scheduler._t.jobs.values()}
    world.restart()
    assert {entry.id: entry.record() for entry in world.scheduler._t.jobs.values()} == before
    world.advance(0)
    assert world.last.writes == []


def test_the_decisions_after_a_restart_are_those_without_one() -> None:
    stories = []
    for restarts in (False, True):
        world = busy()
        if restarts:
            world.restart()
        story: list[object] = [world.take("w2", names=[]), world.take("w1", names=["running"])]
        world.complete("running")
        story.append(world.take("w1"))
        world.complete("claimed", "failed")
        story += [world.take("w2"), world.state("below")]
        world.queue("held", paused=False)
        story.append(world.take("w1"))
        world.advance(HOUR)
        story += [world.state("later"), sorted(record.id for record in world.ledger.live())]
        stories.append(story)
    assert stories[0] == stories[1]


def test_jobs_submitted_after_a_restart_come_after_old_ones() -> None:
    world = World()
    world.submit("z-old")
    world.restart()
    world.submit("a-new")
    world.register(cpu=1)
    assert world.take() == ["z-old"]


def test_an_offline_worker_is_forgotten_a_day_after_it_went() -> None:
    world = World()
    world.register()
    world.step(Deregister(worker_id=WorkerId("w1")))
    world.advance(OFFLINE_KEPT_MS - HOUR)
    world.restart()
    assert "w1" in world.ledger.workers
    world.advance(HOUR)
    assert "w1" not in world.ledger.workers


def test_a_worker_that_never_comes_back_after_a_restart_loses_what_it_had() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    world.restart()
    world.advance(17 * SECOND)
    assert (world.state("a"), world.life("a").losses) == (JobState.QUEUED, 1)


def test_a_job_that_ran_through_a_restart_and_was_lost_still_expires() -> None:
    world = World()
    world.register()
    world.submit("a", expires_at=world.now + 60 * SECOND)
    run(world, "a")
    world.restart()
    world.advance(30 * SECOND)
    assert world.state("a") is JobState.QUEUED
    world.advance(30 * SECOND)
    assert world.state("a") is JobState.EXPIRED


def test_a_retry_due_while_no_server_ran_is_released() -> None:
    world = World()
    world.register()
    world.submit("a", retry=retries(2))
    run(world, "a")
    world.complete("a", "failed")
    world.now += HOUR
    world.restart()
    assert world.state("a") is JobState.PENDING
    world.advance(0)
    assert world.state("a") is JobState.QUEUED


def test_a_pending_job_found_with_nothing_to_wait_for_is_released() -> None:
    scheduler = Scheduler(Timing(), NOON)
    record = JobRecord(JobId("a"), spec(), Life(JobState.PENDING))
    scheduler.restore(Stored(jobs=[record], queues=[Queue("default")]), NOON)
    outcome = scheduler.turn([], NOON)
    assert [write.life.state for write in outcome.writes] == [JobState.QUEUED]  # type: ignore[union-attr]
    scheduler.check()


def test_restarts_between_all_steps_of_a_job_change_nothing() -> None:
    world = World()
    world.register()
    world.restart()
    world.submit("a", retry=retries(2))
    world.restart()
    run(world, "a")
    world.restart()
    world.heartbeat(names=["a"])
    world.restart()
    world.complete("a", "failed")
    world.restart()
    world.advance(SECOND)
    world.restart()
    run(world, "a")
    world.restart()
    world.complete("a")
    world.restart()
    life = world.life("a")
    assert (life.state, life.attempt, life.fence) == (JobState.SUCCEEDED, 2, 2)
    assert world.scheduler.live_jobs() == 0
