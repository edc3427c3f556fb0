"""Arrays: one row that stands in line for many jobs, each of which becomes one as it starts."""

from __future__ import annotations

import pytest

from rota.core.commands import Delete, Execute, Purge, PutTenantSettings, Retry
from rota.core.errors import Conflict, Invalid, OverQuota
from rota.core.ids import member_id, members_between
from rota.core.model import GroupProgress, JobId, JobState, Quota, WorkerId
from rota.core.outcome import CountReceipt, MoveJob, PutGroup, PutJob
from rota.core.policy import CONSERVATIVE, DEFAULT
from tests.core.asking import SECOND, retries
from tests.core.world import World


def member(array: str, index: int) -> JobId:
    return member_id(JobId(array), index)


def tally(world: World, array: str) -> GroupProgress:
    found = world.life(array).group_progress
    assert found is not None
    return found


def finish(world: World, jobs: list[JobId], state: str = "succeeded") -> None:
    for job_id in jobs:
        world.complete(job_id, state)


def test_a_million_members_wait_in_one_row() -> None:
    world = World()
    world.submit("a", count=1_000_000)
    assert [type(write) for write in world.last.writes if not hasattr(write, "queue")] == [PutGroup]
    assert len(world.ledger.jobs) == 1
    (glance,) = world.scheduler.queues()
    assert glance.depth[JobState.QUEUED] == 1_000_000
    world.register(cpu=3)
    assert world.take() == [member("a", 0), member("a", 1), member("a", 2)]
    assert len(world.ledger.jobs) == 4
    (glance,) = world.scheduler.queues()
    assert glance.depth[JobState.QUEUED] == 999_997
    assert glance.depth[JobState.RUNNING] == 3


def test_a_turn_writes_the_array_once_however_many_members_it_starts() -> None:
    world = World()
    world.register(cpu=40)
    world.submit("a", count=100)
    world.take()
    moves = [w for w in world.last.writes if isinstance(w, MoveJob | PutJob) and w.id == "a"]
    assert len(moves) == 1
    assert tally(world, "a") == GroupProgress(drawn=40, running=40)


def test_an_array_succeeds_when_all_of_its_members_have() -> None:
    world = World()
    world.register(cpu=2)
    world.submit("a", count=3)
    world.submit("next", after=["a"])
    assert world.state("a") is JobState.QUEUED
    first = world.take()
    assert world.state("a") is JobState.RUNNING
    finish(world, first)
    assert world.life("a").progress == pytest.approx(2 / 3)
    assert world.state("next") is JobState.PENDING
    finish(world, world.take())
    assert world.state("a") is JobState.SUCCEEDED
    assert world.state("next") is JobState.QUEUED
    assert tally(world, "a") == GroupProgress(drawn=3, succeeded=3)


def test_an_array_fails_when_all_have_ended_and_one_has_failed() -> None:
    world = World()
    world.register(cpu=4)
    world.submit("a", count=3)
    jobs = world.take()
    world.complete(jobs[1], "failed")
    assert world.state("a") is JobState.RUNNING
    finish(world, [jobs[0], jobs[2]])
    assert world.state("a") is JobState.FAILED
    assert world.life("a").error == b'{"message":"1 of its 3 members failed"}'


def test_no_more_members_than_max_parallel_are_under_way() -> None:
    world = World()
    world.register(cpu=8)
    world.submit("a", count=5, max_parallel=2, retry=retries(2))
    first, second = world.take()
    world.complete(first, "failed")
    assert world.take() == []  # the one that waits for its next try is under way too
    world.complete(second)
    assert world.take() == [member("a", 2)]
    world.advance(SECOND)
    assert world.take() == [first]


def test_members_have_their_own_tries_and_the_array_stays_where_it_is() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("a", count=2, retry=retries(2))
    (first,) = world.take()
    world.complete(first, "failed")
    assert world.state(first) is JobState.PENDING
    (second,) = world.take()
    world.complete(second)
    world.advance(SECOND)
    assert world.take() == [first]
    world.complete(first)
    assert world.life(first).attempt == 2
    assert world.state("a") is JobState.SUCCEEDED


def test_an_array_goes_before_what_was_submitted_after_it() -> None:
    world = World()
    world.submit("a", count=3)
    world.submit("b")
    world.register(cpu=2)
    finish(world, world.take())
    assert world.take() == [member("a", 2), "b"]


@pytest.mark.parametrize("policy", [DEFAULT, CONSERVATIVE], ids=["easy", "conservative"])
def test_as_many_members_start_at_once_as_there_is_room_for(policy: object) -> None:
    world = World(policy=policy)  # type: ignore[arg-type]
    world.register(cpu=5)
    world.submit("a", count=9)
    assert len(world.take()) == 5


def test_nothing_is_lost_or_run_twice_through_a_restart() -> None:
    world = World()
    world.register(cpu=2)
    world.submit("a", count=5, max_parallel=2)
    seen = world.take()
    world.complete(seen[0])
    world.restart()
    world.complete(seen[1])
    while batch := world.take(names=[]):
        seen += batch
        finish(world, batch)
        world.restart()
    assert seen == [member("a", index) for index in range(5)]
    assert world.state("a") is JobState.SUCCEEDED


def test_a_lost_member_runs_again_and_counts_once() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("a", count=1)
    world.take()
    world.advance(60 * SECOND)
    world.register("w2", cpu=1)
    assert world.take("w2") == [member("a", 0)]
    world.complete(member("a", 0))
    assert tally(world, "a") == GroupProgress(drawn=1, succeeded=1)


def test_cancelling_an_array_ends_what_waits_and_stops_what_runs() -> None:
    world = World()
    world.register(cpu=2)
    world.submit("a", count=10, retry=retries(3))
    first, second = world.take()
    world.complete(first, "failed")
    world.cancel("a")
    assert world.state("a") is JobState.CANCELLING
    assert world.state(first) is JobState.CANCELLED
    assert world.state(second) is JobState.CANCELLING
    assert world.take() == []
    world.complete(second, "cancelled")
    assert world.state("a") is JobState.CANCELLED
    assert tally(world, "a") == GroupProgress(drawn=2, cancelled=10, dropped=8)


def test_an_array_that_waits_is_cancelled_at_once() -> None:
    world = World()
    world.submit("a", count=10)
    world.cancel("a")
    assert world.state("a") is JobState.CANCELLED
    (glance,) = world.scheduler.queues()
    assert not any(glance.depth.values())


def test_one_member_may_be_cancelled_and_the_others_go_on() -> None:
    world = World()
    world.register(cpu=2)
    world.submit("a", count=2)
    first, second = world.take()
    world.cancel(first)
    world.complete(first, "cancelled")
    world.complete(second)
    assert world.state("a") is JobState.CANCELLED
    assert tally(world, "a") == GroupProgress(drawn=2, succeeded=1, cancelled=1)


def retry(world: World, array: str, failed: tuple[int, ...] | None = None) -> None:
    recall = world.recall()
    world.step(Retry(job_id=JobId(array), failed=failed, preloaded=recall))


def test_a_retry_runs_only_the_members_that_did_not_succeed() -> None:
    world = World()
    world.register(cpu=4)
    world.submit("a", count=4)
    jobs = world.take()
    finish(world, [jobs[0], jobs[2]])
    fences = [world.life(one).fence for one in jobs]
    finish(world, [jobs[1], jobs[3]], "failed")
    retry(world, "a", (1, 3))
    again = world.take()
    assert again == [jobs[1], jobs[3]]
    assert world.life(jobs[1]).fence > fences[1]
    world.restart()
    finish(world, again)
    assert world.state("a") is JobState.SUCCEEDED
    assert tally(world, "a").succeeded == 4


def test_a_retry_of_a_cancelled_array_needs_no_look_at_its_members() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("a", count=3)
    finish(world, world.take())
    (second,) = world.take()
    world.cancel("a")
    world.complete(second, "cancelled")
    with pytest.raises(Conflict, match="nobody has looked"):
        retry(world, "a")
    retry(world, "a", (1,))
    assert world.take() == [second]
    world.complete(second)
    assert world.take() == [member("a", 2)]
    assert world.life(member("a", 2)).lives == 1  # it never was a job before


def test_a_retry_says_when_failed_members_are_gone() -> None:
    world = World()
    world.register(cpu=2)
    world.submit("a", count=2)
    first, second = world.take()
    world.complete(first)
    world.complete(second, "failed")
    with pytest.raises(Conflict, match="1 of the members"):
        retry(world, "a", ())


def test_a_member_is_retried_changed_and_deleted_with_its_array_only() -> None:
    world = World()
    world.register(cpu=2)
    world.submit("a", count=2)
    first, second = world.take()
    world.complete(first, "failed")
    with pytest.raises(Conflict, match="retry that"):
        world.retry(first)
    with pytest.raises(Conflict, match="is a member of a"):
        world.step(Delete(job_id=first, preloaded=world.recall()))
    world.complete(second)
    world.step(Delete(job_id=first, preloaded=world.recall()))
    assert world.state(first) is None


def test_deleting_a_live_array_by_force_takes_its_live_members_along() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("a", count=3)
    (first,) = world.take()
    world.step(Delete(job_id=JobId("a"), force=True, preloaded=world.recall()))
    world.complete(first, "cancelled")
    assert world.ledger.jobs == {}


def test_a_key_holds_for_each_member() -> None:
    world = World()
    world.register(cpu=8)
    world.submit("a", count=4, key="k", limit=2)
    first, second = world.take()
    assert world.take() == []
    world.complete(first)
    assert world.take() == [member("a", 2)]
    world.submit("b", key="k", limit=2, priority=10)
    world.restart()
    world.complete(second)
    assert world.take() == ["b"]
    finish(world, [member("a", 2), JobId("b")])
    assert world.take() == [member("a", 3)]


def test_a_cancelled_array_gets_no_slot_of_its_key_any_more() -> None:
    world = World()
    world.register(cpu=4)
    world.submit("a", count=4, key="k", limit=2)
    first, second = world.take()
    world.cancel("a")
    finish(world, [first, second], "cancelled")
    assert world.state("a") is JobState.CANCELLED
    assert world.take() == []


def test_a_quota_of_waiting_jobs_counts_every_member() -> None:
    world = World()
    world.step(PutTenantSettings(name="default", quota=Quota(queued=10)))
    with pytest.raises(OverQuota, match="11 more came"):
        world.submit("a", count=11)
    world.submit("b", count=10)
    with pytest.raises(OverQuota):
        world.submit("c")


def test_the_priority_of_an_array_that_has_begun_changes_for_all_that_wait() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("a", count=5, retry=retries(2))
    (first,) = world.take()
    world.submit("b", priority=5)
    world.complete(first, "failed")
    world.update("a", count=5, priority=9, retry=retries(2))
    assert world.take() == [member("a", 1)]
    assert world.record(first).spec.terms.priority == 9


def test_what_an_array_runs_cannot_change_once_it_has_begun() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("a", count=5)
    world.take()
    with pytest.raises(Conflict, match="has begun"):
        world.update("a", count=6)
    with pytest.raises(Conflict, match="has begun"):
        world.update("a", count=5, run_at=world.now + SECOND)
    world.update("a", count=5, max_parallel=3)


def test_a_job_does_not_become_an_array() -> None:
    world = World()
    world.submit("a")
    with pytest.raises(Invalid, match="another kind"):
        world.update("a", count=2)
    world.submit("b", count=2)
    world.update("b", count=3)
    world.register(cpu=4)
    assert len(world.take()) == 4


def test_purging_a_queue_calls_off_the_members_that_wait() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("a", count=5)
    (first,) = world.take()
    assert world.step(Purge(name="default")) == CountReceipt(4)
    world.complete(first)
    assert world.state("a") is JobState.CANCELLED
    assert tally(world, "a") == GroupProgress(drawn=1, succeeded=1, cancelled=4, dropped=4)


def test_an_array_waits_for_its_time_and_expires_as_a_whole() -> None:
    world = World()
    world.register(cpu=2)
    world.submit("a", count=3, run_at=world.now + 10 * SECOND, expires_at=world.now + 20 * SECOND)
    assert world.take() == []
    world.queue(paused=True)
    world.advance(30 * SECOND)
    assert world.state("a") is JobState.EXPIRED
    assert tally(world, "a").cancelled == 3


def test_an_array_that_has_begun_does_not_expire() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("a", count=2, expires_at=world.now + 10 * SECOND)
    (first,) = world.take()
    world.poll(names=[first])
    world.advance(12 * SECOND)
    world.complete(first)
    assert world.take() == [member("a", 1)]


def test_an_array_is_not_run_by_hand() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("a", count=2)
    with pytest.raises(Conflict, match="stands for 2 jobs"):
        world.step(Execute(job_id=JobId("a"), worker_id=WorkerId("w1")))


def test_members_ids_are_beside_their_arrays_and_sorted_by_index() -> None:
    array = JobId("019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3")
    ids = [member_id(array, index) for index in (0, 1, 9, 255, 999_999)]
    first, last = members_between(array)
    assert ids == sorted(ids)
    assert all(first < one < last and one[:18] == array[:18] for one in ids)
    assert all(len(one) == 36 and one[19] in "89ab" for one in ids)
