from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.core.commands import Execute
from rota.core.errors import IllegalTransition, NotFound
from rota.core.limits import STOP_WINDOW_MS, TIMEOUT_MARGIN_MS
from rota.core.model import ExecutionState, JobId, JobState, Stop, WorkerId
from rota.core.outcome import JobAnswer
from tests.core.asking import HOUR, SECOND, retries
from tests.core.world import World, run


def with_running(**asked: object) -> World:
    """Job `a` runs on worker w1, which has named it."""
    world = World()
    world.register()
    world.submit("a", **asked)
    run(world, "a")
    world.heartbeat(names=["a"])
    return world


def test_a_waiting_job_is_cancelled_at_once() -> None:
    world = World()
    world.submit("ready")
    world.submit("later", run_at=world.now + HOUR)
    for name in ("ready", "later"):
        answer = world.cancel(name)
        assert isinstance(answer, JobAnswer)
        assert answer.job == world.record(name)
        life = world.life(name)
        assert (life.state, life.reason) == (JobState.CANCELLED, "cancelled")
    world.register()
    world.advance(HOUR)
    world.heartbeat()
    assert world.take() == []


def test_a_running_job_is_cancelled_when_its_worker_has_stopped_it() -> None:
    world = with_running()
    poll = world.poll(names=["a"])
    world.cancel("a")
    execution = world.execution("a")
    assert world.state("a") is JobState.CANCELLING
    assert (execution.stop, execution.stop_at) == (Stop.CANCEL, world.now)
    assert world.answers[poll].cancel == (execution.id,), "an open poll hears of it at once"
    world.complete("a", "cancelled")
    assert world.state("a") is JobState.CANCELLED
    assert world.execution("a").state is ExecutionState.CANCELLED


def test_a_stop_is_repeated_with_every_answer_but_wakes_only_the_first_poll() -> None:
    world = with_running()
    world.cancel("a")
    stop = (world.execution("a").id,)
    first = world.poll(names=["a"])
    assert world.answers[first].cancel == stop
    second = world.poll(names=["a"])
    assert second not in world.answers
    world.advance(5 * SECOND)
    assert world.answers[second].cancel == stop
    assert world.heartbeat(names=["a"]).cancel == stop


def test_cancelling_twice_changes_nothing() -> None:
    world = with_running()
    world.cancel("a")
    world.cancel("a")
    assert world.last.writes == []


def test_a_worker_that_ignores_the_stop_loses_its_lease_and_the_job_is_cancelled() -> None:
    world = with_running()
    world.cancel("a")
    asked_at = world.now
    while world.state("a") is JobState.CANCELLING:
        world.advance(SECOND)
        world.heartbeat(names=["a"])
    waited = world.now - asked_at
    assert STOP_WINDOW_MS < waited <= STOP_WINDOW_MS + 18 * SECOND
    assert world.state("a") is JobState.CANCELLED
    execution = world.execution("a")
    assert execution.state is ExecutionState.CANCELLED
    assert execution.reason == "its worker did not confirm that it stopped"
    with pytest.raises(NotFound):
        world.complete("a")


def test_a_silent_worker_of_a_cancelled_job_does_not_make_it_run_again() -> None:
    world = with_running()
    world.cancel("a")
    world.advance(HOUR)
    assert world.state("a") is JobState.CANCELLED


def test_a_job_that_was_done_before_the_cancel_reached_it_has_succeeded() -> None:
    world = with_running()
    world.cancel("a")
    world.complete("a", "succeeded", result=b"1")
    assert (world.state("a"), world.life("a").result) == (JobState.SUCCEEDED, b"1")


def test_a_job_that_fails_while_it_is_stopped_is_cancelled_and_not_tried_again() -> None:
    world = with_running(retry=retries(5))
    world.cancel("a")
    world.complete("a", "failed", exit_code=143)
    assert world.state("a") is JobState.CANCELLED


def test_a_job_in_line_with_a_worker_that_has_not_collected_it_is_cancelled_at_once() -> None:
    world = World()
    world.register()
    world.submit("a")
    world.step(Execute(job_id=JobId("a"), worker_id=WorkerId("w1")))
    world.cancel("a")
    assert world.state("a") is JobState.CANCELLED
    assert world.take() == []


def test_an_ended_job_cannot_be_cancelled() -> None:
    world = with_running()
    world.complete("a")
    with pytest.raises(IllegalTransition, match="is succeeded: cannot cancel it"):
        world.cancel("a")
    with pytest.raises(NotFound):
        world.cancel("ghost")


def test_a_cancel_outlives_a_restart() -> None:
    world = with_running()
    world.cancel("a")
    world.restart()
    poll = world.poll(names=["a"])
    assert world.answers[poll].cancel == (world.execution("a").id,)
    world.complete("a", "cancelled")
    assert world.state("a") is JobState.CANCELLED


def keep_beating(world: World, ms: int) -> None:
    """The worker stays, and says that it runs `a`."""
    for _ in range(ms // SECOND):
        world.advance(SECOND)
        if world.state("a") is not JobState.RUNNING:
            return
        world.heartbeat(names=["a"])


def test_a_worker_that_lets_a_job_run_past_its_timeout_is_told_to_stop_it() -> None:
    world = with_running(timeout_ms=60 * SECOND)
    keep_beating(world, 60 * SECOND + TIMEOUT_MARGIN_MS - SECOND)
    assert world.execution("a").stop is None, "the worker's own timer comes first"
    keep_beating(world, 20 * SECOND)
    assert world.execution("a").stop is Stop.TIMEOUT
    assert world.heartbeat(names=["a"]).cancel == (world.execution("a").id,)
    assert world.state("a") is JobState.RUNNING


@pytest.mark.parametrize("reported", ["timed_out", "cancelled"])
def test_a_job_stopped_for_its_timeout_has_timed_out_whatever_its_worker_calls_it(
    reported: str,
) -> None:
    world = with_running(timeout_ms=SECOND)
    keep_beating(world, 40 * SECOND)
    assert world.execution("a").stop is Stop.TIMEOUT
    report = world.report("a", reported)
    poll = world.poll(completed=[report])
    assert world.answers[poll].lost == ()
    assert world.execution("a").state is ExecutionState.TIMED_OUT
    assert (world.state("a"), world.life("a").reason) == (JobState.FAILED, "timeout")
    again = world.poll(completed=[report])
    assert world.answers[again].lost == (), "a repeat of it is no news"
    other = world.poll(completed=[replace(report, state=ExecutionState.FAILED)])
    assert world.answers[other].lost == (report.execution_id,), "but it has said something else"


def test_a_worker_that_never_stops_a_job_past_its_timeout_loses_it() -> None:
    world = with_running(timeout_ms=SECOND, retry=retries(2))
    keep_beating(world, 120 * SECOND)
    assert world.execution("a").state is ExecutionState.TIMED_OUT
    life = world.life("a")
    assert (life.state, life.reason, life.attempt) == (JobState.PENDING, "retry", 1)


def test_a_timeout_is_one_failed_try() -> None:
    world = with_running(timeout_ms=SECOND, retry=retries(2))
    world.complete("a", "timed_out")
    assert world.state("a") is JobState.PENDING
    world.advance(SECOND)
    run(world, "a")
    world.complete("a", "timed_out")
    assert (world.state("a"), world.life("a").reason) == (JobState.FAILED, "timeout")
