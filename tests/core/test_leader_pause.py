"""Time without a leader, and failover: workers must not lose leases for it."""

from __future__ import annotations

import pytest

from rota.core.commands import ClockJump, Deregister, LeaderPause, Reject, Timing
from rota.core.errors import Conflict
from rota.core.model import JobState, WorkerId, WorkerState
from tests.core.asking import SECOND, job
from tests.core.world import World

LEASE = Timing().lease_ttl_ms + Timing().lease_grace_ms


def holding(timing: Timing | None = None) -> World:
    """A worker has a job and has named it."""
    world = World(timing=timing)
    world.register()
    world.submit("x")
    world.take()
    world.heartbeat(names=["x"])
    return world


def test_a_lease_is_extended_by_the_time_without_a_server() -> None:
    world = holding()
    world.now += LEASE + SECOND
    world.turn([LeaderPause(by=LEASE)])
    assert world.state("x") is JobState.RUNNING
    world.advance(LEASE)
    assert world.state("x") is JobState.QUEUED


def test_a_worker_does_not_count_as_silent_for_the_time_without_a_server() -> None:
    world = World()
    world.register()
    world.now += LEASE + SECOND
    world.turn([LeaderPause(by=LEASE + SECOND)])
    glance = world.scheduler.workers(world.now)[0]
    assert glance.worker.state is WorkerState.ONLINE
    assert glance.last_seen is not None
    assert glance.last_seen <= world.now


@pytest.mark.parametrize("comes", ["a restart", "an absence"])
def test_an_offline_worker_stays_offline_after_the_server_comes_back(comes: str) -> None:
    world = World()
    world.register()
    world.step(Deregister(worker_id=WorkerId("w1")))
    left = world.now
    world.advance(3_600_000)
    if comes == "a restart":
        world.restart()
    else:
        world.turn([LeaderPause(by=3_600_000)])
    (glance,) = world.scheduler.workers(world.now)
    assert glance.worker.state is WorkerState.OFFLINE
    assert glance.last_seen == left


def test_a_clock_set_during_the_time_without_a_server_is_followed() -> None:
    world = holding()
    world.now += LEASE + SECOND + 3_600_000
    world.turn([ClockJump(by=3_600_000), LeaderPause(by=LEASE)])
    assert world.state("x") is JobState.RUNNING


def test_a_leader_pause_writes_nothing() -> None:
    world = holding()
    assert world.turn([LeaderPause(by=5 * SECOND)]).writes == []


@pytest.mark.parametrize("handover", [0, 3 * SECOND])
def test_after_a_failover_a_lease_has_the_time_the_previous_leader_may_have_given(
    handover: int,
) -> None:
    world = holding(Timing(handover_ms=handover))
    world.restart()
    world.advance(LEASE + handover - 1)
    assert world.state("x") is JobState.RUNNING
    world.advance(1)
    assert world.state("x") is JobState.QUEUED


def test_an_accepted_job_that_is_invalid_is_kept_as_failed_with_the_reason() -> None:
    world = World()
    world.step(Reject(jobs=(job("x", queue="new"),), why="no such zone"))
    record = world.ledger.jobs[job("x").id]
    assert (record.life.state, record.life.reason) == (JobState.FAILED, "invalid")
    assert b"no such zone" in (record.life.error or b"")
    assert record.life.finished_at == world.now
    assert world.last.submitted == 1


def test_a_rejected_job_cannot_be_retried() -> None:
    world = World()
    world.step(Reject(jobs=(job("x"),), why="no such zone"))
    with pytest.raises(Conflict, match="submit it anew"):
        world.retry("x")


def test_a_job_that_depends_on_a_rejected_one_is_skipped() -> None:
    world = World()
    world.step(Reject(jobs=(job("x"),), why="no such zone"))
    world.submit("y", after=["x"])
    assert world.ledger.jobs[job("y").id].life.state is JobState.SKIPPED


def test_a_rejection_does_not_replace_an_existing_job() -> None:
    world = World()
    world.submit("x")
    with pytest.raises(Conflict):
        world.step(Reject(jobs=(job("x"),), why="no"))
