from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.core.commands import Update
from rota.core.errors import (
    DependencyCycle,
    IllegalTransition,
    NotFound,
    StalePreload,
    UnknownDependency,
)
from rota.core.model import JobId, JobState
from tests.core.asking import HOUR, SECOND, job, retries, spec
from tests.core.world import World, run


def test_another_priority_moves_a_job_in_its_queue() -> None:
    world = World()
    world.register(cpu=1)
    world.submit_all([job("a"), job("b"), job("c")])
    world.update("c", priority=1)
    assert world.take() == ["c"]
    world.update("a", priority=-1)
    world.complete("c")
    assert world.take() == ["b"]


def test_a_job_updated_back_has_its_old_place() -> None:
    world = World()
    world.register(cpu=1)
    world.submit_all([job("a"), job("b")])
    world.update("a", priority=-1)
    world.update("a", priority=0)
    assert world.take() == ["a"]


def test_changed_needs_and_queue_apply() -> None:
    world = World()
    world.register(cpu=1, queues=["default"])
    world.submit("a", cpu=8)
    world.submit("b", queue="elsewhere")
    assert world.take() == []
    world.update("a", cpu=1)
    assert world.take() == ["a"]
    world.complete("a")
    world.update("b", queue="default")
    assert world.take() == ["b"]
    assert JobState.QUEUED not in world.scheduler.queues()[1].depth


def test_a_start_time_in_the_future_takes_a_ready_job_out_of_its_queue() -> None:
    world = World()
    world.register()
    world.submit("a")
    world.update("a", run_at=world.now + HOUR)
    assert (world.state("a"), world.life("a").reason) == (JobState.PENDING, "run_at")
    assert world.take() == []
    world.update("a")
    assert world.state("a") is JobState.QUEUED


def test_an_earlier_start_time_applies() -> None:
    world = World()
    world.submit("a", run_at=world.now + HOUR)
    world.update("a", run_at=world.now + SECOND)
    world.advance(SECOND)
    assert world.state("a") is JobState.QUEUED


def test_a_new_run_at_replaces_the_delay_of_a_retry_and_nothing_else_does() -> None:
    world = World()
    world.register()
    world.submit("a", retry=retries(2, delay_ms=HOUR))
    run(world, "a")
    world.complete("a", "failed")
    world.update("a", priority=3, retry=retries(2))
    assert (world.state("a"), world.life("a").reason) == (JobState.PENDING, "retry")
    world.update("a", retry=retries(2), run_at=world.now - 1)
    assert world.state("a") is JobState.QUEUED


def test_an_expiry_can_be_added_and_moved() -> None:
    world = World()
    world.submit("a")
    world.update("a", expires_at=world.now + 10 * SECOND)
    world.update("a", expires_at=world.now + 20 * SECOND)
    world.advance(15 * SECOND)
    assert world.state("a") is JobState.QUEUED
    world.advance(5 * SECOND)
    assert world.state("a") is JobState.EXPIRED
    world.submit("b")
    world.update("b", expires_at=world.now)
    assert world.state("b") is JobState.EXPIRED


def test_new_dependencies_hold_a_ready_job_and_removed_ones_release_it() -> None:
    world = World()
    world.register()
    world.submit_all([job("a"), job("b"), job("c", after=["a"])])
    world.update("c", after=["b"])
    run(world, "a")
    world.complete("a")
    assert world.state("c") is JobState.PENDING
    world.update("c")
    assert world.state("c") is JobState.QUEUED
    world.update("c", after=["b"])
    assert (world.state("c"), world.life("c").reason) == (JobState.PENDING, "dependencies")
    run(world, "b")
    world.complete("b")
    assert world.state("c") is JobState.QUEUED


def test_a_ready_job_updated_to_depend_on_a_failed_one_is_skipped() -> None:
    world = World()
    world.register()
    world.submit("a", key="k")
    world.submit("bad")
    world.cancel("bad")
    world.update("a", after=["bad"], key="k")
    assert (world.state("a"), world.life("a").reason) == (JobState.SKIPPED, "upstream")
    world.submit("next", key="k")
    assert world.take() == ["next"]


def test_a_cycle_made_by_an_update_is_refused_and_named() -> None:
    world = World()
    world.submit_all([job("a"), job("b", after=["a"]), job("c", after=["b"])])
    with pytest.raises(DependencyCycle) as refused:
        world.update("a", after=["c"])
    assert refused.value.path == ("a", "c", "b", "a")
    with pytest.raises(DependencyCycle):
        world.update("b", after=["b"])
    with pytest.raises(UnknownDependency):
        world.update("b", after=["ghost"])
    assert world.state("a") is JobState.QUEUED
    assert world.record("b").spec.dependencies[0].job_id == "a"


def test_two_updates_of_the_same_revision_cannot_both_win() -> None:
    world = World()
    world.submit("a")
    read = world.record("a").spec
    first = replace(spec(priority=1), revision=read.revision)
    second = replace(spec(priority=2), revision=read.revision)
    world.step(Update(job_id=JobId("a"), spec=first))
    with pytest.raises(StalePreload):
        world.step(Update(job_id=JobId("a"), spec=second))
    after = world.record("a").spec
    assert (after.terms.priority, after.revision) == (1, 1)
    assert (after.arrival_number, after.created_at) == (read.arrival_number, read.created_at)


def test_a_running_or_ended_job_cannot_be_updated() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    with pytest.raises(IllegalTransition, match="is running: cannot update it"):
        world.update("a", priority=1)
    world.complete("a")
    with pytest.raises(IllegalTransition, match="is succeeded: cannot update it"):
        world.update("a", priority=1)
    with pytest.raises(NotFound):
        world.step(Update(job_id=JobId("ghost"), spec=spec()))


def test_an_update_survives_a_restart() -> None:
    world = World()
    world.register(cpu=1)
    world.submit_all([job("a"), job("b")])
    world.update("b", priority=9, labels=[("team", "x")])
    world.restart()
    assert world.record("b").spec.labels == (("team", "x"),)
    assert world.take() == ["b"]
