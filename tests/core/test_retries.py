from __future__ import annotations

import pytest

from rota.core.jobs.retry_policy import EXIT_RETRY_NOW, retry_delay_ms
from rota.core.model import Backoff, JobId, JobState, RetryPolicy, Semantics
from tests.core.asking import SECOND, retries
from tests.core.world import World, run

JOB = JobId("a")


def delays(policy: RetryPolicy, count: int = 6) -> list[int]:
    """The waits after the first tries."""
    return [retry_delay_ms(policy, JOB, attempt) for attempt in range(1, count + 1)]


def test_exponential_backoff_multiplies_up_to_its_cap() -> None:
    policy = RetryPolicy(9, Backoff.EXPONENTIAL, 1_000, 3.0, 60_000, jitter=0)
    assert delays(policy) == [1_000, 3_000, 9_000, 27_000, 60_000, 60_000]


def test_linear_backoff_adds_up_to_its_cap() -> None:
    policy = RetryPolicy(9, Backoff.LINEAR, 2_000, 2.0, 7_000, jitter=0)
    assert delays(policy) == [2_000, 4_000, 6_000, 7_000, 7_000, 7_000]


def test_fixed_backoff_stays() -> None:
    policy = RetryPolicy(9, Backoff.FIXED, 2_500, 2.0, 7_000, jitter=0)
    assert delays(policy) == [2_500] * 6


def test_the_ten_thousandth_try_waits_no_longer_than_the_cap() -> None:
    policy = RetryPolicy(99_999, Backoff.EXPONENTIAL, 86_400_000, 1_000.0, 300_000, jitter=0)
    assert retry_delay_ms(policy, JOB, 10_000) == 300_000


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_jitter_spreads_within_its_bounds_and_is_the_same_each_time(jitter: float) -> None:
    policy = RetryPolicy(2, Backoff.FIXED, 10_000, 1.0, 10_000, jitter=jitter)
    many = [retry_delay_ms(policy, JobId(f"job-{n}"), 1) for n in range(500)]
    assert many == [retry_delay_ms(policy, JobId(f"job-{n}"), 1) for n in range(500)]
    low, high = 10_000 * (1 - jitter), 10_000 * (1 + jitter)
    assert all(low <= delay <= high for delay in many)
    assert min(many) < low + (high - low) * 0.05
    assert max(many) > high - (high - low) * 0.05


def test_a_job_has_other_jitter_at_each_try() -> None:
    policy = RetryPolicy(9, Backoff.FIXED, 10_000, 1.0, 10_000, jitter=0.5)
    assert len(set(delays(policy))) == 6


def tried_once(**asked: object) -> World:
    """Job `a` runs for the first time."""
    world = World()
    world.register()
    world.submit("a", **asked)
    run(world, "a")
    return world


def test_a_failed_job_waits_its_delay_and_runs_again() -> None:
    world = tried_once(retry=retries(2, delay_ms=7 * SECOND))
    world.complete("a", "failed", error=b'{"message":"boom"}')
    life = world.life("a")
    assert (life.state, life.reason, life.due_at) == (
        JobState.PENDING,
        "retry",
        world.now + 7 * SECOND,
    )
    assert life.error == b'{"message":"boom"}'
    world.advance(7 * SECOND - 1)
    assert world.take() == []
    world.advance(1)
    assert world.take() == ["a"]
    assert (world.execution("a").attempt, world.execution("a").fence) == (2, 2)


def test_the_last_try_that_fails_makes_a_dead_letter() -> None:
    world = tried_once(retry=retries(3))
    for _ in range(2):
        world.complete("a", "failed")
        world.advance(SECOND)
        run(world, "a")
    world.complete("a", "failed", exit_code=3)
    life = world.life("a")
    assert (life.state, life.reason, life.attempt) == (JobState.FAILED, "exit_code", 3)


def test_a_job_that_says_it_cannot_be_retried_is_not() -> None:
    world = tried_once(retry=retries(9))
    world.complete("a", "failed", retryable=False)
    assert (world.state("a"), world.life("a").reason) == (JobState.FAILED, "not_retryable")


def test_exit_code_75_is_tried_again_at_once() -> None:
    world = tried_once(retry=retries(2, delay_ms=3_600 * SECOND))
    world.complete("a", "failed", exit_code=75)
    assert world.state("a") is JobState.QUEUED
    assert world.take() == ["a"]
    world.complete("a", "failed", exit_code=75)
    assert world.state("a") is JobState.FAILED, "it counts as a try all the same"


def test_exit_code_78_is_never_tried_again() -> None:
    world = tried_once(retry=retries(9))
    world.complete("a", "failed", exit_code=78)
    assert world.state("a") is JobState.FAILED


def test_losses_and_failures_are_counted_apart() -> None:
    world = tried_once(retry=retries(2))
    world.advance(20 * SECOND)
    run(world, "a")
    world.complete("a", "failed")
    life = world.life("a")
    assert (life.attempt, life.losses, life.fence) == (1, 1, 2)
    world.advance(SECOND)
    run(world, "a")
    assert (world.execution("a").attempt, world.execution("a").fence) == (2, 3)


def test_a_delay_goes_on_through_a_restart() -> None:
    world = tried_once(retry=retries(2, delay_ms=10 * SECOND))
    world.complete("a", "failed")
    world.advance(4 * SECOND)
    world.restart()
    world.advance(6 * SECOND - 1)
    assert world.state("a") is JobState.PENDING
    world.advance(1)
    assert world.state("a") is JobState.QUEUED


def test_a_success_has_no_reason_and_its_progress_is_whole() -> None:
    world = tried_once()
    world.heartbeat(names=["a"])
    world.complete("a", result=b'"done"')
    life = world.life("a")
    assert (life.state, life.reason, life.result) == (JobState.SUCCEEDED, "", b'"done"')
    assert life.progress is None, "it never spoke of progress"


def test_an_at_most_once_job_has_no_second_try_whatever_its_policy_says() -> None:
    world = tried_once(retry=retries(5), semantics=Semantics.AT_MOST_ONCE)
    world.complete("a", "failed", exit_code=EXIT_RETRY_NOW)
    world.advance(20 * SECOND)
    life = world.life("a")
    assert (life.state, life.reason, life.fence) == (JobState.FAILED, "exit_code", 1)
