from __future__ import annotations

import pytest

from rota.core.commands import Drain, Execute
from rota.core.errors import Conflict, IllegalTransition, NoFreeCapacity, NotFound
from rota.core.model import ExecutionState, JobId, JobState, RateLimit, WorkerId
from rota.core.outcome import ExecutionAnswer
from tests.core.asking import AT_MOST_ONCE, GIB, HOUR, SECOND, job
from tests.core.world import World, run


def execute(world: World, job_id: str, worker_id: str = "w1") -> ExecutionAnswer:
    event = Execute(job_id=JobId(job_id), worker_id=WorkerId(worker_id), preloaded=world.recall())
    answer = world.step(event)
    assert isinstance(answer, ExecutionAnswer)
    return answer


def test_a_job_executes_on_the_named_worker_past_time_order_and_pause() -> None:
    world = World()
    world.register()
    world.register("w2")
    world.submit("first")
    world.queue("held", paused=True)
    world.submit("a", queue="held", run_at=world.now + HOUR)
    answer = execute(world, "a", "w2")
    assert answer.execution == world.execution("a")
    assert world.take("w1") == ["first"]
    assert world.take("w2") == ["a"]
    world.complete("a")
    assert world.state("a") is JobState.SUCCEEDED


def test_a_worker_with_an_open_poll_gets_the_job_at_once() -> None:
    world = World()
    world.register()
    world.submit("a", run_at=world.now + HOUR)
    poll = world.poll()
    execute(world, "a")
    assert world.orders(poll) == ["a"]


def test_a_job_that_is_not_collected_is_requeued_and_no_attempt_counts() -> None:
    world = World()
    world.register()
    world.submit("a", semantics=AT_MOST_ONCE)
    execute(world, "a")
    world.advance(18 * SECOND)
    life = world.life("a")
    assert (life.state, life.attempt, life.losses) == (JobState.QUEUED, 0, 0)
    assert world.execution("a").state is ExecutionState.LOST
    assert world.execution("a").reason == "its worker did not collect it"
    run(world, "a")
    assert world.execution("a").fence == 2


def test_a_job_requeued_before_its_time_waits_for_it_again() -> None:
    world = World()
    world.register()
    world.submit("a", run_at=world.now + HOUR, key="k")
    execute(world, "a")
    world.advance(18 * SECOND)
    assert (world.state("a"), world.life("a").reason) == (JobState.PENDING, "run_at")
    world.submit("b", key="k")
    assert world.take() == ["b"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cpu": 5}, "worker w1 cannot run it: asks 5 cpu, has 4 cpu"),
        ({"memory": GIB}, "worker w1 cannot run it: asks 1 GiB of memory, has 0 MiB of memory"),
        ({"capabilities": ["gpu"]}, "worker w1 cannot run it: it does not have capability gpu"),
        ({"queue": "other"}, "worker w1 cannot run it: it does not serve the queue"),
        ({"cpu": 2}, "worker w1 has too little free: asks 2 cpu, has 1 cpu"),
    ],
)
def test_a_worker_that_cannot_run_the_job_is_refused_with_what_it_lacks(
    asked: dict[str, object], says: str
) -> None:
    world = World()
    world.register(queues=["default"])
    world.submit("busy", cpu=3)
    run(world, "busy")
    world.submit("a", **asked)
    with pytest.raises(NoFreeCapacity) as refused:
        execute(world, "a")
    assert refused.value.detail == says
    assert world.state("a") is JobState.QUEUED


def test_limits_apply_to_a_job_executed_by_hand() -> None:
    world = World()
    world.register(cpu=64)
    world.queue(max_workers=1)
    world.submit_all([job("a"), job("b", run_at=world.now + HOUR)])
    run(world, "a")
    with pytest.raises(Conflict, match="runs 1 of at most 1"):
        execute(world, "b")
    world.queue("other", rate_limit=RateLimit(1, HOUR))
    world.submit_all([job("c", queue="other", key="k"), job("d", queue="other", key="k")])
    execute(world, "c")
    with pytest.raises(Conflict, match="concurrency key"):
        execute(world, "d")


def test_an_executed_job_takes_the_slot_of_its_key_from_a_waiting_one() -> None:
    world = World()
    world.register()
    world.submit("a", key="k", priority=9)
    world.submit("b", key="k")
    execute(world, "b")
    assert world.take() == ["b"]
    world.complete("b")
    assert world.take() == ["a"]


def test_a_job_that_waits_for_others_runs_or_has_ended_is_refused() -> None:
    world = World()
    world.register()
    world.submit_all([job("a"), job("b", after=["a"])])
    with pytest.raises(Conflict, match="waits for 1 other jobs"):
        execute(world, "b")
    run(world, "a")
    with pytest.raises(IllegalTransition):
        execute(world, "a")
    world.complete("a")
    with pytest.raises(IllegalTransition):
        execute(world, "a")
    with pytest.raises(NotFound):
        execute(world, "ghost")
    with pytest.raises(NotFound):
        execute(world, "b", "ghost")
    world.step(Drain(worker_id=WorkerId("w1")))
    with pytest.raises(NoFreeCapacity, match="is draining"):
        execute(world, "b")


def test_an_uncollected_order_is_delivered_after_a_restart() -> None:
    world = World()
    world.register()
    world.submit("a")
    execute(world, "a")
    world.restart()
    assert world.take(names=[]) == ["a"]
