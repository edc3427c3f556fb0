from __future__ import annotations

import pytest

from rota.core.commands import Delete, Submit
from rota.core.errors import Conflict, NotFound, UnknownDependency
from rota.core.model import JobId, JobState
from rota.core.outcome import AnyReceipt, JobAnswer, JobGone
from tests.core.asking import job, retries
from tests.core.world import World, run


def delete(world: World, job_id: str, *, force: bool = False) -> AnyReceipt:
    return world.step(Delete(job_id=JobId(job_id), force=force, preloaded=world.recall()))


def test_an_ended_job_is_deleted_with_its_executions() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    world.complete("a")
    assert delete(world, "a") == JobGone(JobId("a"))
    assert world.state("a") is None
    assert not world.ledger.executions
    with pytest.raises(NotFound):
        delete(world, "a")


def test_a_live_job_is_deleted_only_by_force() -> None:
    world = World()
    world.submit("a")
    with pytest.raises(Conflict, match="is queued: cancel it first"):
        delete(world, "a")
    assert delete(world, "a", force=True) == JobGone(JobId("a"))
    assert world.state("a") is None
    assert world.scheduler.live_jobs() == 0


def test_a_running_job_deleted_by_force_goes_when_it_has_stopped() -> None:
    world = World()
    world.register()
    world.submit("a", retry=retries(3))
    run(world, "a")
    answer = delete(world, "a", force=True)
    assert isinstance(answer, JobAnswer)
    assert answer.job.life.state is JobState.CANCELLING
    assert world.life("a").delete_when_finished
    world.complete("a", "failed")
    assert world.state("a") is None


@pytest.mark.parametrize("how", ["succeeded", "cancelled"])
def test_a_job_to_be_deleted_goes_however_it_ends(how: str) -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    world.cancel("a")
    delete(world, "a", force=True)
    world.restart()
    world.complete("a", how)
    assert world.state("a") is None


def test_a_job_to_be_deleted_goes_when_its_worker_is_lost() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    delete(world, "a", force=True)
    world.advance(60_000)
    assert world.state("a") is None


def test_jobs_downstream_of_a_deleted_job_are_skipped_with_its_end() -> None:
    world = World()
    world.submit("a")
    world.submit("strict", after=["a"])
    world.submit("easy", after=[("a", "finished")])
    delete(world, "a", force=True)
    assert world.state("strict") is JobState.SKIPPED
    assert world.state("easy") is JobState.QUEUED


def test_a_job_submitted_and_deleted_in_one_turn_leaves_nothing() -> None:
    world = World()
    submit = Submit(jobs=(job("a"),))
    outcome = world.turn([submit, Delete(job_id=JobId("a"), force=True)])
    assert outcome.replies[1] == JobGone(JobId("a"))
    assert world.state("a") is None


def test_no_job_can_depend_on_one_that_was_just_deleted() -> None:
    world = World()
    world.submit("a")
    delete(world, "a", force=True)
    world.submit("b")
    world.cancel("b")
    delete(world, "b")
    world.advance(1)
    for gone in ("a", "b"):
        with pytest.raises(UnknownDependency):
            world.submit("late", after=[gone])
