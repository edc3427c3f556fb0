from __future__ import annotations

from typing import Any

import pytest

from rota.core.commands import Heartbeat, Progress
from rota.core.errors import NotFound, StaleFence
from rota.core.model import ExecutionState, JobId, JobState, WorkerId
from rota.core.outcome import MoveJob
from tests.core.asking import SECOND
from tests.core.world import World, run

A = JobId("a")


def running() -> World:
    """Job `a` runs on worker w1."""
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    world.heartbeat(names=["a"])
    return world


def say(world: World, progress: float | None = None, **said: Any) -> None:
    """The execution says how far it is."""
    world.step(Progress(running=world.running("a", progress=progress, **said)))


def test_the_first_progress_is_written_at_once_then_at_most_once_a_second() -> None:
    world = running()
    written = 0
    for n in range(1, 31):
        world.advance(100)
        say(world, n / 100)
        written += sum(isinstance(write, MoveJob) for write in world.last.writes)
        assert world.scheduler.progress_of(A) == (n / 100, ""), "the newest can be read at once"
    assert written == 1, "those in between are left to the timer"
    assert world.life("a").progress == 0.2
    world.advance(SECOND)
    assert world.life("a").progress == 0.3, "and the last one is never forgotten"


def test_the_same_progress_again_writes_nothing() -> None:
    world = running()
    say(world, 0.5, message="half")
    world.advance(5 * SECOND)
    say(world, 0.5, message="half")
    assert world.last.writes == []
    say(world, None, message="still half")
    assert (world.life("a").progress, world.life("a").message) == (0.5, "still half")


def test_progress_comes_with_heartbeats_too() -> None:
    world = running()
    report = world.running("a", progress=0.25, message="on its way")
    world.step(Heartbeat(worker_id=WorkerId("w1"), executions=(report,)))
    assert (world.life("a").progress, world.life("a").message) == (0.25, "on its way")


def test_progress_names_the_execution_but_renews_no_lease() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    say(world, 0.1)
    assert world.execution("a").state is ExecutionState.RUNNING
    for _ in range(17):
        world.advance(SECOND)
        if world.state("a") is JobState.RUNNING:
            say(world, 0.2)
    assert world.state("a") is JobState.QUEUED


def test_progress_of_an_ended_or_another_execution_is_refused() -> None:
    world = running()
    stale = world.running("a")
    with pytest.raises(StaleFence):
        world.step(Progress(running=type(stale)(execution_id=stale.execution_id, fence=99)))
    world.complete("a")
    with pytest.raises(NotFound):
        world.step(Progress(running=stale))
    assert world.scheduler.progress_of(A) is None


def test_a_succeeded_job_that_spoke_of_progress_has_done_all_of_it() -> None:
    world = running()
    say(world, 0.9)
    world.complete("a")
    assert world.life("a").progress == 1.0


def test_the_next_try_starts_from_nothing() -> None:
    world = running()
    say(world, 0.9)
    world.advance(20 * SECOND)
    assert world.life("a").progress is None
    run(world, "a")
    assert world.scheduler.progress_of(A) == (None, "")
    say(world, 0.1)
    assert world.life("a").progress == 0.1


def test_progress_is_known_after_a_restart() -> None:
    world = running()
    say(world, 0.4, message="x")
    world.restart()
    assert world.scheduler.progress_of(A) == (0.4, "x")
