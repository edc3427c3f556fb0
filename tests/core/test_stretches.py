from __future__ import annotations

from itertools import groupby
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.commands import Completion, NewJob, Submit, Timing
from rota.core.jobs.spill import waits_for_worker_only
from rota.core.model import ExecutionState, JobId
from rota.core.policy import DEFAULT, STRICT, BackfillKind, OrderKind, Policy
from tests.core.asking import HOUR, NOON, job, retries
from tests.core.world import World, run

PATIENT = Timing(lease_ttl_ms=100 * HOUR)
POLICIES = (
    DEFAULT,
    STRICT,
    replace(DEFAULT, backfill=BackfillKind.GREEDY),
    replace(DEFAULT, order=OrderKind.ROUND_ROBIN),
    replace(DEFAULT, max_running=30),
)
JOB_TYPES: tuple[dict[str, Any], ...] = (
    {},
    {"priority": 5},
    {"name": "other", "retry": retries(2)},
    {"cpu": 2},
    {"cpu": 0.5, "memory": 1 << 20, "custom": {"seat": 1}},
    {"tenant": "b"},
    {"queue": "narrow"},
    {"queue": "elsewhere"},
    {"count": 7},
    {"key": "k", "limit": 3},
    {"preemptible": True},
    {"finish_by": None, "runs_ms": 500},
)
"""Jobs that alike runs are made of, and jobs that end them."""
runs_of_jobs = st.lists(
    st.tuples(st.sampled_from(JOB_TYPES), st.integers(1, 40)), min_size=1, max_size=5
)
ends = st.lists(st.sampled_from(("well", "well", "well", "badly", "twice")), max_size=60)


class AtOnce:
    """Jobs submitted in one call, and a worker that takes and reports them in one call each."""

    def __init__(self, policy: Policy, limit: int | None) -> None:
        self.world = World(policy=policy, timing=PATIENT, checked=False)
        self.world.queue("narrow", max_workers=limit)
        self.world.register(
            cpu=60, memory=1 << 30, custom={"seat": 20}, queues=("default", "narrow")
        )
        self._occupy_the_other()

    def _occupy_the_other(self) -> None:
        """A job that waits for the second worker has a reservation there; the first goes on."""
        self.world.register("w2", queues=("elsewhere",))
        self.world.submit("there", queue="elsewhere")
        run(self.world, "there", "w2")

    def submit(self, jobs: list[NewJob]) -> None:
        # Within one call, arrays and jobs with a key are queued after those that wait for nothing
        # but a worker: equal accounts and new classes would be in another order.
        for _, together in groupby(jobs, lambda new: waits_for_worker_only(new.spec, NOON)):
            self.world.step(Submit(jobs=tuple(together)))

    def take(self, most: int) -> list[JobId]:
        return self.world.take(max_orders=most)

    def report(self, reports: list[Completion]) -> None:
        self.world.poll(completed=reports, max_orders=0, wait_ms=0)


class OneByOne(AtOnce):
    """Each job is submitted, polled for and reported by itself."""

    def submit(self, jobs: list[NewJob]) -> None:
        for one in jobs:
            super().submit([one])

    def take(self, most: int) -> list[JobId]:
        started: list[JobId] = []
        while len(started) < most and (more := self.world.take(max_orders=1)):
            started += more
        return started

    def report(self, reports: list[Completion]) -> None:
        for report in reports:
            self.world.poll(completed=[report], max_orders=0, wait_ms=0)


def reports_of(world: World, taken: list[JobId], how: list[str]) -> list[Completion]:
    said: list[Completion] = []
    for job_id, end in zip(taken, [*how, *("well" for _ in taken)], strict=False):
        state = "failed" if end == "badly" else "succeeded"
        said += [world.report(job_id, state)] * (2 if end == "twice" else 1)
    return said


def snapshot(world: World) -> tuple[object, ...]:
    """What the ledger has and anybody can ask for; `check` compares sums with what they are of."""
    world.check()
    scheduler, now = world.scheduler, world.now
    return (
        world.ledger.jobs,
        world.ledger.executions,
        world.ledger.runtimes,
        {info.queue.name: info.depth for info in scheduler.queues()},
        scheduler.tenants(now),
        [(info.used, info.executions) for info in scheduler.workers(now)],
        [[one.shape for one in queue.shapes] for queue in scheduler.demand(HOUR, None, now).queues],
        scheduler.ready_since(),
        list(scheduler.reservations(now)),
    )


@settings(deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    limit=st.sampled_from((None, 4)),
    rounds=st.lists(st.tuples(runs_of_jobs, st.integers(0, 80), ends), min_size=1, max_size=3),
)
def test_jobs_that_start_and_end_together_equal_jobs_one_by_one(
    policy: Policy, limit: int | None, rounds: list[tuple[Any, int, list[str]]]
) -> None:
    many, single = AtOnce(policy, limit), OneByOne(policy, limit)
    for round_number, (jobs, most, how) in enumerate(rounds):
        for worker in (many, single):
            worker.world.now += 1_000
            asked = [
                job(f"{round_number}-{place}-{n}", **kind)
                for place, (kind, count) in enumerate(jobs)
                for n in range(count)
            ]
            worker.submit(asked)
            # Entries of cancelled jobs are between the others.
            worker.world.cancel(f"{round_number}-0-0")
        taken = many.take(most)
        assert taken == single.take(most)
        assert snapshot(many.world) == snapshot(single.world)
        for worker in (many, single):
            worker.world.now += 700
            worker.report(reports_of(worker.world, taken, how))
        assert snapshot(many.world) == snapshot(single.world)


@settings(deadline=None)
@given(
    counts=st.tuples(st.integers(1, 30), st.integers(0, 30)),
    spare=st.integers(1, 40),
    how=ends,
    seed=st.integers(0, 1_000),
    in_order=st.booleans(),
)
def test_reports_of_prefetched_executions_together_equal_reports_one_by_one(
    counts: tuple[int, int], spare: int, how: list[str], seed: int, *, in_order: bool
) -> None:
    """Each after the one whose place it takes, as a worker reports it; or in any order."""
    many, single = AtOnce(DEFAULT, None), OneByOne(DEFAULT, None)
    found: list[tuple[object, ...]] = []
    for worker in (many, single):
        world = worker.world
        world.register("w1", cpu=12)
        short, other = counts
        world.submit_all([job(f"a{n}", runs_ms=50) for n in range(short)])
        world.submit_all([job(f"b{n}", runs_ms=50, name="b") for n in range(other + 1)])
        taken = world.take(max_orders=20, spare=spare)
        if not in_order:
            taken = Random(seed).sample(taken, len(taken))
        world.now += 700
        worker.report(reports_of(world, taken, how))
        found.append((taken, *snapshot(world)))
    assert found[0] == found[1]


def fleet_with(policy: Policy, limit: int | None) -> World:
    """Workers of a few cpus, and a queue whose limit, if it has one, is never reached."""
    world = World(policy=policy, timing=PATIENT, checked=False)
    world.queue("default", max_workers=limit)
    world.queue("narrow", max_workers=4)
    for name, cpu in (("w1", 3), ("w2", 2), ("w3", 4), ("w4", 3)):
        world.register(name, cpu=cpu, memory=1 << 30, custom={"seat": 2})
    return world


def one_turn(
    world: World, held: dict[str, list[JobId]], ended: dict[str, list[tuple[int, str]]]
) -> list[list[JobId]]:
    """Some of the workers report and poll, all in one turn; returns what each of them gets."""
    polls = []
    for name, which in ended.items():
        mine = held.setdefault(name, [])
        gone = [(mine.pop(place % len(mine)), how) for place, how in which if mine]
        said = [report for job_id, how in gone for report in reports_of(world, [job_id], [how])]
        polls.append(world.asking(name, completed=said, max_orders=3, wait_ms=0))
    world.turn(polls)
    taken = [world.orders(poll.poll_id) for poll in polls]
    for name, got in zip(ended, taken, strict=True):
        held[name] += got
    return taken


@settings(deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    jobs=runs_of_jobs,
    rounds=st.lists(
        st.dictionaries(
            st.sampled_from(("w1", "w2", "w3", "w4")),
            st.lists(
                st.tuples(st.integers(0, 3), st.sampled_from(("well", "well", "badly", "twice"))),
                max_size=3,
            ),
            min_size=1,
        ),
        min_size=1,
        max_size=12,
    ),
)
def test_a_plain_job_starts_and_ends_like_one_on_the_general_path(
    policy: Policy, jobs: Any, rounds: list[dict[str, list[tuple[int, str]]]]
) -> None:
    """A queue with a limit has its limits checked at every step, though they are never reached."""
    plain, general = fleet_with(policy, None), fleet_with(policy, 10_000)
    mine: dict[str, list[JobId]] = {}
    theirs: dict[str, list[JobId]] = {}
    for number, ended in enumerate(rounds):
        for world in (plain, general):
            world.now += 700
            kind, count = jobs[number % len(jobs)]
            world.submit_all([job(f"{number}-{n}", **kind) for n in range(min(count, 8))])
        assert one_turn(plain, mine, ended) == one_turn(general, theirs, ended)
        assert snapshot(plain) == snapshot(general)


def test_jobs_that_arrive_at_once_fill_the_tightest_of_the_waiting_workers_first() -> None:
    world = World(policy=DEFAULT)
    for name, cpu in (("large", 64), ("small", 20)):
        world.register(name, cpu=cpu)
    large, small = world.poll("large"), world.poll("small")
    world.submit_all([job(f"j{n:02}") for n in range(40)])
    assert world.orders(small) == [f"j{n:02}" for n in range(20)]
    assert world.orders(large) == [f"j{n:02}" for n in range(20, 40)]


@pytest.mark.parametrize("policy", [DEFAULT, STRICT])
def test_an_urgent_job_starts_between_alike_jobs_at_its_place(policy: Policy) -> None:
    world = World(policy=policy)
    world.register(cpu=50)
    world.submit_all([job(f"a{n:02}") for n in range(30)])
    world.submit_all([job("b", cpu=2)])
    world.submit_all([job(f"c{n:02}") for n in range(30)])
    taken = world.take()
    assert taken[:31] == [*(f"a{n:02}" for n in range(30)), "b"]
    assert taken[31:] == [f"c{n:02}" for n in range(len(taken) - 31)]


def test_a_failure_among_successful_reports_is_not_counted_with_them() -> None:
    world = World()
    world.register(cpu=50)
    world.submit_all([job(f"j{n:02}") for n in range(30)])
    taken = world.take()
    said = [world.report(job_id) for job_id in taken]
    said[7] = world.report(taken[7], "failed")
    said[9] = Completion(
        execution_id=said[9].execution_id, fence=99, state=ExecutionState.SUCCEEDED
    )
    poll = world.poll(completed=said, wait_ms=0)
    assert world.answers[poll].lost == (said[9].execution_id,)
    states = [world.state(job_id) for job_id in taken]
    assert states == ["succeeded"] * 7 + ["failed", "succeeded", "running"] + ["succeeded"] * 20
