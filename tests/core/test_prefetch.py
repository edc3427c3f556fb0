"""Prefetch: which short jobs are given to a worker ahead, how many, and what becomes of them."""

from __future__ import annotations

import msgspec
import pytest

from rota.core import runtime_estimates
from rota.core.commands import Complete, Deregister, Drain
from rota.core.errors import Conflict
from rota.core.limits import PREFETCH_CHAIN, PREFETCH_MS, SHORT_MS, SHORT_RUNS
from rota.core.model import Execution, ExecutionState, JobState, RateLimit, RuntimeStats, WorkerId
from rota.core.policy import CONSERVATIVE, DEFAULT
from tests.core.asking import AT_MOST_ONCE, SECOND, job, retries
from tests.core.world import World, run

TTL = 15 * SECOND
GRACE = 2 * SECOND


def with_short(count: int = 1, *, cpu: float = 1, spare: int = 0, **asked: object) -> World:
    """A worker of so many cpus was given what fits of `a`, `b` …, all short, or prefetches."""
    world = World()
    world.register(cpu=cpu)
    for name in "abcdefgh"[:count]:
        world.submit(name, runs_ms=5, **asked)
    world.take(spare=spare)
    return world


def behind(world: World, job_id: str) -> str | None:
    """The job whose place it waits for."""
    before = world.execution(job_id).behind
    return None if before is None else world.ledger.executions[before].job_id


def holds(world: World, worker_id: str = "w1") -> int:
    """Thousandths of a cpu that are in use."""
    glance = world.scheduler.worker(WorkerId(worker_id), world.now)
    assert glance is not None
    return glance.used.cpu_milli


def test_a_worker_that_can_hold_more_is_given_the_next_ones_behind_what_it_runs() -> None:
    world = with_short(5, cpu=2, spare=2)
    assert [behind(world, name) for name in "ab"] == [None, None]
    assert sorted(str(behind(world, name)) for name in "cd") == ["a", "b"]
    assert world.state("e") is JobState.QUEUED
    assert holds(world) == 2_000, "what waits there has nothing of the worker"


def test_a_worker_that_asks_for_no_prefetched_orders_gets_none() -> None:
    world = with_short(3, cpu=2, spare=0)
    assert world.state("c") is JobState.QUEUED


def test_a_prefetched_one_has_the_place_as_soon_as_the_one_before_it_has_ended() -> None:
    world = with_short(3, spare=2)
    world.submit("large", cpu=1)
    assert [behind(world, name) for name in "bc"] == ["a", "b"]
    taken = world.take(completed=[world.report("a")])
    assert taken == [], "the place is not free: it is the prefetched one's"
    assert holds(world) == 1_000
    world.take(completed=[world.report("b"), world.report("c")])
    assert [world.state(name) for name in "abc"] == [JobState.SUCCEEDED] * 3
    assert world.execution("large").behind is None


def test_ends_may_be_heard_of_in_another_order_than_they_came() -> None:
    world = with_short(3, spare=2)
    world.complete("b")
    assert (behind(world, "c"), holds(world)) == ("a", 1_000)
    world.complete("a")
    assert holds(world) == 1_000
    world.complete("c")
    assert holds(world) == 0


def test_a_prefetched_one_that_its_worker_names_does_not_run_before_it_has_its_place() -> None:
    world = with_short(2, spare=1)
    world.heartbeat(names=["a", "b"])
    assert world.execution("a").state is ExecutionState.RUNNING
    assert world.execution("b").state is ExecutionState.CLAIMED
    world.complete("a")
    world.heartbeat(names=["b"])
    assert world.execution("b").state is ExecutionState.RUNNING


def test_the_time_of_a_prefetched_execution_is_counted_from_when_it_has_its_place() -> None:
    world = with_short(2, spare=1, timeout_ms=SECOND)
    for _ in range(4):  # past the timeout and the time a worker has to mind it
        world.advance(4 * SECOND)
        world.heartbeat(names=["a", "b"])
    assert world.execution("b").stop is None
    world.complete("a")
    world.advance(3)
    world.complete("b")
    ended = world.execution("b")
    assert ended.started_at == ended.ended_at - 3  # type: ignore[operator]
    assert world.life("b").started_at == ended.started_at


def test_what_a_prefetched_one_waited_is_not_learned_as_what_it_ran() -> None:
    world = World()
    world.register(cpu=1)
    for number in range(SHORT_RUNS):
        world.submit(f"known-{number}", name="known")
        run(world, f"known-{number}")
        world.advance(5)
        world.complete(f"known-{number}")
    world.submit("a", name="known")
    world.submit("b", name="known")
    world.take(spare=1)
    world.advance(SHORT_MS)
    world.complete("a")
    world.advance(5)
    world.complete("b")
    assert world.scheduler._t.runtime_estimates.recent(("default", "known")) == (5, SHORT_MS)


# What is prefetched


def test_only_a_name_that_ran_short_several_times_in_a_row_is_prefetched() -> None:
    world = World()
    world.register(cpu=1)
    for number in range(SHORT_RUNS):
        for name in ("first", "second"):
            world.submit(f"{name}-{number}", name="learned")
        world.take(spare=1)
        assert world.state(f"second-{number}") is JobState.QUEUED, "it is not known to be short"
        world.complete(f"first-{number}")
        world.cancel(f"second-{number}")
    world.submit("a", name="learned")
    world.submit("b", name="learned")
    world.take(spare=1)
    assert behind(world, "b") == "a"


def test_one_long_run_and_a_name_is_short_no_longer() -> None:
    world = World()
    world.register(cpu=1)
    for number in range(SHORT_RUNS + 1):
        world.submit(f"known-{number}", name="known")
        run(world, f"known-{number}")
        world.advance(SHORT_MS + 1 if number == SHORT_RUNS else 1)
        world.complete(f"known-{number}")
    world.submit("a", name="known")
    world.submit("b", name="known")
    world.take(spare=1)
    assert world.state("b") is JobState.QUEUED


def test_nobody_is_prefetched_behind_what_has_run_longer_than_it_should() -> None:
    world = with_short(1)
    world.advance(SHORT_MS + 1)
    world.submit("b", runs_ms=5)
    world.take(spare=1, names=["a"])
    assert world.state("b") is JobState.QUEUED


def test_nobody_waits_behind_others_while_another_worker_has_room() -> None:
    world = with_short(1)
    world.register("w2", cpu=1)
    poll_id = world.poll("w2")
    world.poll("w1", spare=4)
    world.submit("b", runs_ms=5)
    assert world.orders(poll_id) == ["b"]
    assert world.execution("b").behind is None


@pytest.mark.parametrize(
    "asked",
    [
        {"runs_ms": SHORT_MS + 1},
        {"semantics": AT_MOST_ONCE},
        {"preemptible": True},
        {"count": 3},
        {"gang": 2},
        {"cpu": 2},
        {"capabilities": ["gpu"]},
    ],
    ids=str,
)
def test_who_is_no_plain_short_job_that_fits_waits_for_its_turn(asked: dict[str, object]) -> None:
    world = with_short(1)
    world.submit("b", **{"runs_ms": 5, **asked})
    world.take(spare=4, names=["a"])
    assert len(world.scheduler._t.executions) == 1


def test_who_goes_first_and_cannot_be_prefetched_is_not_passed() -> None:
    world = with_short(1, cpu=2)
    world.submit("large", cpu=2, priority=5)
    world.submit("b", runs_ms=5, cpu=2)
    world.take(spare=4, names=["a"], max_orders=0)
    assert [world.state(name) for name in ("large", "b")] == [JobState.QUEUED] * 2


def test_the_order_of_the_policy_says_who_is_prefetched() -> None:
    world = with_short(1)
    for name, priority in (("low", 1), ("high", 9), ("middle", 5)):
        world.submit(name, runs_ms=5, priority=priority)
    world.take(spare=2, names=["a"])
    assert [behind(world, name) for name in ("high", "middle")] == ["a", "high"]
    assert world.state("low") is JobState.QUEUED


def test_a_place_has_no_more_ahead_of_it_than_it_does_in_a_moment() -> None:
    world = World()
    world.register(cpu=1)
    for number in range(2 * PREFETCH_CHAIN):
        world.submit(f"job-{number:02}", runs_ms=SHORT_MS // 4)
    world.take(spare=100)
    assert len(world.scheduler._t.executions) == 1 + 4


def test_a_place_has_only_so_many_ahead_of_it_however_short_they_are() -> None:
    world = World()
    world.register(cpu=1)
    for number in range(2 * PREFETCH_CHAIN):
        world.submit(f"job-{number:02}", runs_ms=1)
    world.take(spare=100)
    assert len(world.scheduler._t.executions) == 1 + PREFETCH_CHAIN


def test_workers_prefetch_in_turn() -> None:
    world = World()
    for worker_id in ("w1", "w2"):
        world.register(worker_id, cpu=1)
        world.submit(f"first-{worker_id}", runs_ms=5)
        run(world, f"first-{worker_id}", worker_id)
    for worker_id in ("w1", "w2"):
        world.poll(worker_id, spare=2)
    world.submit_all([job(name, runs_ms=5) for name in "ab"])
    assert world.execution("a").worker_id != world.execution("b").worker_id


def test_a_job_that_comes_while_all_are_busy_is_prefetched_at_once() -> None:
    world = with_short(1)
    poll_id = world.poll(spare=1, names=["a"])
    world.submit("b", runs_ms=5)
    answer = world.answers[poll_id]
    assert [(order.execution.job_id, order.is_prefetched) for order in answer.orders] == [
        ("b", True)
    ]


def test_limits_of_queues_keys_and_tenants_count_who_is_prefetched() -> None:
    world = World()
    world.register(cpu=1)
    world.queue("few", max_workers=2)
    world.queue("slow", rate_limit=RateLimit(2, 10 * SECOND))
    for queue in ("few", "slow"):
        for number in range(3):
            world.submit(f"{queue}-{number}", runs_ms=5, queue=queue)
    for number in range(2):
        world.submit(f"keyed-{number}", runs_ms=5, key="one")
    world.take(spare=20)
    began = [cell.execution.job_id for cell in world.scheduler._t.executions.values()]
    assert sorted(began) == ["few-0", "few-1", "keyed-0", "slow-0", "slow-1"]


def test_a_policy_that_plans_prefetches_nothing() -> None:
    world = World(policy=CONSERVATIVE)
    world.register(cpu=1)
    for name in "ab":
        world.submit(name, runs_ms=5)
    world.take(spare=4)
    assert world.state("b") is JobState.QUEUED


def test_under_the_default_policy_short_jobs_are_prefetched() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=1)
    for name in "abc":
        world.submit(name, runs_ms=5)
    world.take(spare=1)
    assert behind(world, "b") == "a"
    assert world.state("c") is JobState.QUEUED


# What becomes of prefetched executions


def test_a_returned_prefetch_waits_where_it_waited_and_the_try_does_not_count() -> None:
    world = with_short(3, spare=1, retry=retries(1))
    before = world.execution("b")
    world.take(completed=[world.report("b", "preempted")], names=["a"])
    ended = world.execution("b")
    assert (ended.state, ended.started_at) == (ExecutionState.PREEMPTED, None)
    assert (world.state("b"), world.life("b").reason) == (JobState.QUEUED, "returned")
    assert (world.life("b").attempt, world.life("b").losses) == (0, 0)
    assert world.take(completed=[world.report("a")]) == ["b"], "b came before c"
    assert world.execution("b").fence == before.fence + 1


def test_giving_back_twice_is_giving_back_once() -> None:
    world = with_short(2, spare=1)
    report = world.report("b", "preempted")
    world.step(Complete(completion=report))
    world.step(Complete(completion=report))
    assert world.state("b") is JobState.QUEUED


def test_what_has_begun_is_not_given_back() -> None:
    world = with_short(1)
    world.heartbeat(names=["a"])
    with pytest.raises(Conflict, match="has begun"):
        world.complete("a", "preempted")
    assert world.state("a") is JobState.RUNNING


def test_who_is_behind_one_that_was_given_back_moves_up() -> None:
    world = with_short(3, spare=2)
    world.complete("b", "preempted")
    assert (behind(world, "c"), holds(world)) == ("a", 1_000)
    world.complete("a")
    world.complete("c")
    assert world.state("c") is JobState.SUCCEEDED


def test_a_prefetched_one_that_is_called_off_ends_when_its_worker_says_so() -> None:
    world = with_short(3, spare=2)
    world.cancel("b")
    poll_id = world.poll(names=["a", "b", "c"])
    assert world.answers[poll_id].cancel == (world.execution("b").id,)
    world.complete("a")
    assert holds(world) == 1_000, "it may have begun before its worker heard of it"
    world.complete("b", "cancelled")
    assert world.state("b") is JobState.CANCELLED
    assert (holds(world), behind(world, "c")) == (1_000, "b")
    world.complete("c")
    assert holds(world) == 0


def test_a_worker_that_is_lost_loses_its_prefetched_executions_too() -> None:
    world = with_short(3, spare=2)
    world.advance(TTL + GRACE)
    assert [world.state(name) for name in "abc"] == [JobState.QUEUED] * 3
    assert [world.execution(name).state for name in "abc"] == [ExecutionState.LOST] * 3


def test_a_worker_that_leaves_gives_up_its_prefetched_executions_too() -> None:
    world = with_short(3, spare=2)
    world.step(Deregister(worker_id=WorkerId("w1")))
    assert [world.state(name) for name in "abc"] == [JobState.QUEUED] * 3


def test_a_prefetched_one_outlives_the_one_before_it_whose_lease_ran_out() -> None:
    world = with_short(2, spare=1)
    for _ in range(4):
        world.advance(TTL // 2)
        world.heartbeat(names=["b"])
    assert world.execution("a").state is ExecutionState.LOST
    assert (world.execution("b").state, holds(world)) == (ExecutionState.RUNNING, 1_000)


def test_a_draining_worker_is_given_nothing_to_prefetch() -> None:
    world = with_short(1)
    world.step(Drain(worker_id=WorkerId("w1")))
    world.submit("b", runs_ms=5)
    world.take(spare=4, names=["a"])
    assert world.state("b") is JobState.QUEUED


def test_a_restart_knows_who_waits_behind_whom_and_who_has_its_place() -> None:
    world = with_short(4, spare=3)
    world.complete("a")
    world.restart()
    assert holds(world) == 1_000
    world.complete("b")
    assert (holds(world), behind(world, "d")) == (1_000, "c")
    world.complete("d")
    world.complete("c")
    assert holds(world) == 0


def test_an_answer_that_was_lost_brings_the_prefetched_order_again() -> None:
    world = with_short(2, spare=1)
    poll_id = world.poll(names=["a"], spare=1)
    (order,) = world.answers[poll_id].orders
    assert (order.execution.job_id, order.is_prefetched) == ("b", True)
    poll_id = world.poll(completed=[world.report("a")], names=[], spare=1)
    (order,) = world.answers[poll_id].orders
    assert (order.execution.job_id, order.is_prefetched) == ("b", False), "its place is its own now"


def test_an_execution_written_before_there_was_prefetch_is_read() -> None:
    world = with_short(1)
    execution = world.execution("a")
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(execution))
    assert fields[-1] is None
    older = msgspec.msgpack.encode(fields[:-1])
    assert msgspec.msgpack.decode(older, type=Execution) == execution


def test_why_says_whose_place_a_prefetched_execution_waits_for() -> None:
    world = with_short(2, spare=1)
    (cause,) = world.why("b").causes
    assert (cause.code, cause.figures["behind"]) == ("ahead", world.execution("a").id)
    world.complete("a")
    assert world.causes("b") == ["running"]


def learned(world: World, ran_ms: int) -> None:
    """A name is known to be short."""
    for number in range(SHORT_RUNS):
        world.submit(f"learned-{number}", name="known")
        run(world, f"learned-{number}")
        world.advance(ran_ms)
        world.complete(f"learned-{number}")


@pytest.mark.parametrize("ends", [4, 16], ids=["one by one", "together"])
def test_the_call_that_tells_of_many_ends_is_answered_with_as_many_orders(ends: int) -> None:
    world = World()
    world.register(cpu=1)
    learned(world, 3)
    for number in range(100):
        world.submit(f"job-{number}", name="known")
    held = world.take(spare=PREFETCH_CHAIN)
    for _ in range(3):
        world.advance(3 * ends)
        over, held = held[:ends], held[ends:]
        given = world.take(completed=[world.report(one) for one in over], spare=ends)
        assert len(given) == ends, "those after the first seem to have run for no time"
        held += given


def test_work_ahead_of_a_place_is_counted_by_the_mean_of_what_ended_together() -> None:
    world = World()
    world.register(cpu=1)
    learned(world, 20)
    for number in range(100):
        world.submit(f"job-{number}", name="known")
    held = world.take(spare=PREFETCH_CHAIN)
    for _ in range(10):
        world.advance(40)
        over, held = held[:2], held[2:]
        held += world.take(completed=[world.report(one) for one in over], spare=PREFETCH_CHAIN)
        assert 4 <= len(held) - 1 <= PREFETCH_MS // 20 + 1


def test_two_long_runs_in_a_row_count_at_once_whatever_the_mean() -> None:
    world = World()
    world.register(cpu=1)
    learned(world, 1)
    for number in range(100):
        world.submit(f"job-{number}", name="known")
    held = world.take(spare=PREFETCH_CHAIN)
    for one in held[:2]:
        world.advance(SHORT_MS)
        assert world.take(completed=[world.report(one)], spare=PREFETCH_CHAIN) == []


def test_names_beyond_those_that_are_kept_go_whoever_is_heard_of() -> None:
    known = runtime_estimates.RuntimeEstimates(3)
    for number in range(6):  # as many as were written before a restart
        known.restore(RuntimeStats("default", f"name-{number}", (5, 5)))
    for _ in range(4):
        known.learn(job("a", name="name-5").spec.terms, [5])
    assert [key[1] for key in known._known] == ["name-3", "name-4", "name-5"]
