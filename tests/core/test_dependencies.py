from __future__ import annotations

import msgspec
import pytest

from rota.core.commands import Delete, Submit
from rota.core.errors import StalePreload
from rota.core.model import JobId, JobState
from tests.core.asking import NOON, job, retries
from tests.core.world import World, run, succeeded
from tests.doubt import examples

ENDS = {
    "succeeded": JobState.SUCCEEDED,
    "failed": JobState.FAILED,
    "cancelled": JobState.CANCELLED,
    "skipped": JobState.SKIPPED,
    "expired": JobState.EXPIRED,
}
ACCEPTED = {
    "succeeded": ["succeeded"],
    "failed": ["failed"],
    "finished": list(ENDS),
}


def end(world: World, job_id: str, how: str) -> None:
    """Submits a job and brings it to this end; a worker w1 must be there."""
    if how in ("succeeded", "failed"):
        world.submit(job_id)
        run(world, job_id)
        world.complete(job_id, how)
    elif how == "cancelled":
        world.submit(job_id)
        world.cancel(job_id)
    elif how == "expired":
        world.submit(job_id, expires_at=NOON - 1)
    else:
        world.submit(f"above-{job_id}")
        world.submit(job_id, after=[f"above-{job_id}"])
        world.cancel(f"above-{job_id}")
    assert world.state(job_id) is ENDS[how]


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("when", ACCEPTED)
def test_a_job_that_depends_on_one_long_ended_goes_or_is_skipped_as_asked(
    when: str, how: str
) -> None:
    world = World()
    world.register()
    end(world, "up", how)
    world.submit("down", after=[("up", when)])
    expected = JobState.QUEUED if how in ACCEPTED[when] else JobState.SKIPPED
    assert world.state("down") is expected


@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
@pytest.mark.parametrize("when", ACCEPTED)
def test_a_job_that_waits_goes_or_is_skipped_in_the_step_that_ends_its_upstream(
    when: str, how: str
) -> None:
    world = World()
    world.register()
    world.submit("up")
    world.submit("down", after=[("up", when)])
    assert (world.state("down"), world.life("down").reason) == (JobState.PENDING, "dependencies")
    if how == "cancelled":
        world.cancel("up")
    else:
        run(world, "up")
        assert world.state("down") is JobState.PENDING
        world.complete("up", how)
    expected = JobState.QUEUED if how in ACCEPTED[when] else JobState.SKIPPED
    assert world.state("down") is expected


def test_a_skipped_job_names_the_upstream_job() -> None:
    world = World()
    world.submit("up")
    world.submit("down", after=["up"])
    world.cancel("up")
    life = world.life("down")
    assert life.reason == "upstream"
    assert msgspec.json.decode(life.error or b"") == {
        "message": "job up, which it depends on, was cancelled"
    }
    assert life.finished_at == world.now


def test_a_diamond_joins_when_both_sides_are_done() -> None:
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
    assert world.take() == ["top"]
    world.complete("top")
    assert world.take() == ["left", "right"]
    world.complete("right")
    assert world.state("bottom") is JobState.PENDING
    world.complete("left")
    assert world.take() == ["bottom"]


def test_a_diamond_with_one_broken_side_is_skipped_once() -> None:
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
    world.take()
    world.complete("top", "failed")
    assert [world.state(one) for one in ("left", "right", "bottom")] == [JobState.SKIPPED] * 3
    assert [ended.state for ended in world.last.ends] == [
        JobState.FAILED,
        JobState.SKIPPED,
        JobState.SKIPPED,
        JobState.SKIPPED,
    ]


def test_a_retried_job_does_not_release_its_dependents_yet() -> None:
    world = World()
    world.register()
    world.submit("up", retry=retries(2))
    world.submit("down", after=[("up", "failed")])
    run(world, "up")
    world.complete("up", "failed")
    assert world.state("down") is JobState.PENDING
    world.advance(1_000)
    run(world, "up")
    world.complete("up", "failed")
    assert world.state("down") is JobState.QUEUED


def test_an_upstream_job_named_twice_must_meet_both_conditions() -> None:
    world = World()
    world.submit("up")
    world.submit("down", after=[("up", "finished"), ("up", "succeeded")])
    world.cancel("up")
    assert world.state("down") is JobState.SKIPPED


def test_a_job_waits_for_its_run_at_after_its_dependencies() -> None:
    world = World()
    world.register()
    world.submit("up")
    world.submit("down", after=["up"], run_at=world.now + 60_000)
    run(world, "up")
    world.complete("up")
    assert (world.state("down"), world.life("down").reason) == (JobState.PENDING, "run_at")
    world.advance(60_000)
    assert world.state("down") is JobState.QUEUED


MANY = examples(20_000, 100_000)


def test_a_chain_of_many_thousands_is_skipped_from_the_top() -> None:
    world = World(checked=False)
    chain = [job("n0")] + [job(f"n{n}", after=[f"n{n - 1}"]) for n in range(1, MANY)]
    world.turn([Submit(jobs=tuple(chain))])
    world.cancel("n0")
    assert len(world.last.ends) == MANY
    assert world.state(f"n{MANY - 1}") is JobState.SKIPPED
    assert world.scheduler.live_jobs() == 0
    world.check()


def test_many_thousands_of_jobs_fan_out_from_one_and_in_to_another() -> None:
    world = World(checked=False)
    world.register(cpu=1)
    middle = [job(f"m{n}", after=["first"], cpu=0, queue="wide") for n in range(MANY)]
    last = job("last", after=[f"m{n}" for n in range(MANY)])
    world.turn([Submit(jobs=(job("first"), *middle, last))])
    assert world.take(max_orders=1) == ["first"]
    world.complete("first")
    assert world.scheduler.live_jobs() == MANY + 1
    taken = world.take(max_orders=MANY)
    assert len(taken) == MANY
    by_job = {x.job_id: x for x in world.ledger.running()}
    world.take(completed=[succeeded(by_job[job_id]) for job_id in taken[:-1]], wait_ms=0)
    assert world.state("last") is JobState.PENDING
    world.take(completed=[succeeded(by_job[taken[-1]])], max_orders=0)
    assert world.state("last") is JobState.QUEUED
    world.check()


def test_a_job_may_depend_on_one_that_ended_while_it_was_read() -> None:
    """Where thousands end in a second, reading again would only find the next ones."""
    world = World()
    world.register(cpu=1)
    world.submit("first")
    read = world.recall()
    run(world, "first")
    world.complete("first")
    world.step(Submit(jobs=(job("second", after=["first"]),), preloaded=read))
    assert world.state("second") is JobState.QUEUED


def test_a_job_that_was_removed_while_it_was_read_is_read_again() -> None:
    world = World()
    end(world, "first", "cancelled")
    read = world.recall()
    world.step(Delete(job_id=JobId("first"), preloaded=read))
    with pytest.raises(StalePreload):
        world.step(Submit(jobs=(job("second", after=["first"]),), preloaded=read))
