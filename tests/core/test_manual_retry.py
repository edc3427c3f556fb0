from __future__ import annotations

import pytest

from rota.core.commands import Delete, Preloaded, Retry
from rota.core.errors import IllegalTransition, NotFound, StalePreload
from rota.core.model import JobId, JobState
from tests.core.asking import HOUR, SECOND, job, retries
from tests.core.world import World, run


def failed(world: World, job_id: str = "a") -> None:
    """A job that has run and failed; needs worker w1."""
    run(world, job_id)
    world.complete(job_id, "failed")
    assert world.state(job_id) is JobState.FAILED


def test_a_retried_job_starts_a_new_life_and_its_fence_continues() -> None:
    world = World()
    world.register()
    world.submit("a", retry=retries(2))
    for _ in range(2):
        run(world, "a")
        world.complete("a", "failed")
        world.advance(SECOND)
    world.retry("a")
    life = world.life("a")
    assert (life.state, life.attempt, life.fence, life.lives) == (JobState.QUEUED, 0, 2, 2)
    assert (life.error, life.finished_at, life.losses) == (None, None, 0)
    run(world, "a")
    assert (world.execution("a").attempt, world.execution("a").fence) == (1, 3)
    world.complete("a", "failed")
    assert world.state("a") is JobState.PENDING, "it has all its tries again"


@pytest.mark.parametrize("how", ["cancelled", "expired", "skipped"])
def test_any_job_that_did_not_succeed_can_be_retried(how: str) -> None:
    world = World()
    if how == "skipped":
        world.submit("up")
        world.submit("a", after=["up"])
        world.cancel("up")
    else:
        world.submit("a", expires_at=world.now if how == "expired" else None)
        if how == "cancelled":
            world.cancel("a")
    assert world.state("a") == how
    world.retry("a")
    assert world.state("a") is JobState.QUEUED


def test_a_succeeded_or_live_job_cannot_be_retried() -> None:
    world = World()
    world.register()
    world.submit("a")
    with pytest.raises(IllegalTransition, match="is queued: cannot retry it"):
        world.retry("a")
    run(world, "a")
    world.complete("a")
    with pytest.raises(IllegalTransition, match="is succeeded: cannot retry it"):
        world.retry("a")
    with pytest.raises(NotFound):
        world.retry("ghost")


def test_a_retried_job_that_had_expired_has_no_expiry() -> None:
    world = World()
    world.submit("a", expires_at=world.now + SECOND)
    world.submit("b", expires_at=world.now + HOUR)
    world.cancel("b")
    world.advance(SECOND)
    world.retry("a")
    world.retry("b")
    world.advance(2 * HOUR)
    assert world.state("a") is JobState.QUEUED
    assert world.state("b") is JobState.EXPIRED, "one that is not over holds"


def test_jobs_skipped_because_of_it_wait_again_however_far_downstream() -> None:
    world = World()
    world.register()
    world.submit_all(
        [
            job("top"),
            job("left", after=["top"]),
            job("right", after=["top"]),
            job("bottom", after=["left", "right"]),
        ]
    )
    failed(world, "top")
    world.retry("top")
    assert [world.state(one) for one in ("left", "right", "bottom")] == [JobState.PENDING] * 3
    assert world.life("bottom").lives == 2
    run(world, "top")
    world.complete("top")
    assert world.take() == ["left", "right"]
    world.complete("left")
    world.complete("right")
    assert world.take() == ["bottom"]


def test_skipped_jobs_wait_again_in_whatever_order_they_are_preloaded() -> None:
    world = World()
    world.register()
    world.submit_all(
        [
            job("top"),
            job("bottom", after=["top", "middle-2"]),
            job("middle-2", after=["middle-1"]),
            job("middle-1", after=["top"]),
        ]
    )
    failed(world, "top")
    world.retry("top")
    below = ("middle-1", "middle-2", "bottom")
    assert [world.state(one) for one in below] == [JobState.PENDING] * 3
    for name in ("top", *below):
        assert world.take() == [name]
        world.complete(name)


def test_a_job_that_another_upstream_rules_out_stays_skipped() -> None:
    world = World()
    world.register()
    world.submit_all(
        [
            job("a"),
            job("b"),
            job("both", after=["a", "b"]),
            job("below", after=["both"]),
            job("only-a", after=["a"]),
        ]
    )
    assert world.take() == ["a", "b"]
    world.complete("a", "failed")
    world.complete("b", "failed")
    world.retry("a")
    assert world.state("both") is JobState.SKIPPED
    assert world.state("below") is JobState.SKIPPED
    assert world.state("only-a") is JobState.PENDING
    world.retry("b")
    assert world.state("both") is JobState.PENDING
    assert world.state("below") is JobState.PENDING


def test_a_downstream_job_that_required_the_failure_is_not_changed() -> None:
    world = World()
    world.register()
    world.submit("a")
    world.submit("alarm", after=[("a", "failed")])
    failed(world)
    world.retry("a")
    assert world.state("alarm") is JobState.QUEUED
    assert world.take() == ["a", "alarm"]
    world.complete("a")
    assert world.state("alarm") is JobState.RUNNING


def test_a_released_downstream_job_stays_released_after_a_restart() -> None:
    world = World()
    world.register()
    world.submit("a")
    world.submit("alarm", after=[("a", "failed")])
    failed(world)
    world.retry("a")
    world.restart()
    assert world.take() == ["a", "alarm"]
    world.restart()
    world.complete("a")
    assert world.state("alarm") is JobState.RUNNING
    world.complete("alarm")
    assert world.state("alarm") is JobState.SUCCEEDED


def test_a_released_downstream_job_that_waits_for_its_time_is_not_delayed_by_a_restart() -> None:
    world = World()
    world.register()
    world.submit("a")
    world.submit("later", after=[("a", "finished")], run_at=world.now + HOUR)
    failed(world)
    assert world.life("later").reason == "run_at"
    world.retry("a")
    world.restart()
    world.advance(HOUR)
    assert world.state("later") is JobState.QUEUED


def test_a_retried_job_waits_for_live_upstream_jobs_only() -> None:
    world = World()
    world.register()
    world.submit_all([job("bad"), job("slow"), job("a", after=["bad", "slow"])])
    assert world.take() == ["bad", "slow"]
    world.complete("bad", "failed")
    assert world.state("a") is JobState.SKIPPED
    world.retry("a")
    assert (world.state("a"), world.life("a").reason) == (JobState.PENDING, "dependencies")
    world.complete("slow")
    assert world.state("a") is JobState.QUEUED


def test_a_deleted_upstream_rules_nothing_out() -> None:
    world = World()
    world.register()
    world.submit_all([job("gone"), job("a"), job("b", after=["a", "gone"])])
    assert world.take() == ["gone", "a"]
    world.complete("gone")
    world.complete("a", "failed")
    assert world.state("b") is JobState.SKIPPED
    world.step(Delete(job_id=JobId("gone"), preloaded=world.recall()))
    world.retry("a")
    assert world.state("b") is JobState.PENDING


def test_a_record_read_before_the_job_ended_is_read_again() -> None:
    world = World()
    world.submit("a")
    early = Preloaded(at=world.now, jobs=(world.record("a"),))
    world.advance(SECOND)
    world.cancel("a")
    with pytest.raises(StalePreload):
        world.step(Retry(job_id=JobId("a"), preloaded=early))
    too_old = world.recall()
    world.advance(11 * SECOND)
    with pytest.raises(StalePreload):
        world.step(Retry(job_id=JobId("a"), preloaded=too_old))
    world.retry("a")
    assert world.state("a") is JobState.QUEUED


def test_a_dependency_of_an_earlier_life_does_not_affect_a_later_one() -> None:
    world = World()
    world.register()
    world.submit_all([job("slow"), job("a", after=["slow"])])
    run(world, "slow")
    world.cancel("a")
    world.retry("a")
    world.cancel("a")
    world.retry("a")
    assert world.state("a") is JobState.PENDING
    world.complete("slow")
    assert world.state("a") is JobState.QUEUED


def test_a_skipped_job_that_was_deleted_in_the_same_turn_is_not_started_over() -> None:
    world = World()
    world.submit("a")
    world.submit("b", after=["a"])
    world.cancel("a")
    assert world.state("b") is JobState.SKIPPED
    recall = world.recall()
    outcome = world.turn(
        [
            Delete(job_id=JobId("b"), preloaded=recall),
            Retry(job_id=JobId("a"), preloaded=recall),
        ]
    )
    assert isinstance(outcome.replies[1], StalePreload)
    assert (world.state("a"), world.state("b")) == (JobState.CANCELLED, None)
    world.retry("a")
    assert (world.state("a"), world.state("b")) == (JobState.QUEUED, None)
